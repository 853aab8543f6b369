"""Prefill and decode engines behind one frontend."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairlead.families import SEED, VOCABULARY, Family, expect_idle, request_id, wait_healthy
from fairlead.launcher import Launcher, MockEngine, Serve
from fairlead.vllm_api import Formula
from fairlead.waiting import wait_until

TOKEN_ROUTE = Family("vllm-http")  # answers of its decode engines come whole
PAIR = re.compile(r"prefill and decode request_id=(\S+) prefill_worker_id=(\d+) prefill_dp_rank=(\d+) "
                  r"decode_worker_id=(\d+) decode_dp_rank=(\d+)")
RELEASES = "fairlead_frontend_disaggregation_releases"


class Pair(NamedTuple):
    """One line of the log: who computes the prompt of a request, and who answers it."""

    request_id: str
    prefill: int
    prefill_rank: int
    decode: int
    decode_rank: int


class Pools:
    """So many prefill and decode engines, and a frontend of them."""

    def __init__(self, family: Family, launcher: Launcher, prefill: int = 1, decode: int = 1, *,
                 flags: Sequence[object] = (), prefill_flags: Sequence[object] = (),
                 decode_flags: Sequence[object] = (), serve_flags: Sequence[object] = (), **options: Any):
        self.family = family
        self.launcher = launcher
        self.flags = {"prefill": (*flags, *prefill_flags), "decode": (*flags, *decode_flags)}
        self.prefill = [self.engine("prefill") for _ in range(prefill)]
        self.decode = [self.engine("decode") for _ in range(decode)]
        self.server = serve(family, launcher, self.prefill, self.decode, *serve_flags, **options)
        wait_healthy(self.server, prefill + decode)

    def engine(self, role: str, **options: Any) -> MockEngine:
        """One more engine, which the frontend does not know, or one at the address of an old one."""
        return self.family.engine(self.launcher, "--role", role, *self.flags[role], **options)

    def restart(self, role: str, old: MockEngine) -> MockEngine:
        """Another engine in the place of one that has died."""
        new = self.engine(role, listen=old.address)
        mine = self.prefill if role == "prefill" else self.decode
        mine[mine.index(old)] = new
        return new

    @property
    def engines(self) -> list[MockEngine]:
        return [*self.prefill, *self.decode]

    def pairs(self, count: int, after: int = 0) -> list[Pair]:
        """All lines of pairs since a mark of the log, once there are so many; fails on more."""
        def seen() -> list[Pair]:
            return [Pair(found[1], *map(int, found.groups()[1:]))
                    for found in PAIR.finditer(self.server.process.log_text(after))]
        wait_until(lambda: len(seen()) >= count, 10, f"{count} pairs")
        assert len(seen()) == count, seen()
        return seen()

    def ids(self) -> dict[str, int]:
        """Worker ids by URL."""
        return {i["endpoint"]: i["worker_id"] for i in self.server.get("/health").json()["instances"]}

    def id_of(self, engine: MockEngine) -> int:
        return self.ids()[engine.url]

    def expect_idle(self) -> None:
        """Nothing is left on any engine that runs, nor in any gauge."""
        expect_idle(self.server, *(engine for engine in self.engines if engine.process.running()))
        self.server.wait_metric(f"{RELEASES}_pending", 0)

    def released(self, outcome: str) -> float:
        """Decode legs that were kept on for their transfer, by how that ended."""
        return self.server.metrics().value(f"{RELEASES}_total", outcome=outcome)


def serve(family: Family, launcher: Launcher, prefill: Sequence[MockEngine | str], decode: Sequence[MockEngine | str],
          *flags: object, **options: Any) -> Serve:
    """A frontend of prefill and decode engines, told apart as the family does: by the operator, or by themselves."""
    if family.backend == "sglang":
        return family.serve(launcher, [*decode, *prefill], *flags, **options)
    urls = [engine.url if isinstance(engine, MockEngine) else engine for engine in prefill]
    return family.serve(launcher, decode, *(flag for url in urls for flag in ("--prefill-engine-url", url)), *flags,
                        **options)


def asked(engine: MockEngine) -> list[dict[str, Any]]:
    """What the engine was asked to generate, oldest first; the looks of a probe are no requests."""
    return [request for request in engine.state()["last_requests"] if request.get("token_ids") or request.get("input_ids")]


def formula_of(id_: str, count: int) -> list[int]:
    """What a simulated engine answers to the id that it sees."""
    return [token % VOCABULARY for token in Formula(SEED, id_).tokens(count)]


def sequence_formula(name: str, index: int, count: int) -> list[int]:
    """That of one of several sequences of the request of that name."""
    return formula_of(f"{request_id(name)}-{index}", count)
