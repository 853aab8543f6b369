"""An SGLang engine's gRPC interface on grpcio that answers with recorded bytes.

Not the project's mock: another implementation on another library. Discovery answers are built from
the project's schema; each Generate call takes the next answer of `--script`, a JSON list of
`{"messages": [HEX, ...], "status": NAME, "details": TEXT}`, and sends its messages as they are. What
goes to the client is cut at arbitrary places (`--seed`): every read of it is a few bytes.

Prints one JSON line when it listens, then one per thing received: `{"event": "generate", ...}` and
`{"event": "abort", ...}`. Ends on SIGTERM.
"""

import argparse
import json
import random
import signal
import socket
import sys
import tempfile
import threading
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import json_format
from grpc_tools import protoc

PROTO_DIR = Path(__file__).resolve().parents[3] / "proto"
SERVICE = "sglang.runtime.v1.SglangService"


def generate_code():
    """The schema's messages, compiled now."""
    folder = tempfile.mkdtemp(prefix="fairlead-wire-")
    if protoc.main(["protoc", f"-I{PROTO_DIR}", f"--python_out={folder}", "sglang/runtime.proto"]) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, folder)
    from sglang import runtime_pb2
    return runtime_pb2


def say(**what) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Engine:
    """Answers every method of the service, in bytes."""

    def __init__(self, options, pb):
        self.pb = pb
        self.options = options
        self.script = iter(json.loads(Path(options.script).read_text()))
        self.lock = threading.Lock()
        info = {"model_path": options.model_id, "served_model_name": options.model_name}
        server = {**info, "page_size": 16, "max_total_num_tokens": 8192, "max_running_requests": 8, "dp_size": 1,
                  "disaggregation_mode": "null", "kv_events": None, "kv_event_sources": [],
                  "incremental_streaming_output": options.incremental}
        card = pb.ModelCard(id=options.model_name, root=options.model_name, max_model_len=4096)
        self.answers = {
            "HealthCheck": pb.HealthCheckResponse(healthy=True),
            "GetModelInfo": pb.GetModelInfoResponse(model_path=options.model_id, json_info=json.dumps(info)),
            "GetServerInfo": pb.GetServerInfoResponse(json_info=json.dumps(server)),
            "ListModels": pb.ListModelsResponse(models=[card]),
            "GetLoad": pb.GetLoadResponse(json_info="[]"),
        }

    def abort(self, request: bytes, context) -> bytes:
        say(event="abort", rid=self.pb.AbortRequest.FromString(request).rid)
        return self.pb.AbortResponse(success=True).SerializeToString()

    def generate(self, request: bytes, context):
        parsed = self.pb.GenerateRequest.FromString(request)
        say(event="generate", request=json_format.MessageToDict(parsed, preserving_proto_field_name=True))
        with self.lock:
            answer = next(self.script)
        for message in answer["messages"]:
            yield bytes.fromhex(message)
        if answer["status"] != "OK":
            context.abort(grpc.StatusCode[answer["status"]], answer.get("details", ""))

    def watch(self, request: bytes, context):
        yield self.pb.EngineStateSnapshot(instance_id=7, revision=1, healthy=True).SerializeToString()
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait()

    def handlers(self):
        methods = {name: grpc.unary_unary_rpc_method_handler(
            lambda request, context, answer=answer.SerializeToString(): answer)
            for name, answer in self.answers.items()}
        methods["Abort"] = grpc.unary_unary_rpc_method_handler(self.abort)
        methods["Generate"] = grpc.unary_stream_rpc_method_handler(self.generate)
        methods["WatchEngineState"] = grpc.unary_stream_rpc_method_handler(self.watch)
        return grpc.method_handlers_generic_handler(SERVICE, methods)


def copy(source: socket.socket, target: socket.socket, cut: random.Random | None) -> None:
    """Hands bytes on until either side ends, in small pieces if `cut`."""
    try:
        while data := source.recv(65536):
            while data:
                size = cut.randint(1, 40) if cut else len(data)
                target.sendall(data[:size])
                data = data[size:]
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (source, target):
            side.close()


def serve_cut(listener: socket.socket, port: int, seed: int) -> None:
    """Passes connections on to the gRPC server."""
    rng = random.Random(seed)
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for ends in ((client, server, None), (server, client, random.Random(rng.random()))):
            threading.Thread(target=copy, args=ends, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", required=True)
    parser.add_argument("--model-id", default="/models/wire")
    parser.add_argument("--model-name", default="wire")
    parser.add_argument("--incremental", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    engine = Engine(options, generate_code())
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    server.add_generic_rpc_handlers((engine.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_cut, args=(listener, port, options.seed), daemon=True).start()
    say(grpc=f"127.0.0.1:{listener.getsockname()[1]}")

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    server.stop(0).wait(5)


if __name__ == "__main__":
    main()
