"""A real vLLM engine behind Fairlead, compared with the engine's own OpenAI endpoint."""

import concurrent.futures
import re
import time

import grpc
import httpx
import pytest
from fairlead import grpc_channel, wait_until
from fairlead.real_engine import HOME, MODEL


@pytest.fixture(scope="module")
def server(module_launcher, engine):
    return module_launcher.serve([engine.grpc], model_path=HOME / "models" / MODEL)


TOPICS = ["the capital of France", "prime numbers", "a haiku about rain", "How are tides made?", "naïve café",
          "write 'hello' in C", "count to ten", "日本語で挨拶して", "emoji 😀 please", "the speed of light",
          "my cat's name", "a list of fruits", "π and e"]


def cases():
    out = []
    for i in range(25):
        topic = TOPICS[i % len(TOPICS)]
        chat = {"messages": [{"role": "user", "content": f"Tell me about {topic}."}], "max_tokens": 8 + i % 9}
        if i % 4 == 1:
            chat["messages"].insert(0, {"role": "system", "content": "Answer briefly."})
        if i % 4 == 2:
            chat["messages"] += [{"role": "assistant", "content": "Sure."}, {"role": "user", "content": "Go on"}]
        if i % 5 == 3:
            chat["stop"] = [".", "\n\n"]
        out.append(("/v1/chat/completions", chat))
        text = {"prompt": f"{topic} is", "max_tokens": 8 + i % 9}
        if i % 5 == 2:
            text["stop"] = [" the", ","]
        if i % 5 == 4:
            text |= {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2}
        if i % 7 == 3:
            text |= {"min_tokens": 4, "logit_bias": {"42": 3.0}}
        out.append(("/v1/completions", text))
    return out


def summary(answer):
    body = answer.json()
    assert answer.status_code == 200, body
    choice = body["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return (text, choice["finish_reason"], choice.get("stop_reason"), body["usage"]["prompt_tokens"],
            body["usage"]["completion_tokens"])


def test_fifty_answers_equal_the_engines_own(engine, server):
    def both(case):
        path, body = case
        body = {**body, "model": MODEL, "temperature": 0}
        return case, [summary(httpx.post(base + path, json=body, timeout=180))
                      for base in (engine.url, server.base_url)]

    # One after the other: what shares a batch moves the last bits, and near ties with them.
    results = [both(case) for case in cases()]
    assert len(results) == 50
    different = [(case, *answers) for case, answers in results if answers[0] != answers[1]]
    assert not different


class RecordingProxy:
    """Stands between Fairlead and the engine and keeps the ids that pass, by request."""

    def __init__(self, target, inference):
        self.prompts, self.outputs = [], []
        self._inference = inference
        self._channel = grpc_channel(target.removeprefix("http://"))
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((self,))
        self.url = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, call):
        if call.method.endswith("/GenerateStream"):
            return grpc.unary_stream_rpc_method_handler(self._generate)

        def unary(request, _):
            return self._channel.unary_unary(call.method)(request, timeout=30)

        return grpc.unary_unary_rpc_method_handler(unary)

    def _generate(self, data, context):
        request = self._inference.GenerateRequest.FromString(data)
        ids = []
        self.prompts.append(list(request.token_ids.ids))
        self.outputs.append(ids)
        stream = self._channel.unary_stream("/vllm.Inference/GenerateStream")(data, timeout=180)
        context.add_callback(stream.cancel)
        for message in stream:
            ids += self._inference.GenerateResponse.FromString(message).outputs.token_ids
            yield message

    def close(self):
        self._server.stop(0).wait()
        self._channel.close()


def test_ids_equal_the_engines_own(engine, module_launcher, stubs):
    proxy = RecordingProxy(engine.grpc, stubs.messages("vllm/inference.proto"))
    try:
        server = module_launcher.serve([proxy.url], model_path=HOME / "models" / MODEL)
        for path, body in cases():
            body = {**body, "model": MODEL, "temperature": 0}
            own = httpx.post(engine.url + path, json={**body, "return_token_ids": True}, timeout=180).json()
            choice = own["choices"][0]
            prompt = own.get("prompt_token_ids") or choice["prompt_token_ids"]
            assert server.post(path, body, timeout=180).status_code == 200
            assert proxy.prompts[-1] == prompt, (path, body)
            # A stop string ends the engine's own list at the match; here the engine is aborted there.
            assert proxy.outputs[-1][: len(choice["token_ids"])] == choice["token_ids"], (path, body)
    finally:
        proxy.close()


def test_streams_join_to_the_same_text(engine, server):
    body = {"model": MODEL, "temperature": 0, "max_tokens": 24, "stream": True,
            "stream_options": {"include_usage": True}}
    messages = [{"role": "user", "content": "Say something with an emoji 😀 and 日本"}]
    texts = []
    for base in (engine.url, server.base_url):
        answer = httpx.post(f"{base}/v1/chat/completions", json={**body, "messages": messages}, timeout=180)
        frames = [frame[6:] for frame in answer.text.split("\n\n") if frame.startswith("data: {")]
        texts.append("".join(re.findall(r'"content":\s*"((?:[^"\\]|\\.)*)"', "".join(frames))))
        assert answer.text.rstrip().endswith("data: [DONE]")
    assert texts[0] == texts[1]


def running(engine):
    text = httpx.get(f"{engine.url}/metrics", timeout=10).text
    return sum(float(v) for v in re.findall(r"^vllm:num_requests_running\{[^}]*\} (\S+)", text, re.M))


def test_a_leaving_client_stops_the_engines_request(engine, server):
    with httpx.stream("POST", f"{server.base_url}/v1/chat/completions", timeout=60, json={
            "model": MODEL, "stream": True, "max_tokens": 900, "ignore_eos": True,
            "messages": [{"role": "user", "content": "Write a very long story"}]}) as answer:
        chunks = answer.iter_bytes()  # kept: httpx closes the connection with its iterator
        next(chunks)
        wait_until(lambda: running(engine) == 1, 10, "the running request")
    left = time.monotonic()
    wait_until(lambda: running(engine) == 0, 10, "the engine to stop", interval=0.05)
    assert time.monotonic() - left < 1.0


def test_the_engines_refusals_are_400(server):
    answer = server.post("/v1/completions", {"model": MODEL, "prompt": "x" * 9000, "max_tokens": 4}, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
