"""The simulated vLLM engine over gRPC: formulas, request rules, what it reports."""

import math
import random

import grpc
import pytest
from fairlead.vllm_api import Api, Formula, logprob


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


def test_logprobs_of_a_whole_vocabulary(start):
    api = start("--vocab-size", 49152, "--max-logprobs", -1)
    everything = api.pb.CandidateTokens(all=True)
    info = api.unary(max_new_tokens=1, prompt=range(20),
                     response={"prompt_logprobs": True, "prompt_candidates": everything}).prompt_info
    assert [len(entry.tokens) for entry in info.candidate_tokens] == [0] + [49152] * 19
    assert len({c.id for c in info.candidate_tokens[5].tokens}) == 49152


def test_echo_answers_with_the_prompt(start):
    api = start("--reply", "echo", "--eos-token-id", 7)
    ended = api.unary(prompt=[11, 12, 7, 13], max_new_tokens=10).outputs
    assert (list(ended.token_ids), ended.finish_info.eos_token_id) == ([11, 12, 7], 7)
    whole = api.unary(prompt=[11, 12], max_new_tokens=10).outputs
    assert list(whole.token_ids) == [11, 12, 7]
    again = api.unary(prompt=[11, 12], max_new_tokens=5, stopping={"ignore_eos": True}).outputs
    assert list(again.token_ids) == [11, 12, 11, 12, 11]


def test_reasoning_is_marked(start):
    api = start("--extra-engine-args", '{"reasoning": {"start_thinking_token_id": 1, "end_thinking_token_id": 2, '
                                       '"thinking_ratio": 0.5}}')
    tokens = list(api.unary(max_new_tokens=10).outputs.token_ids)
    plain = Formula(42, "req-1").tokens(10)
    assert tokens == [1, *plain[1:4], 2, *plain[5:]]


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


def test_the_debug_port_lists_what_was_asked_for(start):
    api = start("--lora", "adapter")
    pb = api.pb
    api.unary("a", lora_name="adapter", temperature=0.5, sampling=pb.RandomSampling(top_k=3),
              response={"output_logprobs": True, "output_candidates": pb.CandidateTokens(top_n=2)})
    api.refused("b", temperature=5)
    first, second = api.engine.requests()
    assert (first["request_id"], first["lora"], first["extra_args"], first["stream"]) == ("a", "adapter", None, False)
    assert first["sampling"] == {"temperature": 0.5, "top_k": 3, "max_new_tokens": 5}
    assert first["logprobs"]["output_candidates"] == {"top_n": 2}
    assert second["refusal"] == "temperature must be in [0, 2], got 5"
    assert api.engine.state()["requests_with_extra_args"] == 0


def test_logprob_faults(start):
    api = start()
    tokens = Formula(42, "req-1").tokens(5)
    wanted = {"output_logprobs": True, "output_candidates": api.pb.CandidateTokens(top_n=2), "prompt_logprobs": True}

    def outputs(fault):
        api.engine.set_faults(fault)
        response = api.unary(response=wanted)
        assert list(response.outputs.token_ids) == tokens
        return response.prompt_info, response.outputs

    for fault in ("logprobs-null", "logprobs-empty"):
        prompt, output = outputs(fault)
        assert not prompt.logprobs and not output.logprobs and not output.candidate_tokens
    prompt, output = outputs("logprobs-short")
    assert (len(prompt.logprobs), len(output.logprobs), len(output.candidate_tokens)) == (9, 4, 4)
    _, output = outputs("logprob-nan:1")
    assert [math.isnan(value) for value in output.logprobs] == [False, True, False, False, False]
    _, output = outputs("logprob-unsampled:2")
    present = [t in [c.id for c in entry.tokens] for t, entry in zip(tokens, output.candidate_tokens, strict=True)]
    assert present == [True, True, False, True, True]


def test_adapters(start):
    api = start("--lora", "one", "--lora", "another", "--block-size", 4)
    control = api.control_pb
    adapters = api.control.ListLoras(control.ListLorasRequest()).adapters
    assert [(a.lora_name, a.lora_id) for a in adapters] == [("another", 2), ("one", 1)]
    assert api.control.GetModelInfo(control.GetModelInfoRequest()).supports_lora
    assert api.control.GetServerInfo(control.GetServerInfoRequest()).max_loras == 2
    plain, adapted = api.unary().outputs.token_ids, api.unary(lora_name="one").outputs.token_ids
    assert list(plain) == Formula(42, "req-1").tokens(5)
    assert list(adapted) == Formula(Formula(42, "one").start, "req-1").tokens(5)
    assert sorted(chain["lora_name"] for chain in api.engine.kv()["chains"]) == ["", "one"]
    assert api.refused(lora_name="three")[0] is grpc.StatusCode.NOT_FOUND


def test_without_adapters_their_calls_fail(start):
    api = start("--lora", "one", "--without", "lora")
    with pytest.raises(grpc.RpcError) as refused:
        api.control.ListLoras(api.control_pb.ListLorasRequest())
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert api.refused(lora_name="one")[0] is grpc.StatusCode.FAILED_PRECONDITION
    assert not api.control.GetModelInfo(api.control_pb.GetModelInfoRequest()).supports_lora


def test_a_model_that_takes_no_temperature(start):
    api = start("--refuse-temperature")
    api.unary()
    for temperature in (0.0, 0.7):
        code, details = api.refused(temperature=temperature)
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "temperature" in details


def test_an_eos_inside_the_canvas_ends_nothing(start):
    api = start("--eos-token-id", 9, "--canvas-eos", 2)
    outputs = api.unary(stopping={"stop_token_ids": [9]}).outputs
    wanted = Formula(42, "req-1").tokens(5)
    wanted[2] = 9
    assert list(outputs.token_ids) == wanted
    assert outputs.finish_info.finish_reason == api.pb.FinishInfo.LENGTH


def test_chosen_candidates_are_ignored_by_servers_that_lack_them(start):
    api = start("--without", "logprob-token-ids")
    chosen = api.pb.CandidateTokens(token_ids=api.pb.TokenIds(ids=[5, 3]))
    outputs = api.unary(max_new_tokens=1, response={"output_logprobs": True, "output_candidates": chosen}).outputs
    assert len(outputs.logprobs) == 1 and not outputs.candidate_tokens[0].tokens
