"""Engines found in a watched folder of model cards."""

import shutil

import pytest
from fairlead import CardFolder, wait_until
from fairlead.launcher import ROOT
from fairlead.vllm_api import Api

FOLDER = str(ROOT / "share/demo")
ECHO = ["--reply", "echo", "--speedup-ratio", "0"]
WORDS = [{"role": "user", "content": "one two three four five six"}]


@pytest.fixture
def cards(tmp_path):
    return CardFolder(tmp_path / "cards")


@pytest.fixture
def frontend(serve, cards):
    """Starts a frontend on the folder; models come when their cards do."""

    def start(*flags, model_path=FOLDER):
        return serve([], *cards.flags, *flags, model_path=model_path)

    return start


def healthy(server):
    """URLs of the workers in routing."""
    return {i["endpoint"] for i in server.get("/health").json()["instances"] if i["healthy"]}


def wait_workers(server, *engines):
    urls = {engine.url for engine in engines}
    wait_until(lambda: healthy(server) == urls, 20, f"workers {sorted(urls)}")


def models(server):
    return sorted(m["id"] for m in server.get("/v1/models").json()["data"])


def served(*engines):
    """Requests each engine took, without the questions of probes."""
    states = [engine.state() for engine in engines]
    return [state["requests_total"] - state["rejected_total"] for state in states]


def ask(server, model="demo", **members):
    body = {"model": model, "messages": WORDS, "max_tokens": 4, **members}
    return server.post("/v1/chat/completions", body)


def text_of(server, model, **members):
    answer = ask(server, model, max_tokens=40, **members)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def test_workers_join_and_leave_with_their_cards(mock_engine, frontend, cards):
    server = frontend()
    assert server.get("/ready").status_code == 503 and models(server) == []
    assert ask(server).status_code == 503, "no model at all is no mistake of the client"

    engines = [mock_engine(*ECHO, model="demo") for _ in range(2)]
    cards.put("a", engines[0].url)
    server.wait_model("demo")
    assert ask(server).status_code == 200
    cards.put("b", engines[1].url)
    wait_workers(server, *engines)
    for _ in range(6):
        assert ask(server).status_code == 200
    assert served(*engines) == [4, 3]

    cards.remove("a")
    wait_workers(server, engines[1])
    for _ in range(4):
        assert ask(server).status_code == 200
    assert served(*engines) == [4, 7]
    cards.remove("b")
    wait_until(lambda: models(server) == [], 10, "no models")
    assert ask(server).status_code == 503
    server.wait_metric("fairlead_frontend_inflight_requests", 0)


def test_the_folder_may_come_after_the_frontend(mock_engine, serve, tmp_path):
    cards = CardFolder(tmp_path / "late", create=False)
    server = serve([], *cards.flags, model_path=FOLDER)
    server.process.wait_log("the folder of model cards cannot be listed; waiting for it")
    engine = mock_engine(*ECHO, model="demo")
    cards.path.mkdir()
    cards.put("a", engine.url)
    server.wait_model("demo")
    assert ask(server).status_code == 200
    shutil.rmtree(cards.path)
    wait_until(lambda: models(server) == [], 10, "no models")
    cards.path.mkdir()
    cards.put("a", engine.url)
    server.wait_model("demo")
    assert server.process.log_text().count("waiting for it") == 1


def test_a_card_names_the_model_and_its_aliases(mock_engine, frontend, cards):
    engine = mock_engine(*ECHO, model="on-the-engine")
    server = frontend()
    cards.put("a", engine.url, display_name="public", aliases=["other", "third"])
    server.wait_model("public")
    for name in ("public", "other", "third"):
        assert ask(server, name).status_code == 200
    assert ask(server, "on-the-engine").status_code == 404
    assert served(engine) == [3]


def other_template(tmp_path, mark):
    """A copy of the demo model whose prompts begin with a mark."""
    folder = tmp_path / mark
    shutil.copytree(FOLDER, folder)
    template = folder / "chat_template.jinja"
    template.write_text(mark + " " + template.read_text())
    return str(folder)


def test_every_model_has_its_own_files(mock_engine, frontend, cards, tmp_path):
    """An echoing engine answers with the prompt, so the answer shows whose template made it."""
    left, right, plain = (mock_engine(*ECHO, model=name) for name in ("left", "right", "plain"))
    server = frontend(model_path=None)
    cards.put("l", left.url, source_path=other_template(tmp_path, "sinister"))
    cards.put("r", right.url, source_path=other_template(tmp_path, "dexter"))
    cards.put("p", plain.url, source_path=FOLDER)
    for name in ("left", "right", "plain"):
        server.wait_model(name)
    for _ in range(2):
        assert "sinister" in text_of(server, "left") and "dexter" in text_of(server, "right")
        text = text_of(server, "plain")
        assert "sinister" not in text and "dexter" not in text and "three" in text
    # A model whose files are not there does not serve, and says so; the others do.
    lost = mock_engine(*ECHO, model="lost")
    cards.put("x", lost.url, source_path=str(tmp_path / "nowhere"))
    server.process.wait_log(r"the files of model `lost`, to be found at `.*nowhere`, cannot be loaded")
    assert ask(server, "lost").status_code == 503
    assert "dexter" in text_of(server, "right")


def test_cards_win_over_the_model_path(mock_engine, frontend, cards, tmp_path):
    engines = [mock_engine(*ECHO, model=name) for name in ("own", "common")]
    server = frontend(model_path=FOLDER)
    cards.put("a", engines[0].url, source_path=other_template(tmp_path, "sinister"))
    cards.put("b", engines[1].url)
    for name in ("own", "common"):
        server.wait_model(name)
    assert "sinister" in text_of(server, "own") and "sinister" not in text_of(server, "common")


def test_sampling_defaults_of_cards_reach_the_engine(mock_engine, frontend, cards):
    engine = mock_engine(*ECHO, model="demo")
    server = frontend("--default-sampling-params", '{"top_k": 7}')
    cards.put("a", engine.url, default_sampling_params={"top_k": 5, "temperature": 0.25})
    server.wait_model("demo")
    assert ask(server).status_code == 200
    seen = engine.state()["last_requests"][-1]
    assert "0.25" in str(seen) and "7" in str(seen), seen


def test_other_namespaces_are_left_out(mock_engine, frontend, cards):
    engines = [mock_engine(*ECHO, model="demo") for _ in range(4)]
    server = frontend("--namespace-prefix", "blue", "--namespace-prefix-strict")
    for engine, namespace in zip(engines, ["blue", "blue-0123abcd", "blueish", "red"], strict=True):
        cards.put(namespace, engine.url, namespace=namespace)
    wait_workers(server, *engines[:2])
    for _ in range(20):
        assert ask(server).status_code == 200
    counts = served(*engines)
    assert sum(counts[:2]) == 20 and counts[2:] == [0, 0]
    assert "blueish" not in server.process.log_text()


def test_replacing_a_card_moves_its_traffic(mock_engine, frontend, cards):
    engines = [mock_engine(*ECHO, model="demo") for _ in range(2)]
    server = frontend()
    cards.put("a", engines[0].url)
    wait_workers(server, engines[0])
    assert ask(server).status_code == 200
    cards.put("a", engines[1].url)
    wait_workers(server, engines[1])
    assert ask(server).status_code == 200
    assert served(*engines) == [1, 1]


def test_streams_of_a_withdrawn_worker_finish(mock_engine, frontend, cards, stubs):
    engines = [mock_engine(*ECHO, "--token-interval-ms", interval, model="demo") for interval in (50, 0)]
    server = frontend()
    api = Api(engines[0], stubs)
    freeze = api.control_pb.PauseGenerationRequest(mode=api.control_pb.PAUSE_MODE_KEEP)
    cards.put("a", engines[0].url)
    wait_workers(server, engines[0])
    with server.client() as client:
        stream = client.chat.completions.create(model="demo", messages=WORDS, max_tokens=60, stream=True,
                                                extra_body={"ignore_eos": True})
        next(stream)
        api.control.PauseGeneration(freeze)  # the stream is amid its tokens however long the rest takes
        assert engines[0].state()["running"] == 1, "the stream ended before the withdrawal"
        cards.put("b", engines[1].url)
        wait_workers(server, *engines)
        cards.remove("a")
        wait_workers(server, engines[1])
        for _ in range(3):
            client.chat.completions.create(model="demo", messages=WORDS, max_tokens=2)
        assert engines[0].state()["running"] == 1, "the withdrawal ended the stream"
        api.control.ResumeGeneration(api.control_pb.ResumeGenerationRequest())
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    assert served(*engines) == [1, 3]
    assert engines[0].wait_idle()["aborted_total"] == 0
    server.wait_metric("fairlead_frontend_inflight_requests", 0)


def test_a_stream_goes_on_when_its_workers_card_changes(mock_engine, frontend, cards):
    engine = mock_engine(*ECHO, "--token-interval-ms", "20", model="demo")
    server = frontend()
    cards.put("a", engine.url)
    server.wait_model("demo")
    with server.client() as client:
        stream = client.chat.completions.create(model="demo", messages=WORDS, max_tokens=60, stream=True,
                                                extra_body={"ignore_eos": True})
        next(stream)
        cards.put("a", engine.url, aliases=["other"])
        wait_until(lambda: ask(server, "other", max_tokens=1).status_code == 200, 10, "the alias")
        assert engine.state()["running"] == 1, "the stream ended before the change"
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    assert engine.wait_idle()["aborted_total"] == 0


def test_a_card_that_becomes_malformed_stays_in_force(mock_engine, frontend, cards):
    engine = mock_engine(*ECHO, model="demo")
    server = frontend()
    cards.put("a", engine.url)
    server.wait_model("demo")
    cards.put("a", url=5)
    line = server.process.wait_log("model card cannot be used; its last valid version stays in force")
    assert ask(server).status_code == 200
    log = server.process.log_text()
    assert f"file={cards.file('a')} reason=\"`url` must be a string\"" in log, line
    cards.put_text("b", "{")
    server.process.wait_log("model card cannot be used; it is left out file=" + cards.file("b"))
    assert server.process.log_text().count(cards.file("a") + " reason") == 1
    cards.remove("a")
    wait_until(lambda: models(server) == [], 10, "no models")


def test_of_two_files_with_one_key_the_first_counts(mock_engine, frontend, cards):
    engines = [mock_engine(*ECHO, model="demo") for _ in range(2)]
    server = frontend()
    cards.put("b", engines[1].url, instance_id="same")
    wait_workers(server, engines[1])
    cards.put("a", engines[0].url, instance_id="same")
    wait_workers(server, engines[0])
    server.process.wait_log(f"another file has the same key file={cards.file('b')} other=a.json")
    cards.remove("a")
    wait_workers(server, engines[1])


def test_folder_and_flags_serve_together(mock_engine, serve, cards):
    engines = [mock_engine(*ECHO, model="demo") for _ in range(2)]
    cards.put("a", engines[0].url)
    server = serve([engines[1]], *cards.flags, model_path=FOLDER)
    wait_workers(server, *engines)
    for _ in range(4):
        assert ask(server).status_code == 200
    assert served(*engines) == [2, 2]
    cards.remove("a")
    wait_workers(server, engines[1])


def test_backends_mix_in_one_model(mock_engine, serve, cards):
    grpc = mock_engine(*ECHO, model="demo")
    http, flagged = (mock_engine(*ECHO, model="demo", backend="vllm-http") for _ in range(2))
    server = serve([f"vllm-http={flagged.url}"], *cards.flags, model_path=FOLDER)
    cards.put("g", grpc.url)
    cards.put("h", f"vllm-http={http.url}")
    wait_workers(server, grpc, http, flagged)
    texts = {text_of(server, "demo") for _ in range(30)}
    assert len(texts) == 1, "the same words whatever the wire"
    counts = served(grpc, http, flagged)
    assert sum(counts) == 30 and min(counts) > 0, counts


def test_a_card_denies_what_the_engine_has(mock_engine, frontend, cards):
    engine = mock_engine(*ECHO, model="demo", backend="vllm-http")
    server = frontend()
    url = f"vllm-http={engine.url}"
    xargs = {"vllm_xargs": {"k": 1}}
    cards.put("a", url)
    server.wait_model("demo")
    assert ask(server, **xargs).status_code == 200
    cards.put("a", url, runtime_config={"runtime_data": {"vllm_xargs": False}})
    wait_until(lambda: ask(server, **xargs).status_code == 400, 10, "the denial")
    assert ask(server, **xargs).json()["error"]["code"] == "capability_unsupported"
    assert ask(server).status_code == 200
    cards.put("a", url, runtime_config={"runtime_data": {"vllm_xargs": True}})
    wait_until(lambda: ask(server, **xargs).status_code == 200, 10, "the capability")


def test_adapters_come_by_card(mock_engine, frontend, cards):
    engines = [mock_engine(*ECHO, *flags, model="demo", backend="vllm-http")
               for flags in (["--lora", "french"], [])]
    server = frontend()
    for name, engine in zip("ab", engines, strict=True):
        cards.put(name, f"vllm-http={engine.url}")
    wait_workers(server, *engines)
    adapter = {"instance_id": "a", "model_suffix": "fr", "display_name": "demo-fr", "lora": {"name": "french"}}
    cards.put("a-fr", **adapter)
    server.wait_model("demo-fr")
    for _ in range(4):
        assert ask(server, "demo-fr").status_code == 200
    assert served(*engines) == [4, 0], "only the worker that has it"
    assert engines[0].debug("/debug/requests")["requests"][-1]["lora"] == "french"
    listed = {m["id"]: m for m in server.get("/v1/models").json()["data"]}
    assert listed["demo-fr"]["parent"] == "demo"
    cards.remove("a-fr")
    wait_until(lambda: "demo-fr" not in models(server), 10, "the adapter is gone")
    assert ask(server).status_code == 200
