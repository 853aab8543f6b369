"""KV events of the simulated engine: recorded ones repeated, replay, losses, and a random model test."""

import json
import random
import struct
import time
from pathlib import Path

import grpc
import httpx
import msgpack
import pytest
import zmq
from fairlead import scaled, wait_until

RECORDED = Path(__file__).resolve().parents[1] / "fixtures/captures/vllm/frontend-0.32.0/kv-events/index.json"
END = b"\xff" * 8


class Listener:
    """SUB and DEALER sockets of one engine."""

    def __init__(self, engine, topic=b""):
        self.context = zmq.Context()
        self.sub = self.context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.RCVHWM, 0)
        self.sub.setsockopt(zmq.SUBSCRIBE, topic)
        self.sub.connect(f"tcp://{engine.addresses['kv_events']}")
        self.replay_address = engine.addresses.get("kv_replay")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.destroy(linger=0)

    def next(self, timeout=10.0):
        """(topic, sequence, batch) of the next message."""
        assert self.sub.poll(scaled(timeout) * 1000), "no event"
        topic, sequence, payload = self.sub.recv_multipart()
        return topic, struct.unpack(">Q", sequence)[0], msgpack.unpackb(payload)

    def silent(self):
        """True when nothing has come that is not read yet."""
        return not self.sub.poll(50)

    def ask(self, frames, wait=10.0):
        """Every answer to a replay request, without the identity; none when the engine ignores it."""
        dealer = self.context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.RCVHWM, 0)
        dealer.connect(f"tcp://{self.replay_address}")
        dealer.send_multipart(frames)
        answers = []
        while dealer.poll(scaled(wait) * 1000):
            answers.append(dealer.recv_multipart())
            if answers[-1][-2] == END:
                break
        dealer.close(linger=0)
        return answers

    def replay(self, start):
        """{sequence: batch} of the buffer from `start`."""
        answers = self.ask([b"", struct.pack(">Q", start)])
        assert answers[-1] == [b"", b"", END, b""]
        return {struct.unpack(">Q", a[2])[0]: msgpack.unpackb(a[3]) for a in answers[:-1]}


class Caller:
    """Generates on one engine."""

    def __init__(self, engine, stubs):
        self.engine = engine
        self.pb = stubs.messages("vllm/inference.proto")
        self.channel = grpc.insecure_channel(engine.address)
        self.stub = stubs.services("vllm/inference.proto").InferenceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def request(self, prompt, max_new_tokens=1, **fields):
        return self.pb.GenerateRequest(
            token_ids=self.pb.TokenIds(ids=prompt),
            stopping=self.pb.StoppingCriteria(max_new_tokens=max_new_tokens, ignore_eos=True), **fields)

    def run(self, prompt, max_new_tokens=1, **fields):
        """FinishInfo of a whole generation."""
        response = self.stub.Generate(self.request(prompt, max_new_tokens, **fields), timeout=scaled(30))
        return response.outputs.finish_info

    def reset(self):
        answer = httpx.post(f"http://{self.engine.addresses['debug']}/debug/reset_prefix_cache",
                            trust_env=False, timeout=scaled(10))
        return answer.json()["success"]


def settle(listener, caller):
    """Waits until the subscription is in force, by clearing the empty cache until that is heard; the
    next sequence number."""
    def heard():
        assert caller.reset()
        caller.run([1])
        return listener.sub.poll(20)

    wait_until(heard, what="a first event")
    sequence = -1
    while not listener.silent():
        _, sequence, _ = listener.next()
    return sequence + 1


def script_file(tmp_path, lists):
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(ids) + "\n" for ids in lists))
    return f"script:{path}"


def test_the_recorded_session_gives_the_same_events(mock_engine, tmp_path, stubs):
    """Same requests, same cache size, same outputs: the same batches in the same order, but for the
    hashes, which must correspond one to one."""
    recorded = json.loads(RECORDED.read_text())["batches"]
    long_output = next(b["cause"]["output_token_ids"] for b in recorded if b["name"] == "decode-fills-blocks")
    # The engine generates the recorded tokens for the one request where they reach the cache.
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps(long_output) + "\n")
    engine = mock_engine("--speedup-ratio", 0, "--block-size", 32, "--num-gpu-blocks", 80, "--max-model-len", 1024,
                         "--kv-events", "127.0.0.1:0", "--kv-events-topic", "kv-events",
                         "--reply", f"script:{script}")
    with Listener(engine, b"kv-events") as listener, Caller(engine, stubs) as caller:
        pb = caller.pb
        first = settle(listener, caller)
        base, longer = [*range(1000, 1070)], [*range(1000, 1070), *range(2000, 2030)]
        q66, e64 = [*range(4000, 4066)], [*range(11000, 11064)]
        bypass = {"kv": pb.KVCacheParameters(bypass_prefix_cache=True)}
        cached = [caller.run(p, n, **fields).num_cached_tokens for p, n, fields in [
            (base, 1, {}), (base, 1, {}), (longer, 1, {}), ([*range(3000, 3060)], 40, {}),
            ([*range(3000, 3066)], 1, {"kv": pb.KVCacheParameters(cache_salt="tenant-a")}),
            (q66, 1, {"session_id": "sess-1"}), (q66, 1, bypass), (q66[:20], 1, {}),
            (e64, 1, {}), (e64, 1, {}), (e64, 1, {"response": pb.ResponseOptions(prompt_logprobs=True)})]]
        assert cached == [0, 64, 64, 0, 0, 0, 0, 0, 0, 32, 0]
        assert caller.reset()
        caller.run(q66[:20])
        assert caller.reset()
        caller.run(base)
        caller.run(base, **bypass)
        for low in (5000, 6000, 7000):
            caller.run([*range(low, low + 900)])
        ours = [listener.next() for _ in recorded]
        assert listener.silent()
    hashes = {}  # recorded to ours

    def same(recorded_hash, own_hash):
        assert (recorded_hash is None) == (own_hash is None)
        return recorded_hash is None or hashes.setdefault(recorded_hash, own_hash) == own_hash

    for i, ((topic, sequence, (timestamp, events, rank)), batch) in enumerate(zip(ours, recorded, strict=True)):
        assert (topic, sequence, rank) == (b"kv-events", first + i, 0)
        assert abs(timestamp - time.time()) < 600
        expected = batch["decoded"][1]
        assert len(events) == len(expected), batch["name"]
        for event, wanted in zip(events, expected, strict=True):
            assert list(event) == list(wanted), batch["name"]  # keys and their order
            assert all(map(same, wanted.get("block_hashes", []), event.get("block_hashes", [])))
            assert same(wanted.get("parent_block_hash"), event.get("parent_block_hash"))
            assert {k: v for k, v in event.items() if "hash" not in k} == {
                k: v for k, v in wanted.items() if "hash" not in k}, batch["name"]
    assert len(set(hashes.values())) == len(hashes)


def test_replay_answers_as_recorded(mock_engine, stubs):
    engine = mock_engine("--speedup-ratio", 0, "--block-size", 4, "--kv-events", "127.0.0.1:0",
                         "--kv-replay", "127.0.0.1:0", "--kv-events-topic", "t",
                         "--kv-events-buffer-steps", 5)
    with Listener(engine) as listener, Caller(engine, stubs) as caller:
        first = settle(listener, caller)
        for i in range(8):
            caller.run([100 * i + k for k in range(4)])
        live = {}
        for _ in range(8):
            topic, sequence, batch = listener.next()
            assert topic == b"t"
            live[sequence] = batch
        assert sorted(live) == list(range(first, first + 8))
        kept = {sequence: live[sequence] for sequence in range(first + 3, first + 8)}
        assert listener.replay(0) == kept  # older ones are gone without an error
        assert listener.replay(first + 6) == {s: live[s] for s in (first + 6, first + 7)}
        assert listener.replay(first + 8) == {}
        assert listener.replay(2**64 - 1) == {}
        answers = listener.ask([b"", b""])  # any length, empty is 0
        assert len(answers) == 6
        assert answers[0] == [b"", b"t", struct.pack(">Q", first + 3), answers[0][3]]
        assert listener.ask([struct.pack(">Q", 0)], wait=0.3) == []  # a frame is missing: ignored
        assert listener.ask([b"", b"", struct.pack(">Q", 0)], wait=0.3) == []
        assert listener.replay(0) == kept


def test_dropped_batches_leave_gaps_that_replay_fills(mock_engine, stubs):
    engine = mock_engine("--speedup-ratio", 0, "--block-size", 4, "--kv-events", "127.0.0.1:0",
                         "--kv-replay", "127.0.0.1:0")
    with Listener(engine) as listener, Caller(engine, stubs) as caller:
        first = settle(listener, caller)
        httpx.post(f"http://{engine.addresses['debug']}/debug/fault", json={"faults": ["drop-event:0.5"]},
                   trust_env=False).raise_for_status()
        for i in range(60):
            caller.run([100 * i + k for k in range(4)])
        everything = wait_until(lambda: (r := listener.replay(first)) and len(r) == 60 and r, what="60 batches")
        heard = {}
        while not listener.silent():
            _, sequence, batch = listener.next()
            heard[sequence] = batch
        assert 5 < len(heard) < 55
        assert all(everything[sequence] == batch for sequence, batch in heard.items())


def test_array_layout_has_the_values_by_position(mock_engine, stubs):
    engine = mock_engine("--speedup-ratio", 0, "--block-size", 4, "--kv-events", "127.0.0.1:0",
                         "--kv-events-layout", "array")
    with Listener(engine) as listener, Caller(engine, stubs) as caller:
        settle(listener, caller)
        caller.run([1, 2, 3, 4, 5], kv=caller.pb.KVCacheParameters(cache_salt="s"))
        _, _, (_, events, rank) = listener.next()
        tag, (block_hash,), parent, tokens, size, *rest = events[0]
        assert (tag, parent, tokens, size, rank) == ("BlockStored", None, [1, 2, 3, 4], 4, 0)
        assert isinstance(block_hash, int)
        assert rest == [None, "GPU", None, [["s"]], 0]
        assert caller.reset()
        caller.run([1])
        assert listener.next()[2][1] == [["AllBlocksCleared"]]


class Mirror:
    """What a subscriber believes: copies per hash, and each hash's tokens from the beginning."""

    def __init__(self):
        self.copies = {}
        self.chains = {}

    def apply(self, events):
        for event in events:
            if event["type"] == "AllBlocksCleared":
                self.copies.clear()
            elif event["type"] == "BlockRemoved":
                for block in event["block_hashes"]:
                    assert self.copies[block] > 0
                    self.copies[block] -= 1
            else:
                parent = event["parent_block_hash"]
                size = event["block_size"]
                assert len(event["token_ids"]) == size * len(event["block_hashes"])
                for i, block in enumerate(event["block_hashes"]):
                    before = self.chains[parent] if parent is not None else []
                    self.chains[block] = before + event["token_ids"][i * size:(i + 1) * size]
                    self.copies[block] = self.copies.get(block, 0) + 1
                    parent = block

    def blocks(self):
        return {block: self.chains[block] for block, count in self.copies.items() if count > 0}


def cached_blocks(engine):
    """The engine's own list: hash to the tokens up to the end of its block, as far as they are cached."""
    kv = engine.kv()
    assert not kv["truncated"]
    blocks = {}
    for chain in kv["chains"]:
        for i, block in enumerate(chain["block_hashes"]):
            blocks[block] = chain["token_ids"][:(i + 1) * kv["block_size"]] if chain["complete"] else None
    return blocks


def test_events_describe_the_cache_exactly(mock_engine, stubs):
    """Random prompts that share prefixes, in a cache too small for them: after any of them a mirror built
    from the events alone equals the engine's cache."""
    rng = random.Random(5)
    engine = mock_engine("--speedup-ratio", 0, "--block-size", 4, "--num-gpu-blocks", 40, "--max-num-seqs", 3,
                         "--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0")
    with Listener(engine) as listener, Caller(engine, stubs) as caller:
        mirror, expected = Mirror(), settle(listener, caller)
        for _ in range(40):
            calls = []
            for _ in range(rng.randrange(1, 8)):
                prompt = [rng.randrange(2)] * rng.randrange(1, 30) + [rng.randrange(3)] * rng.randrange(0, 30)
                kv = caller.pb.KVCacheParameters(bypass_prefix_cache=rng.random() < 0.2,
                                                 cache_salt="x" if rng.random() < 0.2 else "")
                calls.append(caller.stub.Generate.future(caller.request(prompt, rng.randrange(1, 40), kv=kv)))
            for call in calls:
                if rng.random() < 0.2:
                    call.cancel()
                else:
                    call.result(scaled(30))
            if rng.random() < 0.1:
                engine.wait_state(running=0, waiting=0)
                assert caller.reset()
                caller.run([1])
            state = engine.wait_state(running=0, waiting=0, kv_blocks_used=0)
            published = state["ranks"][0]["kv_event_batches"]
            while expected < published:
                _, sequence, (_, events, _) = listener.next()
                assert sequence == expected
                expected += 1
                mirror.apply(events)
            own = cached_blocks(engine)
            assert mirror.blocks().keys() == own.keys()
            assert all(tokens in (None, mirror.chains[block]) for block, tokens in own.items())
        assert sum(mirror.copies.values()) <= 39


@pytest.mark.parametrize("ranks", [2])
def test_each_rank_has_its_own_stream(mock_engine, stubs, ranks):
    engine = mock_engine("--speedup-ratio", 0, "--block-size", 4, "--kv-events", "127.0.0.1:0",
                         "--kv-replay", "127.0.0.1:0", "--data-parallel-size", ranks)
    control_pb = stubs.messages("vllm/control.proto")
    with Caller(engine, stubs) as caller:
        control = stubs.services("vllm/control.proto").ControlStub(caller.channel)
        sources = control.GetKvEventSources(control_pb.GetKvEventSourcesRequest()).sources
        assert [source.data_parallel_rank for source in sources] == list(range(ranks))
        assert len({source.endpoint for source in sources}) == ranks
        info = control.GetServerInfo(control_pb.GetServerInfoRequest())
        assert info.total_kv_blocks == 16384 * ranks
        assert (info.parallelism.data_parallel_size, info.parallelism.data_parallel_size_local) == (ranks, ranks)
        caller.stub.Generate(caller.request(range(10)), metadata=[("x-data-parallel-rank", "1")])
        engine.addresses["kv_replay"] = sources[1].replay_endpoint.removeprefix("tcp://")
        with Listener(engine) as listener:
            batches = wait_until(lambda: listener.replay(0), what="a batch of rank 1")
        assert [batch[2] for batch in batches.values()] == [1]
