"""One child process: its ready line, its log, its end."""

import collections
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from fairlead.waiting import scaled

# A build with sanitizers reports on stderr; a test that caused a report has failed whatever it saw.
SANITIZER_REPORT = re.compile(
    r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:|ERROR: ThreadSanitizer")
LOG_LINES = 20_000  # Lines of stderr kept in memory; the file keeps all.


def child_environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a command under test. FAIRLEAD_SEED is the tests' own: to the simulated engine it would be the
    option `--seed`."""
    return {name: value for name, value in {**os.environ, **(more or {})}.items() if name != "FAIRLEAD_SEED"}


class Process:
    """A running command whose stdout is read as JSON lines and whose stderr is a log.

    Readers run in their own threads, so a child never blocks on a full pipe unless the test asks for
    it (`read_stderr=False`). Not for use from several threads except where a method says so.
    """

    def __init__(self, argv: list[str], *, log_file: Path, env: dict[str, str] | None = None,
                 cwd: Path | None = None, read_stderr: bool = True):
        self.argv = argv
        self.log_file = log_file
        self._changed = threading.Condition()
        self._stdout: list[str] = []
        self._stderr: collections.deque[str] = collections.deque(maxlen=LOG_LINES)
        self._stderr_total = 0
        self._open_pipes = 0
        self._ended_on_purpose = False
        self._popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=child_environment(env), cwd=cwd)
        self._start_reader(self._popen.stdout, self._take_stdout)
        if read_stderr:
            self._start_reader(self._popen.stderr, self._take_stderr)

    # Reading.

    def _start_reader(self, pipe, take) -> None:
        self._open_pipes += 1

        def read() -> None:
            try:
                for raw in pipe:
                    take(raw.decode("utf-8", "replace").rstrip("\n"))
            finally:
                with self._changed:
                    self._open_pipes -= 1
                    self._changed.notify_all()

        threading.Thread(target=read, daemon=True).start()

    def _take_stdout(self, line: str) -> None:
        with self._changed:
            self._stdout.append(line)
            self._changed.notify_all()

    def _take_stderr(self, line: str) -> None:
        with self.log_file.open("a") as file:
            file.write(line + "\n")
        with self._changed:
            self._stderr.append(line)
            self._stderr_total += 1
            self._changed.notify_all()

    def _wait_for(self, look, timeout: float, what: str):
        """The first true answer of `look`, called with the lock held whenever output has arrived."""
        deadline = time.monotonic() + scaled(timeout)
        with self._changed:
            while True:
                found = look()
                if found:
                    return found
                if self._open_pipes == 0:
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"waited {scaled(timeout):g} s for {what} from {self}\n{self.log_tail()}")
                self._changed.wait(left)
        code = self._popen.wait(scaled(5))
        raise AssertionError(f"{self} ended with {code} before {what}\n{self.log_tail()}")

    def ready(self, timeout: float = 20.0) -> dict[str, Any]:
        """The one JSON line that says the process is ready; fails when it ends first or is late."""
        line = self._wait_for(lambda: self._stdout and self._stdout[0], timeout, "its ready line")
        try:
            return json.loads(line)
        except ValueError as error:
            raise AssertionError(f"{self}: the ready line is not JSON: {line!r}") from error

    def stdout_lines(self) -> list[str]:
        """Everything printed to stdout so far."""
        with self._changed:
            return list(self._stdout)

    def log_mark(self) -> int:
        """A position in the log, for `wait_log(after=...)` and `log_lines(after=...)`."""
        with self._changed:
            return self._stderr_total

    def log_lines(self, after: int = 0) -> list[str]:
        """Lines of stderr since a mark."""
        with self._changed:
            first = self._stderr_total - len(self._stderr)
            return list(self._stderr)[max(0, after - first):]

    def log_text(self, after: int = 0) -> str:
        """Stderr since a mark as one text."""
        return "\n".join(self.log_lines(after))

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of stderr, for failure messages."""
        tail = self.log_lines()[-lines:]
        return f"--- stderr of {self}, last {len(tail)} lines ---\n" + "\n".join(tail)

    def wait_log(self, pattern: str, timeout: float = 10.0, after: int = 0) -> re.Match[str]:
        """Waits for a line of stderr, past or future from the mark on, that matches the pattern."""
        compiled = re.compile(pattern)
        looked_at = after

        def look() -> re.Match[str] | None:
            nonlocal looked_at
            lines, looked_at = self.log_lines(looked_at), self._stderr_total
            return next((found for line in lines if (found := compiled.search(line))), None)

        return self._wait_for(look, timeout, f"a log line matching {pattern!r}")

    # The process itself.

    def __repr__(self) -> str:
        return f"<{' '.join(Path(self.argv[0]).name if i == 0 else a for i, a in enumerate(self.argv[:4]))} " \
               f"pid {self.pid}>"

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stderr_fd(self) -> int:
        """The read end of stderr, for tests that leave it unread."""
        return self._popen.stderr.fileno()

    def running(self) -> bool:
        return self._popen.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return psutil.Process(self.pid).memory_info().rss

    def cpu_seconds(self) -> float:
        """User and system time used so far."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def open_files(self) -> int:
        """Number of open descriptors."""
        return psutil.Process(self.pid).num_fds()

    def signal(self, number: int) -> None:
        """Sends a signal; no error when the process has ended."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """Ends the process like a crash would: no goodbye to anyone. Its exit code is not checked."""
        self._ended_on_purpose = True
        self._popen.kill()
        self._popen.wait(scaled(10))

    def freeze(self) -> None:
        """Stops the process without closing its sockets, like a hung machine."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen process go on."""
        self.signal(signal.SIGCONT)

    def wait_exit(self, timeout: float = 15.0) -> int:
        """Waits for the process to end by itself, output read to the end; its exit code."""
        try:
            code = self._popen.wait(scaled(timeout))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs after {scaled(timeout):g} s\n{self.log_tail()}") from None
        self._ended_on_purpose = True
        deadline = time.monotonic() + scaled(5)
        with self._changed:
            while self._open_pipes and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        return code

    def stop(self, expect: int = 0, timeout: float = 15.0) -> None:
        """SIGTERM, then requires the exit code `expect`. Does nothing but look for sanitizer reports
        when the process was killed or waited for before."""
        if not self._ended_on_purpose:
            self.thaw()
            self.signal(signal.SIGTERM)
            try:
                code = self.wait_exit(timeout)
            except AssertionError:
                self.kill()
                raise
            assert code == expect, f"{self} exited with {code}, not {expect}\n{self.log_tail()}"
        report = next((line for line in self.log_lines() if SANITIZER_REPORT.search(line)), None)
        assert report is None, f"{self}: {report}\n{self.log_tail(200)}"

    def discard(self) -> None:
        """Ends the process whatever state it is in; never raises."""
        if self.running():
            self.kill()
