"""Real SGLang engines, for the tests in tests/e2e/real.

They can be had when SGLANG_CPU_HOME names a folder with a virtual environment with SGLang in `venv` and the model
folder `models/tiny-qwen3` (docs/engines.md says how to make one).
"""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import httpx

from fairlead.real_engine import free_ports
from fairlead.waiting import wait_until

HOME = Path(os.environ.get("SGLANG_CPU_HOME", "/nonexistent"))
MODEL = "tiny-qwen3"
FOLDER = HOME / "models" / MODEL
PAGE = 16
START_SECONDS = 900  # Three processes import for minutes where others work, too.
STUB = Path(__file__).resolve().parents[1] / "real" / "sglang_stub"


def installed():
    return (HOME / "venv/bin/python").exists() and (FOLDER / "config.json").exists()


class SglangEngine:
    """A process of SGLang's: `url` of its HTTP server, `grpc` of its native interface, `bootstrap` port, `log`, `role`."""

    def __init__(self, log, *flags, role="aggregated", at=None):
        http, grpc, events, replay, bootstrap = free_ports(5)
        http, grpc = at or (http, grpc)
        self.log, self.role, self.at, self.bootstrap = log, role, (http, grpc), bootstrap
        self.url, self.grpc = f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}"
        self.client = httpx.Client(trust_env=False, timeout=180)  # One that is made anew takes a while each time.
        # The KV transfer would bind the machine's own address, and its default wants InfiniBand. Compiled modules are
        # kept: without them a start takes minutes.
        env = {**os.environ, "PATH": f"{HOME}/venv/bin:{os.environ['PATH']}", "PYTHONPATH": str(STUB),
               "SGLANG_USE_CPU_ENGINE": "1", "SGLANG_HOST_IP": "127.0.0.1", "HOST_IP": "127.0.0.1",
               "MOONCAKE_PROTOCOL": "tcp", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
               "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
               "PYTHONDONTWRITEBYTECODE": ""}
        # An address without a wildcard would make the publisher connect instead of listen.
        kv = {"publisher": "zmq", "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}",
              "buffer_steps": 1000, "topic": "kv"}
        if role != "aggregated":
            flags = ("--disaggregation-mode", role, "--disaggregation-transfer-backend", "mooncake_tcp",
                     "--skip-server-warmup", *flags)
        if role == "prefill":
            flags = ("--disaggregation-bootstrap-port", str(bootstrap), *flags)
        if role == "decode":  # The default asks for CUDA.
            flags = ("--disaggregation-decode-retraction-backup", "cpu_tensor", *flags)
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [f"{HOME}/venv/bin/python", "-m", "sglang.launch_server", "--model-path", str(FOLDER),
                 "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(http), "--grpc-port", str(grpc),
                 "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
                 "--grammar-backend", "xgrammar", "--disable-overlap-schedule", "--disable-cuda-graph",
                 "--page-size", str(PAGE), "--mem-fraction-static", "0.6", "--max-total-tokens", "8192",
                 "--max-running-requests", "8", "--kv-events-config", json.dumps(kv), "--enable-metrics",
                 "--sleep-on-idle", *flags],
                env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def wait_ready(self):
        def ready_or_gone():
            if self.process.poll() is not None:
                return True
            return httpx.get(f"{self.url}/health", timeout=30, trust_env=False).status_code == 200

        wait_until(ready_or_gone, START_SECONDS, f"SGLang, see {self.log}", interval=1)
        assert self.process.poll() is None, f"SGLang has ended, see {self.log}"

    def stop(self):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def get(self, path):
        answer = self.client.get(self.url + path)
        answer.raise_for_status()
        return answer

    def post(self, path, body):
        answer = self.client.post(self.url + path, json=body)
        assert answer.status_code == 200, answer.text
        return answer

    def flush(self):
        """Empties its cache. Refused while requests run, and these end a moment after their answer."""
        wait_until(lambda: self.client.post(f"{self.url}/flush_cache").status_code == 200, 30,
                   f"an idle {self.role} engine")

    def load(self):
        """What its scheduler says of itself at this moment."""
        return self.get("/v1/loads").json()["loads"][0]

    def running(self):
        load = self.load()
        return load["num_running_reqs"] + load["num_waiting_reqs"]


@contextlib.contextmanager
def sglang_engines(folder, *specs):
    """Engines that start at the same time, one per spec: the keyword arguments of SglangEngine, and `flags`."""
    engines = []
    try:
        for i, spec in enumerate(specs):
            spec = dict(spec)
            engines.append(SglangEngine(folder / f"engine-{i}.log", *spec.pop("flags", ()), **spec))
        for engine in engines:
            engine.wait_ready()
        yield engines
    finally:
        for engine in engines:
            engine.process.send_signal(signal.SIGTERM)
        for engine in engines:
            engine.stop()
