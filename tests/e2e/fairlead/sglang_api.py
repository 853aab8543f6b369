"""The simulated SGLang engine's gRPC interface, and what its answers say."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import grpc

from fairlead.vllm_api import MASK
from fairlead.waiting import scaled

PROTO = "sglang/runtime.proto"
MAX_MESSAGE = 128 * 1024 * 1024


def chain_token(seed: int, position: int, previous: int) -> int:
    """The token of `--reply chain` at place `position` of the whole sequence, the prompt's first one
    being at 0, behind the token `previous`."""
    v = (seed + position * 0x9E3779B97F4A7C15 + (previous + 1) * 0xD1B54A32D192ED03) & MASK
    v = ((v ^ v >> 30) * 0xBF58476D1CE4E5B9) & MASK
    v = ((v ^ v >> 27) * 0x94D049BB133111EB) & MASK
    return 1000 + ((v ^ v >> 31) & 0xFFFFFFFF) % 31000


def chain(seed: int, prompt: list[int], count: int) -> list[int]:
    """The first `count` tokens that an engine with `--reply chain --seed SEED` answers a prompt with."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(chain_token(seed, len(tokens), tokens[-1]))
    return tokens[len(prompt):]


@dataclass
class Message:
    """One message of a stream, its meta_info read as JSON."""

    ids: list[int]
    meta: dict[str, Any]
    finished: bool
    text: str | None

    @property
    def finish(self) -> dict[str, Any] | None:
        return self.meta["finish_reason"]


class SglangApi:
    """Messages and stub on one engine."""

    def __init__(self, engine, stubs):
        self.engine = engine
        self.channel = grpc.insecure_channel(engine.address, options=[
            ("grpc.max_send_message_length", MAX_MESSAGE), ("grpc.max_receive_message_length", MAX_MESSAGE)])
        self.pb = stubs.messages(PROTO)
        self.stub = stubs.services(PROTO).SglangServiceStub(self.channel)

    def request(self, prompt=range(1000, 1010), max_new_tokens=5, *, rid=None, sampling=None, room=None, **fields):
        """`room` is (host, port, room)."""
        sampling = dict(sampling or {})
        if max_new_tokens is not None:
            sampling["max_new_tokens"] = max_new_tokens
        if room is not None:
            host, port, number = room
            fields["disaggregated_params"] = self.pb.DisaggregatedParams(
                bootstrap_host=host, bootstrap_port=port, bootstrap_room=number)
        return self.pb.GenerateRequest(
            input_ids=prompt, sampling_params=self.pb.SamplingParams(**sampling), rid=rid or str(uuid.uuid4()),
            **{"stream": True, **fields})

    def start(self, *args, **fields):
        """The running call."""
        return self.stub.Generate(self.request(*args, **fields), timeout=scaled(60))

    def read(self, message) -> Message:
        meta = {key: json.loads(value) for key, value in message.meta_info.items()}
        return Message(list(message.output_ids), meta, message.finished,
                       message.text if message.HasField("text") else None)

    def generate(self, *args, **fields) -> list[Message]:
        """All messages of a call that ends well."""
        return [self.read(message) for message in self.start(*args, **fields)]

    def refused(self, *args, **fields) -> tuple[grpc.StatusCode, str]:
        """(code, details) of a call that fails."""
        try:
            list(self.start(*args, **fields))
        except grpc.RpcError as error:
            return error.code(), error.details()
        raise AssertionError("the call was not refused")

    def server_info(self) -> dict[str, Any]:
        return json.loads(self.stub.GetServerInfo(self.pb.Empty()).json_info)

    def model_info(self) -> dict[str, Any]:
        return json.loads(self.stub.GetModelInfo(self.pb.Empty()).json_info)

    def load(self) -> list[dict[str, Any]]:
        return json.loads(self.stub.GetLoad(self.pb.GetLoadRequest()).json_info)

    def abort(self, rid: str) -> None:
        assert self.stub.Abort(self.pb.AbortRequest(rid=rid)).success

    def close(self) -> None:
        self.channel.close()
