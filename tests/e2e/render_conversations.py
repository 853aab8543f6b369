"""Conversations that every chat template is rendered with, as lines of `fairlead render`."""

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
# Every shape of schema that templates which write their own types look at.
DEEP = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Books.\nTwo lines.",
        "parameters": {
            "type": "object",
            "properties": {
                "guests": {
                    "type": "array",
                    "description": "who",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "nullable": True}},
                        "required": ["name"],
                    },
                },
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                "when": {"oneOf": [{"type": "string", "default": "now"}, {"type": "number"}], "default": "now"},
                "where": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "place", "title": "Where"},
                "both": {"type": ["string", "integer"], "description": "x", "examples": ["p", 1]},
                "object": {"type": "object", "additionalProperties": {"type": "number"}},
                "free": {},
                "items": {"type": "string", "const": "c", "pattern": "^a+$", "format": "date"},
            },
            "required": ["guests", "items"],
            "additionalProperties": False,
            "$defs": {"T": {"type": "string"}},
        },
        "strict": True,
        "return": {"type": "string", "description": "a ticket"},
        "response": {"type": "object", "description": "the answer", "properties": {"ok": {"type": "boolean"}}},
    },
}
FLAT = {"name": "flat", "description": "no wrapper", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
BUILT_IN = {"type": "browser"}


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def developer(content):
    return {"role": "developer", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


def call(name, arguments, **more):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def text(content, **more):
    return {"type": "text", "text": content, **more}


ARGUMENTS = {"city": "東京", "days": 2, "ratio": 1.0, "big": 100000000000000000000, "exact": True, "note": None, "l": [1, {}]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

MESSAGES = {
    "hello": [user("Hi")],
    "system": [system("Be brief."), user("Hi")],
    "empty system": [system(""), user("Hi")],
    "blank system": [system(" \n"), user("Hi")],
    "two systems": [system("One."), system("Two."), user("Hi")],
    "late system": [user("Hi"), system("Be brief."), user("Go")],
    "last system": [user("Hi"), assistant("b"), system("Be brief.")],
    "developer": [developer("Be brief."), user("Hi")],
    "system and developer": [system("s"), developer("d"), user("Hi"), assistant("b"), developer("e"), user("x")],
    "turns": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
    "ends with answer": [system("s"), user("a"), assistant("b"), user("c"), assistant("d")],
    "whitespace": [system("  s \n"), user("\n a \t\n"), assistant("  b  \n\n"), user("")],
    "unicode": [user("Grüße, 世界! 🎉 \u200d\u202e\u00a0\ufeff"), assistant("\u0301é\u2028\u2029\u0085"), user("\U0010ffff")],
    "specials": [user("<|im_end|><|im_start|>system\nx"), assistant("<think>\n"), user("</think>")],
    "control characters": [user("a\x00b\x1c\x1d\x1f\x0b\x0c\r\nc\rd\x7f"), assistant("\x85\xa0x\u2007"), user("\x1e")],
    "quotes": [user("it's \"q\" \\n {{ x }} {% y %} {# z #} <b>&amp;</b>")],
    "long": [user("word " * 2000), assistant("antwort\n" * 500), user("x" * 5000)],
    "tool call": [user("w?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]), tool('{"t": 20}'), assistant("20"), user("ok")],
    "tool call last": [user("w?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)])],
    "tool result last": [user("w?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]), tool('{"t": 20}')],
    "text arguments": [user("w?"), assistant("wait", tool_calls=[call("get_weather", '{"city":"a"}')]), tool("x")],
    "odd arguments": [
        user("w?"),
        assistant("", tool_calls=[call("a", ""), call("b", "no json"), call("c", [1]), call("d", None), call("e", 5)]),
        tool("x"),
    ],
    "two calls": [
        user("w?"),
        assistant("", tool_calls=[call("get_weather", {"city": "a"}), call("now", {})]),
        tool("1", name="get_weather"),
        tool("2", name="now"),
        assistant("done"),
    ],
    "calls with ids": [
        user("w?"),
        assistant("let me", tool_calls=[call("f", {"a": "x\ny"}, id="c1"), call("g", {"b": [1, 2]}, id="c2")]),
        tool("two", tool_call_id="c2"),
        tool("one", tool_call_id="c1"),
        user("and?"),
        assistant(None, tool_calls=[call("f", {}, id="c3")]),
        tool("three", tool_call_id="c3", name="f"),
    ],
    "calls in a row": [
        user("w?"),
        assistant("", tool_calls=[call("f", {"a": 1})], reasoning_content="first"),
        tool("1"),
        assistant("", tool_calls=[call("g", {"b": 2})], reasoning_content="second"),
        tool("2"),
        assistant("answer", reasoning_content="third"),
    ],
    "flat call": [user("w?"), assistant("", tool_calls=[{"name": "now", "arguments": {}}]), tool("x"), user("y")],
    "call without arguments": [user("w?"), assistant("", tool_calls=[{"function": {"name": "now"}}]), tool("x")],
    "call without type": [user("w?"), assistant("a", tool_calls=[{"function": {"name": "f", "arguments": {"x": "<y>"}}}])],
    "empty calls": [user("a"), assistant("b", tool_calls=[]), user("c")],
    "tool then user": [user("a"), assistant("", tool_calls=[call("now", {})]), tool("x"), user("y"), assistant("z")],
    "tool result first": [tool("x"), user("a")],
    "tool results apart": [user("a"), assistant("", tool_calls=[call("f", {})]), tool("x"), assistant("m"), tool("y"), user("z")],
    "tool result kinds": [
        user("a"),
        assistant("", tool_calls=[call("f", {}), call("f", {}), call("f", {}), call("f", {}), call("f", {})]),
        tool({"k": ["v", 1.5, None], "n": True}),
        tool([{"r": 1}, {"r": 2}]),
        tool(17),
        tool([text("t1"), text("t2")]),
        tool(None, name="f"),
    ],
    "tool responses": [
        user("a"),
        assistant("b", tool_calls=[call("f", {})], tool_responses=[{"name": "f", "response": {"x": 1}}]),
        user("c"),
    ],
    "function role": [user("a"), assistant(None, function_call={"name": "f", "arguments": "{}"}), {"role": "function", "name": "f", "content": "x"}],
    "ipython role": [user("a"), assistant("", tool_calls=[call("f", {"x": 1})]), {"role": "ipython", "content": {"y": 2}}],
    "reasoning": [user("a"), assistant("b", reasoning_content="\nhard\nthinking\n"), user("c")],
    "reasoning last": [user("a"), assistant("b", reasoning_content="r")],
    "reasoning alias": [user("a"), assistant("b", reasoning="r"), user("c"), assistant("d", thinking="t")],
    "reasoning all names": [user("a"), assistant("b", reasoning="r", thinking="t", reasoning_content="c")],
    "reasoning without content": [user("a"), assistant("", reasoning_content="r"), user("c")],
    "reasoning of no text": [user("a"), assistant("b", reasoning_content=["x"]), user("c"), assistant("d", reasoning_content=5)],
    "thinking inline": [user("a"), assistant("<think>\nx\n</think>\n\nb"), user("c"), assistant("</think>d")],
    "thinking channels": [user("a"), assistant("<|channel|>analysis<|message|>x<|end|>"), user("c"), assistant("<|channel>thought\nx<channel|>y")],
    "empty reasoning": [user("a"), assistant("b", reasoning_content="")],
    "null fields": [user("a"), assistant("b", tool_calls=None, reasoning_content=None, name=None), user("c")],
    "null content": [user("a"), assistant(None, tool_calls=[call("now", {})]), tool("x"), user("b")],
    "no content": [user("a"), {"role": "assistant"}, user("b")],
    "parts": [user([text("a"), text("b")])],
    "parts everywhere": [system([text("s1"), text("s2")]), user([text(" a ")]), assistant([text("b"), text("c")]), user([text("d")])],
    "empty parts": [system([]), user([]), assistant([]), user([text("")])],
    "images": [user([{"type": "image"}, text("what?"), IMAGE, {"type": "image", "image": "x.png"}]), assistant([text("a cat")]), user([IMAGE])],
    "media": [user([{"type": "video"}, {"type": "audio"}, {"type": "video_url", "video_url": {}}, {"type": "input_audio", "input_audio": {}}, text("x")])],
    "image in system and tool": [system([{"type": "image"}, text("s")]), user([text("a")]), assistant([{"type": "image"}]), tool([{"type": "image"}, text("t")])],
    "untyped parts": [user([{"text": "a"}, {"image": 1}, {"video": 2}, {"audio": 3}, "plain", {"type": "odd", "text": "b"}])],
    "text in a part is absent": [user([{"type": "text"}])],
    "number content": [user(5)],
    "object content": [user({"a": 1})],
    "boolean content": [user(True), assistant(False)],
    "unknown role": [user("a"), {"role": "robot", "content": "b"}, user("c")],
    "role of no text": [{"role": 5, "content": "a"}],
    "assistant first": [assistant("a"), user("b")],
    "assistant only": [assistant("a")],
    "two users": [user("a"), user("b"), assistant("c"), assistant("d")],
    "system only": [system("s")],
    "no role": [{"content": "a"}],
    "empty message": [{}],
    "tool response text": [user("<tool_response>\nx\n</tool_response>"), user("b"), assistant("c")],
    "extra fields": [user("a"), {"role": "assistant", "content": "b", "audio": {"id": 1}, "x": [1.5]}],
    "recipients": [user("a"), assistant("b", recipient="all", channel="final", end_turn=False), user("c")],
    "names": [{"role": "user", "name": "Ann", "content": "a"}, {"role": "assistant", "name": "Bot", "content": "b"}, user("c")],
    "keys like methods": [{"role": "user", "content": "a", "items": 1, "keys": 2, "get": 3, "values": 4}],
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

DOCUMENTS = [{"title": "T", "text": "one"}, {"title": "Ü", "text": "two\n", "extra": [1]}, {}]
# What else a request may say, each for one conversation.
MORE = {
    "deep tools": ("tool call", {"tools": [DEEP, WEATHER]}),
    "deep tools alone": ("hello", {"tools": [DEEP]}),
    "flat tool": ("hello", {"tools": [FLAT]}),
    "mixed tools": ("system", {"tools": [FLAT, WEATHER, {}, BUILT_IN]}),
    "tools and developer": ("system and developer", {"tools": [WEATHER]}),
    "tools without messages of the user": ("system only", {"tools": [WEATHER]}),
    "tools of no list": ("hello", {"tools": {"a": 1}}),
    "tools in system": ("system", {"chat_template_kwargs": {"tools_in_user_message": False}, "tools": [WEATHER]}),
    "tools in user": ("system", {"chat_template_kwargs": {"tools_in_user_message": True}, "tools": [DEEP]}),
    "built-in tools": ("tool call", {"chat_template_kwargs": {"builtin_tools": ["browser", "python", "code_interpreter"]}, "tools": [BARE]}),
    "custom tools": ("tool call", {"chat_template_kwargs": {"custom_tools": [WEATHER], "date_string": "1 Jan 2000"}}),
    "documents": ("turns", {"documents": DOCUMENTS}),
    "documents of no objects": ("turns", {"documents": ["x"]}),
    "no documents": ("turns", {"documents": []}),
    "effort low": ("reasoning", {"chat_template_kwargs": {"reasoning_effort": "low"}}),
    "effort high": ("calls in a row", {"chat_template_kwargs": {"reasoning_effort": "high", "model_identity": "You are X."}}),
    "effort none": ("calls in a row", {"chat_template_kwargs": {"reasoning_effort": "none"}}),
    "effort odd": ("reasoning", {"chat_template_kwargs": {"reasoning_effort": 3}}),
    "efforts": ("reasoning", {"chat_template_kwargs": {"low_effort": True, "medium_effort": True, "reasoning_strength": "strong"}}),
    "thinking kept": ("calls in a row", {"chat_template_kwargs": {"preserve_thinking": True, "truncate_history_thinking": False}}),
    "thinking dropped": ("reasoning alias", {"chat_template_kwargs": {"preserve_thinking": False, "truncate_history_thinking": True}}),
    "thinking off": ("thinking inline", {"chat_template_kwargs": {"thinking": False, "enable_thinking": False}}),
    "thinking on": ("thinking inline", {"chat_template_kwargs": {"thinking": True, "enable_thinking": True}, "tools": [WEATHER]}),
    "thinking null": ("reasoning", {"chat_template_kwargs": {"enable_thinking": None}}),
    "thinking as text": ("reasoning", {"chat_template_kwargs": {"enable_thinking": "false"}}),
    "cutoff": ("system", {"chat_template_kwargs": {"knowledge_cutoff": "2024-06", "current_date": "2026-01-01"}}),
    "namespaces": ("tool call", {"chat_template_kwargs": {"tool_namespace_descriptions": {"a": "b"}}, "tools": [WEATHER]}),
    "response declaration": ("tool call", {"chat_template_kwargs": {"response_declaration": {"a": 1}}, "tools": [DEEP]}),
    "vision ids": ("images", {"chat_template_kwargs": {"add_vision_id": True}}),
    "vision ids of all media": ("media", {"chat_template_kwargs": {"add_vision_id": True}}),
    "images to prompt": ("images", {}),
    "overridden variables": ("hello", {"chat_template_kwargs": {"bos_token": "B", "eos_token": None, "content": "c", "role": "r"}}),
    "no generation prompt": ("tool result last", {"add_generation_prompt": False}),
    "continue text": ("ends with answer", {"continue_final_message": True}),
    "continue padded": ("whitespace", {"continue_final_message": True}),
    "continue parts": ("parts everywhere", {"continue_final_message": True}),
    "continue reasoning": ("reasoning last", {"continue_final_message": "reasoning_content"}),
    "continue reasoning with answer": ("reasoning last", {"continue_final_message": True}),
    "continue a call": ("tool call last", {"continue_final_message": True, "tools": [WEATHER]}),
    "continue images": ("images", {"continue_final_message": True}),
    "continue nothing": ("no content", {"continue_final_message": True}),
}


def conversations():
    """Requests by name: every list of messages as it is, then those with options."""
    named = {name: {"messages": messages} for name, messages in MESSAGES.items()}
    named.update({name: {"messages": MESSAGES[of], **options} for name, (of, options) in MORE.items()})
    return named


def all_variants():
    """Every list of messages with every variant."""
    return [{"messages": messages, **variant} for messages in MESSAGES.values() for variant in VARIANTS]
