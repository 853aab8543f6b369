"""Reads the Prometheus text format."""

import re
from typing import NamedTuple

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?\s*')
ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Metrics:
    """All samples of one scrape and the types and help texts announced for them."""

    def __init__(self, samples: list[Sample], types: dict[str, str], helps: dict[str, str]):
        self.all = samples
        self.types = types
        self.helps = helps

    def samples(self, name: str, **labels: str) -> list[Sample]:
        """Samples of that name that carry at least these labels."""
        return [s for s in self.all if s.name == name and labels.items() <= s.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """Sum of the matching samples; 0 when there is none."""
        return sum(sample.value for sample in self.samples(name, **labels))

    def has(self, name: str, **labels: str) -> bool:
        return bool(self.samples(name, **labels))


def parse_labels(text: str) -> dict[str, str]:
    labels, position = {}, 0
    while position < len(text):
        match = LABEL.match(text, position)
        if not match:
            raise ValueError(f"bad labels: {text!r}")
        if match.group(1) in labels:
            raise ValueError(f"label {match.group(1)} twice: {text!r}")
        labels[match.group(1)] = re.sub(r"\\.", lambda m: ESCAPES.get(m.group(), m.group()), match.group(2))
        position = match.end()
    return labels


def parse_metrics(text: str) -> Metrics:
    """Parses one scrape. Strict: a malformed line, a type announced twice or a repeated series is a
    ValueError, since scrapers refuse those too."""
    samples: list[Sample] = []
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    seen = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            if name in types:
                raise ValueError(f"type of {name} announced twice")
            types[name] = kind
        elif line.startswith("# HELP "):
            _, _, name, *rest = line.split(" ", 3)
            helps[name] = rest[0] if rest else ""
        elif line.strip() and not line.startswith("#"):
            match = SAMPLE.match(line)
            if not match:
                raise ValueError(f"bad sample: {line!r}")
            sample = Sample(match.group(1), parse_labels(match.group(2) or ""), float(match.group(3)))
            series = (sample.name, tuple(sorted(sample.labels.items())))
            if series in seen:
                raise ValueError(f"series twice: {line!r}")
            seen.add(series)
            samples.append(sample)
    return Metrics(samples, types, helps)
