"""Engines shared by all tests of this folder; without one each test is reported as skipped."""

from pathlib import Path

import pytest
from fairlead import real_sglang
from fairlead.real_engine import HOME, START_SECONDS, real_engine
from fairlead.real_sglang import sglang_engines


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here not in Path(item.path).parents:
            continue
        item.add_marker(pytest.mark.real)
        if item.path.name.startswith("test_sglang"):
            item.add_marker(pytest.mark.timeout(2 * real_sglang.START_SECONDS))
            if not real_sglang.installed():
                item.add_marker(pytest.mark.skip(reason="no SGLANG_CPU_HOME with a real engine"))
            continue
        item.add_marker(pytest.mark.timeout(2 * START_SECONDS))
        if not (HOME / ".ready").exists():
            item.add_marker(pytest.mark.skip(reason="no VLLM_CPU_HOME with a real engine"))


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """A real engine behind vLLM's Rust frontend, with gRPC and the token route."""
    with real_engine(tmp_path_factory.mktemp("vllm"), "rust") as started:
        yield started


@pytest.fixture(scope="session")
def python_engine(tmp_path_factory):
    """A real engine behind vLLM's Python server, with the token route."""
    with real_engine(tmp_path_factory.mktemp("vllm-python"), "python") as started:
        yield started


@pytest.fixture(scope="module", params=["cumulative", "incremental"])
def sglang(request, tmp_path_factory):
    """A real SGLang engine, in each way of streaming."""
    flags = ["--incremental-streaming-output"] if request.param == "incremental" else []
    with sglang_engines(tmp_path_factory.mktemp(f"sglang-{request.param}"), {"flags": flags}) as started:
        started[0].streaming = request.param
        yield started[0]
