"""Engine families that tests of failures run for, and the helpers those tests share."""

import itertools
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

from fairlead.launcher import ROOT, Launcher, MockEngine, Serve
from fairlead.sglang_api import SglangApi, chain_token
from fairlead.vllm_api import Api, Formula
from fairlead.waiting import scaled, wait_until

FOLDER = str(ROOT / "share/demo")
SEED = 42  # of the simulated engines
VOCABULARY = 2612  # of the model `demo`
TEXTS = range(256, 2607)  # its tokens that are neither special nor parts of characters
GAUGES = ("inflight_requests", "queued_requests", "worker_inflight_requests", "worker_active_decode_blocks",
          "worker_active_prefill_tokens", "router_queue_pending_requests")


class Family(NamedTuple):
    """Engines that speak one native interface."""

    backend: str
    prefill_flags: tuple[object, ...] = ()

    def engine(self, launcher: Launcher, *flags: object, **options: Any) -> MockEngine:
        """A simulated engine without delays of the model `demo`."""
        return launcher.mock_engine("--speedup-ratio", "0", "--vocab-size", VOCABULARY, *flags,
                                    **{"model": "demo", "backend": self.backend, **options})

    def serve(self, launcher: Launcher, engines, *flags: object, **options: Any) -> Serve:
        """A frontend of engines, proxies of them, or URLs."""
        urls = [engine if isinstance(engine, str | MockEngine) else engine.url for engine in engines]
        return launcher.serve(urls, *flags, **{"backend": self.backend, "model_path": FOLDER, **options})


    def pairs(self, launcher: Launcher, prefills: int, decodes: int, *flags: object) -> tuple[list[MockEngine], ...]:
        """Prefill and decode engines."""
        return ([self.engine(launcher, "--role", "prefill", *self.prefill_flags, *flags) for _ in range(prefills)],
                [self.engine(launcher, "--role", "decode", *flags) for _ in range(decodes)])

    def abort(self, engine: MockEngine, stubs, name: str) -> None:
        """Aborts a request past the frontend, as an operator would."""
        api = (SglangApi if self.backend == "sglang" else Api)(engine, stubs)
        try:
            if self.backend == "sglang":
                api.abort(request_id(name))
            else:
                api.control.Abort(api.control_pb.AbortRequest(request_ids=[request_id(name)]), timeout=scaled(10))
        finally:
            api.channel.close()

    def serve_pairs(self, launcher: Launcher, prefills, decodes, *flags: object, **options: Any) -> Serve:
        """A frontend of prefill and decode engines or proxies of them, all in routing."""
        named = [flag for engine in prefills for flag in ("--prefill-engine-url", engine.url)]
        server = self.serve(launcher, decodes, *named, *flags, **options)
        wait_healthy(server, len(prefills) + len(decodes))
        return server


# Prefill engines keep a cache until it was fetched.
FAMILIES = [Family("vllm", ("--kv-transfer-listen", "127.0.0.1:0", "--kv-transfer-timeout-ms", "5000")),
            Family("sglang", ("--bootstrap-listen", "127.0.0.1:0", "--bootstrap-timeout-ms", "5000"))]


def request_id(name: str) -> str:
    """The id that engines see of the request that a test calls so."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def formula(name: str, count: int) -> list[int]:
    """What a simulated engine answers to the request of that name."""
    return [token % VOCABULARY for token in Formula(SEED, request_id(name)).tokens(count)]


def chain(prompt: list[int], count: int) -> list[int]:
    """What engines with `--reply chain` answer to a prompt: each token follows from its place and the one before, so
    that an answer may be gone on with anywhere."""
    tokens = [prompt[-1]]
    for position in range(len(prompt), len(prompt) + count):
        tokens.append(chain_token(SEED, position, tokens[-1]) % VOCABULARY)
    return tokens[1:]


def plain(name: str, count: int) -> str:
    """A name whose first tokens are whole characters: each one is sent on when it comes, with its text."""
    names = (f"{name}-{i}" for i in itertools.count())
    return next(each for each in names if all(token in TEXTS for token in formula(each, count)))


def body(max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    """A completion by token ids that ends by length and shows its ids."""
    return {"model": "demo", "prompt": [5, 6, 7], "max_tokens": max_tokens, "ignore_eos": True,
            "return_token_ids": True, **fields}


def complete(server: Serve, name: str | None = None, **fields: Any) -> httpx.Response:
    """The answer to a completion, of that name if any."""
    headers = {"request-id": request_id(name)} if name else {}
    return server.post("/v1/completions", body(**fields), headers=headers)


def send(server: Serve, fields: dict[str, Any], name: str | None = None) -> socket.socket:
    """A connection on which a streaming completion was asked for; the answer is the caller's to read."""
    host, port = server.http.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), scaled(20))
    data = json.dumps({**fields, "stream": True}).encode()
    named = f"Request-Id: {request_id(name)}\r\n" if name else ""
    connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{named}"
                       f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


class Stream:
    """A streamed completion as the client sees it; reading it never fails but by the end of the connection."""

    def __init__(self, server: Serve, fields: dict[str, Any], name: str | None = None,
                 path: str = "/v1/completions"):
        # Without `verify` every client would read all authorities of the machine.
        self._client = httpx.Client(base_url=server.base_url, trust_env=False, timeout=scaled(60), verify=False)
        request = self._client.build_request("POST", path, json={
            "stream": True, "stream_options": {"include_usage": True}, **fields},
            headers={"request-id": request_id(name)} if name else {})
        self._response = self._client.send(request, stream=True)
        self.status = self._response.status_code
        self.frames: list[str] = []
        self.chunks: list[dict[str, Any]] = []
        self.tokens: list[int] = []
        self._lines: Iterator[str] = self._response.iter_lines()

    def read_frame(self) -> str | None:
        """The next `data:` line without its beginning; none at the end."""
        for line in self._lines:
            if line.startswith("data: "):
                self.frames.append(line.removeprefix("data: "))
                if self.frames[-1] != "[DONE]":
                    self.chunks.append(json.loads(self.frames[-1]))
                    self.tokens += [token for choice in self.chunks[-1].get("choices", [])
                                    for token in choice.get("token_ids") or []]
                return self.frames[-1]
        return None

    def read_tokens(self, count: int) -> "Stream":
        """Reads until so many tokens have come."""
        while len(self.tokens) < count:
            assert self.read_frame() is not None, f"ended behind {self.frames}"
        return self

    def read_all(self) -> "Stream":
        """Reads to the end and leaves."""
        if self.status != 200:
            self._response.read()
        while self.read_frame() is not None:
            pass
        self.close()
        return self

    def close(self) -> None:
        """Leaves, read to the end or not."""
        self._response.close()
        self._client.close()

    @property
    def finish_reasons(self) -> list[str]:
        return [choice["finish_reason"] for chunk in self.chunks for choice in chunk.get("choices", [])
                if choice.get("finish_reason")]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [chunk["error"] for chunk in self.chunks if "error" in chunk]

    @property
    def usage(self) -> dict[str, Any]:
        return next(chunk["usage"] for chunk in reversed(self.chunks) if chunk.get("usage"))

    @property
    def done(self) -> bool:
        """Ended as every stream must."""
        return self.frames[-1:] == ["[DONE]"] and self.frames.count("[DONE]") == 1

    def expect_complete(self, tokens: list[int]) -> None:
        """A whole answer: these tokens, one end by length, no error."""
        assert (self.status, self.errors, self.done) == (200, [], True), self.frames[-3:]
        assert self.tokens == tokens
        assert self.finish_reasons == ["length"]
        assert self.usage["completion_tokens"] == len(tokens)

    def expect_failed(self, prefix: list[int], *codes: str) -> None:
        """A prefix, then one error object of one of the codes, then the end; nothing that looks like success."""
        assert self.status == 200
        assert self.tokens == prefix
        assert self.done, self.frames[-3:]
        assert [error["code"] in codes for error in self.errors] == [True], self.errors
        assert self.finish_reasons == []
        assert "error" in json.loads(self.frames[-2])


def expect_idle(server: Serve, *engines: MockEngine, timeout: float = 15.0) -> None:
    """Nothing is left: not on the engines, not in any gauge of the frontend."""
    for engine in engines:
        state = engine.wait_state(timeout, running=0, waiting=0, kv_blocks_used=0)
        ended = sum(state[key] for key in ("finished_total", "aborted_total", "faulted_total", "rejected_total"))
        assert state["requests_total"] <= ended, state

    def left() -> dict[str, float]:
        metrics = server.metrics()
        return {name: value for name in GAUGES if (value := metrics.value(f"fairlead_frontend_{name}")) != 0}
    wait_until(lambda: not left(), timeout, f"gauges to be 0: {left()}")


def healthy(server: Serve) -> list[str]:
    """URLs of the engines in routing."""
    return [i["endpoint"] for i in server.get("/health").json()["instances"] if i["healthy"]]


def wait_healthy(server: Serve, count: int, timeout: float = 20.0) -> None:
    """Waits until so many engines are in routing."""
    wait_until(lambda: len(healthy(server)) == count, timeout, f"{count} engines in routing")
