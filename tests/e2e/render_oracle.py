"""The reference renderer: transformers' own Jinja environment, and a driver for `fairlead render`."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("FAIRLEAD_BIN", str(ROOT / "build" / "release" / "fairlead"))


class Renderer:
    """A running `fairlead render`: one answer line per input line."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [BINARY, "render", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            encoding="utf-8",
        )

    def ask(self, request):
        return self.ask_raw(json.dumps(request, ensure_ascii=False))

    def ask_raw(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"fairlead render ended on {line!r}"
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=30)
        assert code == 0, f"fairlead render ended with {code}"


def environment_template(source):
    """`source` compiled by the environment that transformers builds for chat templates."""
    from transformers.utils import chat_template_utils

    compiled = chat_template_utils._compile_jinja_template(source)
    return compiled


def reference(source, context):
    """What the reference renders, or None when it fails."""
    try:
        return environment_template(source).render(**context)
    except Exception:  # noqa: BLE001 - every failure counts as one
        return None
