#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build, newest changes first, within a budget of time.

Without --all: files changed since --base, or since the branch left origin/main, or, in a clone that
knows neither, those of the latest commits. A changed header is looked at through a source file that
includes it. Clean results are remembered by content, so a second run costs little.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/", "tests/", "bench/", "fuzz/")
HISTORY = 12  # Commits looked back in a clone that does not know what it was branched from.
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fairlead-tidy"


def git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def changed_files(base: str | None) -> list[str]:
    """Names of changed files, the latest first: the work tree, then commits backwards."""
    head = git("rev-parse", "HEAD").strip()
    if base is None:
        fork = git("merge-base", "HEAD", "origin/main").strip()
        base = fork if fork and fork != head else None
    span = ["-n", str(HISTORY)] if base is None else [f"{base}..HEAD"]
    texts = [git("diff", "--name-only", "HEAD"), git("ls-files", "--others", "--exclude-standard"),
             git("log", "--name-only", "--format=", *span)]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines() if line))


class Sources:
    """The files of a compilation database and what they include."""

    def __init__(self, build: Path):
        database = build / "compile_commands.json"
        if not database.exists():
            sys.exit(f"run_tidy: {database} is missing: configure the build first")
        self.commands = {}
        for entry in json.loads(database.read_text()):
            name = os.path.relpath(entry["file"], ROOT)
            if name.startswith(FOLDERS):
                self.commands[name] = entry["command"].replace(str(ROOT), "")
        self.texts: dict[str, str | None] = {}
        self.closures: dict[str, list[str]] = {}

    def text(self, name: str) -> str | None:
        if name not in self.texts:
            try:
                self.texts[name] = (ROOT / name).read_text(errors="replace")
            except OSError:
                self.texts[name] = None
        return self.texts[name]

    def includes(self, name: str) -> list[str]:
        """The project's files that `name` includes itself."""
        found = []
        for target in INCLUDE.findall(self.text(name) or ""):
            for folder in ("src", "tests/unit", "bench", os.path.dirname(name)):
                candidate = os.path.normpath(os.path.join(folder, target))
                if self.text(candidate) is not None:
                    found.append(candidate)
                    break
        return found

    def closure(self, name: str) -> list[str]:
        """`name` and everything of the project that it includes, directly or not."""
        if name not in self.closures:
            seen, left = {name}, [name]
            while left:
                for target in self.includes(left.pop()):
                    if target not in seen:
                        seen.add(target)
                        left.append(target)
            self.closures[name] = sorted(seen)
        return self.closures[name]

    def through(self, header: str) -> str | None:
        """A source file that shows clang-tidy this header: its own, or the smallest includer."""
        own = str(Path(header).with_suffix(".cpp"))
        if own in self.commands:
            return own
        users = [name for name in self.commands if header in self.closure(name)]
        return min(users, key=lambda name: len(self.text(name) or ""), default=None)

    def key(self, name: str, common: bytes) -> str:
        digest = hashlib.sha256(common + self.commands[name].encode())
        for part in self.closure(name):
            digest.update(part.encode() + b"\0" + (self.text(part) or "").encode() + b"\0")
        return digest.hexdigest()


def select(sources: Sources, names: list[str]) -> list[str]:
    picked = []
    for name in names:
        if name in sources.commands:
            picked.append(name)
        elif name.startswith(FOLDERS) and name.endswith(".hpp") and (ROOT / name).exists():
            through = sources.through(name)
            if through:
                picked.append(through)
    return list(dict.fromkeys(picked))


def common_key() -> bytes:
    """What every result depends on: the configuration, the tool, the generated headers' sources."""
    version = subprocess.run(["clang-tidy-19", "--version"], capture_output=True, check=True).stdout
    protos = b"".join(path.read_bytes() for path in sorted((ROOT / "proto").rglob("*.proto")))
    return version + (ROOT / ".clang-tidy").read_bytes() + protos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--all", action="store_true", help="every source file of the build")
    parser.add_argument("--base", help="commit since which files count as changed")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no file is begun")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fix", action="store_true", help="apply the fixes that clang-tidy knows")
    parser.add_argument("files", nargs="*", help="look at these files only")
    options = parser.parse_args()

    sources = Sources(options.build)
    if options.files:
        picked = select(sources, [os.path.relpath(os.path.abspath(f), ROOT) for f in options.files])
    elif options.all:
        picked = sorted(sources.commands)
    else:
        picked = select(sources, changed_files(options.base))
    CACHE.mkdir(parents=True, exist_ok=True)
    common = common_key()
    stop_at = time.monotonic() + options.budget
    printing = threading.Lock()

    def run(name: str) -> str:
        remembered = CACHE / sources.key(name, common)
        if remembered.exists():
            remembered.touch()
            return "remembered"
        if time.monotonic() > stop_at:
            return "not reached"
        extra = ["--fix"] if options.fix else []
        begun = time.monotonic()
        done = subprocess.run(["clang-tidy-19", "-p", str(options.build), "--quiet", *extra, name],
                              cwd=ROOT, capture_output=True, text=True)
        with printing:
            print(f"clang-tidy {'ok  ' if done.returncode == 0 else 'FAIL'} {name} "
                  f"{time.monotonic() - begun:.1f} s", flush=True)
            if done.returncode != 0:
                print(done.stdout or done.stderr, flush=True)
        if done.returncode == 0:
            remembered.touch()
        return "clean" if done.returncode == 0 else "failed"

    # Fixes of two files may touch one header.
    with concurrent.futures.ThreadPoolExecutor(1 if options.fix else options.jobs) as pool:
        results = list(pool.map(run, picked))
    left = [name for name, result in zip(picked, results, strict=True) if result == "not reached"]
    if left:
        print(f"clang-tidy: out of its time, not looked at: {' '.join(left)}")
    counts = ", ".join(f"{results.count(kind)} {kind}"
                       for kind in ("clean", "remembered", "failed", "not reached"))
    print(f"clang-tidy: {len(picked)} files: {counts}")
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
