"""Log-probabilities of a long prompt: work that must not hold the simulated engine."""

import json
import resource
import socket
from pathlib import Path

import pytest
from fairlead.vllm_api import Api
from fairlead.waiting import scaled

PROMPT = [1] * 30_000
FLAGS = ["--speedup-ratio", "0", "--max-logprobs", "-1"]  # of the whole vocabulary: endless for any test
GIB = 2**30


def bound_memory(engine):
    """Should the work not stop, it is to end here and not with the machine's memory."""
    status = Path(f"/proc/{engine.process.pid}/status").read_text()
    size = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize:"))
    if size * 1024 < 1024 * GIB:  # a build with sanitizers reserves more than that
        resource.prlimit(engine.process.pid, resource.RLIMIT_AS, (4 * GIB, 4 * GIB))


@pytest.fixture(params=["vllm", "vllm-http"])
def computing(request, mock_engine, stubs):
    """An engine at work on one answer, and what makes its client leave."""
    engine = mock_engine(*FLAGS, backend=request.param)
    bound_memory(engine)
    if request.param == "vllm":
        api = Api(engine, stubs)
        everything = {"prompt_logprobs": True, "prompt_candidates": api.pb.CandidateTokens(all=True)}
        leave = api.inference.Generate.future(api.request(prompt=PROMPT, max_new_tokens=1, response=everything)).cancel
    else:
        body = json.dumps({"token_ids": PROMPT, "sampling_params": {"max_tokens": 1, "prompt_logprobs": -1}})
        connection = socket.create_connection(("127.0.0.1", engine.port), scaled(20))
        connection.sendall(f"POST /inference/v1/generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        leave = connection.close
    engine.wait_state(waiting=1)
    yield engine, leave
    leave()


def test_their_work_ends_when_the_client_leaves(computing):
    engine, leave = computing
    leave()
    engine.wait_state(waiting=0, running=0, aborted_total=1, finished_total=0)


def test_sigterm_ends_the_engine_amid_them(computing):
    engine, _ = computing
    engine.stop()
