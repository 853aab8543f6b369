"""Engines shared by all tests of this folder; without one each test is reported as skipped."""

from pathlib import Path

import pytest
from fairlead.real_engine import HOME, real_engine


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            item.add_marker(pytest.mark.real)
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
