"""Waiting with deadlines instead of sleeping."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Sanitizer builds are several times slower: the runner stretches every deadline.
TIME_SCALE = float(os.environ.get("FAIRLEAD_TIME_SCALE", "1"))


def scaled(seconds: float) -> float:
    """A deadline of `seconds` on a plain build, in seconds for the build under test."""
    return seconds * TIME_SCALE


def wait_until(probe: Callable[[], T], timeout: float = 10.0, what: str = "", interval: float = 0.02) -> T:
    """Calls `probe` until it returns something true and returns that. Exceptions of `probe` count as
    not yet. Fails after `timeout` seconds (scaled) with the last answer or exception."""
    deadline = time.monotonic() + scaled(timeout)
    while True:
        last: object
        try:
            last = probe()
            if last:
                return last
        except Exception as error:  # noqa: BLE001: whatever the probed thing does while it is not there
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {scaled(timeout):g} s for {what or 'a condition'}; last: {last!r}")
        time.sleep(interval)
