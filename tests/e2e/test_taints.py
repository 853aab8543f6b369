"""Taints of workers: what cards name, requests require and prefer."""

import pytest
from fairlead import CardFolder, wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
MODES = ["round-robin", "random", "power-of-two", "least-loaded", "kv"]
REQUIRED = "nvext.routing_constraints.required_taints"


@pytest.fixture
def cards(tmp_path):
    return CardFolder(tmp_path / "cards")


@pytest.fixture
def start(mock_engine, serve, cards):
    """A frontend on engines, each with the `runtime_config` and the other members of its card."""

    def run(*members, mode="kv", flags=()):
        engines = [mock_engine("--speedup-ratio", "0", model="demo") for _ in members]
        for number, (engine, one) in enumerate(zip(engines, members)):
            cards.put(f"w{number}", engine.url, **one)
        server = serve([], *cards.flags, "--router-mode", mode, *flags, model_path=FOLDER)
        wait_until(lambda: sum(i["healthy"] for i in instances(server)) == len(engines), 20, "all workers")
        return server, engines

    return run


def instances(server):
    return server.get("/health").json()["instances"]


def tainted(*taints, **members):
    return {"runtime_config": {"taints": list(taints)}, **members}


def ask(server, constraints, headers=None, path="/v1/completions", **members):
    return server.post(path, {"model": "demo", "prompt": [11] * 40, "max_tokens": 1, "ignore_eos": True,
                              "nvext": {"routing_constraints": constraints}, **members}, headers=headers or {})


def spread(server, engines, constraints, count=6):
    """How many of some requests each engine got."""
    before = [engine.state()["requests_total"] for engine in engines]
    for _ in range(count):
        answer = ask(server, constraints)
        assert answer.status_code == 200, answer.text
    return [engine.state()["requests_total"] - old for engine, old in zip(engines, before)]


@pytest.mark.parametrize("mode", MODES)
def test_only_workers_with_all_required_taints_get_a_request(start, mode):
    server, engines = start(tainted("gpu"), tainted("gpu", "fast"), {}, mode=mode)
    assert spread(server, engines, {"required_taints": ["fast", "gpu"]}) == [0, 6, 0]
    assert spread(server, engines, {"required_taints": ["gpu"]})[2] == 0
    refused = ask(server, {"required_taints": ["gpu", "none has it"]})
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    error = refused.json()["error"]
    assert error["param"] == REQUIRED and error["code"] == "service_unavailable"
    assert "`gpu`, `none has it`" in error["message"]
    other = next(i["worker_id"] for i in instances(server) if i["endpoint"] == engines[2].url)
    pinned = ask(server, {"required_taints": ["gpu"]}, {"x-dynamo-worker-instance-id": str(other)})
    assert pinned.status_code == 503 and "`gpu`" in pinned.json()["error"]["message"]


def test_the_worker_set_that_has_the_taint_is_selected(start):
    server, engines = start(tainted(namespace="one"), tainted("a", namespace="two"), mode="round-robin")
    assert spread(server, engines, {"required_taints": ["a"]}, 8) == [0, 8]


def test_preferred_taints_attract_and_repel(start):
    server, engines = start(tainted("a"), tainted("b"), flags=("--no-router-kv-events", "--router-ttl-secs", "0.1"))
    assert spread(server, engines, {"preferred_taints": {"a": 3}}) == [6, 0]
    assert spread(server, engines, {"preferred_taints": {"a": -3}}) == [0, 6]
    route = ask(server, {"preferred_taints": {"b": 3}, "required_taints": ["a"]}, path="/v1/route").json()
    only, = route["choices"][0]["candidates"]
    assert only["endpoint"] == engines[0].url


def test_taints_change_while_the_worker_serves(start, cards):
    server, engines = start(tainted("a"), {})
    assert spread(server, engines, {"required_taints": ["a"]}) == [6, 0]
    cards.put("w0", engines[0].url, **tainted("b"))
    cards.put("w1", engines[1].url, runtime_config={"topology_domains": {"zone": "eu"}, "taints": ["a"]})
    zone = "dynamo.topology/zone=eu"
    wait_until(lambda: {i["endpoint"]: i["taints"] for i in instances(server)} ==
               {engines[0].url: ["b"], engines[1].url: ["a", zone]}, 10, "the taints of the cards")
    assert spread(server, engines, {"required_taints": ["a", zone]}) == [0, 6]
    assert spread(server, engines, {"required_taints": ["b"]}) == [6, 0]
    log = server.process.log_text()
    assert log.count("worker's taints changed") == 2 and "worker's card changed" not in log


@pytest.mark.parametrize("constraints", [[], {"required_taints": "a"}, {"required_taints": [1]}, {"made_up": 1},
                                         {"preferred_taints": {"a": "b"}}, {"preferred_taints": ["a"]}])
def test_malformed_constraints_are_400(start, constraints):
    server, engines = start(tainted("a"))
    refused = ask(server, constraints)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("nvext.routing_constraints")
    assert engines[0].state()["requests_total"] == 0
