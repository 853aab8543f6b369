"""A generation whose engine dies goes on on another one, and its client notices nothing but a pause."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from fairlead import wait_until
from fairlead.families import FOLDER, Stream, body, complete, wait_healthy

CHAIN = ("--reply", "chain", "--token-interval-ms", "20")
COUNT = 60
METRIC = "fairlead_frontend_model_migration_total"


def start(family, launcher, *flags, engines=2, engine_flags=CHAIN):
    started = [family.engine(launcher, *engine_flags) for _ in range(engines)]
    server = family.serve(launcher, started, "--router-mode", "round-robin", *flags)
    wait_healthy(server, engines)
    return server, started


def running(engines):
    return wait_until(lambda: next((e for e in engines if e.process.running() and e.state()["running"]), None), 10,
                      "the engine that generates")


def cut(server, engines, fields, after=5, path="/v1/completions"):
    """A stream whose engine dies behind some tokens, read to its end."""
    stream = Stream(server, fields, path=path).read_tokens(after)
    running(engines).kill()
    return stream.read_all()


def text_of(stream):
    return "".join(choice["text"] for chunk in stream.chunks for choice in chunk.get("choices", []))


def merged_logprobs(stream):
    """Those of all chunks, one after the other."""
    parts = [choice["logprobs"] for chunk in stream.chunks for choice in chunk.get("choices", []) if choice["logprobs"]]
    return {key: [entry for part in parts for entry in part[key]] for key in parts[0]}


@pytest.mark.parametrize("fields", [{}, {"logprobs": 2}, {"temperature": 0.7}, {"seed": 3, "temperature": 0},
                                    {"min_tokens": 30}], ids=str)
def test_text_ids_logprobs_and_usage_are_those_of_one_engine(family, launcher, fields):
    server, engines = start(family, launcher, "--migration-limit", "3")
    whole = Stream(server, body(COUNT, **fields)).read_all()
    stream = cut(server, engines, body(COUNT, **fields))
    stream.expect_complete(whole.tokens)
    assert text_of(stream) == text_of(whole)
    assert {k: v for k, v in stream.usage.items() if k != "prompt_tokens_details"} == \
        {k: v for k, v in whole.usage.items() if k != "prompt_tokens_details"}
    if "logprobs" in fields:
        assert merged_logprobs(stream) == merged_logprobs(whole)
        assert len(merged_logprobs(stream)["tokens"]) == COUNT
    server.wait_metric(METRIC, 1, migration_type="ongoing_request")
    server.wait_metric("fairlead_frontend_worker_inflight_requests", 0)


def test_chats_and_whole_answers_go_on_too(family, launcher):
    server, engines = start(family, launcher, "--migration-limit", "3", engines=3)
    chat = {"model": "demo", "messages": [{"role": "user", "content": "one two"}], "max_tokens": COUNT,
            "ignore_eos": True, "return_token_ids": True}
    whole = Stream(server, chat, path="/v1/chat/completions").read_all()
    cut(server, engines, chat, path="/v1/chat/completions").expect_complete(whole.tokens)
    with ThreadPoolExecutor(1) as pool:
        expected = complete(server, max_tokens=COUNT).json()["choices"][0]
        tokens = "fairlead_frontend_output_tokens_total"
        before = server.metrics().value(tokens)
        answer = pool.submit(complete, server, max_tokens=COUNT)
        wait_until(lambda: server.metrics().value(tokens) >= before + 5, 10, "some tokens")
        running(engines).kill()
        assert answer.result().json()["choices"][0] == expected


def test_stop_strings_across_the_cut_are_found(family, launcher):
    server, engines = start(family, launcher, "--migration-limit", "3", engine_flags=("--reply", "chain", "--fault",
                                                                                      "slow:20"))
    ids = Stream(server, body(COUNT)).read_all()
    text = text_of(ids)
    # Every place where it can be cut lies within a stop string that is as long as half the text.
    stop = text[len(text) // 4:3 * len(text) // 4]
    whole = complete(server, max_tokens=COUNT, stop=stop).json()
    assert whole["choices"][0]["finish_reason"] == "stop"
    stream = Stream(server, body(COUNT, stop=stop))
    engine = running(engines)
    tokens = "fairlead_frontend_output_tokens_total"
    before = server.metrics().value(tokens)
    wait_until(lambda: server.metrics().value(tokens) >= before + COUNT // 3, 10, "a third of the tokens")
    engine.kill()
    stream.read_all()
    assert not stream.errors
    assert stream.finish_reasons == ["stop"]
    assert text_of(stream) == whole["choices"][0]["text"]
    assert stream.usage["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_no_more_often_than_the_limit(family, launcher):
    server, engines = start(family, launcher, "--migration-limit", "1", engines=3)
    whole = Stream(server, body(200)).read_all()
    stream = Stream(server, body(200)).read_tokens(3)
    running(engines).kill()
    stream.read_tokens(20)
    running(engines).kill()
    stream.read_all()
    assert [error["code"] in ("engine_disconnected", "service_unavailable") for error in stream.errors] == [True]
    assert stream.done and stream.finish_reasons == []
    assert stream.tokens == whole.tokens[:len(stream.tokens)]


OBSTACLES = {
    "presence_penalty": {"presence_penalty": 0.5},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "seed and temperature": {"seed": 1, "temperature": 0.5},
}


@pytest.mark.parametrize("fields", [*OBSTACLES.values(), None], ids=[*OBSTACLES, "without the option"])
def test_what_cannot_go_on_exactly_fails(family, launcher, fields):
    limit = ("--migration-limit", "3") if fields is not None else ()
    server, engines = start(family, launcher, *limit)
    stream = cut(server, engines, body(COUNT, **(fields or {})))
    assert stream.errors and stream.done and stream.finish_reasons == []
    assert server.metrics().value(METRIC, migration_type="ongoing_request") == 0


def test_ids_outside_the_vocabulary_never_become_a_prompt(family, launcher, tmp_path):
    """Real SGLang engines die of one."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 400}))
    engines = [family.engine(launcher, *CHAIN) for _ in range(2)]
    server = family.serve(launcher, engines, "--router-mode", "round-robin", "--migration-limit", "3", model_path=str(folder))
    wait_healthy(server, 2)
    stream = cut(server, engines, body(COUNT, prompt=[300, 5, 6, 7]), after=12)
    assert max(stream.tokens) >= 400, "else this is no test"
    assert stream.errors and stream.done and stream.finish_reasons == []
    assert sum(engine.state()["requests_total"] for engine in engines if engine.process.running()) == 0


def test_named_workers_are_not_left(family, launcher):
    server, engines = start(family, launcher, "--migration-limit", "3")
    ids = {i["endpoint"]: i["worker_id"] for i in server.get("/health").json()["instances"]}
    fields = {**body(COUNT), "nvext": {"backend_instance_id": ids[engines[0].url]}}
    stream = cut(server, engines[:1], fields)
    assert stream.errors and stream.finish_reasons == []
    assert engines[1].state()["requests_total"] == 0


def test_long_sequences_are_given_up(family, launcher):
    server, engines = start(family, launcher, "--migration-limit", "3", "--migration-max-seq-len", "10")
    stream = cut(server, engines, body(COUNT), after=12)
    assert stream.errors and stream.finish_reasons == []
    server.wait_metric("fairlead_frontend_model_migration_max_seq_len_exceeded_total", 1)
    server.wait_metric(METRIC, 0, migration_type="ongoing_request")
