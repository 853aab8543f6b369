"""Starts the binary under test: `serve`, `mock-engine` and one-shot commands.

Everything a launcher started is ended in its teardown, and a clean exit is required of whatever the
test did not end itself.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai

from fairlead import clients
from fairlead.metrics import Metrics, parse_metrics
from fairlead.process import Process, child_environment
from fairlead.waiting import scaled, wait_until

ROOT = Path(__file__).resolve().parents[3]


def binary_path() -> Path:
    """The program under test: FAIRLEAD_BIN, or what `make build` leaves. Missing is a failure."""
    path = Path(os.environ.get("FAIRLEAD_BIN", ROOT / "build/release/fairlead"))
    if not os.access(path, os.X_OK):
        raise AssertionError(f"no program to test at {path}: run `make build` or set FAIRLEAD_BIN")
    return path


class Listening:
    """A started long-running command and what its ready line said."""

    def __init__(self, process: Process, ready: dict[str, Any]):
        self.process = process
        self.addresses = ready

    def __repr__(self) -> str:
        return repr(self.process)

    def stop(self, expect: int = 0, timeout: float = 15.0) -> None:
        """SIGTERM; requires the exit code."""
        self.process.stop(expect, timeout)

    def kill(self) -> None:
        """Ends it like a crash."""
        self.process.kill()


class Serve(Listening):
    """A running frontend."""

    @property
    def http(self) -> str:
        """HOST:PORT it listens at."""
        return self.addresses["http"]

    @property
    def base_url(self) -> str:
        return f"http://{self.http}"

    def client(self, **options) -> openai.OpenAI:
        return clients.openai_client(self.base_url, **options)

    def async_client(self, **options) -> openai.AsyncOpenAI:
        return clients.async_openai_client(self.base_url, **options)

    def anthropic(self, **options) -> anthropic.Anthropic:
        return clients.anthropic_client(self.base_url, **options)

    def get(self, path: str, **options) -> httpx.Response:
        return httpx.get(self.base_url + path, trust_env=False, verify=False, **{"timeout": scaled(10), **options})

    def post(self, path: str, body: Any = None, **options) -> httpx.Response:
        """`body` as JSON, or bytes and text as they are."""
        how = {"content": body} if isinstance(body, bytes | str) else {"json": body}
        if "content" in how:
            how["headers"] = {"content-type": "application/json"}
        return httpx.post(self.base_url + path, trust_env=False, verify=False, **{"timeout": scaled(30), **how, **options})

    def metrics(self) -> Metrics:
        return parse_metrics(self.get("/metrics").text)

    def wait_metric(self, name: str, expected: float, timeout: float = 10.0, **labels: str) -> None:
        """Waits until the sum of the matching series is `expected`."""
        wait_until(lambda: self.metrics().value(name, **labels) == expected, timeout,
                   f"{name}{labels or ''} == {expected:g}")

    def wait_ready(self, timeout: float = 20.0) -> None:
        """Waits until a model can be served."""
        wait_until(lambda: self.get("/ready").status_code == 200, timeout, "/ready")

    def wait_model(self, name: str, timeout: float = 20.0) -> None:
        """Waits until that model is listed."""
        wait_until(lambda: name in [m["id"] for m in self.get("/v1/models").json()["data"]], timeout,
                   f"model {name}")


class MockEngine(Listening):
    """A running simulated engine."""

    @property
    def address(self) -> str:
        """HOST:PORT of what it serves, gRPC or HTTP."""
        return self.addresses.get("grpc") or self.addresses["http"]

    @property
    def url(self) -> str:
        """As `--engine-url` takes it."""
        return f"http://{self.address}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def debug(self, path: str) -> Any:
        answer = httpx.get(f"http://{self.addresses['debug']}{path}", trust_env=False, verify=False, timeout=scaled(10))
        answer.raise_for_status()
        return answer.json()

    def state(self) -> dict[str, Any]:
        """`running`, `waiting`, `requests_total`, `last_requests` and the rest."""
        return self.debug("/debug/state")

    def requests(self) -> list[dict[str, Any]]:
        """What the latest 1000 requests asked for, oldest first: id, model, adapter, extra arguments, sampling
        fields, log-probabilities."""
        return self.debug("/debug/requests")["requests"]

    def set_faults(self, *faults: str) -> Any:
        """Replaces the faults of the running engine; what it then says."""
        answer = httpx.post(f"http://{self.addresses['debug']}/debug/fault", json={"faults": faults},
                            trust_env=False, verify=False, timeout=scaled(10))
        answer.raise_for_status()
        return answer.json()

    def kv(self) -> Any:
        """Token ids of every cached chain of blocks."""
        return self.debug("/debug/kv")

    def wait_state(self, timeout: float = 10.0, **expected: Any) -> dict[str, Any]:
        """Waits until every named field of the state has the expected value; the whole state."""
        seen: dict[str, Any] = {}

        def probe() -> dict[str, Any] | None:
            seen.clear()
            seen.update(self.state())
            return seen if all(seen[key] == value for key, value in expected.items()) else None

        try:
            return dict(wait_until(probe, timeout, f"engine state {expected}"))
        except AssertionError as error:
            brief = {key: value for key, value in seen.items() if key != "last_requests"}
            raise AssertionError(f"{error}; state {brief}") from None

    def wait_idle(self, timeout: float = 10.0) -> dict[str, Any]:
        """Waits until nothing runs or waits: proof that nothing leaked here."""
        return self.wait_state(timeout, running=0, waiting=0)


class Launcher:
    """Starts commands and ends them. `folder` holds their logs, numbered in order of start."""

    def __init__(self, folder: Path, binary: Path | None = None):
        self.folder = folder
        self._binary = binary
        self.processes: list[Process] = []

    @property
    def binary(self) -> Path:
        if self._binary is None:
            self._binary = binary_path()
        return self._binary

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, kind, *_) -> None:
        self.close(check=kind is None)

    def start(self, *args: object, env: dict[str, str] | None = None, cwd: Path | None = None,
              read_stderr: bool = True) -> Process:
        """Starts `fairlead ARGS...`; whoever waits for readiness calls `ready()`."""
        argv = [str(self.binary), *map(str, args)]
        log = self.folder / f"{len(self.processes):03d}-{args[0] if args else 'fairlead'}.log"
        process = Process(argv, log_file=log, env=env, cwd=cwd, read_stderr=read_stderr)
        self.processes.append(process)
        return process

    def run(self, *args: object, stdin: str | bytes | None = None, env: dict[str, str] | None = None,
            timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end: exit code, stdout and stderr as text."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run([str(self.binary), *map(str, args)], input=data if data is not None else b"",
                              capture_output=True, timeout=scaled(timeout), env=child_environment(env))
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode("utf-8", "replace"),
                                           done.stderr.decode("utf-8", "replace"))

    def run_lines(self, *args: object, lines: Sequence[Any], timeout: float = 60.0) -> list[Any]:
        """Runs a line command (`tokenize`, `render`, `parse`): one JSON answer per JSON line."""
        done = self.run(*args, stdin="".join(json.dumps(line) + "\n" for line in lines), timeout=timeout)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(lines), f"{len(answers)} answers to {len(lines)} lines\n{done.stderr}"
        return answers

    def serve(self, engines: Sequence[MockEngine | str] = (), *flags: object, backend: str = "vllm",
              model_path: Path | str | None = None, env: dict[str, str] | None = None,
              ready_timeout: float = 20.0, wait_models: bool = True) -> Serve:
        """A frontend in direct mode on the engines (mocks or URLs), listening at a free port. Returns
        when it is ready and, unless `wait_models` is false, can serve a model. An engine that gets no
        processor time for some seconds does not leave routing, unless `env` or a flag says so."""
        args: list[object] = ["serve", "--http-host", "127.0.0.1", "--http-port", "0"]
        if engines:
            args += ["--direct", "--direct-backend", backend]
            for engine in engines:
                args += ["--engine-url", engine.url if isinstance(engine, MockEngine) else engine]
        if model_path is not None:
            args += ["--model-path", model_path]
        process = self.start(*args, *flags, env={"FAIRLEAD_ENGINE_HEALTH_TIMEOUT_SECS": "60", **(env or {})})
        serve = Serve(process, process.ready(ready_timeout))
        if engines and wait_models:
            serve.wait_ready()
        return serve

    def mock_engine(self, *flags: object, model: str = "mock", backend: str = "vllm", flavor: str | None = None,
                    listen: str = "127.0.0.1:0", env: dict[str, str] | None = None,
                    ready_timeout: float = 20.0) -> MockEngine:
        """A simulated engine at free ports (`listen` fixes the address, for a rejoining engine): `backend` is vllm,
        vllm-http or sglang. With `backend="vllm-http"`, `flavor` says whose server it plays."""
        chosen = ["--http-flavor", flavor] if flavor else []
        process = self.start("mock-engine", "--backend", backend, "--listen", listen,
                             "--debug-listen", "127.0.0.1:0", "--model", model, *chosen, *flags, env=env)
        return MockEngine(process, process.ready(ready_timeout))

    def close(self, check: bool = True) -> None:
        """Ends everything, frontends first as started last; with `check`, requires clean exits."""
        complaints = []
        for process in reversed(self.processes):
            try:
                if check:
                    process.stop()
            except AssertionError as error:
                complaints.append(str(error))
            finally:
                process.discard()
        self.processes.clear()
        if complaints:
            raise AssertionError("\n".join(complaints))

    def logs(self) -> str:
        """Tails of all logs, for failure reports."""
        return "\n".join(process.log_tail(80) for process in self.processes)
