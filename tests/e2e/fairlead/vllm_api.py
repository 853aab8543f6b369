"""The simulated engine's token formula, written down a second time, and its gRPC interface."""

import blake3
import grpc
import httpx
import pytest

from fairlead.waiting import scaled

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


def set_faults(engine, *faults):
    """Replaces the faults of a running engine; what it then says."""
    answer = httpx.post(f"http://{engine.addresses['debug']}/debug/fault", json={"faults": faults}, trust_env=False)
    answer.raise_for_status()
    return answer.json()
