"""Several models behind one frontend, and adapters as models of their own."""

import openai
import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")


def ask(server, model, **options):
    with server.client() as client:
        return client.completions.create(model=model, prompt=[5, 6, 7], max_tokens=3, **options)


def listed(server):
    return {model["id"]: model for model in server.get("/v1/models").json()["data"]}


def test_engines_of_two_models_make_two_models(serve, mock_engine):
    one, two = mock_engine(model="one"), mock_engine(model="two")
    server = serve([one, two], model_path=FOLDER)
    for model in ("one", "two"):
        server.wait_model(model)
        assert ask(server, model).usage.completion_tokens == 3
    assert [request["model"] for request in one.requests()] == ["one"]
    assert [request["model"] for request in two.requests()] == ["two"]
    # One of them goes away: the other serves on, and its model is not ready.
    two.kill()
    wait_until(lambda: set(listed(server)) == {"one"}, 10, "one model listed")
    assert ask(server, "one").usage.completion_tokens == 3
    with pytest.raises(openai.InternalServerError) as refused:
        ask(server, "two")
    assert refused.value.status_code == 503
    with pytest.raises(openai.NotFoundError):
        ask(server, "three")


def test_adapters_are_models_with_a_parent(serve, mock_engine):
    plain = mock_engine(model="base")
    with_sql = mock_engine("--lora", "sql", model="base")
    server = serve([plain, with_sql], model_path=FOLDER)
    server.wait_model("sql")
    models = listed(server)
    assert list(models) == ["base", "sql"]
    assert (models["sql"]["parent"], models["base"]["parent"]) == ("base", None)
    assert models["sql"]["root"].endswith("sql")
    for _ in range(4):
        answer = ask(server, "sql")
        assert answer.model == "sql"
    assert plain.requests() == [], "only the engine that has the adapter is asked"
    assert [request["lora"] for request in with_sql.requests()] == ["sql"] * 4
    for _ in range(4):
        ask(server, "base")
    assert [request["lora"] for request in plain.requests()] != []
    assert {request["lora"] for request in plain.requests()} == {""}
    server.wait_metric("worker_inflight_requests", 0, worker_id=str(server.get("/health").json()["instances"][0][
        "worker_id"]))


def test_a_model_cannot_take_a_live_models_name(serve, mock_engine):
    first = mock_engine("--lora", "taken", model="base")
    server = serve([first, mock_engine(model="taken")], model_path=FOLDER)
    server.process.wait_log(r"refused: its name is held by another model name=taken")
    assert len([model for model in wait_until(lambda: listed(server), 10, "a model") if model == "taken"]) <= 1


def test_mixed_wires_serve_one_model(serve, mock_engine):
    grpc = mock_engine(model="demo")
    http = mock_engine(model="demo", backend="vllm-http")
    server = serve([f"vllm={grpc.url}", f"vllm-http={http.url}"], model_path=FOLDER)
    server.wait_model("demo")
    wait_until(lambda: sum(instance["healthy"] for instance in server.get("/health").json()["instances"]) == 2, 10,
               "both engines")
    for _ in range(4):
        assert ask(server, "demo").usage.completion_tokens == 3
    assert len(grpc.requests()) == 2, "the other two went over HTTP"
