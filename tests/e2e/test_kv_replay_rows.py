"""The rows R1 to R8 of the conformance list: what a frontend knows of caches that were filled before it came, and of events
that got lost. The same rows bear their names in tests/unit/kv (recovery_test, recovery_bounds_test, event_feed_test), where
every order of frames is played."""

import pytest
from fairlead import wait_until
from fairlead.families import complete, expect_idle

BLOCK = 16
EVENTS = ("--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0", "--block-size", BLOCK)


def prompt(number, blocks=4):
    """A prompt of its own of so many whole blocks and a tail."""
    return [300 + (number * 977 + i * 31) % 2000 for i in range(blocks * BLOCK + 3)]


def start(family, launcher, engine, *flags):
    return family.serve(launcher, [engine], "--router-mode", "kv", "--router-predicted-ttl-secs", "0", *flags)


def fill(server, numbers):
    for number in numbers:
        assert complete(server, prompt=prompt(number), max_tokens=1).status_code == 200


def states(server):
    """State of each rank's view."""
    return {int(s.labels["dp_rank"]): s.labels["state"] for s in server.metrics().samples("fairlead_frontend_kv_view_state")}


def event(server, name):
    (sample,) = server.metrics().samples("fairlead_frontend_kv_event_stream_total", event=name)
    return sample.value


def wait_blocks(server, count):
    server.wait_metric("fairlead_frontend_kv_view_blocks", count)


def engine_blocks(engine):
    kv = engine.kv()
    assert not kv["truncated"]
    return len({block for chain in kv["chains"] for block in chain["block_hashes"]})


def overlap(server, number):
    """Cached tokens of a prompt, believed and real alike."""
    answer = complete(server, prompt=prompt(number), max_tokens=1).json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_R1_every_rank_is_replayed_and_live_batches_go_on(family, launcher):
    engine = family.engine(launcher, *EVENTS, "--data-parallel-size", 2)
    first = start(family, launcher, engine)
    fill(first, range(8))
    wait_blocks(first, 32)
    late = start(family, launcher, engine)
    wait_blocks(late, 32)
    wait_until(lambda: states(late) == {0: "live", 1: "live"}, 10, "both ranks to be live")
    fill(first, range(8, 12))  # by the other frontend: known from live batches alone
    wait_blocks(late, 48)
    assert [overlap(late, number) for number in range(12)] == [4 * BLOCK] * 12
    expect_idle(late, engine)


def test_R2_history_that_the_engine_lost_makes_a_partial_view_that_is_used(family, launcher):
    engine = family.engine(launcher, *EVENTS, "--kv-events-buffer-steps", 5)
    first = start(family, launcher, engine)
    fill(first, range(12))
    wait_blocks(first, 48)
    late = start(family, launcher, engine)
    wait_until(lambda: event(late, "partial_start") == 1, 10, "a partial start")
    wait_until(lambda: states(late) == {0: "live"}, 10, "a live view")
    known = late.metrics().value("fairlead_frontend_kv_view_blocks")
    assert 0 < known < 48
    assert overlap(late, 11) == 4 * BLOCK
    expect_idle(late, engine)


def test_R4_an_empty_replay_is_success(family, launcher):
    engine = family.engine(launcher, *EVENTS)
    server = start(family, launcher, engine)
    # SGLang says at its start that its cache is empty, which is a batch.
    idle = {"vllm": "no_events", "sglang": "live"}[family.backend]
    wait_until(lambda: states(server) == {0: idle}, 10, "an idle engine")
    assert event(server, "replay_timeout") == 0
    fill(server, [1])
    wait_blocks(server, 4)
    wait_until(lambda: states(server) == {0: "live"}, 10, "a live view")


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_R5_R6_R7_lost_batches_are_repaired_and_nothing_leaves_routing(family, launcher, share):
    engine = family.engine(launcher, *EVENTS)
    engine.set_faults(f"drop-event:{share}")
    server = start(family, launcher, engine)
    fill(server, range(40))
    assert server.get("/ready").status_code == 200
    engine.set_faults()
    fill(server, range(40, 42))  # what comes behind a gap shows it
    wait_blocks(server, engine_blocks(engine))
    assert engine_blocks(engine) == 168
    assert event(server, "gap") > 0 and event(server, "lost_batch") == 0
    assert [overlap(server, number) for number in range(0, 42, 7)] == [4 * BLOCK] * 6
    assert "left routing" not in server.process.log_text()
    expect_idle(server, engine)


def test_R8_a_burst_beyond_what_is_held_is_replayed(family, launcher):
    engine = family.engine(launcher, *EVENTS, "--num-gpu-blocks", "30000")
    server = start(family, launcher, engine)
    fill(server, [0])
    wait_blocks(server, 4)
    engine.set_faults("drop-event:1")  # nothing arrives for some time
    late = start(family, launcher, engine)
    fill(server, range(1, 200))
    engine.set_faults()
    fill(server, [200])
    for one in (server, late):
        wait_blocks(one, 4 * 201)
        assert event(one, "lost_batch") == 0
    expect_idle(server, engine)
