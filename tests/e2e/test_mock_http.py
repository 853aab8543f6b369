"""The simulated vLLM HTTP server: recorded answers of the real ones, formulas, faults, flavours."""

import json
import re
from pathlib import Path

import httpx
import pytest
from fairlead import http_client, scaled
from fairlead.vllm_api import Formula, logprob

CAPTURES = Path(__file__).resolve().parents[1] / "fixtures/captures/vllm/http"
FLAVORS = {"rust-0.33": "rust-0.33.0", "rust-0.32": "rust-0.32.0", "python-0.32": "python-0.32.0"}
EXTRA_KEYS = {"rust-0.33": ("vllm_xargs", "extra_args"), "rust-0.32": ("vllm_xargs",), "python-0.32": ("extra_args",)}
GENERATE = "/inference/v1/generate"
FRANCE = [504, 3575, 282, 4649, 314]
GREEDY = {"temperature": 0, "max_tokens": 3}


def sampling(**fields):
    return {"sampling_params": {**GREEDY, **fields}}


# The requests of the recorded sections, in their order: body and headers.
RECORDED = {
    "gen": [({"token_ids": FRANCE, **sampling(logprobs=2, prompt_logprobs=1)}, {})],
    "gen ids": [({"request_id": "my-id", "model": "smollm2", "token_ids": FRANCE, **sampling(),
                  "return_token_ids": True, "cache_salt": "s", "kv_transfer_params": {"do_remote_decode": True}}, {})],
    "gen stream": [({"token_ids": FRANCE, "stream": True, "stream_options": {"include_usage": True},
                     "return_token_ids": True, **sampling(logprobs=1)}, {})],
    "gen xargs via vllm_xargs": [({"token_ids": FRANCE, **sampling(vllm_xargs={"target_token": 100})}, {})],
    "gen xargs via extra_args": [({"token_ids": FRANCE, **sampling(extra_args={"target_token": 100})}, {})],
    "gen xargs stop/text/n": [
        ({"token_ids": [504, 3575], **sampling(n=2)}, {}),
        ({"token_ids": [504, 3575], "sampling_params": {"temperature": 0, "max_tokens": 8, "stop": ["the"]}}, {}),
        ({"token_ids": [504, 3575], "output_mode": "text", **sampling()}, {})],
    "gen errors": [
        ({"token_ids": [], "sampling_params": {}}, {}),
        ({"token_ids": [99999], "sampling_params": {}}, {}),
        ({"sampling_params": {}}, {}),
        ({"token_ids": [1], "model": "zz", "sampling_params": {}}, {}),
        ({"token_ids": [99999], "stream": True, "sampling_params": {}}, {})],
    "gen dp header": [
        ({"token_ids": [504], "sampling_params": {"max_tokens": 1}}, {"X-data-parallel-rank": "0"}),
        ({"token_ids": [504], "sampling_params": {"max_tokens": 1}}, {"X-data-parallel-rank": "3"})],
}


def events(text):
    """The data of each event: JSON, or the end mark."""
    data = re.findall(r"^data: (.*)$", text, re.MULTILINE)
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def recorded(flavor):
    """Section to its answers, each a list of events or one document."""
    sections = {}
    for name, text in re.findall(r"^== (.*)\n((?:(?!== ).*\n?)*)", (CAPTURES / f"{FLAVORS[flavor]}.txt").read_text(),
                                 re.MULTILINE):
        answers, stream = [], []
        for line in filter(None, text.splitlines()):
            if line.startswith("data: "):
                stream.append(line)
                if line == "data: [DONE]":
                    answers.append(events("\n".join(stream)))
                    stream = []
            elif line.startswith("{"):
                answers.append(json.loads(line))
        sections[name] = answers
    return sections


def tokens_of(answer):
    if isinstance(answer, list):
        return [t for event in answer[:-1] for choice in event.get("choices", []) for t in choice["token_ids"]]
    return [t for choice in answer.get("choices", []) for t in choice["token_ids"]]


def shape(value, key=""):
    """What has to be equal: members in their order, lengths, everything that no model decides."""
    if isinstance(value, dict):
        if key == "prompt_logprobs":
            return [shape(entry) for entry in [next(iter(value.values()))]]
        return {k: shape(v, k) for k, v in value.items()}, list(value)
    if isinstance(value, list):
        return [shape(item, key) for item in value]
    if key in ("logprob", "text"):
        return type(value)
    if key in ("request_id", "created", "decoded_token"):
        return re.sub(r"[0-9a-f]{6,}|\d{6,}", "#", str(value)) if key != "decoded_token" else type(value)
    if key == "rank" or (key == "token_id" and value is not None):
        return type(value)
    return value


@pytest.fixture
def start(mock_engine):
    """Factory: an engine of a flavour without delays, and a client of it."""
    clients = []

    def factory(*flags, flavor="rust-0.33", **how):
        engine = mock_engine("--speedup-ratio", 0, *flags, backend="vllm-http", flavor=flavor, **how)
        clients.append(http_client(engine.url))
        return engine, clients[-1]

    yield factory
    for client in clients:
        client.close()


@pytest.fixture(params=sorted(FLAVORS))
def flavor(request):
    return request.param


def generate(client, ids=FRANCE, headers=None, **body):
    body = {"token_ids": list(ids), "sampling_params": {"max_tokens": 3}, **body}
    return client.post(GENERATE, json=body, headers=headers)


def choice(client, *args, **body):
    answer = generate(client, *args, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def stream(client, *args, **body):
    answer = generate(client, *args, stream=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def test_answers_as_the_recorded_servers(start, flavor, tmp_path):
    wanted = recorded(flavor)
    # Stop strings are searched in the simulated text, where the recorded one does not occur.
    skipped = ("gen xargs stop/text/n", 1) if flavor == "python-0.32" else None
    cases = [(name, i, request, wanted[name][i]) for name, requests in RECORDED.items()
             for i, request in enumerate(requests) if (name, i) != skipped]
    script = tmp_path / "script.jsonl"
    script.write_text("".join(f"{json.dumps(tokens_of(answer))}\n" for *_, answer in cases if tokens_of(answer)))
    engine, client = start("--vocab-size", 49152, "--max-model-len", 1024, "--alias", "smol-alias", "--reply",
                           f"script:{script}", flavor=flavor, model="smollm2")
    for name, i, (body, headers), answer in cases:
        got = client.post(GENERATE, json=body, headers=headers)
        is_stream = got.headers["content-type"].startswith("text/event-stream")
        seen = events(got.text) if is_stream else got.json()
        assert shape(seen) == shape(answer), (name, i)
        if "error" in answer:
            assert got.status_code == answer["error"]["code"] if isinstance(answer["error"]["code"], int) else True
    assert engine.wait_idle()["requests_total"] == len(cases)


def test_pages(start, flavor):
    engine, client = start("--alias", "other", "--model-id", "/models/m", "--lora", "adapter", flavor=flavor)
    health = client.get("/health")
    assert (health.status_code, health.content) == (200, b"")
    version = client.get("/version").json()
    assert ("rust_frontend_version" in version) == flavor.startswith("rust")
    assert version["version"] == FLAVORS[flavor].split("-")[1]
    models = client.get("/v1/models").json()["data"]
    owner = "vllm-frontend-rs" if flavor.startswith("rust") else "vllm"
    assert [(m["id"], m["parent"], m["max_model_len"], m["owned_by"]) for m in models] == [
        ("mock", None, 32768, owner), ("other", None, 32768, owner), ("adapter", "mock", 32768, owner)]
    assert models[0]["root"] == "/models/m"
    assert client.get("/load").json() == {"server_load": 0}
    assert client.get("/kv_event_sources").json()["0"]["enable_kv_cache_events"] is False
    assert client.get("/nothing").status_code == client.post("/v1/chat/completions", json={}).status_code == 404
    assert client.get(GENERATE).status_code == client.post("/version").status_code == 405
    prompt = list(range(1000, 1128))
    for _ in range(2):
        assert generate(client, prompt).status_code == 200
    metrics = client.get("/metrics").text
    labels = 'model_name="mock",engine="0"'
    for line in ("vllm:num_requests_running{%s} 0", "vllm:prompt_tokens_total{%s} 256",
                 "vllm:prefix_cache_hits_total{%s} 64", "vllm:generation_tokens_total{%s} 6",
                 'vllm:request_success_total{%s,finished_reason="length"} 2'):
        assert line % labels in metrics
    assert ("vllm:cache_config_info" in metrics) == (flavor == "python-0.32")
    client.post(GENERATE, json={"token_ids": [1], "model": "other", "sampling_params": {"max_tokens": 1}})
    engine.set_faults("not-serving")
    assert client.get("/health").status_code == 503


def test_tokens_follow_the_formula(start, flavor):
    _, client = start("--seed", 7, flavor=flavor)
    wanted = Formula(7, "req-1").tokens(5)
    assert choice(client, request_id="req-1", sampling_params={"max_tokens": 5})["token_ids"] == wanted
    got = stream(client, request_id="req-1", sampling_params={"max_tokens": 5})
    assert tokens_of(got) == wanted
    assert [len(e["choices"][0]["token_ids"]) for e in got[:-1]] == [1] * 5
    prefix = "generate-tokens-" if flavor == "python-0.32" else ""
    assert {e["request_id"] for e in got[:-1]} == {f"{prefix}req-1"}


def test_what_is_absent_has_a_default(start, flavor):
    _, client = start("--max-model-len", 40, flavor=flavor)
    answer = choice(client, [1] * 5, sampling_params={})
    assert len(answer["token_ids"]) == (16 if flavor == "python-0.32" else 35)
    too_much = generate(client, [1] * 5, sampling_params={"max_tokens": 100})
    if flavor == "python-0.32":
        assert too_much.status_code == 400 and too_much.json()["error"]["param"] == "max_tokens"
    else:
        assert len(too_much.json()["choices"][0]["token_ids"]) == 35
    assert generate(client, [1] * 40).status_code == (400)


def test_stopping(start, flavor):
    _, client = start("--eos-token-id", 9, "--reply", "echo", flavor=flavor)
    ended = choice(client, [11, 12, 9, 13], sampling_params={"max_tokens": 10})
    assert (ended["token_ids"], ended["finish_reason"], ended["stop_reason"]) == ([11, 12, 9], "stop", None)
    stopped = choice(client, [11, 12, 13], sampling_params={"max_tokens": 10, "stop_token_ids": [12]})
    assert (stopped["token_ids"], stopped["finish_reason"], stopped["stop_reason"]) == ([11, 12], "stop", 12)
    *_, last, done = stream(client, [11, 12, 13], sampling_params={"max_tokens": 10, "stop_token_ids": [12]})
    assert last["choices"][0]["stop_reason"] == 12 and done == "[DONE]"
    held_off = choice(client, [11, 12, 13], sampling_params={"max_tokens": 4, "min_tokens": 3, "ignore_eos": True,
                                                             "stop_token_ids": [12]})
    assert held_off["token_ids"] == [11, 11, 13, 11] and held_off["finish_reason"] == "length"


def test_python_searches_stop_strings_and_answers_with_text(start):
    _, client = start("--reply", "echo", flavor="python-0.32")
    got = choice(client, [11, 12, 13], output_mode="text", sampling_params={"max_tokens": 9, "stop": "12>"})
    assert (got["token_ids"], got["text"]) == ([11, 12], "<token:11><token:")
    assert (got["finish_reason"], got["stop_reason"]) == ("stop", "12>")


def test_usage_in_every_event_when_asked(start, flavor):
    _, client = start(flavor=flavor)
    got = stream(client, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert [e["usage"]["completion_tokens"] for e in got[:-1]] == [1, 2, 3, 3]
    plain = stream(client)
    assert all(not e.get("usage") for e in plain[:-1]) and plain[-2]["choices"][0]["finish_reason"] == "length"


WRONG_TYPES = [
    ({"token_ids": "abc"}, "token_ids"), ({"token_ids": [1, "x"]}, "token_ids"), ({"stream": "yes"}, "stream"),
    ({"sampling_params": 5}, "sampling_params"), ({"sampling_params": {"temperature": "hot"}}, "temperature"),
    ({"sampling_params": {"max_tokens": [1]}}, "max_tokens"), ({"sampling_params": {"logprobs": 1.5}}, "logprobs"),
    ({"sampling_params": {"logit_bias": {"x": 1}}}, "logit_bias"),
    ({"sampling_params": {"stop_token_ids": 5}}, "stop_token_ids"),
]


@pytest.mark.parametrize(("body", "field"), WRONG_TYPES)
def test_wrong_types_are_refused(start, flavor, body, field):
    _, client = start(flavor=flavor)
    refused = generate(client, **body)
    assert refused.status_code == 400
    assert field in refused.json()["error"]["message"]


def test_no_json_is_refused(start, flavor):
    _, client = start(flavor=flavor)
    for body in (b"{bad", b"", b"[1]", b"\xff"):
        refused = client.post(GENERATE, content=body)
        assert refused.status_code == 400 and refused.json()["error"]["message"]


def test_which_key_takes_extra_arguments_can_be_probed(start, flavor):
    """A wrong type under a known key is found before the empty prompt; an unknown key changes nothing."""
    _, client = start(flavor=flavor)

    def error_with(**fields):
        return generate(client, [], sampling_params=fields).json()["error"]["message"]

    plain = error_with(nonsense=5)
    assert error_with() == plain
    known = {key for key in ("vllm_xargs", "extra_args") if error_with(**{key: 5}) != plain}
    assert known == set(EXTRA_KEYS[flavor])


def test_fields_are_known_where_the_real_servers_know_them(start, flavor):
    _, client = start("--vocab-size", 100, flavor=flavor)
    rust = flavor.startswith("rust")

    def status(**fields):
        return generate(client, [5], sampling_params={"max_tokens": 1, **fields}).status_code

    assert status(logit_bias={}) == 200
    assert status(logit_bias={"7": 0.5}) == (400 if rust else 200)
    assert status(bad_words_token_ids=[[7, 8], [9]]) == status(bad_words=["word"]) == 200
    for wrong in ("?", [7], [["x"]], [[-1]], [[]], [[7], [100]]):
        assert status(bad_words_token_ids=wrong) == (400 if rust else 200), wrong
    _, older = start("--without", "bad-words-token-ids", flavor=flavor)
    assert generate(older, sampling_params={"max_tokens": 1, "bad_words_token_ids": "?"}).status_code == 200


@pytest.mark.parametrize(("flavor", "lacking", "dialect", "capabilities"), [
    ("rust-0.33", [], "rust/extra_args+logprob_token_ids+bad_words_token_ids",
     {"vllm_xargs", "logprob_token_ids", "bad_words_token_ids"}),
    ("rust-0.32", ["logprob-token-ids"], "rust/vllm_xargs+bad_words_token_ids", {"vllm_xargs", "bad_words_token_ids"}),
    ("rust-0.32", ["bad-words-token-ids"], "rust/vllm_xargs+logprob_token_ids", {"vllm_xargs", "logprob_token_ids"}),
    ("python-0.32", [], "python/extra_args+logprob_token_ids+logit_bias", {"vllm_xargs", "logprob_token_ids"}),
    ("rust-0.33", ["vllm-xargs"], "rust/+logprob_token_ids+bad_words_token_ids",
     {"logprob_token_ids", "bad_words_token_ids"}),
])
def test_a_probe_finds_the_fields(start, launcher, flavor, lacking, dialect, capabilities):
    engine, _ = start(*(flag for name in lacking for flag in ("--without", name)), flavor=flavor)
    done = launcher.run("probe", f"vllm-http={engine.url}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["dialect"], set(found["capabilities"]) - {"prompt_logprobs"}) == (dialect, capabilities)


def test_two_keys_are_one_field_given_twice(start):
    _, client = start()
    refused = generate(client, sampling_params={"vllm_xargs": {"a": 1}, "extra_args": {"a": 1}})
    assert refused.status_code == 400
    assert "duplicate field `vllm_xargs`" in refused.json()["error"]["message"]


def test_without_a_capability_an_older_server_is_played(start):
    _, client = start("--without", "vllm-xargs", "--without", "kv-event-sources", "--without", "logprob-token-ids",
                      "--without", "lora", "--lora", "adapter")
    ids = choice(client, request_id="a", sampling_params={"max_tokens": 3, "vllm_xargs": {"target_token": 5},
                                                          "extra_args": 7, "logprob_token_ids": "no list"})
    assert ids["token_ids"] == Formula(42, "a").tokens(3) and ids["logprobs"] is None
    assert client.get("/kv_event_sources").status_code == 404
    assert [m["id"] for m in client.get("/v1/models").json()["data"]] == ["mock"]
    assert generate(client, model="adapter").status_code == 404


def test_without_the_token_route_generation_is_forbidden(start, flavor):
    engine, client = start("--without", "token-route", flavor=flavor)
    refused = generate(client)
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "PermissionDeniedError")
    assert refused.json()["error"]["message"].startswith("Scale-out endpoints are disabled.")
    assert engine.state()["requests_total"] == 0


def test_abort_when_the_client_leaves(start, flavor):
    engine, client = start("--token-interval-ms", 5, flavor=flavor)
    body = {"token_ids": FRANCE, "sampling_params": {"max_tokens": 5000}}
    with client.stream("POST", GENERATE, json={**body, "stream": True}) as answer:
        lines = answer.iter_lines()  # its end would close the answer
        next(lines)
        engine.wait_state(running=1)
    engine.wait_state(running=0, waiting=0, kv_blocks_used=0, aborted_total=1)
    with pytest.raises(httpx.ReadTimeout):
        client.post(GENERATE, json=body, timeout=0.3)
    engine.wait_state(running=0, waiting=0, kv_blocks_used=0, aborted_total=2)


def test_python_aborts_by_the_id_it_answers_with(start):
    engine, client = start("--token-interval-ms", 5, flavor="python-0.32")
    with client.stream("POST", GENERATE, json={"request_id": "x", "token_ids": FRANCE, "stream": True,
                                               "sampling_params": {"max_tokens": 5000}}) as answer:
        lines = answer.iter_lines()
        next(lines)
        for ids in (["x"], ["generate-tokens-x"]):
            done = httpx.post(f"{engine.url}/inference/v1/abort_requests", json={"request_ids": ids}, trust_env=False,
                              timeout=scaled(10))
            assert done.status_code == 200
        rest = events("\n".join(lines))
    assert rest[-2]["choices"][0]["finish_reason"] == "abort" and rest[-1] == "[DONE]"
    engine.wait_state(running=0, waiting=0, aborted_total=1)


def test_faults(start, flavor):
    engine, client = start(flavor=flavor)
    ten = {"sampling_params": {"max_tokens": 10}, "request_id": "a"}
    engine.set_faults("error-after:0:UNAVAILABLE")
    refused = generate(client, stream=True, **ten)
    assert refused.status_code == 503 and refused.json()["error"]["message"] == "injected fault"
    engine.set_faults("error-after:2:429")
    *first, error, done = stream(client, **ten)
    assert (len(tokens_of([*first, done])), "error" in error, done) == (2, True, "[DONE]")
    assert generate(client, **ten).status_code == 429
    engine.set_faults("end-after:2")
    cut = stream(client, **ten)
    assert len(cut) == 2 and not any(e["choices"][0].get("finish_reason") for e in cut)
    engine.set_faults("reset-after:2")
    with pytest.raises(httpx.TransportError):
        stream(client, **ten)
    with pytest.raises(httpx.TransportError):
        generate(client, **ten)
    engine.set_faults("stall-after:1")
    with pytest.raises(httpx.ReadTimeout):
        client.post(GENERATE, json={"token_ids": FRANCE, **ten}, timeout=0.3)
    engine.set_faults("stall-open")
    with pytest.raises(httpx.ReadTimeout):
        client.post(GENERATE, json={"token_ids": FRANCE, **ten}, timeout=0.3)
    engine.set_faults("refuse")
    with pytest.raises(httpx.TransportError):
        generate(client, **ten)
    engine.set_faults("slow:10")
    assert choice(client, **ten)["token_ids"] == Formula(42, "a").tokens(10)
    engine.wait_state(running=0, waiting=0, kv_blocks_used=0)


def test_limits_refuse(start, flavor):
    engine, client = start("--max-concurrent-requests", 1, "--token-interval-ms", 5, flavor=flavor)
    with client.stream("POST", GENERATE, json={"token_ids": FRANCE, "stream": True,
                                               "sampling_params": {"max_tokens": 5000}}):
        engine.wait_state(running=1)
        with http_client(engine.url) as other:
            assert generate(other).status_code == 429
            assert other.get("/load").json() == {"server_load": 1}
    engine.wait_idle()


def test_data_parallel_ranks_have_their_own_cache_and_events(start, flavor):
    engine, client = start("--data-parallel-size", 2, "--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0",
                           "--block-size", 4, flavor=flavor)
    assert choice(client, range(1000, 1010), headers={"x-data-parallel-rank": "1"})
    assert {chain["rank"] for chain in engine.kv()["chains"]} == {1}
    sources = client.get("/kv_event_sources").json()
    assert sorted(sources) == ["0", "1"]
    assert sources["0"]["publisher"] == "zmq" and sources["0"]["endpoint"] == f"tcp://{engine.addresses['kv_events']}"
    assert sources["0"]["replay_endpoint"] == f"tcp://{engine.addresses['kv_replay']}"


def test_a_prefill_is_handed_on_unless_streamed(start):
    _, prefill = start("--role", "prefill")
    _, decode = start("--role", "decode")
    prompt = list(range(1000, 1200))
    want = {"kv_transfer_params": {"do_remote_decode": True}, "sampling_params": {"max_tokens": 1}}
    params = generate(prefill, prompt, **want).json()["kv_transfer_params"]
    assert params["do_remote_prefill"] is True and params["remote_block_ids"] == [0, 1, 2, 3]
    assert all("kv_transfer_params" not in e for e in stream(prefill, prompt, **want)[:-1])
    assert choice(decode, prompt, request_id="a", kv_transfer_params=params)["token_ids"] == Formula(42, "a").tokens(3)
    assert generate(decode, prompt).status_code == 400
    assert generate(prefill, prompt).status_code == 400


# --- log-probabilities


def test_logprobs(start, flavor):
    _, client = start(flavor=flavor)
    first = Formula(42, "a").token(0)
    for k, ids in ((0, []), (1, [first]), (3, [first, first + 1, first + 2])):
        entry = choice(client, request_id="a", sampling_params={"max_tokens": 1, "logprobs": k})["logprobs"]["content"][0]
        assert (entry["token_id"], entry["rank"]) == (first, 1)
        assert entry["logprob"] == pytest.approx(logprob(first))
        assert [(c["token_id"], c["rank"]) for c in entry["top_logprobs"]] == [(t, i + 1) for i, t in enumerate(ids)]
    chosen = [5, first, 3]
    entry = choice(client, request_id="a", sampling_params={"max_tokens": 1, "logprob_token_ids": chosen})
    top = entry["logprobs"]["content"][0]["top_logprobs"]
    assert [(c["token_id"], c["rank"]) for c in top] == [(5, 1), (first, 2), (3, 3)]
    assert top[1]["logprob"] == pytest.approx(logprob(first))
    assert generate(client, sampling_params={"logprobs": 21}).status_code == 400
    assert generate(client, sampling_params={"logprob_token_ids": list(range(129))}).status_code == 400
    prompt = generate(client, [11, 12], sampling_params={"max_tokens": 1, "prompt_logprobs": 2}).json()["prompt_logprobs"]
    assert prompt[0] is None and list(prompt[1]) == ["12", "13"] and prompt[1]["13"]["rank"] == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_logprob_faults(start, flavor, streamed):
    engine, client = start(flavor=flavor)
    tokens = Formula(42, "a").tokens(3)

    def entries():
        """Of each choice: its entries, or None."""
        body = {"request_id": "a", "sampling_params": {"max_tokens": 3, "logprobs": 2}}
        found = [e["choices"][0] for e in stream(client, **body)[:-1]] if streamed else [choice(client, **body)]
        assert [t for c in found for t in c["token_ids"]] == tokens
        return [c["logprobs"]["content"] if c.get("logprobs") else None for c in found]

    def flat():
        return [entry for part in entries() for entry in part]

    assert [e["token_id"] for e in flat()] == tokens
    engine.set_faults("logprobs-null")
    assert set(entries()) == {None}
    engine.set_faults("logprobs-empty")
    assert all(part == [] for part in entries())
    engine.set_faults("logprobs-short")
    assert [e["token_id"] for e in flat()] == tokens[:2]
    engine.set_faults("logprob-nan:1")
    assert [e["logprob"] is None for e in flat()] == [False, True, False]
    engine.set_faults("logprob-unsampled:2")
    named = [{e["token_id"], *(c["token_id"] for c in e["top_logprobs"])} for e in flat()]
    assert [t in ids for t, ids in zip(tokens, named, strict=True)] == [True, True, False]


def test_cumulative_events(start, flavor):
    engine, client = start(flavor=flavor)
    engine.set_faults("cumulative")
    got = stream(client, request_id="a", sampling_params={"max_tokens": 3, "logprobs": 1})[:-1]
    tokens = Formula(42, "a").tokens(3)
    assert [e["choices"][0]["token_ids"] for e in got] == [tokens[:1], tokens[:2], tokens]
    assert [len(e["choices"][0]["logprobs"]["content"]) for e in got] == [1, 2, 3]


# --- extra arguments, adapters, diffusion


def test_extra_arguments_force_the_token(start, flavor):
    engine, client = start("--vocab-size", 50000, flavor=flavor)
    key = EXTRA_KEYS[flavor][0]
    plain = Formula(42, "a").tokens(3)

    def tokens(value):
        return choice(client, request_id="a", sampling_params={"max_tokens": 3, key: {"target_token": value}})["token_ids"]

    assert tokens(67) == [67, 67, 67]
    assert tokens(0) == plain
    if flavor == "python-0.32":
        bad = generate(client, sampling_params={key: {"target_token": "abc"}})
        assert (bad.status_code, bad.json()["error"]["message"]) == (
            400, "target_token must be a non-negative integer, got 'abc'")
    else:
        assert tokens("abc") == tokens(10.5) == plain
    assert tokens(60000) == plain
    engine.wait_idle()


def test_the_debug_port_lists_what_was_asked_for(start, flavor):
    engine, client = start("--lora", "adapter", flavor=flavor)
    key = EXTRA_KEYS[flavor][0]
    extra = {"target_token": 5, "other": [1, "x", {"deep": None}]}
    generate(client, request_id="a", model="adapter", sampling_params={
        "max_tokens": 2, "temperature": 0.5, key: extra, "logprobs": 2, "logprob_token_ids": [3]})
    generate(client, request_id="b", sampling_params={"max_tokens": 2, key: {}})
    generate(client, request_id="c", sampling_params={"n": 3})
    first, second, third = engine.requests()
    assert first == {"request_id": "a", "model": "adapter", "lora": "adapter", "stream": False, "extra_args": extra,
                     "sampling": {"max_tokens": 2, "temperature": 0.5},
                     "logprobs": {"logprobs": 2, "logprob_token_ids": [3]}, "refusal": None}
    assert (second["extra_args"], second["lora"]) == (None, "")
    assert third["refusal"]
    assert engine.state()["requests_with_extra_args"] == 1
    for i in range(1001):
        generate(client, request_id=f"m{i}", sampling_params={"max_tokens": 1})
    assert [r["request_id"] for r in engine.requests()] == [f"m{i}" for i in range(1, 1001)]


def test_an_adapter_answers_differently_and_shares_no_block(start, flavor):
    engine, client = start("--lora", "one", "--lora", "two", "--block-size", 4, flavor=flavor)
    answers = {model: choice(client, range(1000, 1010), request_id="a", model=model)["token_ids"]
               for model in ("mock", "one", "two")}
    assert answers["mock"] == Formula(42, "a").tokens(3)
    assert answers["one"] == Formula(Formula(42, "one").start, "a").tokens(3)
    assert answers["two"] == Formula(Formula(42, "two").start, "a").tokens(3)
    chains = engine.kv()["chains"]
    assert sorted(chain["lora_name"] for chain in chains) == ["", "one", "two"]
    unknown = generate(client, model="three")
    assert unknown.status_code == 404 and "`three` does not exist" in unknown.json()["error"]["message"]


def test_a_model_that_takes_no_temperature(start, flavor):
    _, client = start("--refuse-temperature", flavor=flavor)
    assert choice(client)
    for temperature in (0, 0.7, 1):
        refused = generate(client, sampling_params={"max_tokens": 3, "temperature": temperature})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")
    assert choice(client, sampling_params={"max_tokens": 3, "temperature": None})


def test_an_eos_inside_the_canvas_ends_nothing(start, flavor, tmp_path):
    _, client = start("--eos-token-id", 9, "--canvas-eos", 2, flavor=flavor)
    got = choice(client, request_id="a", sampling_params={"max_tokens": 6, "stop_token_ids": [9]})
    wanted = Formula(42, "a").tokens(6)
    wanted[2] = 9
    assert (got["token_ids"], got["finish_reason"]) == (wanted, "length")
    script = tmp_path / "script.jsonl"
    script.write_text("[1, 2, 3, 4]\n")
    _, client = start("--eos-token-id", 9, "--canvas-eos", 2, "--reply", f"script:{script}", flavor=flavor)
    own = choice(client, sampling_params={"max_tokens": 6})
    assert (own["token_ids"], own["finish_reason"]) == ([1, 2, 9, 4], "stop")
