"""Random templates: `fairlead render` against transformers' Jinja environment.

FAIRLEAD_LONG=1 goes on for ten minutes (FAIRLEAD_SEED: from that seed); otherwise it is a few hundred of them.
"""

import json
import os
import re
import signal
import time
import warnings
from contextlib import contextmanager

import pytest
from render_cases import CONTEXT
from render_oracle import NOW, differences, reference_template, render
from render_programs import Programs

LONG = os.environ.get("FAIRLEAD_LONG") == "1"
SEED = int(os.environ.get("FAIRLEAD_SEED", "1"))
EACH = 200
LIMITS = {
    "values are nested too deeply",
    "the template takes too long to render",
    "the template uses too much memory",
    "the rendered text is too large",
}


class TooLong(BaseException):
    pass


@contextmanager
def at_most(seconds):
    """Interrupts the reference, which has no limits, in a template that grows."""

    def interrupt(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def reference(source):
    try:
        with at_most(5), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return reference_template(source, json.loads(json.dumps(CONTEXT)))
    except TooLong:
        return None


def check(seed):
    """Compares the programs of one seed; how many were compared, and how many of those rendered."""
    made = Programs(seed)
    sources, expected = [], []
    for source in [made.program() for _ in range(EACH)]:
        wanted = reference(source)
        # Python prints some objects with their address.
        if wanted is not None and not (wanted[0] and re.search("0x[0-9a-f]{9}", wanted[0], re.IGNORECASE)):
            sources.append(source)
            expected.append(wanted)
    answers = render([{"template": source, "context": CONTEXT, "now": NOW} for source in sources])
    # The reference has no limits.
    wrong = [found for found in differences(answers, expected) if answers[found[0]].get("error") not in LIMITS]
    assert not wrong, (seed, [(sources[index], why) for index, why in wrong[:3]])
    return len(sources), sum(text is not None for text, _ in expected)


@pytest.mark.parametrize("seed", range(1, 4))
def test_random_programs_render_as_the_reference_does(seed):
    compared, rendered = check(seed)
    assert compared > EACH * 0.9 and rendered > EACH * 0.2


@pytest.mark.skipif(not LONG, reason="ten minutes; FAIRLEAD_LONG=1 runs it")
@pytest.mark.timeout(900)
def test_random_programs_for_ten_minutes():
    end = time.monotonic() + 600
    seed, compared = SEED, 0
    while time.monotonic() < end:
        compared += check(seed)[0]
        seed += 1
    print(f"{compared} programs, seeds {SEED} to {seed - 1}")
    assert compared > EACH
