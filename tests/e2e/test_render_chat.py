"""`fairlead render` on conversations against transformers' `apply_chat_template`."""

import itertools
import json

import pytest
from render_oracle import NOW, QWEN3, differences, reference_chat, reference_tokenizer, render

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> & \"later\" — in a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": ["Zürich", "東京"]},
                "days": {"type": "integer", "default": 3, "minimum": -1e-7, "maximum": 1e22},
                "exact": {"type": "boolean", "default": False},
                "note": {"type": ["string", "null"], "default": None},
            },
            "required": ["city"],
        },
    },
}
BARE = {"type": "function", "function": {"name": "now", "parameters": {}}}


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


def call(name, arguments, **more):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


ARGUMENTS = {"city": "東京", "days": 2, "ratio": 1.0, "big": 100000000000000000000, "exact": True, "note": None, "l": [1, {}]}
CONVERSATIONS = {
    "hello": [user("Hi")],
    "system": [system("Be brief."), user("Hi")],
    "late system": [user("Hi"), system("Be brief."), user("Go")],
    "turns": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "whitespace": [system("  s \n"), user("\n a \t\n"), assistant("  b  \n\n"), user("")],
    "unicode": [user("Grüße, 世界! 🎉 \u200d\u202e\u00a0\ufeff"), assistant("\u0301é\u2028\u2029\u0085"), user("\U0010ffff")],
    "specials": [user("<|im_end|><|im_start|>system\nx"), assistant("<think>\n"), user("</think>")],
    "quotes": [user("it's \"q\" \\n {{ x }} {% y %} <b>&amp;</b>")],
    "tool call": [user("w?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]), tool('{"t": 20}'), assistant("20"), user("ok")],
    "text arguments": [user("w?"), assistant("wait", tool_calls=[call("get_weather", '{"city":"a"}')]), tool("x")],
    "two calls": [
        user("w?"),
        assistant("", tool_calls=[call("get_weather", {"city": "a"}), call("now", {})]),
        tool("1", name="get_weather"),
        tool("2", name="now"),
        assistant("done"),
    ],
    "flat call": [user("w?"), assistant("", tool_calls=[{"name": "now", "arguments": {}}]), tool("x"), user("y")],
    "tool then user": [user("a"), assistant("", tool_calls=[call("now", {})]), tool("x"), user("y"), assistant("z")],
    "reasoning": [user("a"), assistant("b", reasoning_content="\nhard\nthinking\n"), user("c")],
    "reasoning last": [user("a"), assistant("b", reasoning_content="r")],
    "reasoning alias": [user("a"), assistant("b", reasoning="r"), user("c"), assistant("d", thinking="t")],
    "thinking inline": [user("a"), assistant("<think>\nx\n</think>\n\nb"), user("c"), assistant("</think>d")],
    "empty reasoning": [user("a"), assistant("b", reasoning_content="")],
    "null fields": [user("a"), assistant("b", tool_calls=None, reasoning_content=None, name=None), user("c")],
    "null content": [user("a"), assistant(None, tool_calls=[call("now", {})]), tool("x"), user("b")],
    "no content": [user("a"), {"role": "assistant"}, user("b")],
    "parts": [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
    "number content": [user(5)],
    "unknown role": [user("a"), {"role": "robot", "content": "b"}, user("c")],
    "assistant first": [assistant("a"), user("b")],
    "system only": [system("s")],
    "no role": [{"content": "a"}],
    "tool response text": [user("<tool_response>\nx\n</tool_response>"), user("b"), assistant("c")],
    "extra fields": [user("a"), {"role": "assistant", "content": "b", "audio": {"id": 1}, "x": [1.5]}],
}
VARIANTS = [
    {},
    {"tools": [WEATHER, BARE]},
    {"add_generation_prompt": False},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"chat_template_kwargs": {"enable_thinking": True, "unused": {"a": [1]}}, "tools": [BARE]},
    {"tools": []},
    {"continue_final_message": True, "add_generation_prompt": False},
]


@pytest.fixture(scope="module")
def qwen3():
    if not (QWEN3 / "tokenizer_config.json").exists():
        pytest.fail(f"{QWEN3} is missing: run tools/fetch_test_assets.sh")
    return reference_tokenizer(QWEN3)


def test_qwen3_prompts_equal_the_reference(qwen3):
    requests = [
        {"messages": messages, "now": NOW, **variant}
        for messages, variant in itertools.product(CONVERSATIONS.values(), VARIANTS)
    ]
    expected = [reference_chat(qwen3, json.loads(json.dumps(request))) for request in requests]
    assert sum(text is not None for text, _ in expected) > len(requests) * 0.7
    wrong = differences(render(requests, QWEN3), expected)
    assert not wrong, [(requests[index], why) for index, why in wrong[:3]]


def test_ids_of_rendered_prompts_equal_the_reference(qwen3, tmp_path):
    import subprocess

    from fairlead import binary_path

    requests = [{"messages": m, "tools": [WEATHER]} for m in CONVERSATIONS.values()]
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
