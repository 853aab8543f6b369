"""A workload that lives on token ids: eight engines, extra arguments, and the distribution of every token.

The short form runs everywhere; FAIRLEAD_LONG=1 runs the concurrent part for a minute.
"""

import asyncio
import json
import math
import os
import time
from collections import Counter

import httpx
import pytest
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
ENGINES = 8
REQUESTS = 231
CLIENTS = 32
SECONDS = 60 if os.environ.get("FAIRLEAD_LONG") == "1" else 5
TOP = 20


def vocabulary() -> int:
    """Embedding rows of the demo model."""
    return json.loads((ROOT / "share/demo/config.json").read_text())["vocab_size"]


VOCABULARY = vocabulary()


def token_logprob(token: int) -> float:
    """The formula of the simulated engines."""
    return -0.1 * (token % 10 + 1)


def candidate_logprob(token: int, candidate: int) -> float:
    """0.1 less per id that the candidate is above the token, around the end of the vocabulary."""
    return token_logprob(token) - 0.1 * ((candidate - token) % VOCABULARY)


def near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4)


def id_of(text: str) -> int:
    kind, _, number = text.partition(":")
    assert kind == "token_id", text
    return int(number)


class Case:
    """One request of the workload; everything in it follows from its number."""

    def __init__(self, number: int):
        self.chat = number % 3 == 0
        self.tokens = 1 + number % 7
        self.stream = number % 5 == 4
        # Every fourth one gets what the engine would say anyway, the others force the token.
        self.forced = None if number % 4 == 3 else 1 + (number * 37) % (VOCABULARY - 2)
        start = self.forced if self.forced is not None else 1000
        self.chosen = [] if number % 2 else [(start + step) % VOCABULARY for step in (0, 1, 5, 11)]
        xargs = {"case": number, "list": [number, "x", True, 0.5]}
        if self.forced is not None:
            xargs["target_token"] = self.forced
        self.body = {"model": "demo", "max_tokens": self.tokens, "return_tokens_as_token_ids": True,
                     "ignore_eos": True, "vllm_xargs": xargs}
        if self.stream:
            self.body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.chosen:
            self.body["logprob_token_ids"] = self.chosen
        if self.chat:
            self.body |= {"messages": [{"role": "user", "content": f"case {number}"}], "logprobs": True,
                          "top_logprobs": TOP}
        else:
            self.body |= {"prompt": [5 + (number * step) % 500 for step in range(1, 40)], "logprobs": TOP}

    @property
    def route(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def fold(self, text: str) -> dict:
        """A streamed answer as one document; an error inside it has no choices and fails the test."""
        frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame.startswith("data: ")]
        assert frames[-1] == "[DONE]", text
        chunks = [json.loads(frame) for frame in frames[:-1]]
        folded: dict[str, list] = {}
        for chunk in chunks:
            for choice in chunk["choices"]:
                for key, value in (choice.get("logprobs") or {}).items():
                    if isinstance(value, list):
                        folded.setdefault(key, []).extend(value)
        return {"choices": [{"logprobs": folded}], "usage": chunks[-1]["usage"]}

    def rows(self, choice: dict) -> list[tuple[int, float, dict[int, float]]]:
        """Token, its log-probability, and the distribution, per position."""
        logprobs = choice["logprobs"]
        if self.chat:
            return [(id_of(entry["token"]), entry["logprob"],
                     {id_of(top["token"]): top["logprob"] for top in entry["top_logprobs"]})
                    for entry in logprobs["content"]]
        assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"])
        return [(id_of(token), logprob, {id_of(key): value for key, value in top.items()})
                for token, logprob, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                               logprobs["top_logprobs"], strict=True)]

    def check(self, text: str) -> None:
        """Every position says what the engine's formula says."""
        answer = self.fold(text) if self.stream else json.loads(text)
        rows = self.rows(answer["choices"][0])
        assert len(rows) == self.tokens == answer["usage"]["completion_tokens"]
        for token, logprob, top in rows:
            if self.forced is not None:
                assert token == self.forced
            assert near(logprob, token_logprob(token)), (token, logprob)
            expected = self.chosen or [(token + step) % VOCABULARY for step in range(TOP)]
            assert set(expected) <= set(top) <= {*expected, token, (token + TOP) % VOCABULARY}, (token, top)
            for candidate, value in top.items():
                assert near(value, candidate_logprob(token, candidate)), (token, candidate, value)


@pytest.fixture(scope="module", params=["round-robin", "kv"])
def fleet(module_launcher, request):
    flags = ["--speedup-ratio", "0", "--reply", "echo", "--vocab-size", VOCABULARY]
    routing = ["--router-mode", request.param]
    if request.param == "kv":
        flags += ["--block-size", "16", "--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0"]
        routing += ["--kv-cache-block-size", "16"]  # not told by every HTTP server
    engines = [module_launcher.mock_engine(*flags, model="demo", backend="vllm-http") for _ in range(ENGINES)]
    server = module_launcher.serve(engines, *routing, backend="vllm-http", model_path=FOLDER)
    return engines, server, request.param


def check_views(server) -> None:
    """In kv mode every engine's cache is followed by its events, and they tell the truth."""
    metrics = server.metrics()
    seen = {sample.labels["state"] for sample in metrics.samples("fairlead_frontend_kv_view_state")}
    assert seen <= {"live", "no_events"} and "live" in seen
    assert metrics.value("fairlead_frontend_kv_misprediction_ratio") < 0.2


def test_every_distribution_is_the_engines(fleet):
    engines, server, mode = fleet
    before = [engine.state()["finished_total"] for engine in engines]
    with httpx.Client(base_url=server.base_url, trust_env=False, timeout=30) as client:
        for number in range(REQUESTS):
            case = Case(number)
            answer = client.post(case.route, json=case.body)
            assert answer.status_code == 200, f"case {number}: {answer.text}"
            case.check(answer.text)
    counts = [engine.state()["finished_total"] - first for engine, first in zip(engines, before, strict=True)]
    assert sum(counts) == REQUESTS
    if mode == "kv":
        check_views(server)
    else:
        assert max(counts) - min(counts) <= 1, "the engines share the work"
    for engine in engines:
        engine.wait_idle()


def test_many_clients_at_once_see_no_failure(fleet):
    engines, server, mode = fleet
    outcomes: Counter[int] = Counter()

    async def one_client(client: httpx.AsyncClient, index: int, until: float) -> None:
        number = index
        while time.monotonic() < until:
            case = Case(number)
            answer = await client.post(case.route, json=case.body)
            outcomes[answer.status_code] += 1
            assert answer.status_code == 200, f"case {number}: {answer.text}"
            case.check(answer.text)
            number += CLIENTS

    async def run() -> None:
        limits = httpx.Limits(max_connections=CLIENTS)
        async with httpx.AsyncClient(base_url=server.base_url, trust_env=False, timeout=60, limits=limits) as client:
            until = time.monotonic() + SECONDS
            await asyncio.gather(*(one_client(client, i, until) for i in range(CLIENTS)))

    asyncio.run(run())
    assert set(outcomes) == {200} and outcomes[200] >= CLIENTS
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    if mode == "kv":
        check_views(server)
    for engine in engines:
        engine.wait_idle()
