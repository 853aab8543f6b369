"""Fixtures of the end-to-end tests."""

import contextlib
import os
from pathlib import Path

import pytest

pytest.register_assert_rewrite("fairlead.families", "fairlead.pairs")
from fairlead import FaultProxy, Launcher, MockEngine, compile_protos, fault_seed
from fairlead.families import FAMILIES
from fairlead.pairs import TOKEN_ROUTE

# Everything under test listens on the loopback; a proxy of the machine must not see it.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost,::1"
# No test asks the real hub for a model, whatever engines and cards name.
os.environ["HF_HUB_OFFLINE"] = "1"

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def launcher(tmp_path):
    """Starts commands for one test."""
    with Launcher(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def module_launcher(tmp_path_factory):
    """Starts commands shared by the tests of one module."""
    with Launcher(tmp_path_factory.mktemp("shared")) as started:
        yield started


@pytest.fixture
def serve(launcher):
    """Factory of frontends: `serve([engine, ...], *flags, model_path=...)`."""
    return launcher.serve


@pytest.fixture
def mock_engine(launcher):
    """Factory of simulated engines: `mock_engine(*flags, model=..., backend=...)`."""
    return launcher.mock_engine


@pytest.fixture
def seed():
    """Of everything random in a test: FAIRLEAD_SEED, or a new one, which a failure shows."""
    return fault_seed()


@pytest.fixture
def fault_proxy(seed):
    """Factory of proxies that misbehave: `fault_proxy(engine)`, by MockEngine or HOST:PORT."""
    with contextlib.ExitStack() as started:
        count = 0

        def start(engine):
            nonlocal count
            count += 1
            upstream = engine.address if isinstance(engine, MockEngine) else engine
            return started.enter_context(FaultProxy(upstream, seed + count))

        yield start


@pytest.fixture(params=FAMILIES, ids=lambda family: family.backend)
def family(request):
    """Each family of engines in turn."""
    return request.param


@pytest.fixture(params=[*FAMILIES, TOKEN_ROUTE], ids=lambda family: family.backend)
def pair_family(request):
    """Each family in turn, and engines whose answers are not streamed."""
    return request.param


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """Python messages and stubs of the engines' schemas."""
    return compile_protos(tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="session")
def assets():
    """Folder of the test assets that tools/fetch_test_assets.sh brings."""
    folder = TESTS / ".assets"
    assert folder.is_dir(), f"{folder} is missing: run `tools/install.sh test`"
    return folder


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the logs of what a failed test had started, before teardown ends it."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for name in ("launcher", "module_launcher"):
            started = getattr(item, "funcargs", {}).get(name)
            if started is not None and started.processes:
                report.sections.append((f"logs of {name}", started.logs()))
