"""The rows D1 to D11 of the conformance list of direct mode: a frontend that dials engines itself, and nothing else."""

import json
import re

import psutil
import pytest
from fairlead import wait_until
from fairlead.families import FOLDER, Stream, body, complete, expect_idle, formula, wait_healthy

BLOCK = 16
EVENTS = ("--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0", "--block-size", BLOCK)
BEST = re.compile(r"\[ROUTING\] Best: worker_(\d+) dp_rank=(\d+) with (\d+)/(\d+) blocks overlap")
PAIR = re.compile(r"request_id=([0-9a-f-]+) prefill_worker_id=(\d+) prefill_dp_rank=\d+ decode_worker_id=(\d+)")
MASK = 2**64 - 1


def choices(server, count):
    """(worker, rank, overlap, blocks) of the first choices, once there are so many."""
    return wait_until(lambda: len(seen := [tuple(map(int, found.groups()))
                                           for found in BEST.finditer(server.process.log_text())]) >= count and seen,
                      10, f"{count} choices")[:count]


def prompt(number, blocks=4):
    """A prompt of so many whole blocks and a tail."""
    return [300 + (number * 977 + i * 31) % 2000 for i in range(blocks * BLOCK + 3)]


def worker_ids(server):
    return {i["endpoint"]: i["worker_id"] for i in server.get("/health").json()["instances"]}


def wait_views(server, count):
    """Waits until so many engines are in routing with a connected view of their cache."""
    wait_until(lambda: sum(i["healthy"] and all(v["state"] != "connecting" for v in i["kv_views"])
                           for i in server.get("/health").json()["instances"]) == count, 20, f"{count} views")


# D1 to D5: the scenarios.


def test_D1_D2_round_robin_reaches_all_engines(family, launcher):
    engines = [family.engine(launcher) for _ in range(3)]
    server = family.serve(launcher, engines, "--router-mode", "round-robin")
    wait_healthy(server, 3)
    for i in range(12):
        answer = complete(server, f"d1-{i}", max_tokens=6)
        assert answer.json()["choices"][0]["token_ids"] == formula(f"d1-{i}", 6)
    assert [engine.state()["requests_total"] for engine in engines] == [4, 4, 4]
    expect_idle(server, *engines)


def test_D1_D3_kv_routing_returns_a_prefix_to_its_engine(family, launcher):
    engines = [family.engine(launcher, *EVENTS) for _ in range(2)]
    server = family.serve(launcher, engines, "--router-mode", "kv")
    wait_views(server, 2)
    for number in range(4):
        assert complete(server, f"d3-{number}", prompt=prompt(number), max_tokens=2).status_code == 200
    first = choices(server, 4)
    assert [overlap for _, _, overlap, _ in first] == [0] * 4
    batches = sum(rank["kv_event_batches"] for engine in engines for rank in engine.state()["ranks"])
    server.wait_metric("fairlead_frontend_kv_event_stream_total", batches, event="batch")
    for number in range(4):
        answer = complete(server, f"d3-again-{number}", prompt=prompt(number), max_tokens=2).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 4 * BLOCK
        assert answer["choices"][0]["token_ids"] == formula(f"d3-again-{number}", 2)
    for (worker, rank, _, blocks), again in zip(first, choices(server, 8)[4:], strict=True):
        assert again == (worker, rank, blocks - 1, blocks)
    assert {worker for worker, *_ in first} <= set(worker_ids(server).values())
    expect_idle(server, *engines)


@pytest.mark.parametrize("mode", ["round-robin", "kv"])
def test_D1_D4_D5_prefill_and_decode_are_one_engine_each(family, launcher, mode):
    prefills, decodes = family.pairs(launcher, 2, 2, *(EVENTS if mode == "kv" else ()))
    server = family.serve_pairs(launcher, prefills, decodes, "--router-mode", mode)
    ids = worker_ids(server)
    count = 12
    for i in range(count):
        answer = complete(server, f"d5-{i}", prompt=prompt(i), max_tokens=6)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["token_ids"] == formula(f"d5-{i}", 6)
        assert answer.json()["usage"] == answer.json()["usage"] | {"prompt_tokens": len(prompt(i)), "completion_tokens": 6}
    for engines in (prefills, decodes):
        assert [engine.state()["finished_total"] > 0 for engine in engines] == [True, True]
        assert sum(engine.state()["requests_total"] for engine in engines) == count
    lines = wait_until(lambda: len(found := PAIR.findall(server.process.log_text())) == count and found, 10, "a line each")
    for request, prefill, decode in lines:
        by_id = {ids[engine.url]: engine for engine in (*prefills, *decodes)}
        assert by_id[int(prefill)] in prefills and by_id[int(decode)] in decodes
        legs = [next(r for r in by_id[int(worker)].state()["last_requests"] if request in json.dumps(r))
                for worker in (prefill, decode)]
        expect_hand_off(family, by_id[int(prefill)], *legs)
    assert len({request for request, *_ in lines}) == count
    expect_idle(server, *prefills, *decodes)


def expect_hand_off(family, prefill, first, second):
    """That the decode engine was told where its cache is: for vLLM what the prefill engine answered, so that this had
    ended before; for SGLang one room for both."""
    if family.backend == "vllm":
        assert first["stopping"]["max_new_tokens"] == 1
        told = second["kv"]["kv_transfer_params"]
        assert told["remote_engine_id"] == prefill.state()["instance_id"]
        assert told == told | {"do_remote_prefill": True, "do_remote_decode": False}
    else:
        rooms = [re.search(r'"bootstrap_room": "?(\d+)', json.dumps(leg))[1] for leg in (first, second)]
        assert rooms[0] == rooms[1]
        assert prefill.addresses["bootstrap"].rpartition(":")[2] in json.dumps(second)


def test_D6_kv_events_come_from_the_address_that_the_engine_names(family, launcher):
    engine = family.engine(launcher, *EVENTS)
    found = probe(launcher, family, engine)
    assert [source["endpoint"] for source in found["kv_event_sources"]] == [f"tcp://{engine.addresses['kv_events']}"]
    server = family.serve(launcher, [engine], "--router-mode", "kv")
    wait_views(server, 1)
    assert complete(server, prompt=prompt(1), max_tokens=1).status_code == 200
    server.wait_metric("fairlead_frontend_kv_view_blocks", 4)


# D7, D8: parsers are the operator's.


def test_D7_D8_parsers_of_the_engine_are_reported_and_never_adopted(family, launcher, tmp_path):
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    tokenized = launcher.run_lines("tokenize", "--model", FOLDER, lines=[{"text": call, "add_special_tokens": False}])
    script = tmp_path / "script"
    script.write_text(json.dumps(tokenized[0]["ids"]) + "\n")
    engine = family.engine(launcher, "--tool-call-parser", "qwen3_xml", "--reasoning-parser", "none",
                           "--reply", f"script:{script}")
    assert probe(launcher, family, engine)["tool_call_parser"] == "qwen3_xml"
    server = family.serve(launcher, [engine])
    answer = server.post("/v1/chat/completions", {
        "model": "demo", "messages": [{"role": "user", "content": "call"}], "ignore_eos": True,
        "max_tokens": len(tokenized[0]["ids"])})
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    assert message["content"] == call
    assert not message.get("tool_calls")
    server.process.wait_log(r'tool_call_parser="qwen3_xml"')


# D9, D10: chat; nothing else runs.


def test_D9_D10_chat_ends_by_length_with_the_exact_count_and_nothing_else_runs(family, launcher):
    engines = [family.engine(launcher) for _ in range(2)]
    server = family.serve(launcher, engines)
    wait_healthy(server, 2)
    chat = {"model": "demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 40,
            "ignore_eos": True}
    answer = server.post("/v1/chat/completions", chat).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 40
    stream = Stream(server, chat, path="/v1/chat/completions").read_all()
    assert stream.finish_reasons == ["length"]
    assert stream.usage["completion_tokens"] == 40
    assert stream.done and not stream.errors
    for process in [server.process, *(engine.process for engine in engines)]:
        assert psutil.Process(process.pid).children(recursive=True) == []
    expect_idle(server, *engines)


def test_D9_streams_and_whole_answers_say_the_same(family, launcher):
    engine = family.engine(launcher, "--reply", "echo")
    server = family.serve(launcher, [engine])
    whole = server.post("/v1/completions", body(30)).json()
    stream = Stream(server, body(30)).read_all()
    stream.expect_complete(whole["choices"][0]["token_ids"])
    assert "".join(chunk["choices"][0]["text"] for chunk in stream.chunks if chunk["choices"]) == \
        whole["choices"][0]["text"]


# D11: worker ids.


def rotate(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def sip_hash_1_3(data):
    """With a key of zeros, as Rust's standard library hashes."""
    v = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]

    def turn():
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)

    whole = len(data) // 8 * 8
    for begin in range(0, whole, 8):
        word = int.from_bytes(data[begin:begin + 8], "little")
        v[3] ^= word
        turn()
        v[0] ^= word
    last = int.from_bytes(data[whole:], "little") | (len(data) & 255) << 56
    v[3] ^= last
    turn()
    v[0] ^= last
    v[2] ^= 0xFF
    for _ in range(3):
        turn()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def worker_id(url):
    return sip_hash_1_3(url.encode() + b"\xff") & (2**53 - 1)


def test_D11_worker_ids_follow_the_published_rule(family, launcher):
    vectors = {"http://127.0.0.1:18701": 3458080756468540, "http://127.0.0.1:18711": 3627132050719741,
               "http://127.0.0.1:30001": 3054707545803288, "http://localhost:50051": 6765760683790158,
               "http://[2001:db8::1]:50051": 6527129799989293}
    assert {url: worker_id(url) for url in vectors} == vectors
    engines = [family.engine(launcher) for _ in range(2)]
    server = family.serve(launcher, engines)
    wait_healthy(server, 2)
    expected = {engine.url: worker_id(engine.url) for engine in engines}
    assert worker_ids(server) == expected
    again = family.serve(launcher, [f"{engine.address}/" for engine in reversed(engines)])
    wait_healthy(again, 2)
    assert worker_ids(again) == expected, "the same for every frontend, spelling and start"
    assert probe(launcher, family, engines[0])["worker_id"] == expected[engines[0].url]


def probe(launcher, family, engine):
    """What the engine tells of itself."""
    done = launcher.run("probe", "--direct-backend", family.backend, engine.url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
