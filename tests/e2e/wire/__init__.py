"""Engines of other making on grpcio: vLLM's gRPC interface, one process per wire generation, and SGLang's
with recorded answers."""

import json
import sys
from pathlib import Path
from typing import Any

from fairlead import Process, wait_until

GENERATIONS = ("single", "early", "newest")
# With `--misbehave`: how the answer to a prompt ends, by the prompt's first id.
MISBEHAVIOURS = {"more-behind-the-end": 901, "unknown-reason": 902, "wrong-total": 903, "count-unlike-ids": 904,
                 "another-index": 905}


class RunningServer:
    """A running server of this folder. Use as `engines` of `serve(...)` through `url`."""

    def __init__(self, folder: Path, script: str, name: str, *flags: object):
        folder.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, str(Path(__file__).with_name(script)), *map(str, flags)]
        self.name = name
        self.process = Process(argv, log_file=folder / f"wire-{name}.log")
        self.address = self.process.ready(timeout=30)["grpc"]

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.discard()

    @property
    def url(self) -> str:
        """As `--engine-url` takes it."""
        return f"http://{self.address}"

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What was received or done so far: `generate`, `abort`, `cancelled` or `finished`."""
        lines = [json.loads(line) for line in self.process.stdout_lines()[1:]]
        return [line for line in lines if line["event"] == kind]

    def wait_event(self, kind: str, count: int = 1, timeout: float = 10.0) -> list[dict[str, Any]]:
        """Waits until that many events of a kind have come; all of them."""
        return wait_until(lambda: found if len(found := self.events(kind)) >= count else None, timeout,
                          f"{count} {kind} events of {self.name}")

    def kill(self) -> None:
        """Ends it like a crash."""
        self.process.kill()


class WireEngine(RunningServer):
    """A vLLM engine of one generation."""

    def __init__(self, folder: Path, generation: str, *flags: object, listen: str = "127.0.0.1:0"):
        super().__init__(folder, "server.py", generation, "--generation", generation, "--listen", listen, *flags)
        self.generation = generation


class SglangWireEngine(RunningServer):
    """An SGLang engine that answers with what was recorded: `answers` as in sglang_server.py."""

    def __init__(self, folder: Path, answers: list[dict[str, Any]], *flags: object):
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "answers.json"
        script.write_text(json.dumps(answers))
        super().__init__(folder, "sglang_server.py", "sglang", "--script", script, *flags)
