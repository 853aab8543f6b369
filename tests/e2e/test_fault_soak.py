"""Many clients for a while, under random failures of every connection to an engine and random leaving.

Every request ends with the whole right answer or with one clear error, and afterwards nothing is left: not in a gauge, not
on an engine. SOAK_SECONDS (8) is the time per case; `make soak` runs ten minutes each. FAIRLEAD_SEED repeats a run's choices.
"""

import asyncio
import collections
import json
import os
import random
import time

import pytest
from fairlead import scaled, wait_until
from fairlead.families import body, chain, complete, expect_idle, request_id, wait_healthy
from fairlead.fault_proxy import cut, delay, half_open, reset, slow
from fairlead.waiting import TIME_SCALE

SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))
CLIENTS = 64
ENGINES = 3
BLOCK = 16
ENGINE = ("--reply", "chain", "--token-interval-ms", "3", "--num-gpu-blocks", "2000", "--block-size", BLOCK)
EVENTS = ("--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0")
SERVE = ("--router-mode", "kv", "--max-attempts", "3", "--stream-timeout-secs", "2", "--engine-health-interval-secs", "0.2",
         "--engine-health-timeout-secs", "1", "--engine-retry-interval-secs", "0.2", "--engine-probe-timeout-secs", "2")
# What a client may be told: engine trouble, never its own fault, never an inner error.
CODES = {"service_unavailable", "engine_disconnected", "engine_timeout", "engine_cancelled", "overloaded",
         "engine_protocol_error", "engine_error", "model_not_ready"}
STATUSES = {502, 503, 504}
FAULTS = (
    lambda rng: cut(),
    lambda rng: reset(),
    lambda rng: cut(rng.randrange(3000)),
    lambda rng: reset(rng.randrange(3000)),
    lambda rng: delay(rng.uniform(0, 0.05)),
    lambda rng: slow(rng.uniform(5_000, 100_000)),
    lambda rng: half_open(rng.randrange(2000)),
)


class Soak:
    """The clients of one run, and what became of their requests."""

    def __init__(self, server, seed):
        self.server = server
        self.rng = random.Random(seed)
        self.outcomes = collections.Counter()
        self.problems = []
        self.rss = []
        self.ends = time.monotonic() + SECONDS

    def run(self, proxies):
        asyncio.run(self._run(proxies))

    async def _run(self, proxies):
        work = [asyncio.create_task(self._client(number, random.Random(self.rng.random()))) for number in range(CLIENTS)]
        others = [asyncio.create_task(self._refuse_at_times(proxies)), asyncio.create_task(self._watch_memory())]
        await asyncio.gather(*work)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _refuse_at_times(self, proxies):
        """Takes one engine's port away for some time, again and again."""
        rng = random.Random(self.rng.random())
        while True:
            await asyncio.sleep(rng.uniform(0.5, 3))
            proxy = rng.choice(proxies)
            proxy.refuse()
            try:
                await asyncio.sleep(rng.uniform(0.05, 0.5))
            finally:
                proxy.recover()

    async def _watch_memory(self):
        while True:
            self.rss.append(self.server.process.rss_bytes())
            await asyncio.sleep(0.5)

    async def _client(self, number, rng):
        turn = 0
        while time.monotonic() < self.ends and not self.problems:
            turn += 1
            name = f"soak-{number}-{turn}"
            tokens = rng.randrange(1, 120)
            # Few beginnings, so that prefixes are shared, and an end of its own.
            prompt = [300 + rng.randrange(8)] * rng.randrange(1, 8 * BLOCK) + [rng.randrange(300, 2500)]
            fields = body(tokens, prompt=prompt, stream=rng.random() < 0.7)
            leaves = rng.choice(["at-once", "later"]) if rng.random() < 0.15 else None
            try:
                outcome = await asyncio.wait_for(self._request(name, fields, leaves, rng), scaled(60))
            except TimeoutError:
                outcome = "no end within a minute"
            except OSError as error:
                outcome = f"the frontend's connection failed: {error!r}"
            if outcome in ("complete", "failed", "left", "refused"):
                self.outcomes[outcome] += 1
                if outcome == "refused":
                    await asyncio.sleep(0.1)  # as Retry-After has it, only faster
            else:
                self.problems.append(f"{name}, {tokens} tokens: {outcome}"[:600])

    async def _request(self, name, fields, leaves, rng):
        host, port = self.server.http.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            data = json.dumps(fields).encode()
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json"
                         b"\r\nRequest-Id: %s\r\nContent-Length: %d\r\n\r\n%s" % (request_id(name).encode(), len(data), data))
            if leaves:
                if leaves == "later":
                    await asyncio.sleep(rng.uniform(0, 0.3))
                if rng.random() < 0.5:
                    writer.transport.abort()
                return "left"
            answer = await reader.read()
            while part := await reader.read():
                answer += part
        finally:
            writer.close()
        return judge(answer, chain(fields["prompt"], fields["max_tokens"]), fields["stream"])


def dechunk(data):
    text = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        text, data = text + data[:length], data[length + 2:]
    return text


def judge(answer, tokens, stream):
    """`complete`, `failed` or `refused`; anything else says what is wrong."""
    head, _, content = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head else 0
    if b"transfer-encoding: chunked" in head.lower():
        content = dechunk(content)
    if status != 200:
        error = json.loads(content)["error"]
        return "refused" if status in STATUSES and error["code"] in CODES else f"status {status}: {content!r}"
    if not stream:
        whole = json.loads(content)
        choice = whole["choices"][0]
        right = (choice["token_ids"], choice["finish_reason"]) == (tokens, "length")
        return "complete" if right and whole["usage"]["completion_tokens"] == len(tokens) else f"wrong: {whole}"
    frames = [line.removeprefix("data: ") for line in content.decode().split("\n") if line.startswith("data: ")]
    if frames[-1:] != ["[DONE]"] or frames.count("[DONE]") != 1:
        return f"no end: {frames[-3:]}"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", [])]
    seen = [token for choice in choices for token in choice.get("token_ids") or []]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    errors = [chunk["error"]["code"] for chunk in chunks if "error" in chunk]
    if seen != tokens[:len(seen)]:
        return f"other tokens: {seen} instead of {tokens}"
    if not errors:
        return "complete" if len(seen) == len(tokens) and reasons == ["length"] else f"cut: {frames[-3:]}"
    if len(errors) == 1 and errors[0] in CODES and not reasons and "error" in chunks[-1]:
        return "failed"
    return f"unclear end: {frames[-4:]}"


def expect_flat(rss):
    """Memory does not grow behind the first third, beyond what allocators keep."""
    third = len(rss) // 3
    early, late = max(rss[third:2 * third]), max(rss[2 * third:])
    assert late <= early * 1.1 + (4 << 20), [size >> 20 for size in rss]


@pytest.mark.timeout(SECONDS + scaled(180))
@pytest.mark.parametrize("layout", ["aggregated", "pairs", "migration", "pairs-migration"])
def test_PD3_soak(family, launcher, fault_proxy, seed, layout):
    migration = ("--migration-limit", "3") if "migration" in layout else ()
    if "pairs" in layout:
        prefills, decodes = family.pairs(launcher, 2, 2, *ENGINE, *EVENTS)
        engines, proxies = [*prefills, *decodes], [[fault_proxy(engine) for engine in each] for each in (prefills, decodes)]
        server = family.serve_pairs(launcher, *proxies, *SERVE, *migration)
        proxies = sum(proxies, [])
    else:
        engines = [family.engine(launcher, *ENGINE, *EVENTS) for _ in range(ENGINES)]
        proxies = [fault_proxy(engine) for engine in engines]
        server = family.serve(launcher, proxies, *SERVE, *migration)
    wait_healthy(server, len(engines))
    soak = Soak(server, seed)
    for proxy in proxies:
        proxy.chaos(*FAULTS, pause=(0.05, 0.6))
    soak.run(proxies)
    for proxy in proxies:
        proxy.calm()
    print(f"{dict(soak.outcomes)}, faults {sum((collections.Counter(p.counts) for p in proxies), collections.Counter())}, "
          f"RSS MiB {[size >> 20 for size in soak.rss[::max(1, len(soak.rss) // 10)]]}")
    assert not soak.problems, "\n".join(soak.problems[:10])
    wait_healthy(server, len(engines), 30)
    expect_idle(server, *engines, timeout=30)
    answered = soak.outcomes["complete"]
    assert answered > CLIENTS and soak.outcomes["left"] > 0, soak.outcomes
    assert soak.outcomes["failed"] + soak.outcomes["refused"] > 0, "no fault was felt"
    for i in range(2 * ENGINES):
        answer = wait_until(lambda i=i: (a := complete(server, prompt=[300, i], max_tokens=3)).status_code == 200 and a, 10,
                            "an answer after all")
        assert answer.json()["choices"][0]["token_ids"] == chain([300, i], 3)
    if SECONDS >= 60 and TIME_SCALE == 1:
        expect_flat(soak.rss)
