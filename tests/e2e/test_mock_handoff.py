"""Prefill and decode between simulated engines: who waits for whom, what is held, what fails how."""

import itertools
import time

import grpc
import httpx
import pytest
from fairlead.sglang_api import SglangApi, chain
from fairlead.vllm_api import Api, Formula, logprob
from fairlead.waiting import wait_until

PROMPT = list(range(100, 140))
rooms = itertools.count(2**62)


@pytest.fixture
def start(mock_engine, stubs):
    opened = []

    def factory(role, *flags, listen="127.0.0.1:0"):
        engine = mock_engine("--speedup-ratio", 0, "--role", role, "--block-size", 16, "--incremental-streaming-output",
                             *flags, backend="sglang", listen=listen)
        opened.append(SglangApi(engine, stubs))
        return opened[-1]

    yield factory
    for api in opened:
        api.close()


def room_at(prefill):
    """(host, port, a fresh room) of a prefill engine."""
    host, _, port = prefill.engine.addresses["bootstrap"].rpartition(":")
    return host, int(port), next(rooms)


def read_all(api, call):
    return [api.read(message) for message in call]


def idle(*apis):
    for api in apis:
        api.engine.wait_state(running=0, waiting=0, kv_blocks_used=0, waiting_for_peer=0, held_for_transfer=0)


def test_both_halves_end_well(start):
    prefill, decode = start("prefill", "--reply", "chain"), start("decode", "--reply", "chain")
    for i in range(2):
        room = room_at(prefill)
        first = prefill.start(PROMPT, rid="p", room=room)
        second = read_all(decode, decode.start(PROMPT, rid="d", room=room))
        tokens = chain(42, PROMPT, 5)
        assert [m.ids for m in second] == [[t] for t in tokens]
        assert second[-1].finish == {"type": "length", "length": 5}
        cached = 32 * i
        assert {m.meta["cached_tokens"] for m in second} == {cached}
        assert second[0].meta["cached_tokens_details"] == ({"device": 32, "host": 0} if i else None)
        (last,) = read_all(prefill, first)
        assert (last.ids, last.finished, last.finish) == (tokens[:1], True, {"type": "length", "length": 0})
        assert last.meta["cached_tokens"] == cached
    idle(prefill, decode)
    assert prefill.engine.state()["room_reuse_total"] == 0


def test_the_first_token_is_the_prefills(start):
    prefill, decode = start("prefill"), start("decode")
    room = room_at(prefill)
    first = prefill.start(PROMPT, rid="p", room=room)
    tokens = [t for m in decode.generate(PROMPT, 3, rid="d", room=room) for t in m.ids]
    assert tokens == [Formula(42, "p").token(0), *Formula(42, "d").tokens(3)[1:]]
    assert len(list(first)) == 1


def test_a_prefill_half_waits_without_blocks(start):
    prefill, decode = start("prefill"), start("decode")
    room = room_at(prefill)
    first = prefill.start(PROMPT, rid="p", room=room)
    state = prefill.engine.wait_state(waiting=1, waiting_for_peer=1)
    assert state["kv_blocks_used"] == 0
    (load,) = prefill.load()
    assert load["disaggregation"]["prefill_bootstrap_queue_reqs"] == 1
    assert len(decode.generate(PROMPT, 2, room=room)) == 2
    assert len(list(first)) == 1
    idle(prefill, decode)


def test_a_decode_half_waits_with_its_blocks(start):
    prefill, decode = start("prefill"), start("decode")
    room = room_at(prefill)
    second = decode.start(PROMPT, 2, rid="d", room=room)
    decode.engine.wait_state(running=1, waiting_for_peer=1, kv_blocks_used=3)
    assert len(prefill.generate(PROMPT, room=room)) == 1
    assert len(list(second)) == 2
    idle(prefill, decode)


def test_both_hold_blocks_while_the_cache_travels(start):
    slow = ("--kv-bytes-per-token", 10**9, "--kv-transfer-bandwidth", 40)  # one second for the prompt
    prefill, decode = start("prefill", *slow), start("decode", *slow)
    room = room_at(prefill)
    began = time.monotonic()
    first = prefill.start(PROMPT, room=room)
    second = decode.start(PROMPT, 2, room=room)
    prefill.engine.wait_state(held_for_transfer=1, kv_blocks_used=3)
    decode.engine.wait_state(waiting_for_peer=1, kv_blocks_used=3)
    assert (len(list(first)), len(list(second))) == (1, 2)
    assert time.monotonic() - began >= 1
    idle(prefill, decode)


@pytest.mark.parametrize("both", [False, True])
def test_logprobs_of_the_first_token_need_both_halves(start, both):
    prefill, decode = start("prefill"), start("decode")
    room = room_at(prefill)
    first = prefill.start(PROMPT, rid="p", room=room, return_logprob=both, top_logprobs_num=int(both))
    messages = decode.generate(PROMPT, 2, rid="d", room=room, return_logprob=True, top_logprobs_num=1)
    token = Formula(42, "p").token(0)
    entry = [pytest.approx(logprob(token)), token, None] if both else [0.0, 0, None]
    assert messages[0].ids == [token]
    assert messages[0].meta["output_token_logprobs"] == [entry]
    assert messages[0].meta["output_top_logprobs"] == [[entry]]
    assert messages[1].meta["output_token_logprobs"][0][1] == messages[1].ids[0]
    assert len(list(first)) == 1


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_request_without_a_room_is_aborted(start, role):
    (last,) = start(role).generate(PROMPT, rid="none")
    assert (last.ids, last.finished, last.meta["completion_tokens"], last.meta["prompt_tokens"]) == ([], True, 0, 40)
    assert last.finish == {
        "type": "abort", "status_code": 400, "err_type": None,
        "message": "Invalid request: Disaggregated request received without bootstrap room id. req.rid='none'"}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_waiting_half_can_be_aborted(start, role):
    prefill, decode = start("prefill"), start("decode")
    api = {"prefill": prefill, "decode": decode}[role]
    call = api.start(PROMPT, rid="w", room=room_at(prefill))
    api.engine.wait_state(waiting_for_peer=1)
    api.abort("w")
    with pytest.raises(grpc.RpcError) as ended:
        list(call)
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.CANCELLED, "Request aborted: w")
    idle(prefill, decode)


def test_an_aborted_prefill_half_says_nothing_to_the_other(start):
    prefill, decode = start("prefill"), start("decode", "--bootstrap-timeout-ms", 1500)
    room = room_at(prefill)
    first = prefill.start(PROMPT, rid="p", room=room)
    prefill.engine.wait_state(waiting_for_peer=1)
    prefill.abort("p")
    with pytest.raises(grpc.RpcError):
        list(first)
    (last,) = decode.generate(PROMPT, rid="d", room=room)
    assert last.finish["status_code"] == 500
    assert last.finish["message"].endswith("timed out after 1.5s in KVPoll.WaitingForInput")
    idle(prefill, decode)


def test_a_prefill_half_that_meets_nobody_ends(start):
    prefill = start("prefill", "--bootstrap-timeout-ms", 200)
    (last,) = prefill.generate(PROMPT, rid="p", room=room_at(prefill))
    assert (last.ids, last.finish["status_code"]) == ([], 500)
    assert last.finish["message"].startswith("Prefill bootstrap failed for request rank=0 req.rid='p'")
    idle(prefill)


def test_a_decode_half_without_a_prefill_engine_fails(start, mock_engine):
    decode = start("decode", "--handshake-timeout-ms", 600)
    began = time.monotonic()
    (last,) = decode.generate(PROMPT, rid="d", room=("127.0.0.1", 1, 7))
    assert time.monotonic() - began >= 0.6
    assert (last.finish["status_code"], last.finish["err_type"], last.ids) == (500, None, [])
    assert last.finish["message"].startswith("Decode handshake failed for request rank=0 decode_req.req.rid='d' "
                                             "decode_req.req.bootstrap_room=7 ")
    assert last.finish["message"].endswith("Aborted by AbortReq.")
    idle(decode)


def test_a_prefill_engine_that_dies_takes_the_decode_half_along(start):
    prefill, decode = start("prefill"), start("decode", "--handshake-timeout-ms", 600)
    room = room_at(prefill)
    second = decode.start(PROMPT, rid="d", room=room)
    decode.engine.wait_state(waiting_for_peer=1, kv_blocks_used=3)
    prefill.engine.kill()
    (last,) = read_all(decode, second)
    host, port, number = room
    assert last.finish == {
        "type": "abort", "status_code": 500, "err_type": None,
        "message": f"Decode transfer failed for request rank=0 decode_req.req.rid='d' "
                   f"decode_req.req.bootstrap_room={number} with exception KVTransferError(bootstrap_room={number}): "
                   f"Lost connection with prefill instance (bootstrap_addr: {host}:{port})"}
    idle(decode)


def test_the_warm_up_host_skips_the_transfer(start):
    prefill, decode = start("prefill"), start("decode")
    nowhere = ("2.2.2.2", 1, 1)
    (last,) = prefill.generate(PROMPT, room=nowhere)
    assert len(last.ids) == 1
    messages = decode.generate(PROMPT, 3, room=nowhere, return_logprob=True)
    assert len(messages) == 3
    assert messages[0].meta["output_token_logprobs"] == [[0.0, 0, None]]
    idle(prefill, decode)


def test_a_room_in_use_is_counted(start):
    prefill, decode = start("prefill"), start("decode")
    room = room_at(prefill)
    calls = [prefill.start(PROMPT, room=room) for _ in range(2)]
    prefill.engine.wait_state(waiting_for_peer=2, room_reuse_total=1)
    others = [decode.start(PROMPT, room=(room[0], room[1], 5)) for _ in range(2)]
    decode.engine.wait_state(waiting_for_peer=2, room_reuse_total=1)
    for call in calls + others:
        call.cancel()
    idle(prefill, decode)


def test_the_bootstrap_server(start):
    prefill = start("prefill", "--data-parallel-size", 2)
    base = f"http://{prefill.engine.addresses['bootstrap']}"
    assert httpx.get(f"{base}/health", trust_env=False).status_code == 200
    route = httpx.get(f"{base}/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1",
                      trust_env=False).json()
    assert (route["page_size"], route["dp_size"], route["follow_bootstrap_room"]) == (16, 2, True)
    assert httpx.post(f"{base}/mock/room", json={"room": "x"}, trust_env=False).status_code == 400
    info = prefill.server_info()
    assert base.endswith(f":{info['disaggregation_bootstrap_port']}")
    assert (info["disaggregation_mode"], info["load_balance_method"]) == ("prefill", "follow_bootstrap_room")


def test_a_decode_engine_reports_itself(start):
    info = start("decode").server_info()
    assert (info["disaggregation_mode"], info["disable_radix_cache"], info["load_balance_method"],
            info["disaggregation_bootstrap_port"]) == ("decode", True, "round_robin", 8998)


def test_the_room_chooses_the_prefill_rank(start):
    prefill, decode = start("prefill", "--data-parallel-size", 2), start("decode")
    host, port, number = room_at(prefill)
    for rank in range(2):
        room = (host, port, number - number % 2 + rank)
        first = prefill.start(PROMPT, room=room, routed_dp_rank=rank)
        assert len(decode.generate(PROMPT, 2, room=room)) == 2
        assert prefill.read(next(iter(first))).meta["dp_rank"] == rank
        code, details = prefill.refused(PROMPT, room=room, routed_dp_rank=1 - rank)
        assert code is grpc.StatusCode.INTERNAL and "follow_bootstrap_room conflict" in details


# vLLM: the blocks stay with the prefill engine until they are fetched.


@pytest.fixture
def vllm(mock_engine, stubs):
    opened = []

    def factory(role, *flags):
        engine = mock_engine("--speedup-ratio", 0, "--role", role, "--block-size", 16, "--reply", "chain", *flags)
        opened.append(Api(engine, stubs))
        return opened[-1]

    yield factory
    for api in opened:
        api.channel.close()


def prefilled(api, request_id="p"):
    """The transfer parameters of a prefill."""
    kv = api.pb.KVCacheParameters()
    kv.kv_transfer_params.update({"do_remote_decode": True})
    response = api.unary(request_id, PROMPT, 1, kv=kv)
    return response.outputs.finish_info.kv_transfer_params


def test_blocks_are_kept_until_they_are_fetched(vllm):
    prefill, decode = vllm("prefill", "--kv-transfer-listen", "127.0.0.1:0"), vllm("decode")
    params = prefilled(prefill)
    host, _, port = prefill.engine.addresses["kv_transfer"].rpartition(":")
    assert (params["remote_host"], params["remote_port"]) == (host, int(port))
    prefill.engine.wait_state(running=0, kv_blocks_used=3, held_for_transfer=1)
    params.update({"remote_port": port})  # clients send text
    kv = decode.pb.KVCacheParameters(kv_transfer_params=params)
    assert list(decode.unary("d", PROMPT, 4, kv=kv).outputs.token_ids) == chain(42, PROMPT, 4)
    prefill.engine.wait_state(kv_blocks_used=0, held_for_transfer=0, kv_fetches_total=1)
    decode.engine.wait_state(running=0, kv_blocks_used=0, kv_fetches_total=1)
    assert decode.unary("again", PROMPT, 4, kv=kv).outputs.num_tokens == 4  # computed anew
    decode.engine.wait_state(kv_fetch_failures_total=1)


def test_blocks_that_nobody_fetches_are_freed(vllm):
    prefill = vllm("prefill", "--kv-transfer-listen", "127.0.0.1:0", "--kv-transfer-timeout-ms", 300)
    prefilled(prefill)
    prefill.engine.wait_state(kv_blocks_used=0, held_for_transfer=0, kv_transfer_timeouts_total=1)


def test_without_the_flag_nothing_is_kept(vllm):
    prefill = vllm("prefill")
    assert prefilled(prefill)["remote_port"] == 0
    prefill.engine.wait_state(kv_blocks_used=0, held_for_transfer=0)


def test_a_request_that_is_left_frees_the_other_engines_blocks(vllm):
    prefill = vllm("prefill", "--kv-transfer-listen", "127.0.0.1:0")
    decode = vllm("decode", "--token-interval-ms", 50)
    kv = decode.pb.KVCacheParameters(kv_transfer_params=prefilled(prefill))
    call = decode.inference.GenerateStream(decode.request("d", PROMPT, 1000, kv=kv))
    decode.engine.wait_state(requests_total=1)
    call.cancel()
    prefill.engine.wait_state(kv_blocks_used=0, held_for_transfer=0)
    wait_until(lambda: decode.engine.state()["kv_blocks_used"] == 0, 10, "freed blocks")
