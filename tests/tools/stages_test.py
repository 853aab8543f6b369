"""The stage runner counts what ran, skips what cannot run, and ends what hangs."""

import json
import sys
import time

import pytest
import run_tidy
import stages
from stages import Stage


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "REPORTS", tmp_path / "reports")


def python(code, *args):
    return [sys.executable, "-c", code, *args]


WRITE_REPORT = """
import json, os
cases = [{"status": "RUN", "result": "COMPLETED"}, {"status": "RUN", "result": "SKIPPED"},
         {"status": "RUN", "result": "COMPLETED", "failures": [{}]}, {"status": "NOTRUN", "result": "SUPPRESSED"}]
path = os.environ["GTEST_OUTPUT"].removeprefix("json:") + "t.json"
open(path, "w").write(json.dumps({"testsuites": [{"testsuite": cases}]}))
"""


def test_tests_are_counted_and_the_last_line_says_so(capsys):
    table = {"a": Stage("a", [python(WRITE_REPORT), python("raise SystemExit(1)")], 60),
             "b": Stage("b", [python("pass")], 60)}
    assert not stages.run(["a", "b"], table)
    assert capsys.readouterr().out.splitlines()[-1] == "fairlead: 2 passed, 1 failed, 1 skipped"


def test_stage_whose_need_failed_does_not_run_and_counts_as_failed(capsys):
    table = {"a": Stage("a", [python("raise SystemExit(1)")], 60), "b": Stage("b", [python("pass")], 60, ("a",)),
             "c": Stage("c", [python("pass")], 60)}
    assert not stages.run(["a", "b", "c"], table)
    assert [table[name].outcome for name in "abc"] == ["FAILED", "not run", "ok"]
    assert capsys.readouterr().out.splitlines()[-1] == "fairlead: 1 passed, 2 failed, 0 skipped"


def test_stage_that_hangs_is_ended_with_its_children():
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    table = {"a": Stage("a", [python(child + "; time.sleep(600)")], 1)}
    begun = time.monotonic()
    assert not stages.run(["a"], table)
    assert table["a"].outcome == "TIMEOUT"
    assert time.monotonic() - begun < 60


def test_every_stage_of_every_group_exists_and_needs_come_first():
    table = stages.make_stages(5)
    for names in stages.GROUPS.values():
        for position, name in enumerate(names):
            assert set(table[name].needs) <= set(names[:position])


def test_changed_header_is_looked_at_through_a_source_that_includes_it(tmp_path, monkeypatch):
    (tmp_path / "src/a").mkdir(parents=True)
    (tmp_path / "src/a/own.hpp").write_text("")
    (tmp_path / "src/a/own.cpp").write_text('#include "a/own.hpp"\n#include "a/deep.hpp"\n')
    (tmp_path / "src/a/deep.hpp").write_text('#include "a/deeper.hpp"\n')
    (tmp_path / "src/a/deeper.hpp").write_text("")
    (tmp_path / "src/a/lonely.hpp").write_text("")
    names = ["src/a/own.cpp"]
    (tmp_path / "compile_commands.json").write_text(json.dumps(
        [{"file": str(tmp_path / name), "command": "clang++ -c " + name} for name in names]))
    monkeypatch.setattr(run_tidy, "ROOT", tmp_path)
    sources = run_tidy.Sources(tmp_path)
    assert run_tidy.select(sources, ["src/a/own.hpp"]) == names
    assert run_tidy.select(sources, ["src/a/deeper.hpp", "src/a/own.cpp"]) == names
    assert run_tidy.select(sources, ["src/a/lonely.hpp", "README.md", "src/a/gone.hpp"]) == []
    before = sources.key("src/a/own.cpp", b"")
    (tmp_path / "src/a/deeper.hpp").write_text("int x;\n")
    assert run_tidy.Sources(tmp_path).key("src/a/own.cpp", b"") != before
