"""The simulated vLLM engine over gRPC: formulas, request rules, hand-off, health, dialects, faults."""

import random
import threading

import blake3
import grpc
import httpx
import pytest
from fairlead import scaled, wait_until

MASK = 2**64 - 1


class Formula:
    """The published token formula, written down a second time."""

    def __init__(self, seed, request_id):
        digest = blake3.blake3(seed.to_bytes(8, "little") + request_id.encode()).digest()
        self.start = int.from_bytes(digest[:8], "little")

    def token(self, position):
        v = (self.start + position * 0x9E3779B97F4A7C15) & MASK
        v = ((v ^ v >> 30) * 0xBF58476D1CE4E5B9) & MASK
        v = ((v ^ v >> 27) * 0x94D049BB133111EB) & MASK
        return 1000 + ((v ^ v >> 31) & 0xFFFFFFFF) % 31000

    def tokens(self, count):
        return [self.token(i) for i in range(count)]


def logprob(token):
    return -0.1 * (token % 10 + 1)


class Api:
    """Stubs and messages on one engine."""

    def __init__(self, engine, stubs, service="Inference"):
        self.engine = engine
        self.channel = grpc.insecure_channel(engine.address, options=[
            ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)])
        self.pb = stubs.messages("vllm/inference.proto")
        self.control_pb = stubs.messages("vllm/control.proto")
        self.inference = getattr(stubs.services("vllm/inference.proto"), f"{service}Stub")(self.channel)
        self.control = stubs.services("vllm/control.proto").ControlStub(self.channel)

    def request(self, request_id="req-1", prompt=range(1000, 1010), max_new_tokens=5, *, stopping=None, response=None,
                **fields):
        return self.pb.GenerateRequest(
            request_id=request_id, token_ids=self.pb.TokenIds(ids=prompt),
            stopping=self.pb.StoppingCriteria(max_new_tokens=max_new_tokens, **(stopping or {})),
            response=self.pb.ResponseOptions(**{"output_token_ids": True, **(response or {})}), **fields)

    def stream(self, *args, metadata=None, **fields):
        return list(self.inference.GenerateStream(self.request(*args, **fields), metadata=metadata,
                                                  timeout=scaled(30)))

    def unary(self, *args, **fields):
        return self.inference.Generate(self.request(*args, **fields), timeout=scaled(30))

    def refused(self, *args, **fields):
        """(code, details) of a refused request."""
        with pytest.raises(grpc.RpcError) as refused:
            self.stream(*args, **fields)
        return refused.value.code(), refused.value.details()


@pytest.fixture
def start(mock_engine, stubs):
    opened = []

    def factory(*flags, service="Inference", **how):
        opened.append(Api(mock_engine("--speedup-ratio", 0, *flags, **how), stubs, service))
        return opened[-1]

    yield factory
    for api in opened:
        api.channel.close()


@pytest.fixture(scope="module")
def shared(module_launcher, stubs):
    engine = module_launcher.mock_engine("--speedup-ratio", 0, "--vocab-size", 40000, "--eos-token-id", 39999)
    api = Api(engine, stubs)
    yield api
    engine.wait_state(running=0, waiting=0, kv_blocks_used=0)
    api.channel.close()


def test_tokens_follow_the_formula_for_any_request_id(shared):
    rng = random.Random(1)
    for length in [0, 1, 7, 55, 56, 57, 63, 64, 120, 1015, 1016, 1017, 3000, 5000]:
        request_id = "".join(rng.choices("abcdefghij-_0123456789é字", k=length)) or "x"
        response = shared.unary(request_id, max_new_tokens=20)
        assert list(response.outputs.token_ids) == Formula(42, request_id).tokens(20)
    assert Formula(42, "req-1").tokens(5) == [2110, 19376, 28263, 4772, 16215]


def test_seed_changes_the_tokens(start):
    assert list(start("--seed", 7).unary().outputs.token_ids) == Formula(7, "req-1").tokens(5)


def test_stream_and_unary_say_the_same(shared):
    first, *rest = shared.stream()
    whole = shared.unary()
    assert first.HasField("prompt_info") and not first.HasField("outputs")
    assert [m.outputs.num_tokens for m in rest] == [1] * 5
    assert "".join(m.outputs.text for m in rest) == whole.outputs.text == "".join(
        f"<token:{t}>" for t in Formula(42, "req-1").tokens(5))
    assert [t for m in rest for t in m.outputs.token_ids] == list(whole.outputs.token_ids)
    assert rest[-1].outputs.finish_info == whole.outputs.finish_info
    assert whole.prompt_info == first.prompt_info


def test_an_absent_request_id_is_made_up(shared):
    assert len(shared.unary("").outputs.token_ids) == 5
    recorded = shared.engine.state()["last_requests"][-1]
    assert "request_id" not in recorded


def test_text_can_be_left_out(shared):
    for message in shared.stream(response={"output_text": False})[1:]:
        assert message.outputs.text == ""
    for message in shared.stream(response={"output_token_ids": False})[1:]:
        assert not message.outputs.token_ids and message.outputs.num_tokens == 1


def test_logprobs_and_candidates(shared):
    top = shared.pb.CandidateTokens(top_n=4)
    _, *messages = shared.stream(response={"output_logprobs": True, "output_candidates": top})
    for message, token in zip(messages, Formula(42, "req-1").tokens(5), strict=True):
        outputs = message.outputs
        assert list(outputs.logprobs) == pytest.approx([logprob(token)])
        assert list(outputs.ranks) == [1]
        candidates = outputs.candidate_tokens[0].tokens
        assert [c.id for c in candidates] == [token, token + 1, token + 2, token + 3]  # the token is among them
        assert [c.rank for c in candidates] == [1, 2, 3, 4]
        assert [c.logprob for c in candidates] == pytest.approx([logprob(token) - 0.1 * i for i in range(4)])


def test_older_servers_leave_the_token_out_of_its_candidates(start):
    api = start("--without", "sampled-candidate")
    top = api.pb.CandidateTokens(top_n=2)
    token = Formula(42, "req-1").token(0)
    outputs = api.unary(max_new_tokens=1, response={"output_logprobs": True, "output_candidates": top}).outputs
    assert [(c.id, c.rank) for c in outputs.candidate_tokens[0].tokens] == [(token + 1, 2), (token + 2, 3)]


def test_chosen_candidates_come_in_their_order(shared):
    ids = [5, 3, Formula(42, "req-1").token(0)]
    chosen = shared.pb.CandidateTokens(token_ids=shared.pb.TokenIds(ids=ids))
    outputs = shared.unary(max_new_tokens=1, response={"output_logprobs": True, "output_candidates": chosen}).outputs
    entries = outputs.candidate_tokens[0].tokens
    assert [e.id for e in entries] == ids
    assert [e.rank for e in entries] == [1, 2, 3]
    assert entries[2].logprob == pytest.approx(logprob(ids[2]))


def test_prompt_logprobs(shared):
    info = shared.unary(response={"prompt_logprobs": True, "prompt_token_ids": True,
                                  "prompt_candidates": shared.pb.CandidateTokens(top_n=1)}).prompt_info
    prompt = list(range(1000, 1010))
    assert list(info.token_ids) == prompt
    assert list(info.logprobs) == pytest.approx([0.0, *map(logprob, prompt[1:])])
    assert list(info.ranks) == [0] + [1] * 9
    assert [[c.id for c in entry.tokens] for entry in info.candidate_tokens] == [[]] + [[t] for t in prompt[1:]]


def test_stopping(shared):
    tokens = Formula(42, "req-1").tokens(6)
    finish = shared.unary(max_new_tokens=9, stopping={"stop_token_ids": [tokens[2], 1]}).outputs.finish_info
    assert (finish.num_output_tokens, finish.stop_token_id) == (3, tokens[2])
    held_off = shared.unary(max_new_tokens=6, stopping={"stop_token_ids": [tokens[2]], "min_new_tokens": 4}).outputs
    assert tokens[2] not in held_off.token_ids
    assert held_off.finish_info.WhichOneof("stop_reason") is None
    only_eos = {"decoding": shared.pb.DecodingParameters(allowed_token_ids=[39999])}
    eos = shared.unary(**only_eos).outputs
    assert (list(eos.token_ids), eos.finish_info.eos_token_id, eos.text) == ([39999], 39999, "")
    ignored = shared.unary(stopping={"ignore_eos": True}, **only_eos).outputs
    assert list(ignored.token_ids) == [39999] * 5
    stopped = shared.unary(stopping={"stop_strings": ["token:19"], "include_stop_strings": True}).outputs
    assert stopped.text == f"<token:{tokens[0]}><token:19"
    assert stopped.finish_info.stop_string == "token:19"


@pytest.mark.parametrize(("fields", "details"), [
    ({"temperature": 2.5}, "temperature must be in [0, 2], got 2.5"),
    ({"sampling": {"min_p": 2}}, "min_p must be in [0, 1], got 2"),
    ({"sampling": {"top_p": 0}}, "top_p must be in (0, 1], got 0"),
    ({"decoding": {"presence_penalty": 5}}, "presence_penalty must be in [-2, 2], got 5"),
    ({"decoding": {"frequency_penalty": -3}}, "frequency_penalty must be in [-2, 2], got -3"),
    ({"stopping": {"stop_token_ids": [40000, 7, 40001]}},
     "token_id(s) [40000, 40001] in stop_token_ids are out of vocabulary. Vocabulary size: 40000"),
    ({"decoding": {"logit_bias": {40000: 1}}},
     "token_id(s) [40000] in logit_bias are out of vocabulary. Vocabulary size: 40000"),
    ({"decoding": {"allowed_token_ids": [50000]}},
     "token_id(s) [50000] in allowed_token_ids are out of vocabulary. Vocabulary size: 40000"),
    ({"response": {"output_logprobs": True, "output_candidates": {"top_n": 21}}},
     "requested logprobs of 21, which is greater than max allowed: 20"),
    ({"response": {"prompt_logprobs": True, "prompt_candidates": {"all": True}}},
     "requested logprobs of 40000, which is greater than max allowed: 20"),
    ({"truncate_prompt_tokens": 32768},
     "truncate_prompt_tokens=32768 cannot be greater than max_model_len - max_tokens = 32763. "
     "Please request a smaller truncation size."),
])
def test_bad_values_are_refused_in_the_engines_words(shared, fields, details):
    pb = shared.pb
    kinds = {"sampling": pb.RandomSampling, "decoding": pb.DecodingParameters}
    fields = {key: kinds[key](**value) if key in kinds else value for key, value in fields.items()}
    code, message = shared.refused(**fields)
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, details)


def test_what_has_no_effect_is_accepted(shared):
    pb = shared.pb
    shared.unary(priority=5, kv=pb.KVCacheParameters(cache_salt="s" * 2000), session_id="s")
    shared.unary(sampling=pb.RandomSampling(seed=-1, top_k=0, min_p=0, top_p=1.0, num_sequences=1))


def test_not_simulated(shared):
    with pytest.raises(grpc.RpcError) as refused:
        shared.inference.Generate(shared.pb.GenerateRequest(text="hello"))
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    code, _ = shared.refused(lora_name="adapter")
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.RpcError) as refused:
        shared.channel.unary_unary("/vllm.Inference/Nothing")(b"")
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, "")


def test_a_request_above_32_mib_is_out_of_range(shared):
    code, details = shared.refused(prompt=[2**31] * (33 * 1024 * 1024 // 5))
    assert code is grpc.StatusCode.OUT_OF_RANGE
    assert details.startswith("Error, decoded message length too large: found ")
    assert details.endswith(", the limit is: 33554432 bytes")


def test_received_requests_are_shown(shared):
    shared.stream("shown", prompt=[7, 8], metadata=[("x-data-parallel-rank", "0")], session_id="abc")
    received = shared.engine.state()["last_requests"][-1]
    assert received["method"] == "/vllm.Inference/GenerateStream"
    assert received["metadata"]["x-data-parallel-rank"] == "0"
    assert (received["request_id"], received["session_id"]) == ("shown", "abc")
    assert received["token_ids"]["ids"] == [7, 8]
    for i in range(70):
        shared.unary(f"many-{i}")
    assert [r["request_id"] for r in shared.engine.state()["last_requests"]] == [f"many-{i}" for i in range(6, 70)]


def test_cancel_deadline_and_closed_channel_free_everything(start):
    api = start("--token-interval-ms", 20, "--max-num-seqs", 2)
    calls = [api.inference.GenerateStream(api.request(f"c{i}", max_new_tokens=1000)) for i in range(6)]
    api.engine.wait_state(running=2, waiting=4)
    for call in calls[:4]:
        call.cancel()
    with pytest.raises(grpc.RpcError) as late:
        list(api.inference.GenerateStream(api.request("late", max_new_tokens=1000), timeout=0.2))
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    api.engine.wait_state(running=2, waiting=0)
    api.channel.close()
    state = api.engine.wait_state(running=0, waiting=0, kv_blocks_used=0)
    assert state["aborted_total"] == state["requests_total"] == 7


def test_pause_ends_or_freezes_what_runs(start):
    api = start("--token-interval-ms", 5)
    pb = api.control_pb
    stream = api.inference.GenerateStream(api.request(max_new_tokens=1000))
    next(stream)
    api.control.PauseGeneration(pb.PauseGenerationRequest(mode=pb.PAUSE_MODE_ABORT))
    assert list(stream)[-1].outputs.finish_info.finish_reason == api.pb.FinishInfo.ABORTED
    assert api.control.IsPaused(pb.IsPausedRequest()).paused
    assert api.refused()[0] is grpc.StatusCode.UNAVAILABLE
    api.control.ResumeGeneration(pb.ResumeGenerationRequest())
    assert len(api.unary().outputs.token_ids) == 5


def parameters(api, **values):
    kv = api.pb.KVCacheParameters()
    kv.kv_transfer_params.update(values)
    return {"kv": kv}


def test_a_prefill_is_handed_to_a_decode_engine(start):
    prefill, decode = start("--role", "prefill"), start("--role", "decode")
    prompt = list(range(1000, 1200))
    finish = prefill.unary(prompt=prompt, max_new_tokens=1,
                           **parameters(prefill, do_remote_decode=True, do_remote_prefill=False)).outputs.finish_info
    params = finish.kv_transfer_params
    assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
    assert list(params["remote_block_ids"]) == [0, 1, 2, 3]
    response = decode.unary(prompt=prompt, kv=decode.pb.KVCacheParameters(kv_transfer_params=params))
    assert list(response.outputs.token_ids) == Formula(42, "req-1").tokens(5)
    assert response.outputs.finish_info.num_cached_tokens == 199
    # What the client may have rebuilt or turned into text.
    text_port = dict(params, remote_port="0")
    decode.unary(prompt=prompt, **parameters(decode, **{**text_port, "remote_block_ids": [0]}))
    for key in ("remote_engine_id", "remote_host", "remote_port", "remote_block_ids", "mocker_request_id"):
        rest = {k: v for k, v in text_port.items() if k not in (key, "remote_block_ids")}
        if key != "remote_block_ids":
            rest["remote_block_ids"] = [0]
        assert decode.refused(prompt=prompt, **parameters(decode, **rest))[0] is grpc.StatusCode.INVALID_ARGUMENT, key
    for api in (prefill, decode):
        api.engine.wait_state(running=0, waiting=0, kv_blocks_used=0)


def test_only_a_length_finish_is_handed_on(start):
    api = start("--role", "prefill")
    first = Formula(42, "req-1").token(0)
    finish = api.unary(max_new_tokens=1, stopping={"stop_token_ids": [first]},
                       **parameters(api, do_remote_decode=True)).outputs.finish_info
    assert finish.finish_reason == api.pb.FinishInfo.STOP
    assert not finish.HasField("kv_transfer_params")


def test_roles_refuse_the_wrong_requests(start):
    prefill, decode, both = start("--role", "prefill"), start("--role", "decode"), start()
    wrong, state = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION
    assert prefill.refused()[0] is state
    assert decode.refused()[0] is state
    assert prefill.refused(**parameters(prefill, do_remote_decode=True, do_remote_prefill=True))[0] is wrong
    assert prefill.refused(**parameters(prefill, do_remote_decode=True, remote_host="h"))[0] is wrong
    assert decode.refused(**parameters(decode, remote_host="h"))[0] is wrong
    prefill.unary(**parameters(prefill, do_remote_decode=True, remote_host=None, remote_block_ids=None))
    # Without a connector the parameters are ignored, and nothing comes back.
    finish = both.unary(**parameters(both, do_remote_decode=True)).outputs.finish_info
    assert not finish.HasField("kv_transfer_params")


def health(api, method, service=""):
    """Health is called by its bare bytes: the schema's folder hides behind the installed grpc package."""
    request = bytes([0x0A, len(service)]) + service.encode() if service else b""
    call = api.channel.unary_unary if method == "Check" else api.channel.unary_stream
    return call(f"/grpc.health.v1.Health/{method}")(request)


SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def set_faults(api, *faults):
    answer = httpx.post(f"http://{api.engine.addresses['debug']}/debug/fault", json={"faults": faults},
                        trust_env=False)
    answer.raise_for_status()
    return answer.json()


def test_health(start):
    api = start()
    for service in ("", "vllm.Inference", "vllm.Control"):
        assert health(api, "Check", service) == SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        health(api, "Check", "nothing")
    assert (unknown.value.code(), unknown.value.details()) == (grpc.StatusCode.NOT_FOUND, "service not registered")
    watch = health(api, "Watch")
    assert next(watch) == SERVING
    set_faults(api, "not-serving")
    assert next(watch) == NOT_SERVING
    assert health(api, "Check") == NOT_SERVING
    set_faults(api)
    assert next(watch) == SERVING
    watch.cancel()


def test_the_first_servers_have_one_service(start):
    api = start("--dialect", "vllm-generate", service="Generate")
    outputs = api.unary(response={"output_logprobs": True}).outputs
    assert list(outputs.token_ids) == Formula(42, "req-1").tokens(5)
    assert not outputs.finish_info.HasField("num_cached_tokens")
    assert api.refused(temperature=5)[0] is grpc.StatusCode.INTERNAL
    for call in (lambda: api.control.GetServerInfo(api.control_pb.GetServerInfoRequest()),
                 lambda: api.control.Abort(api.control_pb.AbortRequest())):
        with pytest.raises(grpc.RpcError) as missing:
            call()
        assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_an_older_server_reports_less(start):
    api = start("--dialect", "vllm-0.28", "--without", "kv-event-sources")
    info = api.control.GetServerInfo(api.control_pb.GetServerInfoRequest())
    assert (info.proto_version, info.engine_version) == ("", "0.28.0")
    assert not api.unary().outputs.finish_info.HasField("num_cached_tokens")
    with pytest.raises(grpc.RpcError) as missing:
        api.control.GetKvEventSources(api.control_pb.GetKvEventSourcesRequest())
    assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_faults_are_switched_at_run_time(start):
    api = start("--fault", "error-after:2:UNAVAILABLE")
    seen = []
    with pytest.raises(grpc.RpcError) as broken:
        seen.extend(api.inference.GenerateStream(api.request()))
    assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
    assert set_faults(api, "reset-after:3") == {"faults": ["reset-after:3"]}
    got = []
    with pytest.raises(grpc.RpcError):
        for message in api.inference.GenerateStream(api.request()):
            got += message.outputs.token_ids
    assert got == Formula(42, "req-1").tokens(3)
    set_faults(api, "stall-open:all")
    with pytest.raises(grpc.RpcError) as silent:
        api.control.GetServerInfo(api.control_pb.GetServerInfoRequest(), timeout=0.3)
    assert silent.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    set_faults(api, "slow:30")
    assert list(api.unary().outputs.token_ids) == Formula(42, "req-1").tokens(5)
    set_faults(api, "refuse")
    with pytest.raises(grpc.RpcError) as refused:
        api.unary()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    set_faults(api)
    wait_until(lambda: api.unary(), what="the engine to be back")
    bad = httpx.post(f"http://{api.engine.addresses['debug']}/debug/fault", json={"faults": ["nonsense"]},
                     trust_env=False)
    assert bad.status_code == 400 and "nonsense" in bad.json()["error"]
    api.engine.wait_state(running=0, waiting=0, kv_blocks_used=0)


def test_random_load_with_cancels_leaves_nothing(start):
    """Small cache, preemptions, shared prefixes, cancels from many threads."""
    api = start("--block-size", 8, "--num-gpu-blocks", 60, "--max-num-seqs", 5)
    problems = []

    def client(number):
        rng = random.Random(number)
        for i in range(25):
            request_id = f"{number}-{i}"
            count = rng.randrange(1, 120)
            prompt = [rng.randrange(3)] * rng.randrange(1, 200)
            got = []
            stream = api.inference.GenerateStream(api.request(request_id, prompt, count))
            cut = rng.randrange(count) if rng.random() < 0.3 else None
            try:
                for message in stream:
                    got += message.outputs.token_ids
                    if cut is not None and len(got) > cut:
                        stream.cancel()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.CANCELLED:
                    problems.append(error)
            if got != Formula(42, request_id).tokens(len(got)) or (cut is None and len(got) != count):
                problems.append((request_id, got))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    state = api.engine.wait_state(running=0, waiting=0, kv_blocks_used=0)
    assert state["requests_total"] == state["finished_total"] + state["aborted_total"] == 200


@pytest.mark.parametrize("flags", [
    ("--fault", "nonsense"), ("--without", "everything"), ("--dialect", "vllm-9"), ("--role", "both"),
    ("--reply", "script:/no/such/file"), ("--block-size", "0"), ("--kv-replay", "127.0.0.1:0"),
    ("--max-model-len", "1000", "--num-gpu-blocks", "2", "--block-size", "16"),
    ("--extra-engine-args", '{"nonsense": 1}'), ("--listen", "nowhere"),
])
def test_wrong_usage_is_one_line_and_exit_2(launcher, flags):
    done = launcher.run("mock-engine", "--backend", "vllm", *flags)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1 and flags[0] in done.stderr


def test_a_taken_port_is_exit_1(launcher, mock_engine):
    first = mock_engine()
    done = launcher.run("mock-engine", "--backend", "vllm", "--listen", first.address)
    assert done.returncode == 1
    assert first.address in done.stderr
