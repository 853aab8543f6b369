"""A real SGLang engine behind Fairlead, in each way of streaming, compared with the engine's own endpoint.

The cache is flushed before every request that is compared, so that both sides compute the same prefill. Sampling is
greedy: over its own endpoint the engine fills in what a request leaves out, here the frontend does.
"""

import itertools
import json
import re
import threading
import time

import httpx
import pytest
from fairlead import wait_until
from fairlead.real_sglang import FOLDER, MODEL, PAGE

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
CLOSE = 2e-3

TOPICS = ["the capital of France", "prime numbers", "a haiku about rain", "How are tides made?", "naïve café",
          "write 'hello' in C", "count to ten", "日本語で挨拶して", "emoji 😀 please", "the speed of light",
          "my cat's name", "a list of fruits", "π and e"]


@pytest.fixture(scope="module")
def server(module_launcher, sglang):
    return module_launcher.serve([sglang.grpc], backend="sglang", model_path=FOLDER, ready_timeout=60)


def cases():
    """Path, body, and where in the engine's own answer to put a stop string or a stop token."""
    out = []
    for i in range(25):
        topic = TOPICS[i % len(TOPICS)]
        chat = {"messages": [{"role": "user", "content": f"Tell me about {topic}."}], "max_tokens": 8 + i % 9}
        if i % 4 == 1:
            chat["messages"].insert(0, {"role": "system", "content": "Answer briefly."})
        if i % 4 == 2:
            chat["messages"] += [{"role": "assistant", "content": "Sure."}, {"role": "user", "content": "Go on"}]
        if i % 6 == 4:
            chat |= {"chat_template_kwargs": {"enable_thinking": False}}
        chat |= {"logprobs": True, "top_logprobs": i % 4}
        out.append((CHAT, chat, {3: "string", 4: "token"}.get(i % 5)))
        text = {"prompt": f"{topic} is", "max_tokens": 8 + i % 9, "logprobs": i % 4}
        if i % 5 == 3:
            text |= {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2}
        if i % 7 == 3:
            text |= {"min_tokens": 4}
        out.append((TEXT, text, {2: "string", 4: "token"}.get(i % 5)))
    return out


def ask(sglang, base, path, body):
    """The answer of one side to a request that finds an empty cache."""
    sglang.flush()
    body = {"model": MODEL, "temperature": 0, "return_token_ids": True, **body}
    answer = httpx.post(base + path, json=body, timeout=180, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def piece(text):
    """Three whole characters of the middle."""
    parts = (text[i:i + 3] for i in range(len(text) // 2, len(text) - 2))
    return next(part for part in parts if "\ufffd" not in part)


def with_stop(sglang, path, body, kind):
    """The request with a stop in the middle of the engine's own answer."""
    if kind is None:
        return body
    choice = ask(sglang, sglang.url, path, body)["choices"][0]
    if kind == "token":
        ids = output_ids(choice)
        return {**body, "stop_token_ids": [ids[len(ids) // 2]]}
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return {**body, "stop": ["never", piece(text)]}


def prompt_ids(answer):
    return answer.get("prompt_token_ids") or answer["choices"][0]["prompt_token_ids"]


def output_ids(choice):
    """The engine has another name for them in chats."""
    return choice.get("response_token_ids") or choice["token_ids"]


def summary(answer):
    choice, usage = answer["choices"][0], answer["usage"]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    stop = choice.get("matched_stop", choice.get("stop_reason"))
    return {"text": text, "finish": choice["finish_reason"], "stop": stop, "ids": output_ids(choice),
            "prompt": prompt_ids(answer), "usage": [usage[key] for key in ("prompt_tokens", "completion_tokens",
                                                                           "total_tokens")]}


def close(a, b):
    return a == b or (a is not None and b is not None and abs(a - b) <= CLOSE)


def partial(text):
    """A part of a character, which the engine spells otherwise, or a special token."""
    return text == "" or "\ufffd" in text or text.startswith("<|")


def compare_candidates(own, ours):
    """Equal but for candidates so close to the last one that either may be cut off, and for parts of characters."""
    last = min(own.values(), default=0)
    for name in own.keys() | ours.keys():
        if partial(name) or not name.isascii():
            continue
        if name in own and name in ours:
            assert close(own[name], ours[name]), name
        else:
            assert abs((own | ours)[name] - last) <= CLOSE, name


def compare_logprobs(own, ours):
    if "content" in ours:
        assert len(own["content"]) == len(ours["content"]) > 0
        for a, b in zip(own["content"], ours["content"], strict=True):
            assert a["bytes"] == b["bytes"]
            assert close(a["logprob"], b["logprob"])
            assert len(a["top_logprobs"]) == len(b["top_logprobs"])
            compare_candidates(*({t["token"]: t["logprob"] for t in side["top_logprobs"]} for side in (a, b)))
        return
    assert len(own["token_logprobs"]) == len(ours["token_logprobs"]) > 0
    assert all(map(close, own["token_logprobs"], ours["token_logprobs"]))
    assert all(a == b for a, b in zip(own["tokens"], ours["tokens"], strict=True) if not partial(b))
    for place, (row, mine) in enumerate(itertools.zip_longest(own["top_logprobs"], ours["top_logprobs"])):
        sampled = {own["tokens"][place]: own["token_logprobs"][place]}  # the engine lists it only if it is likely
        compare_candidates(sampled | (row or {}), mine or {})


def test_fifty_answers_equal_the_engines_own(sglang, server):
    stops = []
    for path, body, stop in cases():
        body = with_stop(sglang, path, body, stop)
        # One after the other: what shares a batch moves the last bits, and near ties with them.
        own, ours = (ask(sglang, base, path, body) for base in (sglang.url, server.base_url))
        assert summary(own) == summary(ours), (path, body)
        compare_logprobs(own["choices"][0]["logprobs"], ours["choices"][0]["logprobs"])
        stops.append(ours["choices"][0]["finish_reason"] == "stop")
    assert len(stops) == 50
    assert sum(stops) == 20


@pytest.mark.parametrize("top", [0, 1, 5, 20])
def test_candidates_equal_the_engines_own_by_id(sglang, server, top):
    """The native endpoint names candidates by id, so that none has to be left out for its text."""
    ours = ask(sglang, server.base_url, TEXT, {"prompt": "π and e are", "max_tokens": 12, "logprobs": top,
                                               "return_tokens_as_token_ids": True})["choices"][0]
    sglang.flush()
    own = sglang.post("/generate", {"input_ids": ours["prompt_token_ids"], "return_logprob": True,
                                    "top_logprobs_num": top,
                                    "sampling_params": {"temperature": 0, "max_new_tokens": 12}}).json()
    assert own["output_ids"] == ours["token_ids"]
    meta, mine = own["meta_info"], ours["logprobs"]
    assert mine["tokens"] == [f"token_id:{entry[1]}" for entry in meta["output_token_logprobs"]]
    assert all(map(close, mine["token_logprobs"], [entry[0] for entry in meta["output_token_logprobs"]]))
    if top == 0:
        return
    for own_row, row in zip(meta["output_top_logprobs"], mine["top_logprobs"], strict=True):
        compare_candidates({f"token_id:{entry[1]}": entry[0] for entry in own_row}, row)
        assert len(row) >= top


def test_prompt_logprobs_equal_the_engines_own(sglang, server):
    ours = ask(sglang, server.base_url, TEXT, {"prompt": "The capital of France is", "max_tokens": 2,
                                               "prompt_logprobs": 3})["choices"][0]
    sglang.flush()
    own = sglang.post("/generate", {"input_ids": ours["prompt_token_ids"], "return_logprob": True,
                                    "top_logprobs_num": 3, "logprob_start_len": 0,
                                    "sampling_params": {"temperature": 0, "max_new_tokens": 2}}).json()["meta_info"]
    assert ours["prompt_logprobs"][0] is None
    assert len(ours["prompt_logprobs"]) == len(own["input_token_logprobs"]) == own["prompt_tokens"]
    for place, entries in enumerate(ours["prompt_logprobs"][1:], 1):
        logprob, token, _ = own["input_token_logprobs"][place]
        assert next(iter(entries)) == str(token)
        assert close(entries[str(token)]["logprob"], logprob)
        compare_candidates({str(e[1]): e[0] for e in own["input_top_logprobs"][place]} | {str(token): logprob},
                           {key: entry["logprob"] for key, entry in entries.items()})
    assert server.metrics().value("fairlead_frontend_logprobs_missing_total") == 0


def stream(base, path, body):
    """Every choice of a streamed answer, joined, and its usage."""
    text, entries, ids, finish, usage = "", [], [], None, None
    with httpx.stream("POST", base + path, timeout=180, trust_env=False, json={
            "model": MODEL, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
            **body}) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    for frame in map(json.loads, lines):
        usage = frame.get("usage") or usage
        for choice in frame["choices"]:
            text += (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]
            entries += [entry["logprob"] for entry in (choice.get("logprobs") or {}).get("content") or []]
            ids += choice.get("token_ids") or []
            finish = choice["finish_reason"] or finish
    return text, finish, usage["prompt_tokens"], usage["completion_tokens"], entries, ids


def test_streams_join_to_the_same_answer(sglang, server):
    body = {"messages": [{"role": "user", "content": "Say something with an emoji 😀 and 日本"}], "max_tokens": 40,
            "logprobs": True, "top_logprobs": 0}
    whole = ask(sglang, server.base_url, CHAT, body)["choices"][0]
    sglang.flush()
    ours = stream(server.base_url, CHAT, {**body, "return_token_ids": True})
    sglang.flush()
    own = stream(sglang.url, CHAT, body)
    assert own[:4] == ours[:4]
    assert len(own[4]) == len(ours[4]) == 40
    assert all(map(close, own[4], ours[4]))
    assert ours[0] == whole["message"]["content"]
    assert ours[5] == whole["token_ids"]


def test_many_at_once_keep_their_own_answers(sglang, server):
    """More than the engine runs at once; a batch may move near ties, so each is compared to what it was alone."""
    prompts = [f"{topic}, number {i}:" for i, topic in enumerate(TOPICS)]
    alone = [ask(sglang, server.base_url, TEXT, {"prompt": p, "max_tokens": 12})["choices"][0] for p in prompts]
    sglang.flush()
    answers = [None] * len(prompts)

    def run(i):
        answers[i] = stream(server.base_url, TEXT, {"prompt": prompts[i], "max_tokens": 12, "return_token_ids": True})

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer[1:4] == ("length", answer[2], 12) and len(answer[5]) == 12 for answer in answers)
    same = sum(a["token_ids"] == b[5] and a["text"] == b[0] for a, b in zip(alone, answers, strict=True))
    assert same >= len(prompts) - 3, (same, alone, answers)


def test_cached_tokens_are_the_engines(sglang, server):
    prompt = list(range(1000, 1000 + 3 * PAGE + 5))
    body = {"prompt": prompt, "max_tokens": 2, "model": MODEL, "temperature": 0}
    sglang.flush()
    counts = []
    for _ in range(2):
        usage = server.post(TEXT, body, timeout=180).json()["usage"]
        assert usage["prompt_tokens"] == len(prompt)
        counts.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert counts == [0, 3 * PAGE]


def aborted(sglang):
    text = sglang.get("/metrics").text
    return sum(map(float, re.findall(r"^sglang:num_aborted_requests_total\{[^}]*\} (\S+)", text, re.M)))


def running(sglang):
    text = sglang.get("/metrics").text
    return sum(map(float, re.findall(r"^sglang:num_running_reqs\{[^}]*\} (\S+)", text, re.M)))


def test_a_leaving_client_stops_the_engines_request(sglang, server):
    sglang.flush()
    before = aborted(sglang)
    with httpx.stream("POST", server.base_url + CHAT, timeout=60, trust_env=False, json={
            "model": MODEL, "stream": True, "max_tokens": 4000, "ignore_eos": True,
            "messages": [{"role": "user", "content": "Write a very long story"}]}) as answer:
        chunks = answer.iter_bytes()  # kept: httpx closes the connection with its iterator
        next(chunks)
        wait_until(lambda: sglang.running() == 1 and running(sglang) == 1, 30, "the running request")
    left = time.monotonic()
    wait_until(lambda: sglang.running() == 0 and running(sglang) == 0, 10, "the engine to stop", interval=0.05)
    assert time.monotonic() - left < 1.0
    wait_until(lambda: aborted(sglang) == before + 1, 10, "the abort to be counted")


def test_a_stop_string_frees_the_engine(sglang, server):
    """Stop strings are found here: the engine, which knows none, is told to end."""
    body = {"prompt": "π and e are", "max_tokens": 4000, "ignore_eos": True}
    text = ask(sglang, sglang.url, TEXT, {**body, "max_tokens": 12})["choices"][0]["text"]
    answer = ask(sglang, server.base_url, TEXT, {**body, "stop": [piece(text)]})
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] <= 12
    wait_until(lambda: sglang.running() == 0, 5, "the engine to stop", interval=0.05)


def test_what_would_end_the_engine_is_refused_here(sglang, server):
    vocabulary = json.loads((FOLDER / "config.json").read_text())["vocab_size"]
    for prompt in ([1, vocabulary], [1, -1], [2**31]):
        answer = server.post(TEXT, {"model": MODEL, "prompt": prompt, "max_tokens": 2})
        assert answer.status_code == 400, prompt
    answer = server.post(TEXT, {"model": MODEL, "prompt": [1], "max_tokens": 2, "stop_token_ids": [vocabulary]})
    assert answer.status_code in (200, 400)
    answer = server.post(TEXT, {"model": MODEL, "prompt": [5] * 9000, "max_tokens": 4}, timeout=60)
    assert answer.status_code == 400
    assert sglang.process.poll() is None
    assert ask(sglang, server.base_url, TEXT, {"prompt": [1, 2, 3], "max_tokens": 2})["usage"]["completion_tokens"] == 2


def test_a_probe_tells_what_the_engine_is(sglang, launcher):
    done = launcher.run("probe", "--direct-backend", "sglang", sglang.grpc)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["served_model_name"], told["model_id"]) == (MODEL, str(FOLDER))
    assert (told["kv_block_size"], told["total_kv_blocks"], told["max_running_requests"]) == (PAGE, 512, 8)
    assert told["dialect"] == f"sglang-{sglang.streaming}"
    assert [source["replay_endpoint"] != "" for source in told["kv_event_sources"]] == [True]
