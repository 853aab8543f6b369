"""A vLLM engine's gRPC interface on grpcio, in one of its wire generations.

Not the project's mock: another implementation on another library, so that the client is shown not to
depend on either. `single` is the lone service of the earliest servers, `early` one of about 0.28,
`newest` the project's schema. The two older ones have schemas of their own beside this file.

Prints one JSON line when it listens, then one per thing received: `{"event": "generate", ...}`,
`{"event": "abort", ...}`, `{"event": "cancelled", ...}`, `{"event": "finished", ...}`. Ends on SIGTERM.

The answer is a function of the prompt, of how many tokens are asked for and of the sampling values
as *this generation's server* resolves them, so that a client that leaves a value to the model's
defaults gets other tokens.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
import zlib
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import json_format
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PROTO_DIR = HERE.parents[2] / "proto"

# The pretended model's generation_config.json.
DEFAULTS = {"top_k": 5, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 1.05}


def generate_code(generation: str):
    """The messages and services of one generation, compiled now: (messages, service modules)."""
    import grpc_tools

    folder = tempfile.mkdtemp(prefix="fairlead-wire-")
    if generation == "newest":
        source, names = PROTO_DIR, ["vllm/inference.proto", "vllm/control.proto"]
    else:
        source, names = HERE / "schema" / generation, ["engine.proto"]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{source}", f"-I{well_known}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", *names]) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, folder)
    if generation == "newest":
        from vllm import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
        return inference_pb2, control_pb2, [inference_pb2_grpc, control_pb2_grpc]
    import engine_pb2
    import engine_pb2_grpc
    return engine_pb2, engine_pb2, [engine_pb2_grpc]


def say(**what) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Engine:
    """What the services share."""

    def __init__(self, options, messages, control):
        self.options = options
        self.messages = messages
        self.control = control
        self.aborted: set[str] = set()
        self.running = 0
        self.lock = threading.Lock()

    @property
    def explicit_zeros(self) -> bool:
        return self.options.generation == "newest"

    def resolve(self, sampling, decoding) -> dict[str, float]:
        """Sampling values by this generation's rules: what is absent, and before presence what is
        zero, comes from the model."""
        values = {}
        for name in ("top_k", "top_p", "min_p"):
            value = getattr(sampling, name)
            given = sampling.HasField(name) if self.explicit_zeros else value != 0
            values[name] = value if given else DEFAULTS[name]
        if self.explicit_zeros and values["top_p"] == 0:
            raise ValueError("top_p must be in (0, 1], got 0")
        if values["top_k"] >= self.options.vocabulary:
            values["top_k"] = 0  # as good as off
        values["repetition_penalty"] = decoding.repetition_penalty or DEFAULTS["repetition_penalty"]
        return values

    def tokens(self, request) -> list[int]:
        """The whole answer."""
        values = self.resolve(request.sampling, request.decoding)
        if not self.explicit_zeros:
            values["min_p"] = 0.0  # cannot be switched off on this wire
        seed = json.dumps([list(request.token_ids.ids), request.temperature, sorted(values.items()),
                           request.sampling.seed if request.sampling.HasField("seed") else None])
        state = zlib.crc32(seed.encode())
        first, count = self.options.first_id, self.options.last_id - self.options.first_id
        limit = request.stopping.max_new_tokens
        limit = min(limit or self.options.max_model_len,
                    self.options.max_model_len - len(request.token_ids.ids))
        return [first + (state + 7919 * i) % count for i in range(limit)]

    def reject(self, request) -> tuple[grpc.StatusCode, str] | None:
        """Why a request is refused, if it is."""
        wrong = grpc.StatusCode.INTERNAL if self.options.generation == "single" \
            else grpc.StatusCode.INVALID_ARGUMENT
        if request.WhichOneof("prompt") is None:
            return wrong, "prompt is required"
        if len(request.token_ids.ids) >= self.options.max_model_len:
            return wrong, f"this model's maximum context length is {self.options.max_model_len} tokens, " \
                          f"but the prompt contains {len(request.token_ids.ids)} input tokens"
        if request.model not in ("", self.options.model_name):
            return grpc.StatusCode.NOT_FOUND, f"model `{request.model}` not found"
        if not request.HasField("temperature"):
            return wrong, "a temperature that is not sent means greedy"
        return None

    def finish(self, total: int, reason: str, last: int | None = None):
        info = self.messages.FinishInfo(num_output_tokens=total, finish_reason=reason)
        if last is not None:
            info.stop_token_id = last
        if self.explicit_zeros:
            info.num_cached_tokens = 0
        if self.options.kv_transfer_params:
            json_format.ParseDict(json.loads(self.options.kv_transfer_params), info.kv_transfer_params)
        return info

    def output(self, request, ids: list[int], finish=None):
        """One streamed message."""
        out = self.messages.SequenceOutput(num_tokens=len(ids))
        if request.response.output_token_ids:
            out.token_ids.extend(ids)
        if not request.response.HasField("output_text") or request.response.output_text:
            out.text = "".join(f"<{i}>" for i in ids)
        if request.response.output_logprobs:
            for id_ in ids:
                out.logprobs.append(-0.5)
                out.ranks.append(1)
                candidates = out.candidate_tokens.add()
                for rank in range(request.response.output_candidates.top_n):
                    candidates.tokens.add(id=id_ + rank, logprob=-0.5 - rank, rank=rank + 1)
        if finish is not None:
            out.finish_info.CopyFrom(finish)
        return self.messages.GenerateResponse(outputs=out)

    def odd_end(self, first: int, message, sent: int):
        """The messages that end an answer instead of the right one."""
        out = message.outputs
        if first == 902:
            out.finish_info.finish_reason = 77
        elif first == 903:
            out.finish_info.num_output_tokens = sent + 1
        elif first == 904:
            out.num_tokens += 1
        elif first == 905:
            out.index = 1
        yield message
        if first == 901:
            for _ in range(2):
                yield message

    def prompt_info(self, request):
        info = self.messages.PromptInfo(num_prompt_tokens=len(request.token_ids.ids))
        if request.response.prompt_logprobs:
            for position in range(info.num_prompt_tokens):
                info.logprobs.append(0.0 if position == 0 else -1.0)
                info.ranks.append(0 if position == 0 else 2)
                info.candidate_tokens.add()
        return self.messages.GenerateResponse(prompt_info=info)

    def stream(self, request, context):
        refused = self.reject(request)
        metadata = dict(context.invocation_metadata())
        say(event="generate", request=json_format.MessageToDict(request, preserving_proto_field_name=True),
            rank=metadata.get("x-data-parallel-rank"))
        if refused:
            context.abort(*refused)
        try:
            ids = self.tokens(request)
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        with self.lock:
            self.running += 1
        ended = threading.Event()

        def gone():
            with self.lock:
                self.running -= 1
            if not ended.is_set():
                say(event="cancelled", request_id=request.request_id, running=self.running)

        context.add_callback(gone)
        yield self.prompt_info(request)
        stops = set(request.stopping.stop_token_ids)
        sent = 0
        for position, id_ in enumerate(ids):
            if self.options.token_interval_ms:
                time.sleep(self.options.token_interval_ms / 1000)
            if request.request_id in self.aborted or not context.is_active():
                yield self.output(request, [], self.finish(sent, "ABORTED"))
                break
            sent += 1
            stopped = id_ in stops and sent > request.stopping.min_new_tokens
            if stopped:
                yield self.output(request, [id_], self.finish(sent, "STOP", id_))
                break
            last = position + 1 == len(ids)
            message = self.output(request, [id_], self.finish(sent, "LENGTH") if last else None)
            if last and self.options.misbehave:
                yield from self.odd_end(request.token_ids.ids[0], message, sent)
            else:
                yield message
        ended.set()
        say(event="finished", request_id=request.request_id, tokens=sent)

    def unary(self, request, context):
        refused = self.reject(request)
        if refused:
            context.abort(*refused)
        ids = self.tokens(request)
        response = self.output(request, ids, self.finish(len(ids), "LENGTH"))
        response.prompt_info.CopyFrom(self.prompt_info(request).prompt_info)
        return response


def add_generation(server, engine: Engine, services) -> None:
    """The generation service under this generation's name."""
    name = "Generate" if engine.options.generation == "single" else "Inference"
    base = getattr(services[0], f"{name}Servicer")

    class Servicer(base):
        def Generate(self, request, context):  # noqa: N802: the wire's name
            return engine.unary(request, context)

        def GenerateStream(self, request, context):  # noqa: N802
            yield from engine.stream(request, context)

    getattr(services[0], f"add_{name}Servicer_to_server")(Servicer(), server)


def add_control(server, engine: Engine, services) -> None:
    """Discovery and abort."""
    control, options = engine.control, engine.options

    class Servicer(services[-1].ControlServicer):
        def GetModelInfo(self, request, context):  # noqa: N802
            return control.ModelInfo(
                model_id=options.model_id, served_model_name=options.model_name,
                supports_text_input=True, supports_token_ids_input=True,
                tool_call_parser=options.tool_call_parser, reasoning_parser=options.reasoning_parser)

        def GetServerInfo(self, request, context):  # noqa: N802
            info = control.ServerInfo(
                engine_version="0.28.0" if options.generation == "early" else "0.33.0", api_version="vllm",
                instance_id=str(os.getpid()), max_model_len=options.max_model_len, kv_block_size=16,
                total_kv_blocks=1024, max_running_requests=64, max_batched_tokens=8192)
            info.parallelism.data_parallel_size = 1
            if options.generation == "newest":
                info.proto_version = "0.6.0"
                info.parallelism.data_parallel_size_local = 1
            return info

        def Abort(self, request, context):  # noqa: N802
            engine.aborted.update(request.request_ids)
            say(event="abort", ids=list(request.request_ids))
            return control.AbortResponse()

        def GetKvEventSources(self, request, context):  # noqa: N802
            return control.GetKvEventSourcesResponse()

    services[-1].add_ControlServicer_to_server(Servicer(), server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generation", choices=["single", "early", "newest"], required=True)
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--model-id", default="/models/wire")
    parser.add_argument("--model-name", default="wire")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--first-id", type=int, default=100, help="answers use ids from here")
    parser.add_argument("--last-id", type=int, default=1000, help="answers use ids below this")
    parser.add_argument("--token-interval-ms", type=float, default=0)
    parser.add_argument("--misbehave", action="store_true", help="end answers oddly, see MISBEHAVIOURS")
    parser.add_argument("--kv-transfer-params", default="", help="JSON that the end of every answer carries")
    parser.add_argument("--tool-call-parser", default="")
    parser.add_argument("--reasoning-parser", default="")
    options = parser.parse_args()

    messages, control, services = generate_code(options.generation)
    engine = Engine(options, messages, control)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=[
        ("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 32 * 1024 * 1024)])
    add_generation(server, engine, services)
    if options.generation != "single":
        add_control(server, engine, services)
        well = health.HealthServicer()
        for name in ("", "vllm.Inference", "vllm.Control"):
            well.set(name, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(well, server)
    host = options.listen.rpartition(":")[0]
    port = server.add_insecure_port(options.listen)
    server.start()
    say(grpc=f"{host}:{port}", generation=options.generation)

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    server.stop(0).wait(5)


if __name__ == "__main__":
    main()
