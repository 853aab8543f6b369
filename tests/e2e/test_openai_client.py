"""The official OpenAI client against Fairlead and simulated engines that echo the prompt."""

import asyncio

import openai
import pytest
from fairlead.launcher import ROOT
from tokenizers import Tokenizer

MODEL_PATH = ROOT / "share/demo"
FOLDER = str(MODEL_PATH)


@pytest.fixture(scope="module")
def server(module_launcher):
    engine = module_launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", "--max-model-len", "2048",
                                         model="demo")
    serve = module_launcher.serve([engine], model_path=FOLDER)
    serve.engine = engine
    return serve


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client
    server.engine.wait_idle()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(MODEL_PATH / "tokenizer.json"))


# The simulated engine ends with EOS behind the echo; this makes it begin again instead.
ON = {"ignore_eos": True}
TEXT = "Hello there, how are you doing today? One two three four five six seven."


def ids_of(tokenizer, text=TEXT):
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_completion_of_token_ids_echoes_them(client, tokenizer):
    ids = ids_of(tokenizer)
    answer = client.completions.create(model="demo", prompt=ids, max_tokens=len(ids))
    choice = answer.choices[0]
    assert choice.text == TEXT
    assert choice.finish_reason == "length"
    assert choice.index == 0 and choice.logprobs is None
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion" and answer.model == "demo"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (
        len(ids), len(ids), 2 * len(ids))


def test_completion_of_text_equals_the_completion_of_its_ids(client, tokenizer):
    ids = tokenizer.encode(TEXT, add_special_tokens=True).ids
    by_text = client.completions.create(model="demo", prompt=TEXT, max_tokens=8)
    by_ids = client.completions.create(model="demo", prompt=ids, max_tokens=8)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.usage.prompt_tokens == len(ids)


def test_completions_default_to_sixteen_tokens(client, tokenizer):
    answer = client.completions.create(model="demo", prompt=ids_of(tokenizer) * 3)
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_streamed_completion_joins_to_the_folded_one(client, tokenizer):
    ids = ids_of(tokenizer)
    chunks = list(client.completions.create(model="demo", prompt=ids, max_tokens=len(ids), stream=True))
    assert "".join(c.choices[0].text for c in chunks) == TEXT
    assert [c.choices[0].finish_reason for c in chunks][-1] == "length"
    assert all(c.choices[0].finish_reason is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1
    assert all(c.usage is None for c in chunks)


def test_list_prompts_give_choices_in_prompt_order(client, tokenizer):
    texts = ["first prompt", "the second one", "third"]
    answer = client.completions.create(model="demo", prompt=[ids_of(tokenizer, t) for t in texts],
                                       max_tokens=3, n=2, extra_body=ON)
    assert [c.index for c in answer.choices] == list(range(6))
    for choice in answer.choices:
        expected = tokenizer.decode((ids_of(tokenizer, texts[choice.index // 2]) * 3)[:3])
        assert choice.text == expected
    assert answer.usage.prompt_tokens == sum(len(ids_of(tokenizer, t)) for t in texts)
    assert answer.usage.completion_tokens == 18


def test_chat_folded(client):
    answer = client.chat.completions.create(model="demo", max_tokens=40, extra_body=ON,
                                            messages=[{"role": "user", "content": TEXT}])
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert "Hello there" in choice.message.content
    assert choice.finish_reason == "length"
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    assert answer.usage.completion_tokens == 40
    assert isinstance(answer.created, int)


def test_chat_streamed_with_usage(client):
    arguments = {"model": "demo", "max_tokens": 40, "extra_body": ON, "messages": [{"role": "user", "content": TEXT}]}
    folded = client.chat.completions.create(**arguments)
    chunks = list(client.chat.completions.create(**arguments, stream=True,
                                                 stream_options={"include_usage": True}))
    *content, last = chunks
    assert last.choices == [] and last.usage.completion_tokens == 40
    assert last.usage.prompt_tokens == folded.usage.prompt_tokens
    assert content[0].choices[0].delta.role == "assistant"
    assert all(c.choices[0].delta.role is None for c in content[1:])
    assert "".join(c.choices[0].delta.content or "" for c in content) == folded.choices[0].message.content
    assert [c.choices[0].finish_reason for c in content if c.choices[0].finish_reason] == ["length"]
    assert all(c.usage is None for c in content)


def test_continuous_usage_counts_up(client):
    chunks = list(client.chat.completions.create(
        model="demo", max_tokens=10, extra_body=ON, messages=[{"role": "user", "content": TEXT}], stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True}))
    counts = [c.usage.completion_tokens for c in chunks if c.usage]
    assert counts == sorted(counts) and counts[-1] == 10 and len(counts) > 5


def test_chat_without_a_limit_uses_the_rest_of_the_context(client):
    answer = client.chat.completions.create(model="demo", extra_body=ON,
                                            messages=[{"role": "user", "content": "hi"}])
    assert answer.usage.total_tokens == 2048
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_two_choices(client, stream):
    arguments = {"model": "demo", "max_tokens": 12, "n": 2, "extra_body": ON,
                 "messages": [{"role": "user", "content": TEXT}]}
    one = client.chat.completions.create(**{**arguments, "n": 1})
    if stream:
        texts, reasons = {0: "", 1: ""}, {}
        for chunk in client.chat.completions.create(**arguments, stream=True):
            choice = chunk.choices[0]
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
        assert reasons == {0: "length", 1: "length"}
    else:
        answer = client.chat.completions.create(**arguments)
        texts = {c.index: c.message.content for c in answer.choices}
        assert answer.usage.completion_tokens == 24
        assert answer.usage.prompt_tokens == one.usage.prompt_tokens
    assert texts == {0: one.choices[0].message.content, 1: one.choices[0].message.content}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_stop_strings_are_found_here(client, server, tokenizer, stream, include):
    ids = ids_of(tokenizer)
    answer = client.completions.create(model="demo", prompt=ids, max_tokens=len(ids), stream=stream,
                                       stop=["nowhere", "day? On"],
                                       extra_body={"include_stop_str_in_output": include})
    if stream:
        choices = [chunk.choices[0] for chunk in answer]
        text, reason = "".join(c.text for c in choices), choices[-1].finish_reason
        matched = choices[-1].model_extra.get("stop_reason")
    else:
        text, reason = answer.choices[0].text, answer.choices[0].finish_reason
        matched = answer.choices[0].model_extra.get("stop_reason")
    before = TEXT[: TEXT.index("day? On")]
    assert text == before + ("day? On" if include else "")
    assert reason == "stop" and matched == "day? On"
    server.engine.wait_idle()
    sent = server.engine.state()["last_requests"][-1]
    assert sent["stopping"]["max_new_tokens"] == len(ids)
    assert "stop_strings" not in sent["stopping"]
    assert sent["response"]["output_text"] is False


def test_a_stop_token_id_ends_and_is_reported(client, tokenizer):
    ids = ids_of(tokenizer)
    answer = client.completions.create(model="demo", prompt=ids, max_tokens=len(ids),
                                       extra_body={"stop_token_ids": [ids[4]]})
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].model_extra["stop_reason"] == ids[4]
    assert answer.choices[0].text == tokenizer.decode(ids[:4])
    assert answer.usage.completion_tokens == 5


def test_cached_tokens_are_reported(client, tokenizer):
    ids = ids_of(tokenizer, "a prompt that is repeated " * 60)
    client.completions.create(model="demo", prompt=ids, max_tokens=1)
    again = client.completions.create(model="demo", prompt=ids, max_tokens=1)
    assert 0 < again.usage.prompt_tokens_details.cached_tokens < len(ids)


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["demo"]
    assert models[0].created == client.models.retrieve("demo").created
    assert models[0].model_extra["max_model_len"] == 2048
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(("arguments", "exception", "code", "words"), [
    ({"model": "other", "messages": MESSAGES}, openai.NotFoundError, "model_not_found", "other"),
    ({"model": "demo", "messages": []}, openai.BadRequestError, None, "messages"),
    ({"model": "demo", "messages": MESSAGES, "temperature": 3}, openai.BadRequestError, None, "temperature"),
    ({"model": "demo", "messages": MESSAGES, "top_p": 0}, openai.BadRequestError, None, "top_p"),
    ({"model": "demo", "messages": MESSAGES, "n": 0}, openai.BadRequestError, None, "n"),
    ({"model": "demo", "messages": MESSAGES, "max_tokens": 0}, openai.BadRequestError, None, "max_tokens"),
    ({"model": "demo", "messages": [{"role": "user", "content": "word " * 4000}]}, openai.BadRequestError,
     "context_length_exceeded", "maximum context length"),
    ({"model": "demo", "messages": MESSAGES, "max_tokens": 100000}, openai.BadRequestError, None,
     "max_tokens"),
    ({"model": "demo", "messages": MESSAGES, "extra_body": {"no_such_field": 1}}, openai.BadRequestError,
     None, "no_such_field"),
    ({"model": "demo", "messages": MESSAGES, "top_logprobs": 2}, openai.BadRequestError, None, "top_logprobs"),
])
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_clients_typed_exceptions(client, arguments, exception, code, words, stream):
    with pytest.raises(exception) as caught:
        client.chat.completions.create(**arguments, stream=stream)
    error = caught.value
    assert words in error.message
    assert isinstance(error.body["message"], str) and isinstance(error.body["type"], str)
    assert error.body["code"] is None or isinstance(error.body["code"], str)
    if code:
        assert error.code == code


def test_an_out_of_vocabulary_id_never_reaches_the_engine(client, server):
    before = server.engine.state()["requests_total"]
    with pytest.raises(openai.BadRequestError, match="vocabulary"):
        client.completions.create(model="demo", prompt=[1, 10_000_000])
    assert server.engine.state()["requests_total"] == before


def test_many_async_clients_at_once(server):
    async def main():
        async with server.async_client() as client:
            async def one(i):
                stream = await client.chat.completions.create(
                    model="demo", max_tokens=20, stream=True,
                    messages=[{"role": "user", "content": f"message number {i} {TEXT}"}])
                return "".join([c.choices[0].delta.content or "" async for c in stream])
            return await asyncio.gather(*(one(i) for i in range(64)))

    texts = asyncio.run(main())
    assert len(texts) == 64 and all(texts)
    server.engine.wait_idle()
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
