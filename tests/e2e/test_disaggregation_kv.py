"""Routing of prefill and decode by KV cache: prompts return to their prefill engine, decode goes by load."""

import pytest
from fairlead import wait_until
from fairlead.families import Stream, body, complete, formula
from fairlead.pairs import Pools, asked

BLOCK = 16
EVENTS = ("--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0")


def prompt(number, blocks=4):
    """A prompt of so many whole blocks and a tail."""
    return [300 + (number * 977 + i * 31) % 2000 for i in range(blocks * BLOCK + 3)]


def start(family, launcher, prefill, decode, *flags, **options):
    pools = Pools(family, launcher, prefill, decode, flags=("--block-size", BLOCK), prefill_flags=EVENTS,
                  serve_flags=("--router-mode", "kv", *flags), **options)
    ids = {pools.id_of(engine) for engine in pools.prefill}

    def followed():
        instances = pools.server.get("/health").json()["instances"]
        views = [view for i in instances if i["worker_id"] in ids for view in i["kv_views"]]
        return len(views) == prefill and all(view["state"] != "connecting" for view in views)
    wait_until(followed, 20, "the prefill engines' caches to be followed")
    return pools


def wait_events(pools):
    """Waits until all that the prefill engines published has been seen."""
    batches = sum(rank["kv_event_batches"] for engine in pools.prefill for rank in engine.state()["ranks"])
    wait_until(lambda: pools.server.metrics().value("fairlead_frontend_kv_event_stream_total", event="batch") >= batches,
               10, f"{batches} batches of events")


def test_D1_D3_a_prefix_returns_to_its_prefill_engine(family, launcher):
    pools = start(family, launcher, 2, 2)
    for number in range(6):
        headers = {"x-dynamo-prefill-instance-id": str(pools.id_of(pools.prefill[number % 2]))}
        answer = pools.server.post("/v1/completions", body(2, prompt=prompt(number)), headers=headers)
        assert answer.status_code == 200, answer.text
    wait_events(pools)
    first = pools.pairs(6)
    assert {pair.prefill for pair in first} == {pools.id_of(engine) for engine in pools.prefill}
    mark = pools.server.process.log_mark()
    for number in range(6):
        answer = complete(pools.server, f"kv-again-{number}", prompt=prompt(number), max_tokens=2).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 4 * BLOCK
        assert answer["choices"][0]["token_ids"] == formula(f"kv-again-{number}", 2)
    again = pools.pairs(6, after=mark)
    assert [pair.prefill for pair in again] == [pair.prefill for pair in first]
    pools.expect_idle()


def test_decode_is_chosen_by_the_prompts_it_holds(family, launcher):
    pools = start(family, launcher, 1, 2, decode_flags=("--token-interval-ms", 20))
    long = Stream(pools.server, body(2000, prompt=prompt(1, 60)), "long").read_tokens(1)
    busy = wait_until(lambda: next((e for e in pools.decode if asked(e)), None), 10, "its decode engine")
    idle = pools.decode[1 - pools.decode.index(busy)]
    short = [Stream(pools.server, body(2000, prompt=prompt(2 + i, 2)), f"short-{i}").read_tokens(1) for i in range(4)]
    # One long prompt is more than the few short ones together.
    assert len(asked(idle)) == 4
    assert len(asked(busy)) == 1
    pairs = pools.pairs(5)
    assert [pair.decode for pair in pairs] == [pools.id_of(busy)] + [pools.id_of(idle)] * 4
    for stream in (long, *short):
        stream.close()
    pools.expect_idle()


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_named_workers_are_used(family, launcher, role):
    pools = start(family, launcher, 2, 2)
    header = {"prefill": "x-dynamo-prefill-instance-id", "decode": "x-dynamo-worker-instance-id"}[role]
    for engine in getattr(pools, role):
        for _ in range(2):
            answer = pools.server.post("/v1/completions", body(2), headers={header: str(pools.id_of(engine))})
            assert answer.status_code == 200, answer.text
        assert len(asked(engine)) == 2
    pools.expect_idle()


def test_a_restarted_prefill_engine_begins_with_an_empty_cache(family, launcher):
    pools = start(family, launcher, 1, 1)
    for name, expected in (("cold", 0), ("warm", 4 * BLOCK)):
        answer = complete(pools.server, name, prompt=prompt(1), max_tokens=2).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == expected
    pools.prefill[0].kill()
    pools.restart("prefill", pools.prefill[0])
    wait_until(lambda: complete(pools.server, "probe", max_tokens=1).status_code == 200, 20, "the engine to be back")
    answer = complete(pools.server, "cold-again", prompt=prompt(1), max_tokens=2).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert answer["choices"][0]["token_ids"] == formula("cold-again", 2)
    pools.expect_idle()
