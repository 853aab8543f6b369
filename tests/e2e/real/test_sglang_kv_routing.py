"""Routing by KV cache over two real SGLang engines: what is predicted is what the engines report."""

import random
import re

import pytest
from fairlead import wait_until
from fairlead.real_sglang import FOLDER, MODEL, PAGE, sglang_engines

BEST = re.compile(r"\[ROUTING\] Best: worker_(\d+) dp_rank=0 with (\d+)/(\d+) blocks overlap")
SMALL = {"flags": ["--max-total-tokens", str(80 * PAGE)]}


class Pair:
    """Two engines, 80 pages each, and a frontend in kv mode that believes events only."""

    def __init__(self, engines, launcher):
        self.engines = engines
        self.server = launcher.serve([engine.grpc for engine in engines], "--router-mode", "kv",
                                     "--router-predicted-ttl-secs", "0", backend="sglang", model_path=FOLDER,
                                     ready_timeout=60)
        wait_until(lambda: len(self.ids()) == 2, 60, "both engines in routing")

    def ids(self):
        return {i["endpoint"]: i["worker_id"] for i in self.server.get("/health").json()["instances"] if i["healthy"]}

    def route(self, prompt, worker=None):
        headers = {"x-dynamo-worker-instance-id": str(worker)} if worker else {}
        answer = self.server.post("/v1/route", {"model": MODEL, "prompt": prompt, "max_tokens": 1}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]

    def complete(self, prompt):
        """(worker, predicted cached tokens, reported cached tokens) of a request; waits until its blocks are known."""
        mark = self.server.process.log_mark()
        answer = self.server.post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 1,
                                                      "temperature": 0}, timeout=180)
        assert answer.status_code == 200, answer.text
        found = self.server.process.wait_log(BEST.pattern, 10, mark)
        worker, overlap, total = map(int, found.groups())
        assert total == -(-len(prompt) // PAGE)
        wait_until(lambda: self.route(prompt, worker)["confirmed_blocks"] == len(prompt) // PAGE, 30,
                   "the events of the prompt's blocks")
        # An engine always computes the last token.
        predicted = min(overlap, (len(prompt) - 1) // PAGE) * PAGE
        return worker, predicted, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory, module_launcher):
    with sglang_engines(tmp_path_factory.mktemp("sglang-kv"), SMALL, SMALL) as engines:
        yield Pair(engines, module_launcher)


def prompt(number, blocks, tail):
    rng = random.Random(number)
    return [rng.randrange(100, 40000) for _ in range(blocks * PAGE + tail)]


def test_predictions_equal_what_the_engines_report(pair):
    """200 requests over 14 conversations, more than both caches hold, with a flush in between."""
    rng = random.Random(4)
    stored = [prompt(number, 6 + number % 8, 1 + number) for number in range(14)]
    homes, wrong, reused = {}, [], 0
    for turn in range(200):
        number = rng.randrange(len(stored))
        asked = stored[number]
        if rng.random() < 0.2:  # a conversation goes on
            asked = asked[:len(asked) - rng.randrange(len(asked) // 2)] + prompt(1000 + turn, 1, rng.randrange(PAGE))
        if turn == 120:
            for engine in pair.engines:
                engine.flush()
            # The engines may announce it with their next step, so the first prediction of each may be wrong.
            for worker in pair.ids().values():
                fresh = prompt(5000 + worker % 1000, 1, 3)
                pair.server.post("/v1/completions", {"model": MODEL, "prompt": fresh, "max_tokens": 1},
                                 headers={"x-dynamo-worker-instance-id": str(worker)}, timeout=180)
                wait_until(lambda w=worker, f=fresh: pair.route(f, w)["confirmed_blocks"] == 1, 30, "the flush")
        worker, predicted, reported = pair.complete(asked)
        reused += reported > 0
        if predicted != reported:
            wrong.append((turn, predicted, reported))
        if asked is stored[number]:
            homes[number] = worker
    assert wrong == []
    assert reused >= 60
    assert len(set(homes.values())) == 2
    metrics = pair.server.metrics()
    assert metrics.value("fairlead_frontend_kv_believed_cached_tokens_total") == metrics.value(
        "fairlead_frontend_kv_reported_cached_tokens_total")
    assert metrics.value("fairlead_frontend_kv_misprediction_ratio") == 0


def test_a_frontend_that_starts_later_learns_by_replay(pair, launcher):
    warm = prompt(77, 5, 3)
    worker, _, _ = pair.complete(warm)
    late = launcher.serve([engine.grpc for engine in pair.engines], "--router-mode", "kv", backend="sglang",
                          model_path=FOLDER, ready_timeout=60)

    def known():
        answer = late.post("/v1/route", {"model": MODEL, "prompt": warm, "max_tokens": 1},
                           headers={"x-dynamo-worker-instance-id": str(worker)})
        return answer.status_code == 200 and answer.json()["choices"][0]["confirmed_blocks"] == 5

    wait_until(known, 30, "the replayed blocks")


def test_an_engine_that_restarts_is_believed_empty(pair, tmp_path_factory):
    warm = prompt(78, 5, 3)
    worker, _, _ = pair.complete(warm)
    url = next(url for url, found in pair.ids().items() if found == worker)
    victim = next(engine for engine in pair.engines if engine.grpc == url)
    victim.stop()
    wait_until(lambda: worker not in pair.ids().values(), 60, "the engine to leave")
    with sglang_engines(tmp_path_factory.mktemp("sglang-kv-again"), {**SMALL, "at": victim.at}):
        wait_until(lambda: worker in pair.ids().values(), 120, "the engine to come back")
        wait_until(lambda: pair.route(warm, worker)["confirmed_blocks"] == 0, 30, "an empty view")
        # The other engine never had it: whoever gets it now computes it.
        assert pair.complete(warm)[1:] == (0, 0)
