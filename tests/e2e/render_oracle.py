"""The reference for `fairlead render`: transformers on the same files, and a driver for the command."""

import datetime
import functools
import json
import subprocess
from pathlib import Path

from fairlead import binary_path

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "tests" / ".assets"
QWEN3 = ASSETS / "qwen3"
NOW = "2026-01-15T12:34:56"


def render(requests, model=None):
    """Answers of one `fairlead render` to the requests (objects, or raw lines)."""
    command = [binary_path(), "render"] + (["--model", str(model)] if model else [])
    lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in requests]
    done = subprocess.run(
        command, input=("\n".join(lines) + "\n").encode(), stdout=subprocess.PIPE, timeout=600, check=True
    )
    answers = [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]
    assert len(answers) == len(requests)
    return answers


class _FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromisoformat(NOW)


def reference_template(source, context):
    """What transformers' Jinja environment renders, or the failure."""
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = _FixedTime
    try:
        return chat_template_utils._compile_jinja_template(source).render(**context), None
    except Exception as error:  # noqa: BLE001 - every failure of a template counts
        return None, str(error)


def reference_tokenizer(folder):
    """The model's tokenizer as transformers loads it."""
    from transformers import AutoTokenizer
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = _FixedTime
    return AutoTokenizer.from_pretrained(str(folder))


@functools.cache
def bare_tokenizer():
    """A tokenizer that has special tokens and nothing else."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = _FixedTime
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )


def reference_chat(tokenizer, request):
    """What `apply_chat_template` renders for a request of `fairlead render`, or the failure."""
    arguments = {
        key: request[key]
        for key in ("tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template")
        if key in request
    }
    arguments.setdefault("add_generation_prompt", not arguments.get("continue_final_message"))
    try:
        text = tokenizer.apply_chat_template(
            request["messages"], tokenize=False, **arguments, **request.get("chat_template_kwargs", {})
        )
        return text, None
    except Exception as error:  # noqa: BLE001
        return None, str(error)


def differences(answers, expected):
    """Pairs of index and explanation where prompt and reference differ."""
    found = []
    for index, (answer, (text, failure)) in enumerate(zip(answers, expected)):
        if text is None:
            if "error" not in answer:
                found.append((index, f"rendered {answer['prompt']!r}, reference fails: {failure}"))
        elif answer.get("prompt") != text:
            found.append((index, f"{answer} instead of {text!r}"))
    return found
