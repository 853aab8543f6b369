"""Kv mode under clients that leave, engines that die and refusals: no booking outlives its request."""

import asyncio
import random

import httpx
from fairlead import scaled, wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
MIXES = 500
ENGINES = 3
CLIENTS = 12
FLAGS = ["--speedup-ratio", "0", "--token-interval-ms", "2", "--num-gpu-blocks", "200",
         "--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0"]
GAUGES = ("worker_active_decode_blocks", "worker_active_prefill_tokens", "router_queue_pending_requests",
          "inflight_requests")


def prompt(rng):
    """One of few beginnings and an end of its own."""
    family = rng.randrange(6)
    return [10 + family] * rng.randrange(1, 200) + [rng.randrange(100, 2000) for _ in range(rng.randrange(1, 40))]


async def one_mix(client, rng):
    """One request, ended in one of the ways in which requests end."""
    body = {"model": "demo", "prompt": prompt(rng), "max_tokens": rng.randrange(1, 60), "ignore_eos": True,
            "stream": rng.random() < 0.7}
    how = rng.randrange(4)
    try:
        if how == 0:  # leaves at some time
            await asyncio.wait_for(client.post("/v1/completions", json=body), rng.random() * 0.05)
        elif how == 1 and body["stream"]:  # leaves after some output
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                count = rng.randrange(1, 8)
                async for line in answer.aiter_lines():
                    count -= line.startswith("data: ")
                    if count <= 0:
                        break
        else:
            answer = await client.post("/v1/completions", json=body)
            assert answer.status_code in (200, 429, 502, 503), answer.text
    except (TimeoutError, httpx.HTTPError):
        pass


def sums(server):
    metrics = server.metrics()
    return {gauge: metrics.value(f"fairlead_frontend_{gauge}") for gauge in GAUGES}


def test_no_booking_outlives_its_request(mock_engine, serve):
    engines = [mock_engine(*FLAGS, model="demo") for _ in range(ENGINES)]
    # So low that some requests wait, and some are refused because too many wait or every engine is full.
    server = serve(engines, "--router-mode", "kv", "--active-decode-blocks-threshold", "0.3",
                   "--router-queue-threshold", "0.001", "--router-queue-limit", "4",
                   "--router-track-output-blocks", "--max-attempts", "2", model_path=FOLDER)
    rng = random.Random(11)

    async def client_loop(client, seed, mixes):
        own = random.Random(seed)
        for _ in range(mixes):
            await one_mix(client, own)

    async def run():
        limits = httpx.Limits(max_connections=2 * CLIENTS)
        async with httpx.AsyncClient(base_url=server.base_url, trust_env=False, timeout=scaled(60),
                                     limits=limits) as client:
            work = [asyncio.create_task(client_loop(client, seed, MIXES // CLIENTS)) for seed in range(CLIENTS)]
            while not all(task.done() for task in work):
                # An engine dies and comes back, whenever half a second of work is done.
                await asyncio.wait(work, timeout=0.5)
                victim = rng.randrange(ENGINES)
                address = engines[victim].address
                await asyncio.to_thread(engines[victim].kill)
                engines[victim] = await asyncio.to_thread(
                    lambda: mock_engine(*FLAGS, model="demo", listen=address))
            await asyncio.gather(*work)

    asyncio.run(run())
    wait_until(lambda: not any(sums(server).values()), 20, "every gauge to be 0")
    assert server.metrics().value("fairlead_frontend_router_queued_requests_total") > 0
    for engine in engines:
        engine.wait_idle()
    # What is left to do is done at once: nobody is counted as busy for good.
    wait_until(lambda: server.get("/ready").status_code == 200, 20, "engines in routing")
    wait_until(lambda: server.post("/v1/completions", {"model": "demo", "prompt": [10, 11], "max_tokens": 1,
                                                       "ignore_eos": True}).status_code == 200, 20, "an answer")
