"""The real grpcio (and curl) as clients of the server in grpc_grpcio_test.cpp; argument: its port."""

import shutil
import subprocess
import sys
import tempfile
import threading
import time

import grpc

PORT = sys.argv[1]
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def status_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def echo_and_metadata(channel):
    echo = channel.unary_unary("/t.T/Echo")
    expect(echo(b"hello", timeout=10) == b"hello", "echo")
    expect(echo(b"", timeout=10) == b"", "empty message")
    big = bytes(range(256)) * 80 * 1024
    expect(echo(big, timeout=60) == big, "20 MiB both ways")
    describe = channel.unary_unary("/t.T/Metadata")
    answer, call = describe.with_call(b"", metadata=(("x-id", "7"), ("x-raw-bin", b"\x00\xff")),
                                      timeout=10)
    expect(answer == b"7AP8", answer)
    trailing = dict(call.trailing_metadata())
    expect(trailing.get("x-count") == "1" and trailing.get("x-data-bin") == b"\x01\xfe", trailing)


def statuses(channel):
    code, text = status_of(lambda: channel.unary_unary("/t.T/Fail")(b"x", timeout=10))
    expect(code == grpc.StatusCode.FAILED_PRECONDITION and text == "naïve 100% — \n失敗", text)
    code, _ = status_of(lambda: channel.unary_unary("/t.T/Unknown")(b"x", timeout=10))
    expect(code == grpc.StatusCode.UNIMPLEMENTED, code)
    received = []
    late = channel.unary_stream("/t.T/FailLate")(b"x", timeout=10)
    code, text = status_of(lambda: received.extend(late))
    expect(received == [b"one"] and code == grpc.StatusCode.DATA_LOSS and text == "späť",
           (received, code, text))
    echo = channel.unary_unary("/t.T/Echo")
    code, _ = status_of(lambda: echo(b"x" * 1000, timeout=10, compression=grpc.Compression.Gzip))
    expect(code == grpc.StatusCode.UNIMPLEMENTED, code)
    code, text = status_of(lambda: echo(b"x" * 48_000_000, timeout=30))
    expect(code == grpc.StatusCode.RESOURCE_EXHAUSTED and "found 48000000 bytes" in text,
           (code, text))
    sent = channel.stream_unary("/t.T/Echo")
    code, _ = status_of(lambda: sent(iter([b"a", b"b"]), timeout=10))
    expect(code == grpc.StatusCode.UNIMPLEMENTED, code)
    code, _ = status_of(lambda: sent(iter([]), timeout=10))
    expect(code == grpc.StatusCode.INTERNAL, code)


def streaming(channel):
    messages = list(channel.unary_stream("/t.T/Count")(b"500,100", timeout=30))
    expect(len(messages) == 500, len(messages))
    expect(all(m == b"%d:" % i + b"x" * 100 for i, m in enumerate(messages)), "order")
    expect(list(channel.unary_stream("/t.T/Count")(b"0,0", timeout=10)) == [], "no message")


def cancel_and_deadline(channel):
    wait = channel.unary_stream("/t.T/Wait")
    call = wait(b"x", timeout=30)
    expect(next(call) == b"started", "started")
    call.cancel()
    code, _ = status_of(lambda: list(wait(b"x", timeout=0.1)))
    expect(code == grpc.StatusCode.DEADLINE_EXCEEDED, code)
    gone = channel.unary_unary("/t.T/Gone")
    end = time.monotonic() + 10
    while gone(b"", timeout=10) != b"2":
        expect(time.monotonic() < end, "the handlers of gone clients still run")


def slow_reader(channel):
    """One of 64 streams is not read: the others go on, and it loses nothing."""
    count = channel.unary_stream("/t.T/Count")
    stuck = count(b"3000,4000", timeout=60)
    expect(next(stuck).startswith(b"0:"), "first")
    done = []

    def read():
        done.append(sum(1 for _ in count(b"300,1000", timeout=60)))

    threads = [threading.Thread(target=read) for _ in range(63)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(done == [300] * 63, done)
    expect(sum(1 for _ in stuck) == 2999, "the slow reader's messages")


def curl(_):
    """Plain HTTP/2 on the same port."""
    tool = shutil.which("curl")
    if not tool:
        return
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"b" * 3_000_000)
        body.flush()
        out = subprocess.run(
            [tool, "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w",
             "%{http_code} %{http_version} %{size_download}", "--data-binary", f"@{body.name}",
             "-H", "content-type: application/octet-stream",
             f"http://127.0.0.1:{PORT}/http/echo"],
            capture_output=True, text=True, timeout=60)
    expect(out.stdout == "200 2 3000000", out)


def main():
    for scenario in (echo_and_metadata, statuses, streaming, cancel_and_deadline, slow_reader,
                     curl):
        with grpc.insecure_channel(f"127.0.0.1:{PORT}", options=OPTIONS) as channel:
            scenario(channel)
        print(scenario.__name__, "ok", flush=True)
    print("done", flush=True)


main()
