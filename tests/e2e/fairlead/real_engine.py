"""Real vLLM engines, for the tests in tests/e2e/real.

They can be had when VLLM_CPU_HOME names a folder with the file `.ready`, a virtual environment with vLLM for
the CPU in `venv`, the gRPC frontend binary `vllm-rs` and the model folder `models/smollm2-135m`, for the tests
of adapters also `models/smollm2-lora`
(docs/engines.md says how to make one).
"""

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

import httpx

from fairlead.waiting import wait_until

START_SECONDS = 300
HOME = Path(os.environ.get("VLLM_CPU_HOME", "/nonexistent"))
MODEL = "smollm2-135m"
PROCESSORS = Path(__file__).resolve().parents[1] / "real"


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextlib.contextmanager
def real_engine(folder, frontend, *more, at=None):
    """A started engine, with more flags if any; `url` of its HTTP server and, with the Rust frontend, `grpc`. `at`
    fixes both ports, for an engine that comes back."""
    http, grpc = at or free_ports(2)
    log = folder / "engine.log"
    env = {**os.environ, "PATH": f"{HOME}/venv/bin:{os.environ['PATH']}", "VLLM_CPU_KVCACHE_SPACE": "1",
           "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
           "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
           "PYTHONPATH": str(PROCESSORS)}
    flags = []
    if frontend == "rust":
        env |= {"VLLM_USE_RUST_FRONTEND": "1", "VLLM_RUST_FRONTEND_PATH": f"{HOME}/vllm-rs"}
        flags = ["--grpc-port", str(grpc)]
    with log.open("w") as out:
        process = subprocess.Popen(
            [f"{HOME}/venv/bin/vllm", "serve", f"{HOME}/models/{MODEL}", "--served-model-name", MODEL,
             "--host", "127.0.0.1", "--port", str(http), *flags, "--enforce-eager",
             "--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "8", "--block-size", "32",
             "--num-gpu-blocks-override", "80", "--enable-prefix-caching", "--enable-scale-out",
             "--logits-processors", "forced_token:ForcedTokenProcessor", *more],
            env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    process.url, process.grpc = f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}"
    try:
        wait_until(lambda: httpx.get(f"{process.url}/v1/models", timeout=5).json()["data"][0]["id"] == MODEL,
                   START_SECONDS, f"vLLM, see {log}", interval=0.5)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
