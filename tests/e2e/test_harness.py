"""The harness's own pieces, on small stand-ins for the program."""

import signal
import sys
import time

import pytest

from fairlead import Launcher, Process, parse_metrics, wait_until

READY = 'import sys, json, signal, time; print(json.dumps({"http": "127.0.0.1:1"}), flush=True)\n'


def obey(code: int) -> str:
    """A program that is ready at once and exits with `code` on SIGTERM."""
    # Blocks the signal first, so that it cannot arrive between the ready line and the wait.
    return ('import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n' + READY
            + f'signal.sigwait([signal.SIGTERM]); sys.exit({code})\n')


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(code: str) -> Process:
        process = Process([sys.executable, "-u", "-c", code], log_file=tmp_path / f"{len(started)}.log")
        started.append(process)
        return process

    yield begin
    for process in started:
        process.discard()


def test_ready_line_is_read_and_a_clean_exit_accepted(start):
    process = start(obey(0))
    assert process.ready() == {"http": "127.0.0.1:1"}
    assert process.running()
    assert process.rss_bytes() > 0
    assert process.open_files() >= 3
    process.stop()
    assert not process.running()
    assert process.stdout_lines() == ['{"http": "127.0.0.1:1"}']


def test_wrong_exit_code_fails_the_test(start):
    process = start(obey(3))
    process.ready()
    with pytest.raises(AssertionError, match="exited with 3, not 0"):
        process.stop()
    other = start(obey(3))
    other.ready()
    other.stop(expect=3)


def test_early_end_fails_with_the_log(start):
    process = start('import sys; print("no such engine", file=sys.stderr); sys.exit(2)')
    with pytest.raises(AssertionError, match="ended with 2 before its ready line(.|\n)*no such engine"):
        process.ready()
    assert process.wait_exit() == 2


def test_ready_line_must_come_in_time_and_be_json(start):
    silent = start("import signal; signal.pause()")
    with pytest.raises(AssertionError, match="its ready line"):
        silent.ready(timeout=0.2)
    with pytest.raises(AssertionError, match="not JSON"):
        start('print("hello"); import signal; signal.pause()').ready()


def test_process_that_ignores_sigterm_is_killed_and_reported(start):
    process = start("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
                    + "while True: signal.pause()")
    process.ready()
    with pytest.raises(AssertionError, match="still runs"):
        process.stop(timeout=0.3)
    assert not process.running()


def test_log_lines_past_and_future_are_found(start):
    process = start("import signal, sys\n"
                    "signal.signal(signal.SIGUSR1, lambda *_: print('late line', file=sys.stderr, flush=True))\n"
                    "print('early line 42', file=sys.stderr, flush=True)\n" + READY
                    + "while True: signal.pause()")
    process.ready()
    assert process.wait_log(r"early line (\d+)").group(1) == "42"
    mark = process.log_mark()
    process.signal(signal.SIGUSR1)
    process.wait_log("late line", after=mark)
    assert process.log_lines(after=mark) == ["late line"]
    with pytest.raises(AssertionError, match="a log line matching 'early'"):
        process.wait_log("early", timeout=0.2, after=mark)
    assert process.log_file.read_text().splitlines() == ["early line 42", "late line"]
    process.kill()
    process.stop()  # Killed on purpose: the exit code is not looked at.


def test_sanitizer_report_fails_the_test(start):
    process = start("import sys; print('==1==ERROR: AddressSanitizer: heap-use-after-free', file=sys.stderr)\n"
                    + obey(0))
    process.ready()
    with pytest.raises(AssertionError, match="AddressSanitizer"):
        process.stop()


def test_missing_program_is_a_failure_not_a_skip(tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_BIN", str(tmp_path / "nothing"))
    with Launcher(tmp_path) as launcher, pytest.raises(AssertionError, match="no program to test"):
        launcher.start("serve")


def test_launcher_requires_a_clean_exit_of_all_it_started(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\n" + obey(5))
    program.chmod(0o755)
    launcher = Launcher(tmp_path, program)
    processes = [launcher.start("serve"), launcher.start("mock-engine")]
    for process in processes:
        process.ready()
    with pytest.raises(AssertionError, match="exited with 5"):
        launcher.close()
    assert not any(process.running() for process in processes)


def test_line_command_gets_one_answer_per_line(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport json, sys\n"
                       "for line in sys.stdin: print(json.dumps({'n': len(json.loads(line)['text'])}))\n")
    program.chmod(0o755)
    with Launcher(tmp_path, program) as launcher:
        assert launcher.run_lines("tokenize", lines=[{"text": "ab"}, {"text": "ü\n"}]) == [{"n": 2}, {"n": 2}]


def test_wait_until_returns_the_answer_or_says_what_it_saw_last():
    answers = iter([None, 0, "yes"])
    assert wait_until(lambda: next(answers)) == "yes"
    begun = time.monotonic()
    with pytest.raises(AssertionError, match="for the moon; last: ZeroDivisionError"):
        wait_until(lambda: 1 // 0, timeout=0.1, what="the moon")
    assert time.monotonic() - begun < 5


def test_metrics_are_parsed_with_labels_and_escapes():
    metrics = parse_metrics(
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{model="a\\"b\\\\c",status="ok"} 3\n'
        'requests_total{model="d",status="ok"} 4\n'
        "uptime_seconds 1.5e1\n"
        'latency_bucket{le="+Inf"} +Inf\n\n')
    assert metrics.types == {"requests_total": "counter"}
    assert metrics.value("requests_total") == 7
    assert metrics.value("requests_total", model='a"b\\c') == 3
    assert metrics.value("requests_total", model="none") == 0
    assert metrics.value("uptime_seconds") == 15
    assert metrics.samples("latency_bucket")[0].value == float("inf")


@pytest.mark.parametrize("text", [
    "requests_total", "requests total 3", 'a{b="c" 3', "a{b=c} 3", "a 1\na 2", 'a{b="1",b="2"} 3',
    "# TYPE a counter\n# TYPE a gauge",
])
def test_malformed_metrics_are_refused(text):
    with pytest.raises(ValueError):
        parse_metrics(text)


def test_stubs_are_generated_from_the_schemas(stubs):
    inference = stubs.messages("vllm/inference.proto")
    assert inference.GenerateRequest.DESCRIPTOR.full_name == "vllm.GenerateRequest"
    services = stubs.services("vllm/inference.proto")
    assert hasattr(services, "InferenceStub")
    assert hasattr(services, "InferenceServicer")
    assert hasattr(stubs.services("vllm/control.proto"), "ControlServicer")
