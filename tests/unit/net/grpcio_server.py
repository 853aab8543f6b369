"""A gRPC server of the real grpcio for grpc_grpcio_test.cpp: raw bytes, no schema.

Prints its port, serves until its input ends. Arguments: NAME=VALUE channel options.
"""

import os
import sys
import threading
import time
from concurrent import futures

import grpc

cancelled = threading.Semaphore(0)


def echo(request, context):
    return request


def count(request, context):
    total, size = (int(part) for part in request.split(b","))
    for i in range(total):
        yield b"%d:" % i + b"x" * size


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "naïve 100% — \n失敗")


def fail_late(request, context):
    yield b"one"
    context.abort(grpc.StatusCode.DATA_LOSS, "späť")


def metadata(request, context):
    sent = {key: value for key, value in context.invocation_metadata()}
    out = []
    for name in request.decode().split(","):
        value = sent.get(name, "missing")
        out.append(value.hex() if isinstance(value, bytes) else value)
    return "|".join(out).encode()


def wait(request, context):
    gone = threading.Event()
    context.add_callback(gone.set)
    try:
        yield b"started"
        gone.wait(20)
    finally:  # grpcio may also close the generator where it stands
        cancelled.release()


def was_cancelled(request, context):
    return b"yes" if cancelled.acquire(timeout=10) else b"no"


def remaining(request, context):
    return b"%f" % context.time_remaining()


def slow(request, context):
    for i in range(int(request)):
        yield b"%d" % i
        time.sleep(0.02)


def die(request, context):
    for i in range(10):
        yield b"%d" % i
    time.sleep(0.05)  # lets what was yielded leave
    os._exit(1)


def nothing(request, context):
    return
    yield b""


METHODS = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Metadata": grpc.unary_unary_rpc_method_handler(metadata),
    "WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
    "Remaining": grpc.unary_unary_rpc_method_handler(remaining),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "FailLate": grpc.unary_stream_rpc_method_handler(fail_late),
    "Wait": grpc.unary_stream_rpc_method_handler(wait),
    "Slow": grpc.unary_stream_rpc_method_handler(slow),
    "Die": grpc.unary_stream_rpc_method_handler(die),
    "Nothing": grpc.unary_stream_rpc_method_handler(nothing),
}


def main():
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    for argument in sys.argv[1:]:
        name, value = argument.split("=")
        options.append((name, int(value)))
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=80), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", METHODS),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    os._exit(0)


main()
