"""The simulated SGLang engine: what it answers, next to what was captured from a real one."""

import json
import threading

import grpc
import pytest
from fairlead.sglang_api import SglangApi, chain, chain_token
from fairlead.vllm_api import Formula, logprob
from fairlead.waiting import scaled


@pytest.fixture
def start(mock_engine, stubs):
    opened = []

    def factory(*flags, **how):
        opened.append(SglangApi(mock_engine("--speedup-ratio", 0, *flags, backend="sglang", **how), stubs))
        return opened[-1]

    yield factory
    for api in opened:
        api.close()


@pytest.fixture(scope="module", params=["cumulative", "incremental"])
def shared(request, module_launcher, stubs):
    flags = ["--incremental-streaming-output"] if request.param == "incremental" else []
    engine = module_launcher.mock_engine("--speedup-ratio", 0, "--vocab-size", 40000, "--max-model-len", 4096,
                                         "--eos-token-id", 39999, *flags, backend="sglang")
    api = SglangApi(engine, stubs)
    api.incremental = bool(flags)
    yield api
    engine.wait_state(running=0, waiting=0, kv_blocks_used=0)
    api.close()


def joined(api, messages):
    """The whole answer of a stream."""
    return [t for m in messages for t in m.ids] if api.incremental else messages[-1].ids


def test_messages_hold_all_tokens_or_the_new_ones(shared):
    tokens = Formula(42, "s-1").tokens(5)
    messages = shared.generate(rid="s-1")
    assert [m.ids for m in messages] == [[t] if shared.incremental else tokens[:i + 1]
                                         for i, t in enumerate(tokens)]
    assert [m.meta["completion_tokens"] for m in messages] == [1, 2, 3, 4, 5]
    assert [m.finished for m in messages] == [False] * 4 + [True]
    assert [m.finish for m in messages] == [None] * 4 + [{"type": "length", "length": 5}]
    assert {m.meta["id"] for m in messages} == {"s-1"}
    (whole,) = shared.generate(rid="s-1", stream=False)
    assert (whole.ids, whole.finished) == (tokens, True)


def test_what_each_message_tells(shared):
    messages = shared.generate(max_new_tokens=3)
    always = {"id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", "cached_tokens_details",
              "dp_rank", "reasoning_tokens", "num_retractions", "weight_version"}
    assert [set(m.meta) - always for m in messages] == [
        {"response_sent_to_client_ts"}, set(), {"e2e_latency", "weight_versions"}]
    assert messages[-1].meta["e2e_latency"] < 0
    assert messages[-1].meta["weight_versions"] == [{"version": "default", "start": 0, "end": 3}]


def test_logprobs(shared):
    tokens = Formula(42, "lp").tokens(3)
    messages = shared.generate(rid="lp", max_new_tokens=3, return_logprob=True, top_logprobs_num=2)
    entries = [[pytest.approx(logprob(t)), t, None] for t in tokens]
    tops = [[[pytest.approx(logprob(t) - 0.1 * i), t + i, None] for i in range(2)] for t in tokens]
    for i, message in enumerate(messages):
        shown = slice(i, i + 1) if shared.incremental else slice(0, i + 1)
        assert message.meta["output_token_logprobs"] == entries[shown]
        assert message.meta["output_top_logprobs"] == tops[shown]
        assert message.meta["output_token_logprobs_length"] == i + 1
        assert message.meta["input_token_logprobs"] == message.meta["input_top_logprobs"] == []


def test_prompt_logprobs_come_with_every_message(shared):
    prompt = [1000, 1001, 1002]
    messages = shared.generate(prompt, 2, return_logprob=True, top_logprobs_num=1, logprob_start_len=0)
    assert len(messages) == 2
    for message in messages:
        assert message.meta["input_token_logprobs"] == [
            [None, 1000, None], *([pytest.approx(logprob(t)), t, None] for t in prompt[1:])]
        assert message.meta["input_top_logprobs"] == [
            None, *([[pytest.approx(logprob(t)), t, None]] for t in prompt[1:])]
    (later, *_) = shared.generate(prompt, 1, return_logprob=True, logprob_start_len=1)
    assert [entry[1] for entry in later.meta["input_token_logprobs"]] == [1001, 1002]
    assert "input_top_logprobs" not in later.meta


def test_choices_are_interleaved_without_an_index(shared):
    messages = shared.generate(max_new_tokens=3, rid="many", sampling={"n": 2})
    ids = [m.meta["id"] for m in messages]
    assert len(set(ids)) == 2 and "many" not in ids
    assert ids[0] != ids[1] and ids == ids[:2] * 3
    assert [m.finished for m in messages] == [False] * 5 + [True]
    assert [m.finish is None for m in messages] == [True] * 4 + [False] * 2
    whole = shared.generate(max_new_tokens=3, stream=False, sampling={"n": 2})
    assert [(len(m.ids), m.finished) for m in whole] == [(3, False), (3, True)]
    assert len(shared.generate(max_new_tokens=2, sampling={"n": 0})) == 2


def test_what_stops_an_answer_is_in_its_ids(shared):
    tokens = Formula(42, "stop").tokens(6)
    by_token = shared.generate(rid="stop", max_new_tokens=9, sampling={"stop_token_ids": [tokens[2]]})
    assert joined(shared, by_token) == tokens[:3]
    assert by_token[-1].finish == {"type": "stop", "matched": tokens[2]}
    by_text = shared.generate(rid="stop", max_new_tokens=9, sampling={"stop": [f"{tokens[1]}>"]}, return_text=True)
    assert joined(shared, by_text) == tokens[:2]
    assert by_text[-1].finish == {"type": "stop", "matched": f"{tokens[1]}>"}
    shown = "".join(m.text for m in by_text) if shared.incremental else by_text[-1].text
    assert shown == f"<token:{tokens[0]}><token:"


def test_text_only_when_asked_for(shared):
    assert {m.text for m in shared.generate(max_new_tokens=2)} == {None}
    tokens = Formula(42, "txt").tokens(2)
    texts = [m.text for m in shared.generate(rid="txt", max_new_tokens=2, return_text=True)]
    parts = [f"<token:{t}>" for t in tokens]
    assert texts == (parts if shared.incremental else [parts[0], "".join(parts)])


def test_lengths(shared):
    (empty,) = shared.generate(max_new_tokens=0)
    assert (empty.ids, empty.finished, empty.finish) == ([], True, {"type": "length", "length": 0})
    assert empty.meta["completion_tokens"] == 0
    (unset,) = shared.generate(max_new_tokens=None, stream=False)
    assert len(unset.ids) == 128


@pytest.mark.parametrize(("fields", "details"), [
    ({"prompt": []}, "input_ids cannot be empty."),
    ({"prompt": [1] * 5000},
     "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    ({"prompt": [1] * 4000, "max_new_tokens": 500},
     "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 4500 "
     "tokens: 4000 tokens from the input messages and 500 tokens for the completion. Please reduce the number of "
     "tokens in the input messages or the completion to fit within the limit."),
    ({"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1."),
    ({"sampling": {"temperature": -1}}, "temperature must be a non-negative finite number, got -1.0."),
    ({"sampling": {"top_p": 3}}, "top_p must be in (0, 1], got 3.0."),
    ({"lora_path": "nope"},
     "LoRA adapter 'nope' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag "
     "and preload adapters using --lora-paths or /load_lora_adapter endpoint."),
    ({"routed_dp_rank": 5}, "routed_dp_rank=5 out of range [0, 1)"),
    ({"max_thinking_tokens": 2}, "max_thinking_tokens requires the server to be launched with --enable-strict-thinking"),
])
def test_bad_values_are_internal_errors_in_the_engines_words(shared, fields, details):
    assert shared.refused(**fields) == (grpc.StatusCode.INTERNAL, details)


def test_what_the_outer_layer_refuses(shared):
    guided = shared.pb.GuidedDecoding
    for sampling, details in [
            ({"regex": "a", "guided_decoding": guided(regex="b")},
             "legacy json_schema/regex cannot be combined with guided_decoding"),
            ({"guided_decoding": guided(regex="")}, "guided decoding constraint must not be empty")]:
        assert shared.refused(sampling=sampling) == (grpc.StatusCode.INVALID_ARGUMENT, details)
    with pytest.raises(grpc.RpcError) as refused:
        shared.stub.Abort(shared.pb.AbortRequest())
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT, "Abort requires a non-empty rid unless abort_all is true")
    with pytest.raises(grpc.RpcError) as refused:
        shared.stub.Shutdown(shared.pb.Empty()) if hasattr(shared.stub, "Shutdown") else shared.stub.StopProfile(
            shared.pb.Empty())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_grammar_that_does_not_compile_is_an_abort_with_a_token_that_means_nothing(shared):
    (last,) = shared.generate(sampling={"json_schema": "{"})
    assert last.finished and last.finish["type"] == "abort"
    assert (last.finish["status_code"], last.finish["err_type"]) == (400, "BadRequestError")
    assert last.finish["message"].startswith("Failed to compile json grammar: ")
    assert len(last.ids) == last.meta["prompt_tokens"] == last.meta["completion_tokens"] == 1


def test_a_message_over_64_mib_is_out_of_range(shared):
    code, details = shared.refused([2**31 - 1] * (14 * 1024 * 1024))
    assert code is grpc.StatusCode.OUT_OF_RANGE
    assert details.endswith("the limit is: 67108864 bytes")


def test_abort_ends_a_stream_as_cancelled(start):
    api = start("--token-interval-ms", 20, "--max-model-len", 30000)
    call = api.start(rid="long", max_new_tokens=20000)
    next(iter(call))
    assert api.refused(rid="long") == (
        grpc.StatusCode.INTERNAL, "Failed to submit request: RuntimeError: Duplicate active gRPC request id: long")
    api.abort("unknown")
    api.abort("long")
    with pytest.raises(grpc.RpcError) as ended:
        list(call)
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.CANCELLED, "Request aborted: long")
    api.engine.wait_state(running=0, kv_blocks_used=0, aborted_total=1)
    api.generate(rid="long", max_new_tokens=1)


def test_leaving_frees_the_engine(start):
    api = start("--token-interval-ms", 20)
    call = api.start(max_new_tokens=2000)
    next(iter(call))
    call.cancel()
    api.engine.wait_state(running=0, kv_blocks_used=0, aborted_total=1)


@pytest.mark.parametrize("token", [-5, 40000, 2**31 - 1])
def test_an_unknown_token_id_kills_the_engine(start, token):
    api = start("--vocab-size", 40000, "--token-interval-ms", 20)
    other = api.start(max_new_tokens=2000)
    next(iter(other))
    assert api.refused([token])[0] is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as ended:
        list(other)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert api.engine.process.wait_exit() == 1


def test_discovery(start):
    api = start("--block-size", 16, "--num-gpu-blocks", 101, "--max-num-seqs", 7, "--incremental-streaming-output",
                "--reasoning-parser", "qwen3", "--lora", "ad", "--model-id", "/models/x", model="served")
    assert api.stub.HealthCheck(api.pb.Empty()).healthy
    model = api.stub.GetModelInfo(api.pb.Empty())
    assert model.model_path == "/models/x"
    assert api.model_info()["served_model_name"] == "served"
    info = api.server_info()
    assert {key: info[key] for key in [
        "served_model_name", "page_size", "max_total_num_tokens", "max_running_requests", "dp_size", "context_length",
        "max_req_input_len", "incremental_streaming_output", "disaggregation_mode", "reasoning_parser", "kv_events",
        "kv_event_sources", "kv_events_config", "load_balance_method", "disable_radix_cache", "status"]} == {
        "served_model_name": "served", "page_size": 16, "max_total_num_tokens": 1600, "max_running_requests": 7,
        "dp_size": 1, "context_length": 1600, "max_req_input_len": 1594, "incremental_streaming_output": True,
        "disaggregation_mode": "null", "reasoning_parser": "qwen3", "kv_events": None, "kv_event_sources": [],
        "kv_events_config": None, "load_balance_method": "round_robin", "disable_radix_cache": False,
        "status": "ready"}
    assert "version" not in info
    cards = api.stub.ListModels(api.pb.Empty()).models
    assert [(c.id, c.root, c.parent, c.max_model_len) for c in cards] == [
        ("served", "served", "", 1600), ("ad", "/adapters/ad", "served", 0)]
    api.engine.set_faults("not-serving")
    assert not api.stub.HealthCheck(api.pb.Empty()).healthy


def test_there_is_no_grpc_health_service(shared):
    with pytest.raises(grpc.RpcError) as refused:
        shared.channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_load(start):
    api = start("--token-interval-ms", 20, "--data-parallel-size", 2)
    call = api.start(max_new_tokens=2000, routed_dp_rank=1)
    assert api.read(next(iter(call))).meta["dp_rank"] == 1
    first, second = api.load()
    assert (first["dp_rank"], first["num_running_reqs"]) == (0, 0)
    assert (second["dp_rank"], second["num_running_reqs"]) == (1, 1)
    assert second["num_used_tokens"] > 0 == first["num_used_tokens"]
    assert json.loads(api.stub.GetLoad(api.pb.GetLoadRequest(dp_rank=7)).json_info) == []
    call.cancel()


def test_pausing_and_watching(start):
    api = start()
    watch = api.stub.WatchEngineState(api.pb.Empty(), timeout=scaled(30))
    first = next(watch)
    assert first.healthy and not first.is_pause and first.model_info.model_path == "mock"
    answer = api.stub.PauseGeneration(api.pb.PauseGenerationRequest(mode="in_place"))
    assert answer.message == "Generation paused (mode=in_place)."
    paused = next(watch)
    assert paused.is_pause and paused.revision == first.revision + 1 and paused.instance_id == first.instance_id
    waiting = api.start(max_new_tokens=1)
    api.engine.wait_state(waiting=1)
    assert api.stub.ContinueGeneration(api.pb.Empty()).message == "Generation continued."
    assert not next(watch).is_pause
    assert len(list(waiting)) == 1
    watch.cancel()


def test_faults(start):
    api = start("--reply", "chain")
    api.engine.set_faults("error-after:2:RESOURCE_EXHAUSTED")
    assert api.refused()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    api.engine.set_faults("end-after:2")
    assert len(api.generate()) == 2
    api.engine.set_faults("reset-after:1")
    assert api.refused()[0] is not grpc.StatusCode.OK
    api.engine.set_faults("logprob-nan:1")
    messages = list(api.start(return_logprob=True))
    assert "NaN" in messages[1].meta_info["output_token_logprobs"]
    api.engine.set_faults("logprobs-short")
    assert len(api.generate(return_logprob=True)[-1].meta["output_token_logprobs"]) == 4


def test_a_chain_goes_on_where_another_engine_stopped(start):
    api = start("--reply", "chain", "--seed", 9, "--incremental-streaming-output")
    other = start("--reply", "chain", "--seed", 9, "--incremental-streaming-output")
    prompt = list(range(50, 60))
    whole = [t for m in api.generate(prompt, 12) for t in m.ids]
    assert whole == chain(9, prompt, 12)
    assert whole[0] == chain_token(9, 10, 59)
    rest = [t for m in other.generate(prompt + whole[:5], 7) for t in m.ids]
    assert rest == whole[5:]


def test_requests_at_once(shared):
    answers = {}

    def ask(i):
        answers[i] = joined(shared, shared.generate(rid=f"at-once-{i}", max_new_tokens=20))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: Formula(42, f"at-once-{i}").tokens(20) for i in range(8)}
