"""A rolling upgrade under load: engines that lack a capability make room for engines that have it.

Ordinary requests must not notice. Requests with `vllm_xargs` are refused while the fleet is mixed, and
no engine that lacks the capability may ever see one. FAIRLEAD_LONG=1 runs it for a minute instead of
about ten seconds.
"""

import http.client
import json
import os
import threading
import time
from collections import Counter

import pytest
from fairlead import CardFolder, wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
SECONDS = 60 if os.environ.get("FAIRLEAD_LONG") else 8
CLIENTS = 32
ENGINES = 4  # of either kind

ORDINARY = {"model": "demo", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 4}
XARGS = {**ORDINARY, "vllm_xargs": {"upgrade": 1}}

OK = (200, None)
MIXED = (503, "capability_unavailable")
NONE = (400, "capability_unsupported")


def post(connection, body):
    """Status, `error.code` and words of an answer."""
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"content-type": "application/json"})
    answer = connection.getresponse()
    data = json.loads(answer.read())
    if answer.status == 200:
        return 200, None, data["choices"][0]["message"]["content"].strip()
    return answer.status, data["error"]["code"], ""


class Load:
    """Clients that send until they are stopped, ordinary and `vllm_xargs` requests by turns. Every
    outcome is kept with what the fleet was from the request's begin to its end."""

    def __init__(self, address, *allowed):
        self.address = address
        self._phases = [set(allowed)]  # outcomes of `vllm_xargs` requests, one set after the other
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.ordinary = Counter()
        self.xargs = Counter()
        self.words = {False: Counter(), True: Counter()}  # of answers without and with vllm_xargs
        self.wrong = []
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def phase(self, *allowed):
        """From now on these are the outcomes of `vllm_xargs` requests."""
        with self._lock:
            self._phases.append(set(allowed))

    def _run(self, number):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        turn = number
        while not self._stop.is_set():
            turn += 1
            with_xargs = turn % 3 == 0
            first = len(self._phases) - 1
            words = ""
            try:
                *outcome, words = post(connection, XARGS if with_xargs else ORDINARY)
                outcome = tuple(outcome)
            except (OSError, http.client.HTTPException) as error:
                outcome = ("failed", repr(error))
                connection.close()
            with self._lock:
                allowed = set().union(*self._phases[first:]) if with_xargs else {OK}
                (self.xargs if with_xargs else self.ordinary)[outcome] += 1
                self.words[with_xargs][words] += 1
                if outcome not in allowed:
                    self.wrong.append((with_xargs, outcome, first, len(self._phases) - 1))
        connection.close()


class Fleet:
    """Engines of both kinds and their cards. Each kind answers with a word of its own."""

    def __init__(self, launcher, folder, server):
        self.launcher = launcher
        self.folder = folder
        self.cards = CardFolder(folder / "cards")
        self.server = server
        self.old = [(f"old-{i}", self._engine("old", "--without", "vllm-xargs")) for i in range(ENGINES)]
        self.new = [(f"new-{i}", self._engine("new")) for i in range(ENGINES)]
        self.present = {}

    def _engine(self, word, *flags):
        script = self.folder / f"{word}.jsonl"
        ids = self.launcher.run_lines("tokenize", "--model", FOLDER, lines=[{"text": word}])[0]["ids"]
        script.write_text(json.dumps(ids) + "\n")
        return self.launcher.mock_engine("--reply", f"script:{script}", "--speedup-ratio", "0", *flags,
                                         model="demo", backend="vllm-http")

    def set(self, *, join=(), leave=()):
        """Adds and removes cards, in the order of their names here, and waits until it is seen."""
        for name, engine in join:
            self.present[name] = engine
            self.cards.put(name, f"vllm-http={engine.url}")
        for name in leave:
            del self.present[name]
            self.cards.remove(name)
        wanted = {engine.url for engine in self.present.values()}

        def seen():
            instances = self.server.get("/health").json()["instances"]
            return {i["endpoint"] for i in instances if i["healthy"]} == wanted

        wait_until(seen, 30, f"workers {sorted(wanted)}")


def settle(server, expected):
    """Waits until every reactor of the frontend answers a `vllm_xargs` request so."""

    def all_agree():
        for _ in range(8):  # each on a connection of its own, which go to the reactors by turns
            connection = http.client.HTTPConnection(server.http, timeout=60)
            outcome = post(connection, XARGS)
            connection.close()
            if outcome[:2] != expected:
                return None
        return True

    wait_until(all_agree, 30, f"{expected} everywhere")


def taken(engine):
    """Requests an engine took, without the questions of probes."""
    state = engine.state()
    return state["requests_total"] - state["rejected_total"]


def pace(begin, share):
    """Lets the load run until its share of the time is over."""
    time.sleep(max(0.0, begin + SECONDS * share - time.monotonic()))


def upgrade(fleet, load, server, order):
    """Replaces the older engines one by one; how many requests those have taken in the end."""
    begin = time.monotonic()
    taken_by_old = 0
    for step, ((old_name, old), newcomer) in enumerate(zip(fleet.old, fleet.new, strict=True)):
        pace(begin, step / (ENGINES + 1))
        after = OK if step == ENGINES - 1 else MIXED
        if step == 0 and order == "older-first":
            load.phase(NONE, MIXED)
        elif after == OK:
            load.phase(MIXED, OK)
        # By turns the newcomer is there before the older one leaves, and after.
        changes = [{"join": [newcomer]}, {"leave": [old_name]}]
        if step == 0 and order == "capable-first":
            changes = changes[1:]  # it is there already
        for change in changes if step % 2 == 0 else reversed(changes):
            fleet.set(**change)
        settle(server, after)
        load.phase(after)
        old.wait_idle(30)
        taken_by_old += taken(old)
        old.stop()
    pace(begin, 1)
    return taken_by_old


@pytest.mark.timeout(SECONDS + 170)
@pytest.mark.parametrize("order", ["older-first", "capable-first"])
def test_an_upgrade_is_not_noticed_by_ordinary_requests(launcher, tmp_path, order):
    cards = tmp_path / "cards"
    server = launcher.serve([], "--discovery-backend", "file", "--discovery-dir", cards, "--threads", "2",
                            model_path=FOLDER)
    fleet = Fleet(launcher, tmp_path, server)
    if order == "older-first":
        fleet.set(join=fleet.old)
        settle(server, NONE)
    else:
        fleet.set(join=fleet.new[:1])
        settle(server, OK)
        fleet.set(join=fleet.old)
        settle(server, MIXED)
    assert [taken(engine) for _, engine in fleet.old] == [0] * ENGINES
    new_before = sum(taken(engine) for _, engine in fleet.new)
    xargs_before = sum(engine.state()["requests_with_extra_args"] for _, engine in fleet.new)
    with Load(server.http, NONE if order == "older-first" else MIXED) as load:
        taken_by_old = upgrade(fleet, load, server, order)
    # The probes of `settle` are not part of the load.
    assert load.wrong == [], load.wrong[:10]
    assert set(load.ordinary) == {OK} and load.ordinary[OK] > 20 * SECONDS, load.ordinary
    assert set(load.xargs) == {MIXED, OK} | ({NONE} if order == "older-first" else set()), load.xargs

    # Every answer says which kind of engine gave it. What older engines took is what they answered
    # to ordinary requests: they saw no other.
    assert set(load.words[True]) == {"", "new"}, load.words
    assert taken_by_old == load.words[False]["old"] > 0
    settled = sum(engine.state()["requests_with_extra_args"] for _, engine in fleet.new) - xargs_before
    assert settled >= load.xargs[OK] > 0
    new_taken = sum(taken(engine) for _, engine in fleet.new) - new_before
    assert new_taken == load.words[False]["new"] + settled
    for _, engine in fleet.new:
        engine.wait_idle()
        assert engine.state()["requests_with_extra_args"] > 0
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    server.wait_metric("fairlead_frontend_worker_inflight_requests", 0)
