"""The simulated vLLM engine in trouble and in roles: cancels, pauses, hand-off, health, dialects, faults."""

import random
import threading
import time

import grpc
import httpx
import pytest
from fairlead import scaled, wait_until
from fairlead.vllm_api import Api, Formula, set_faults


@pytest.fixture
def start(mock_engine, stubs):
    opened = []

    def factory(*flags, service="Inference", **how):
        opened.append(Api(mock_engine("--speedup-ratio", 0, *flags, **how), stubs, service))
        return opened[-1]

    yield factory
    for api in opened:
        api.channel.close()


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


def test_health(start):
    api = start()
    for service in ("", "vllm.Inference", "vllm.Control"):
        assert health(api, "Check", service) == SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        health(api, "Check", "nothing")
    assert (unknown.value.code(), unknown.value.details()) == (grpc.StatusCode.NOT_FOUND, "service not registered")
    watch = health(api, "Watch")
    assert next(watch) == SERVING
    set_faults(api.engine, "not-serving")
    assert next(watch) == NOT_SERVING
    assert health(api, "Check") == NOT_SERVING
    set_faults(api.engine)
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
    assert set_faults(api.engine, "reset-after:3") == {"faults": ["reset-after:3"]}
    got = []
    with pytest.raises(grpc.RpcError):
        for message in api.inference.GenerateStream(api.request()):
            got += message.outputs.token_ids
    # A reset may overtake what its receiver has not read yet.
    assert len(got) <= 3 and got == Formula(42, "req-1").tokens(len(got))
    set_faults(api.engine, "stall-open:all")
    with pytest.raises(grpc.RpcError) as silent:
        api.control.GetServerInfo(api.control_pb.GetServerInfoRequest(), timeout=0.3)
    assert silent.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    set_faults(api.engine, "slow:30")
    assert list(api.unary().outputs.token_ids) == Formula(42, "req-1").tokens(5)
    set_faults(api.engine, "refuse")
    with pytest.raises(grpc.RpcError) as refused:
        api.unary()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    set_faults(api.engine)
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
    ("--canvas-eos", "3"), ("--lora", "mock", "--model", "mock"), ("--http-flavor", "rust-9"), ("--fault", "logprob-nan"),
    ("--fault", "nonsense"), ("--without", "everything"), ("--dialect", "vllm-9"), ("--role", "both"),
    ("--reply", "script:/no/such/file"), ("--block-size", "0"), ("--kv-replay", "127.0.0.1:0"),
    ("--max-model-len", "1000", "--num-gpu-blocks", "2", "--block-size", "16"),
    ("--extra-engine-args", '{"nonsense": 1}'), ("--listen", "nowhere"),
])
def test_wrong_usage_is_one_line_and_exit_2(launcher, flags):
    done = launcher.run("mock-engine", "--backend", "vllm", *flags)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1 and flags[0] in done.stderr


def test_nothing_listens_before_the_startup_time_is_over(launcher):
    begin = time.monotonic()
    launcher.mock_engine("--startup-time", 0.5)
    assert time.monotonic() - begin >= 0.5


def test_a_taken_port_is_exit_1(launcher, mock_engine):
    first = mock_engine()
    done = launcher.run("mock-engine", "--backend", "vllm", "--listen", first.address)
    assert done.returncode == 1
    assert first.address in done.stderr
