#!/usr/bin/env python3
"""Runs the standard scenarios of the routing simulator and writes their tables into docs/kv-simulation.md.

The traces are Mooncake's (FAST'25 release), as .jsonl or .jsonl.gz in the folder --traces names. Scenarios
are virtual time in one thread: figures depend on the code and the seed alone, the cost of a choice apart.
Standard library only.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/kv-simulation.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
ALL = ("round-robin", "random", "power-of-two", "least-loaded", "kv")
SOME = ("round-robin", "least-loaded", "kv")
# 1,000 workers hold 41 million blocks of 16 tokens; a quarter of the memory and time does as well.
LARGE = ("--blocks", "10240", "--block-size", "64")


class Row:
    """One run: what the table calls it, and the simulator's arguments."""

    def __init__(self, label, mode, *args):
        self.label = label
        self.args = ["--mode", mode, *map(str, args)]


def modes(names, *args):
    return [Row(name, name, *args) for name in names]


def scenarios(traces):
    """Title -> rows."""
    conversation = ("--trace", traces["conversation"])
    synthetic = ("--trace", traces["synthetic"])
    hot = ("--hot", "--requests", 8000, "--rate", 32)
    out = {
        "Conversation trace, 8 workers": modes(ALL, *conversation),
        "Conversation trace twice as fast, 8 workers": modes(ALL, *conversation, "--speed", 2),
        "Conversation trace without reuse, 8 workers": modes(SOME, *conversation, "--no-reuse"),
        "Conversation trace without reuse twice as fast, 8 workers":
            modes(SOME, *conversation, "--no-reuse", "--speed", 2),
        "Synthetic trace, 8 workers": modes(SOME, *synthetic),
        "Conversation trace, 15 minutes of 8 copies, 64 workers":
            modes(SOME, *conversation, "--limit-seconds", 900, "--duplicate", 8, "--workers", 64),
        "Conversation trace, 5 minutes of 125 copies, 1,000 workers":
            modes(SOME, *conversation, "--limit-seconds", 300, "--duplicate", 125, "--workers", 1000, *LARGE),
        "Burst: 64 equal prompts of 8,192 tokens, 8 idle workers":
            [*modes(SOME, "--burst", 64), Row("kv, nothing predicted", "kv", "--burst", 64, "--predicted-ttl", 0)],
        "Hot prefix: 4,096 tokens all share, 200 documents, 32 requests/s, 8 workers": modes(SOME, *hot),
    }
    weights = [("as it is", ()), *((f"--prefill-load-scale {n}", ("--prefill-load-scale", n)) for n in (2, 4, 8)),
               ("--recompute-weight 0", ("--recompute-weight", 0)),
               ("--track-active-blocks false", ("--track-active-blocks", "false")),
               ("--policy lmetric", ("--policy", "lmetric"))]
    out["Weights: conversation trace twice as fast, 8 workers"] = [
        Row(f"kv {label}", "kv", *conversation, "--speed", 2, *args) for label, args in weights]
    return out


def run(binary, row):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([binary, "--json", file.name, *row.args], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"kv_sim {' '.join(row.args)}: {done.stdout}{done.stderr}")
        return json.loads(pathlib.Path(file.name).read_text())


HEAD = ["", "TTFT ms mean / p50 / p99", "latency s mean / p99", "ms per token", "hit rate %",
        "prefill max/mean", "busy max/mean", "busy %", "workers used, most requests on one",
        "prediction error %", "picks", "µs per choice"]


def cells(label, r):
    picks = ", ".join(f"{name} {count}" for name, count in r["picks"].items() if name != "mode")
    kv = bool(picks)
    return [label,
            f"{r['ttft_mean_s'] * 1e3:.0f} / {r['ttft_p50_s'] * 1e3:.0f} / {r['ttft_p99_s'] * 1e3:.0f}",
            f"{r['latency_mean_s']:.2f} / {r['latency_p99_s']:.1f}",
            f"{r['inter_token_mean_s'] * 1e3:.1f}",
            f"{r['hit_rate'] * 100:.1f}",
            f"{r['prefill_balance']:.2f}",
            f"{r['busy_balance']:.2f}",
            f"{r['busy_mean'] * 100:.0f}",
            f"{r['workers_used']}, {r['most_requests']}",
            f"{r['prediction_error'] * 100:.2f}" if kv else "",
            picks or "",
            f"{r['route_us']:.0f}" if kv else ""]


def table(rows):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def find_traces(folder, scratch):
    """Name -> path of a plain file."""
    found = {}
    for name in ("conversation", "synthetic"):
        plain, packed = folder / f"{name}_trace.jsonl", folder / f"{name}_trace.jsonl.gz"
        if plain.is_file():
            found[name] = str(plain)
        elif packed.is_file():
            out = pathlib.Path(scratch) / plain.name
            out.write_bytes(gzip.decompress(packed.read_bytes()))
            found[name] = str(out)
        else:
            sys.exit(f"{plain} is missing: see docs/kv-simulation.md")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=pathlib.Path, required=True, help="folder of the traces")
    parser.add_argument("--binary", default=str(ROOT / "build/release/kv_sim"))
    parser.add_argument("--only", default="", help="scenarios whose title contains this")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/kv-simulation.md")
    args = parser.parse_args()
    if args.write and args.only:
        parser.error("--write needs all scenarios")
    figures, text = {}, []
    with tempfile.TemporaryDirectory() as scratch:
        for title, rows in scenarios(find_traces(args.traces, scratch)).items():
            if args.only.lower() not in title.lower():
                continue
            before = time.monotonic()
            figures[title] = {row.label: run(args.binary, row) for row in rows}
            text.append(f"### {title}\n\n" + table([cells(*item) for item in figures[title].items()]))
            print(text[-1], f"\n({time.monotonic() - before:.0f} s)\n", flush=True)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.write:
        before, rest = PAGE.read_text().split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(before + BEGIN + "\n\n" + "\n\n".join(text) + "\n\n" + END + after)


if __name__ == "__main__":
    main()
