"""A LoRA adapter of a real vLLM engine, over each of its interfaces."""

import json

import httpx
import pytest
from fairlead.real_engine import HOME, MODEL, real_engine

ADAPTER = HOME / "models/smollm2-lora"
NAME = "sql"
PROMPTS = ["The capital of France is", "SELECT name FROM", "Once upon a time"]

pytestmark = pytest.mark.skipif(not ADAPTER.is_dir(), reason=f"no adapter {ADAPTER}")


@pytest.fixture(scope="module", params=["rust", "python"])
def lora_engine(tmp_path_factory, request):
    with real_engine(tmp_path_factory.mktemp("vllm-lora"), request.param, "--enable-lora", "--max-lora-rank", "8",
                     "--lora-modules", f"{NAME}={ADAPTER}") as started:
        started.frontend = request.param
        yield started


@pytest.fixture(params=["vllm-http", "vllm"])
def endpoint(lora_engine, request):
    if request.param == "vllm-http":
        return f"vllm-http={lora_engine.url}"
    if lora_engine.frontend == "python":
        pytest.skip("the Python server has no gRPC interface")
    return f"vllm={lora_engine.grpc}"


def complete(base, model, prompt):
    body = {"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0}
    answer = httpx.post(f"{base}/v1/completions", json=body, timeout=180)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    return answer.json()["choices"][0]["text"]


def test_a_probe_lists_it(launcher, endpoint):
    done = launcher.run("probe", endpoint)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lora_adapters"] == [NAME] and "lora" in found["capabilities"]
    assert found["served_model_name"] == MODEL and found["aliases"] == []


def test_it_is_a_model_of_its_own_and_answers_as_on_the_engine(launcher, lora_engine, endpoint):
    server = launcher.serve([endpoint], model_path=HOME / "models" / MODEL)
    server.wait_model(NAME)
    parents = {model["id"]: model["parent"] for model in server.get("/v1/models").json()["data"]}
    assert parents == {MODEL: None, NAME: MODEL}
    for prompt in PROMPTS:
        base, adapted = (complete(lora_engine.url, model, prompt) for model in (MODEL, NAME))
        assert base != adapted, "an adapter without effect shows nothing"
        assert complete(server.base_url, NAME, prompt) == adapted
        assert complete(server.base_url, MODEL, prompt) == base
