"""`fairlead render` on conversations against transformers' `apply_chat_template`."""

import json
import os

import pytest
from render_conversations import BARE, MESSAGES, WEATHER, all_variants, assistant, call, conversations, user
from render_oracle import (
    ASSETS,
    NOW,
    QWEN3,
    bare_tokenizer,
    differences,
    reference_chat,
    reference_tokenizer,
    render,
)

LONG = os.environ.get("FAIRLEAD_LONG") == "1"
TEMPLATES = sorted(path.name for path in (ASSETS / "templates").glob("*.jinja"))
# Models whose configuration holds a template; only the first is always fetched.
MODELS_WITH_TEMPLATE = ["qwen3", "deepseek_v3", "gemini", "gemma3", "llama3", "llama3_1"]


@pytest.fixture(scope="module")
def qwen3():
    if not (QWEN3 / "tokenizer_config.json").exists():
        pytest.fail(f"{QWEN3} is missing: run tools/fetch_test_assets.sh")
    return reference_tokenizer(QWEN3)


def check_template(source):
    """Compares the template on every conversation; FAIRLEAD_LONG=1 adds all variants of each."""
    tokenizer = bare_tokenizer()
    more = {"chat_template": source, "special_tokens": tokenizer.special_tokens_map, "now": NOW}
    requests = [{**request, **more} for request in [*conversations().values(), *(all_variants() if LONG else [])]]
    # The reference gets a copy: it must not share what it changes.
    expected = [reference_chat(tokenizer, json.loads(json.dumps(request))) for request in requests]
    assert sum(text is not None for text, _ in expected) > len(requests) / 10
    wrong = differences(render(requests), expected)
    assert not wrong, [(requests[index], why) for index, why in wrong[:3]]


def test_all_public_templates_are_there():
    assert len(TEMPLATES) >= 72, "run tools/fetch_test_assets.sh"
    assert len(conversations()) >= 100


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_public_template_renders_as_the_reference_does(name):
    # As bytes: one of them has CRLF line ends.
    check_template((ASSETS / "templates" / name).read_bytes().decode())


@pytest.mark.parametrize("model", MODELS_WITH_TEMPLATE)
def test_a_models_template_renders_as_the_reference_does(model):
    config = ASSETS / model / "tokenizer_config.json"
    if not config.exists():
        (pytest.fail if model == "qwen3" else pytest.skip)(f"run tools/fetch_test_assets.sh {model}")
    check_template(json.loads(config.read_text())["chat_template"])


def test_a_models_own_variables_are_those_of_the_reference(qwen3):
    requests = [{**request, "now": NOW} for request in conversations().values()]
    expected = [reference_chat(qwen3, json.loads(json.dumps(request))) for request in requests]
    wrong = differences(render(requests, QWEN3), expected)
    assert not wrong, [(requests[index], why) for index, why in wrong[:3]]


def test_ids_of_rendered_prompts_equal_the_reference(qwen3, tmp_path):
    import subprocess

    from fairlead import binary_path

    requests = [{"messages": m, "tools": [WEATHER]} for m in MESSAGES.values()]
    prompts = [answer["prompt"] for answer in render(requests, QWEN3) if "prompt" in answer]
    lines = "".join(json.dumps({"text": p, "add_special_tokens": False}) + "\n" for p in prompts)
    done = subprocess.run(
        [binary_path(), "tokenize", "--model", str(QWEN3)], input=lines.encode(), stdout=subprocess.PIPE, check=True
    )
    ids = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
    assert ids == [qwen3.encode(p, add_special_tokens=False) for p in prompts]


TEMPLATE_OF_SPECIALS = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}|{{ x }}|{{ tools is none }}"


def test_variables_come_from_the_tokenizer_then_the_line_then_the_kwargs(qwen3):
    base = {"messages": [user("a")], "chat_template": TEMPLATE_OF_SPECIALS}
    plain, named, overridden = render(
        [
            base,
            {**base, "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"}},
            {**base, "special_tokens": {"bos_token": "<s>"}, "chat_template_kwargs": {"bos_token": "K", "x": 1}},
        ],
        QWEN3,
    )
    assert plain["prompt"] == reference_chat(qwen3, base)[0]
    assert named["prompt"] == "<s>|</s>|<|endoftext|>|False||True"
    assert overridden["prompt"] == "K|<|im_end|>|<|endoftext|>|False|1|True"


CONTINUED = [
    ("{% for m in messages %}[{{ m.role }}]{{ m.content }}<e>{% endfor %}", "content"),
    ("{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<e>{% endfor %}", "content"),
    ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
     "{% endfor %}{% endif %}<e>{% endfor %}", "content"),
    ("{% for m in messages %}<t>{{ m.thinking }}</t>{{ m.content }}{% endfor %}", "reasoning_content"),
    ("{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}", "reasoning"),
    ("fixed content", "content"),
    ("nothing", "content"),
]


@pytest.mark.parametrize("final", ["text", " padded \n", "", [{"type": "text", "text": "a "}, {"type": "image"}]])
@pytest.mark.parametrize("source, field", CONTINUED)
def test_a_continued_message_is_cut_as_the_reference_cuts_it(qwen3, source, field, final):
    request = {
        "messages": [user("q"), assistant(final, reasoning_content="why ")],
        "chat_template": source,
        "continue_final_message": True if field == "content" else field,
    }
    wrong = differences(render([request], QWEN3), [reference_chat(qwen3, json.loads(json.dumps(request)))])
    assert not wrong, wrong


def test_continuing_and_prompting_exclude_each_other():
    (answer,) = render(
        [{"messages": [user("a")], "chat_template": "x", "continue_final_message": True, "add_generation_prompt": True}]
    )
    assert "not compatible" in answer["error"]


def write_model(folder, **files):
    folder.mkdir()
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))
    return folder


MODELS = {
    "config": {"tokenizer_config_DOT_json": {"chat_template": "C{{ bos_token }}", "bos_token": {"__type": "AddedToken", "content": "<s>"}}},
    "named": {
        "tokenizer_config_DOT_json": {
            "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
            "bos_token": None,
        }
    },
    "jinja over config": {"tokenizer_config_DOT_json": {"chat_template": "C"}, "chat_template_DOT_jinja": "J\n"},
    "additional": {
        "tokenizer_config_DOT_json": {"chat_template": "C"},
        "chat_template_DOT_jinja": "J",
        "additional_chat_templates__tool_use_DOT_jinja": "A",
        "additional_chat_templates__rag_DOT_jinja": "R",
    },
    "no default": {"tokenizer_config_DOT_json": {"chat_template": [{"name": "rag", "template": "R"}]}},
    "none": {"tokenizer_config_DOT_json": {}},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_template_is_chosen_as_the_reference_chooses_it(name, tmp_path, qwen3):
    folder = write_model(tmp_path / "model", **MODELS[name])
    (folder / "tokenizer.json").write_bytes((QWEN3 / "tokenizer.json").read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    reference = reference_tokenizer(folder)
    requests = [
        {"messages": [user("a")]},
        {"messages": [user("a")], "tools": [BARE]},
        {"messages": [user("a")], "chat_template": "rag"},
        {"messages": [user("a")], "chat_template": "own"},
    ]
    wrong = differences(render(requests, folder), [reference_chat(reference, request) for request in requests])
    assert not wrong, wrong


NORMALIZED_TEXT = "{% for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.tool_calls is defined }}]{% endfor %}"
NORMALIZED_PARTS = "{% for m in messages %}{% for p in m.content %}<{{ p.type }}:{{ p.text }}>{% endfor %};{% endfor %}"
ARGS = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }};{% endfor %}{% endfor %}"
ARGS_TEXT = ARGS.replace("{{", "{% if c.function.arguments is string %}text{% endif %}{{")


def normalized(source, messages, **more):
    (answer,) = render([{"messages": messages, "chat_template": source, "normalize": True, **more}])
    return answer


def test_content_gets_the_shape_that_the_template_reads():
    messages = [user("a"), user([{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]), {"role": "assistant"}, user([])]
    assert normalized(NORMALIZED_TEXT, messages)["prompt"] == "[user|a|False][user|b\nc|False][assistant||False][user||False]"
    assert normalized(NORMALIZED_PARTS, messages)["prompt"] == "<text:a>;<text:b><text:c>;;;"


def test_media_parts_are_refused_by_name():
    answer = normalized(NORMALIZED_TEXT, [user([{"type": "image_url", "image_url": {"url": "data:,"}}])])
    assert "image_url" in answer["error"] and "messages[0]" in answer["error"]


def test_arguments_are_parsed_unless_the_template_takes_text():
    texts = ['{"b":1,  "a":1.0}', "", "not json", "[1]"]
    messages = [user("q")] + [assistant("", tool_calls=[call("f", t)]) for t in texts] + [assistant("", tool_calls=[])]
    assert normalized(ARGS, messages)["prompt"] == '{"b": 1, "a": 1.0};{};"not json";{};'
    assert normalized(ARGS_TEXT, messages)["prompt"] == (
        'text"{\\"b\\":1,  \\"a\\":1.0}";{};text"not json";text"[1]";'
    )


def test_tools_are_written_as_vllm_writes_them():
    tools = [{"function": {"parameters": {"required": []}, "strict": True, "name": "f"}, "type": "function"}]
    answer = normalized("{{ tools | tojson }}", [user("a")], tools=tools)
    assert answer["prompt"] == (
        '[{"type": "function", "function": {"name": "f", "description": null, "parameters": '
        '{"required": [], "type": "object", "properties": {}}, "strict": true}}]'
    )
    assert normalized("{{ tools }}", [user("a")], tools=[])["prompt"] == "None"


def test_reasoning_goes_into_the_content_when_the_template_has_no_place_for_it():
    messages = [user("a"), assistant("b", reasoning_content="r")]
    assert normalized(NORMALIZED_TEXT, messages)["prompt"] == "[user|a|False][assistant|<think>r</think>b|False]"
    assert normalized(NORMALIZED_TEXT + "{{ reasoning_content }}", messages)["prompt"] == "[user|a|False][assistant|b|False]"


def test_nul_characters_leave_the_prompt():
    assert normalized("{{ messages[0].content }}", [user("a\0b")])["prompt"] == "ab"
    (kept,) = render([{"messages": [user("a\0b")], "chat_template": "{{ messages[0].content }}"}])
    assert kept["prompt"] == "a\0b"
