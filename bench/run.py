#!/usr/bin/env python3
"""Runs the standard scenarios against mock engines and prints a table.

Every figure is CPU time of the `serve` process per request or per streamed token, measured by the
load generator from /proc in the same run as the floor (a bare paced send loop). Standard library
only. `--json FILE` keeps the raw reports.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NICE = ["nice", "-n", "5"]
WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards mix potions in an old tower "
         "and nobody on the quiet street below notices the blue smoke ").split()


class Program:
    """A long-running subcommand and its ready line."""

    def __init__(self, binary, *args):
        self.process = subprocess.Popen([binary, *args], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(map(str, args))}: did not start")
        self.ready = json.loads(line)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def prompt_of(words):
    return " ".join(WORDS[i % len(WORDS)] for i in range(words))


def python_sources(size=20_000_000):
    """Text as people write it: the standard library's sources, in an order of no meaning."""
    paths = sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    paths = [path for path in paths if "site-packages" not in path.parts]
    random.Random(1).shuffle(paths)
    text = ""
    for path in paths:
        text += path.read_text(errors="ignore").encode("ascii", "ignore").decode()
        if len(text) > size:
            break
    return text[:size]


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


class Bench:
    def __init__(self, args):
        self.binary = args.binary
        self.loadgen = args.loadgen
        self.model_path = args.model_path
        self.text_model = args.text_model if pathlib.Path(args.text_model).exists() else args.model_path
        self.scale = args.scale
        self.only = set(args.only.split(",")) if args.only else None
        self.reports = {}

    def wanted(self, name):
        return self.only is None or name in self.only

    def fleet(self, *engine_flags, serve_flags=(), model_path=None):
        engine = Program(self.binary, "mock-engine", "--backend", "vllm", "--listen", "127.0.0.1:0",
                         "--debug-listen", "127.0.0.1:0", "--model", "demo", "--reply", "echo",
                         *engine_flags)
        server = Program(self.binary, "serve", "--direct", "--direct-backend", "vllm", "--engine-url",
                         f"http://{engine.ready['grpc']}", "--model-path", model_path or self.model_path,
                         "--model-name", "demo", "--http-host", "127.0.0.1", "--http-port", "0",
                         *serve_flags)
        self.wait_ready(server.ready["http"])
        return engine, server

    @staticmethod
    def wait_ready(address):
        host, port = address.rsplit(":", 1)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.create_connection((host, int(port)), 5) as connection:
                connection.sendall(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                if connection.recv(64).startswith(b"HTTP/1.1 200"):
                    return
            time.sleep(0.05)
        sys.exit("the server did not become ready")

    def start_load(self, server, *flags, model="demo", prefix=()):
        command = [*prefix, self.loadgen, "--address", server.ready["http"], "--pid", str(server.process.pid),
                   "--model", model, *map(str, flags)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def report_of(load):
        out, err = load.communicate()
        if load.returncode != 0:
            sys.exit(f"load generator failed: {out}{err}")
        report = json.loads(out)
        if report["errors"]:
            sys.exit(f"wrong answers: {report['problems']}")
        return report

    def load(self, server, *flags, **options):
        return self.report_of(self.start_load(server, *flags, **options))

    def scenario(self, name, engine_flags, *load_flags, **fleet):
        if not self.wanted(name):
            return
        engine, server = self.fleet(*engine_flags, **fleet)
        try:
            report = self.load(server, *load_flags)
        finally:
            server.stop()
            engine.stop()
        self.reports[name] = report

    def run(self):
        n = self.scale
        prompt = prompt_of(75)
        free = ["--speedup-ratio", "0"]
        paced = ["--speedup-ratio", "0", "--token-interval-ms", "6"]
        self.scenario("S1", free, "--connections", 32, "--requests", int(20000 * n), "--warmup", 500,
                      "--prompt", prompt, "--max-tokens", 64)
        self.scenario("S1p", paced, "--connections", 32, "--requests", int(1000 * n), "--warmup", 64,
                      "--prompt", prompt, "--max-tokens", 64)
        self.scenario("S2", free, "--unary", "--connections", 32, "--requests", int(40000 * n),
                      "--warmup", 500, "--prompt", prompt, "--max-tokens", 16)
        self.scenario("S6", free, "--connections", 256, "--requests", int(4096 * n), "--warmup", 256,
                      "--prompt", prompt_of(500), "--max-tokens", 512)
        self.long_prompts()
        self.routing_cost()
        if self.wanted("floor"):
            done = subprocess.run([self.loadgen, "floor"], capture_output=True, text=True, check=True)
            self.reports["floor"] = json.loads(done.stdout)
        if self.wanted("large prompts"):
            self.large_beside_streams()
        if self.wanted("idle"):
            self.idle()

    @staticmethod
    @contextlib.contextmanager
    def model_of(path, context):
        """A copy of a model's folder whose context is so many tokens."""
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copytree(path, pathlib.Path(folder) / "demo")
            config = model / "config.json"
            values = json.loads(config.read_text()) if config.exists() else {}
            config.write_text(json.dumps({**values, "max_position_embeddings": context}))
            yield model

    def long_prompts(self):
        """Prompts of which each has another text, and the turns of a conversation that share all but the last message."""
        n = self.scale
        engine = ["--speedup-ratio", "0", "--max-model-len", "262144"]
        scenarios = [("S3", 3000, 0, 32_000), ("S4", 300, 0, 240_000), ("S4 next turn", 1000, 239_000, 1000)]
        if not any(self.wanted(name) for name, *_ in scenarios):
            return
        with self.model_of(self.text_model, 262144) as model:
            corpus = model / "corpus.txt"
            corpus.write_text(python_sources())
            for name, count, history, turn in scenarios:
                self.scenario(name, engine, "--unary", "--connections", 4, "--requests", int(count * n), "--warmup", 50,
                              "--corpus", corpus, "--history-bytes", history, "--turn-bytes", turn, "--max-tokens", 16,
                              model_path=str(model))

    def routing_cost(self):
        """The same requests with and without routing by KV cache, in turns: what it adds is the difference."""
        n = self.scale
        engine = ["--speedup-ratio", "0", "--max-model-len", "65536", "--num-gpu-blocks", "200000",
                  "--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0"]
        with self.model_of(self.model_path, 65536) as model:
            for name, tokens, count in [("1k", 1000, 6000), ("60k", 60000, 300)]:
                for mode in ["least-loaded", "kv"]:
                    self.scenario(f"{name} {mode}", engine, "--completions", "--unary", "--connections", 4,
                                  "--requests", int(count * n), "--warmup", 50, "--prompt-tokens", tokens,
                                  "--max-tokens", 1, serve_flags=["--router-mode", mode], model_path=str(model))

    def large_beside_streams(self, pairs=5, seconds=8):
        """What a 4 MB prompt every second, of another model with an engine of its own, does to 64 paced streams."""
        with contextlib.ExitStack() as stack, self.model_of(self.text_model, 4_000_000) as model:
            corpus = model / "corpus.txt"
            corpus.write_text(python_sources())
            engines = []
            for name, flags in [("demo", ["--token-interval-ms", "6"]), ("large", ["--max-model-len", "4000000", "--num-gpu-blocks", "500000"])]:
                engines.append(Program(*NICE, self.binary, "mock-engine", "--backend", "vllm", "--listen", "127.0.0.1:0",
                                       "--debug-listen", "127.0.0.1:0", "--model", name, "--reply", "echo", "--speedup-ratio", "0", *flags))
                stack.callback(engines[-1].stop)
            server = Program(self.binary, "serve", "--direct", "--direct-backend", "vllm", "--http-host", "127.0.0.1", "--http-port", "0",
                             "--engine-url", ",".join(f"http://{engine.ready['grpc']}" for engine in engines),
                             "--model-path", f"demo={self.model_path}", "--model-path", f"large={model}")
            stack.callback(server.stop)
            self.wait_ready(server.ready["http"])
            rounds = []
            for _ in range(pairs):
                pair = {}
                for mode in ["without", "with"]:
                    large = mode == "with" and self.start_load(server, "--unary", "--rate", 1, "--requests", seconds, "--corpus", corpus,
                                                               "--turn-bytes", 4_000_000, "--max-tokens", 4, model="large", prefix=NICE)
                    pair[mode] = self.load(server, "--connections", 64, "--requests", int(64 * seconds / 2), "--warmup", 64,
                                           "--prompt", prompt_of(75), "--max-tokens", 330, prefix=NICE)
                    if large:
                        pair["large"] = self.report_of(large)
                rounds.append(pair)
        self.reports["large prompts"] = {"rounds": rounds, "load_average": os.getloadavg()[0]}

    def large_table(self):
        report = self.reports["large prompts"]
        lines = [f"\n64 streams at 6 ms per token, without and with a 4 MB prompt every second (load average {report['load_average']:.1f}):"]
        for name, key in [("p99", "inter_token_ms_p99"), ("p99.9", "inter_token_ms_p999")]:
            values = [(r["without"][key], r["with"][key]) for r in report["rounds"]]
            median = statistics.median(b - a for a, b in values)
            lines.append(f"inter-token {name}, ms: " + ", ".join(f"{a:.2f}/{b:.2f}" for a, b in values) + f"; median difference {median:.2f}")
        large = [r["large"] for r in report["rounds"]]
        lines.append(f"the 4 MB prompts are answered after {statistics.median(r['ttft_ms_p50'] for r in large):.0f} ms")
        return lines

    def idle(self, streams=1000):
        engine, server = self.fleet("--speedup-ratio", "0", "--fault", "stall-after:8",
                                    "--extra-engine-args", '{"max_num_seqs": 4096}')
        pid = server.process.pid
        started = rss_kib(pid)
        host, port = server.ready["http"].rsplit(":", 1)
        body = json.dumps({"model": "demo", "stream": True, "max_tokens": 64,
                           "messages": [{"role": "user", "content": prompt_of(75)}]})
        request = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
        sockets = []

        def open_streams(count):
            opened = []
            for _ in range(count):
                connection = socket.create_connection((host, int(port)), 10)
                connection.sendall(request)
                opened.append(connection)
            sockets.extend(opened)
            for connection in opened:
                received = b""
                while received.count(b"data: ") < 2:
                    received += connection.recv(65536)

        try:
            open_streams(50)  # what is allocated once, whatever the number of streams, must not count
            before = rss_kib(pid)
            open_streams(streams)
            self.reports["idle"] = {"rss_kib": started,
                                    "kib_per_stream": (rss_kib(pid) - before) / streams}
        finally:
            for connection in sockets:
                connection.close()
            server.stop()
            engine.stop()

    def table(self):
        rows = ["| Scenario | CPU µs/request | CPU µs/token | requests/s | tokens/s | TTFT ms p50/p99 | "
                "inter-token ms p50/p99 | tokens/chunk | peak RSS MiB |", "|---|---|---|---|---|---|---|---|---|"]
        for name, r in self.reports.items():
            if "cpu_us_per_request" not in r:
                continue
            per_request = r["tokens_per_second"] / max(r["requests_per_second"], 1e-9)
            chunks = max(r["chunks_per_request"], 1)
            rows.append(
                f"| {name} | {r['cpu_us_per_request']:.0f} | {r['cpu_us_per_token']:.2f} | "
                f"{r['requests_per_second']:.0f} | {r['tokens_per_second']:.0f} | "
                f"{r['ttft_ms_p50']:.2f} / {r['ttft_ms_p99']:.2f} | "
                f"{r['inter_token_ms_p50']:.2f} / {r['inter_token_ms_p99']:.2f} | "
                f"{per_request / chunks:.1f} | {r['peak_rss_kib'] / 1024:.0f} |")
        for name in ["1k", "60k"]:
            pair = [self.reports.get(f"{name} {mode}") for mode in ["least-loaded", "kv"]]
            if all(pair):
                added = pair[1]["cpu_us_per_request"] - pair[0]["cpu_us_per_request"]
                rows.append(f"\nRouting by KV cache adds {added:.0f} µs CPU to a request of {name} tokens.")
        if "large prompts" in self.reports:
            rows += self.large_table()
        if "floor" in self.reports:
            rows.append(f"\nFloor (bare paced send): {self.reports['floor']['cpu_us_per_send']:.2f} µs "
                        "CPU per send.")
        if "idle" in self.reports:
            idle = self.reports["idle"]
            rows.append(f"\nIdle: {idle['rss_kib'] / 1024:.1f} MiB RSS (demo tokenizer included), "
                        f"{idle['kib_per_stream']:.1f} KiB per idle stream.")
        return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/fairlead"))
    parser.add_argument("--loadgen", default=str(ROOT / "build/release/fairlead-loadgen"))
    parser.add_argument("--model-path", default=str(ROOT / "share/demo"))
    parser.add_argument("--text-model", default=str(ROOT / "tests/.assets/qwen3"),
                        help="model of the long prompts of text (tools/fetch_test_assets.sh qwen3); without it, that of the others")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the request counts")
    parser.add_argument("--only", help="comma list of S1,S1p,S2,S3,S4,'S4 next turn',S6,'1k kv','1k least-loaded','60k …','large prompts',floor,idle")
    parser.add_argument("--json", help="file for the raw reports")
    args = parser.parse_args()
    bench = Bench(args)
    bench.run()
    print(bench.table())
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(bench.reports, indent=1))


if __name__ == "__main__":
    os.environ.setdefault("FAIRLEAD_LOG_LEVEL", "warn")
    main()
