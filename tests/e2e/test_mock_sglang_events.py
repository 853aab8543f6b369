"""KV events of the simulated SGLang engine: their form, their hashes, replay, ranks and older releases."""

import hashlib
import json
import struct
from pathlib import Path

import msgpack
import pytest
import zmq
from fairlead.sglang_api import SglangApi
from fairlead.vllm_api import Formula
from fairlead.waiting import scaled

END = b"\xff" * 8
PAGE = 16


class Ranks:
    """The event sockets that an engine reports."""

    def __init__(self, api):
        info = api.server_info()
        self.context = zmq.Context()
        self.sources = info["kv_event_sources"]
        self.subs = []
        for source in self.sources:
            sub = self.context.socket(zmq.SUB)
            sub.setsockopt(zmq.SUBSCRIBE, source["topic"].encode())
            sub.connect(source["endpoint"])
            self.subs.append(sub)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.destroy(linger=0)

    def next(self, rank=0):
        """(topic, sequence, batch)."""
        assert self.subs[rank].poll(scaled(10) * 1000), "no event"
        topic, sequence, payload = self.subs[rank].recv_multipart()
        return topic, struct.unpack(">Q", sequence)[0], msgpack.unpackb(payload)

    def settle(self, api, rank=0):
        """Flushes until the subscription is in force; the next sequence number."""
        for _ in range(200):
            assert api.stub.FlushCache(api.pb.Empty()).success
            if self.subs[rank].poll(50):
                break
        sequence = -1
        while self.subs[rank].poll(100):
            _, sequence, batch = self.next(rank)
            assert batch[1] in ([{"type": "AllBlocksCleared"}], [["AllBlocksCleared"]])
        assert sequence >= 0
        return sequence + 1

    def replay(self, start, rank=0):
        return ask(self.context, self.sources[rank]["replay_endpoint"], start)


def ask(context, endpoint, start):
    """Every answer to a replay request."""
    dealer = context.socket(zmq.DEALER)
    dealer.connect(endpoint)
    dealer.send_multipart([b"", struct.pack(">Q", start)])
    answers = []
    while not answers or answers[-1][-2] != END:
        assert dealer.poll(scaled(10) * 1000), "no answer"
        answers.append(dealer.recv_multipart())
    dealer.close(linger=0)
    return answers


def page_hashes(tokens):
    """Signed ids of the full pages of a sequence, as SGLang computes them."""
    hashes, digest = [], b""
    for start in range(0, len(tokens) - PAGE + 1, PAGE):
        page = b"".join(struct.pack("<I", t) for t in tokens[start:start + PAGE])
        digest = hashlib.sha256(digest + page).digest()
        hashes.append(struct.unpack(">q", digest[:8])[0])
    return hashes


@pytest.fixture
def start(mock_engine, stubs):
    opened = []

    def factory(*flags):
        engine = mock_engine("--speedup-ratio", 0, "--block-size", PAGE, "--kv-events", "127.0.0.1:0", "--kv-replay",
                             "127.0.0.1:0", "--kv-events-topic", "kv", *flags, backend="sglang")
        opened.append(SglangApi(engine, stubs))
        return opened[-1]

    yield factory
    for api in opened:
        api.close()


def test_the_oracle_agrees_with_the_real_engine():
    captured = json.loads((Path(__file__).resolve().parents[1] /
                           "fixtures/captures/sglang/kv-events.json").read_text())
    _, events, _ = captured["live"][0]["decoded"]
    tokens = events[0]["token_ids"]
    assert events[0]["block_hashes"] == page_hashes(tokens)


def test_events_of_one_request(start):
    api = start()
    with Ranks(api) as ranks:
        sequence = ranks.settle(api)
        prompt = list(range(100, 140))
        api.generate(prompt, 30, rid="e", session_id="sess")
        whole = prompt + Formula(42, "e").tokens(30)
        hashes = page_hashes(whole)
        topic, number, (_, events, rank) = ranks.next()
        assert (topic, number, rank) == (b"kv", sequence, 0)
        assert events == [{
            "type": "BlockStored", "block_hashes": hashes[:2], "parent_block_hash": None, "token_ids": prompt[:32],
            "block_size": PAGE, "lora_id": None, "medium": "GPU", "session_id": "sess"}]
        # What was generated follows when the request has ended; its last token has no KV yet.
        _, number, (_, events, _) = ranks.next()
        assert number == sequence + 1
        assert events == [{
            "type": "BlockStored", "block_hashes": hashes[2:4], "parent_block_hash": hashes[1],
            "token_ids": whole[32:64], "block_size": PAGE, "lora_id": None, "medium": "GPU", "session_id": "sess"}]
        assert api.generate(whole[:50], 1)[0].meta["cached_tokens"] == 48


def test_a_fresh_engine_begins_with_a_clearance(start):
    api = start()
    with Ranks(api) as ranks:
        answers = ranks.replay(0)
        empty, topic, sequence, payload = answers[0]
        assert (empty, topic, sequence) == (b"", b"kv", bytes(8))
        assert msgpack.unpackb(payload)[1:] == [[{"type": "AllBlocksCleared"}], 0]
        assert answers[-1] == [b"", b"", END, b""]
        assert ranks.replay(10**6) == [[b"", b"", END, b""]]


def test_removed_pages(start):
    api = start("--num-gpu-blocks", 9)
    with Ranks(api) as ranks:
        ranks.settle(api)
        first, second = list(range(100, 164)), list(range(1000, 1096))
        api.generate(first, 1)
        assert ranks.next()[2][1][0]["block_hashes"] == page_hashes(first)
        api.generate(second, 1)
        removed = [h for e in ranks.next()[2][1] if e["type"] == "BlockRemoved" for h in e["block_hashes"]]
        assert removed and set(removed) <= set(page_hashes(first))


def test_an_adapter_does_not_show_in_the_ids(start):
    api = start("--lora", "ad")
    with Ranks(api) as ranks:
        ranks.settle(api)
        prompt = list(range(100, 132))
        api.generate(prompt, 1, lora_path="ad")
        (event,) = ranks.next()[2][1]
        assert (event["block_hashes"], event["lora_id"]) == (page_hashes(prompt), None)
        assert api.generate(prompt + [7], 1)[0].meta["cached_tokens"] == 0
        assert api.generate(prompt + [7], 1, lora_path="ad")[0].meta["cached_tokens"] == 32


def test_every_rank_has_its_own_sockets_at_consecutive_ports(start):
    api = start("--data-parallel-size", 3)
    info = api.server_info()
    base, replay = (info["kv_events"][key] for key in ("endpoint_port_base", "replay_endpoint_port_base"))
    assert (info["kv_events"]["dp_size"], info["kv_events"]["block_size"]) == (3, PAGE)
    assert [(s["dp_rank"], s["endpoint"], s["replay_endpoint"]) for s in info["kv_event_sources"]] == [
        (r, f"tcp://127.0.0.1:{base + r}", f"tcp://127.0.0.1:{replay + r}") for r in range(3)]
    assert json.loads(info["kv_events_config"])["endpoint"] == f"tcp://127.0.0.1:{base}"
    with Ranks(api) as ranks:
        for rank in range(3):
            ranks.settle(api, rank)
        for rank in range(2):  # a flush is every rank's
            while ranks.subs[rank].poll(100):
                ranks.next(rank)
        api.generate(list(range(100, 116)), 1, routed_dp_rank=2)
        assert ranks.next(2)[2][2] == 2
        assert not ranks.subs[0].poll(100) and not ranks.subs[1].poll(100)


def test_a_decode_engine_has_no_events(mock_engine, stubs):
    engine = mock_engine("--role", "decode", "--kv-events", "127.0.0.1:0", backend="sglang")
    api = SglangApi(engine, stubs)
    info = api.server_info()
    assert (info["kv_events"], info["kv_event_sources"], info["disable_radix_cache"]) == (None, [], True)
    assert "kv_events" not in engine.addresses
    api.close()


@pytest.mark.parametrize(("release", "maps", "topic", "descriptor", "sources", "replay_base"), [
    ("0.5.23", True, True, True, True, True),
    ("0.5.22", True, True, True, True, False),
    ("0.5.21", True, False, True, False, False),
    ("0.5.19", False, False, True, False, False),
    ("0.5.17", False, False, False, False, False),
])
def test_older_releases(start, release, maps, topic, descriptor, sources, replay_base):
    api = start("--dialect", f"sglang-{release}")
    info = api.server_info()
    assert ("kv_events" in info, "kv_event_sources" in info) == (descriptor, sources)
    assert ("replay_endpoint_port_base" in (info.get("kv_events") or {})) == replay_base
    config = json.loads(info["kv_events_config"])
    context = zmq.Context()
    first, *_, last = ask(context, config["replay_endpoint"], 0)
    context.destroy(linger=0)
    frames = [b"", b"kv", bytes(8)] if topic else [b"", bytes(8)]
    assert first[:-1] == frames
    assert last == ([b"", b"", END, b""] if topic else [b"", END, b""])
    assert msgpack.unpackb(first[-1])[1] == ([{"type": "AllBlocksCleared"}] if maps else [["AllBlocksCleared"]])


def test_what_older_releases_do_not_know_is_skipped(start):
    api = start("--dialect", "sglang-0.5.16")
    guided = api.pb.GuidedDecoding(regex="")
    (last,) = api.generate([1, 2], 1, sampling={"guided_decoding": guided}, max_thinking_tokens=3, return_text=True)
    assert (last.finish["type"], last.text) == ("length", None)
    with pytest.raises(Exception, match="UNIMPLEMENTED"):
        next(api.stub.WatchEngineState(api.pb.Empty()))
