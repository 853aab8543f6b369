"""Flags, variables and files of the commands: every wrong combination is one clear line and exit 2."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT, binary_path

DEMO = str(ROOT / "share/demo")
E1, E2 = "http://127.0.0.1:9", "http://127.0.0.1:10"

WRONG = {
    "nothing": ([], {}, "no engines"),
    "direct without URL": (["--direct"], {}, "--direct needs at least one --engine-url"),
    "URL without direct": (["--engine-url", E1], {}, "engine URLs need --direct"),
    "prefill without direct": (["--prefill-engine-url", E1], {}, "engine URLs need --direct"),
    "prefill only": (["--direct", "--prefill-engine-url", E1], {}, "prefill engines alone cannot answer"),
    "no engine": (["--direct", "--engine-url", ","], {}, "--engine-url: names no engine"),
    "no prefill engine": (["--direct", "--engine-url", E1, "--prefill-engine-url", ""], {},
                          "--prefill-engine-url: names no engine"),
    "metric name": (["--direct", "--engine-url", E1, "--metrics-prefix", "a b{}"], {},
                    "--metrics-prefix: `a b{}` cannot begin a metric's name"),
    "no metric name": (["--direct", "--engine-url", E1, "--metrics-prefix", ""], {}, "--metrics-prefix: ``"),
    "in both lists": (["--direct", "--engine-url", f"{E1},{E2}", "--prefill-engine-url", E2 + "/"], {},
                      f"{E2} is also an --engine-url"),
    "twice": (["--direct", "--engine-url", E1, "--engine-url", "127.0.0.1:9"], {}, f"{E1} is named twice"),
    "unknown backend": (["--direct", "--engine-url", E1, "--direct-backend", "tgi"], {}, "`tgi` is unknown"),
    "later backend": (["--direct", "--engine-url", E1, "--direct-backend", "openai-http"], {},
                      "`openai-http` is not supported yet"),
    "https engine": (["--direct", "--engine-url", "https://h:1"], {}, "https"),
    "engine path": (["--direct", "--engine-url", "http://h:1/v1"], {}, "path"),
    "unknown mode": (["--direct", "--engine-url", E1, "--router-mode", "fastest"], {}, "`fastest` is unknown"),
    "later mode": (["--direct", "--engine-url", E1, "--router-mode", "device-aware-weighted"], {},
                   "`device-aware-weighted` is not supported yet"),
    "credit": (["--direct", "--engine-url", E1, "--router-kv-overlap-score-credit", "-1"], {},
               "--router-kv-overlap-score-credit: `-1` is not a number from 0"),
    "temperature": (["--direct", "--engine-url", E1], {"DYN_ROUTER_TEMPERATURE": "nan"},
                    "DYN_ROUTER_TEMPERATURE: `nan` is not a number from 0"),
    "cache weight": (["--direct", "--engine-url", E1, "--router-host-cache-hit-weight", "1.5"], {},
                     "--router-host-cache-hit-weight: `1.5` is not a number from 0 to 1"),
    "events": (["--direct", "--engine-url", E1], {"DYN_ROUTER_USE_KV_EVENTS": "maybe"},
               "DYN_ROUTER_USE_KV_EVENTS: `maybe` is neither true nor false"),
    "policy": (["--direct", "--engine-url", E1, "--router-selection-policy", "best"], {},
               "--router-selection-policy: `best` is unknown; choose one of sum, lmetric"),
    "block size": (["--direct", "--engine-url", E1, "--kv-cache-block-size", "16.5"], {},
                   "--kv-cache-block-size: `16.5` is not a whole number"),
    "threshold": (["--direct", "--engine-url", E1, "--active-decode-blocks-threshold", "90"], {},
                  "--active-decode-blocks-threshold: `90` is not a number from 0 to 1"),
    "session time": (["--direct", "--engine-url", E1, "--router-session-affinity-ttl-secs", "0"], {},
                     "--router-session-affinity-ttl-secs: `0` is not a whole number from 1 to 31536000"),
    "unknown flag": (["--direct", "--engine-ulr", E1], {}, "did you mean `--engine-url`?"),
    "stray word": (["serve"], {}, "unexpected argument `serve`"),
    "bad port": (["--direct", "--engine-url", E1, "--http-port", "99999"], {}, "--http-port: `99999`"),
    "bad variable": (["--direct", "--engine-url", E1], {"DYN_HTTP_PORT": "x"}, "DYN_HTTP_PORT: `x`"),
    "tls": (["--direct", "--engine-url", E1, "--tls-cert-path", "c", "--tls-key-path", "k"], {},
            "TLS is not supported yet"),
    "keys": (["--direct", "--engine-url", E1, "--api-key", "k"], {}, "authentication is not supported yet"),
    "parser": (["--direct", "--engine-url", E1, "--dyn-tool-call-parser", "hermes"], {}, "`hermes` is unknown"),
    "store": (["--direct", "--engine-url", E1, "--discovery-backend", "etcd"], {}, "`etcd` is not supported yet"),
    "no folder": (["--discovery-backend", "file"], {}, "which folder are the cards in?"),
    "no folder, by variable": ([], {"DYN_DISCOVERY_BACKEND": "file"},
                               "DYN_DISCOVERY_BACKEND: which folder are the cards in?"),
    "a file as folder": (["--discovery-backend", "file", "--discovery-dir", "/dev/null"], {}, "is not a folder"),
    "folder without file": (["--direct", "--engine-url", E1, "--discovery-dir", "/tmp"], {},
                            "a folder of cards needs --discovery-backend file"),
    "two wires, one place": (["--direct", "--engine-url", f"vllm={E1},vllm-http={E1}"], {}, f"{E1} is named twice"),
    "no file": (["--config", "/nonexistent/f.toml"], {}, "cannot read `/nonexistent/f.toml`"),
    "endless file": (["--config", "/dev/zero"], {}, "cannot read `/dev/zero`: it is neither a regular file nor a pipe"),
    "endless sampling": (["--direct", "--engine-url", E1, "--default-sampling-params", "@/dev/zero"], {},
                         "cannot read `/dev/zero`"),
    "no model, by variable": (["--direct", "--engine-url", E1, "--http-port", "0"],
                              {"FAIRLEAD_MODEL_PATH": "/nonexistent/model"}, "FAIRLEAD_MODEL_PATH:"),
    "no generation config": (["--direct", "--engine-url", E1, "--http-port", "0", "--model-path", DEMO],
                             {"FAIRLEAD_GENERATION_CONFIG": "/nonexistent"}, "FAIRLEAD_GENERATION_CONFIG:"),
    "no such host": (["--direct", "--engine-url", E1, "--http-port", "0"], {"DYN_HTTP_HOST": "no such host"},
                     "DYN_HTTP_HOST:"),
    "two payloads": (["--direct", "--engine-url", E1, "--health-check-payload", "m={}", "--health-check-payload",
                      "m={}"], {}, "--health-check-payload: model `m` is named twice"),
    "no model": (["--direct", "--engine-url", E1, "--model-path", "/nonexistent/model", "--http-port", "0"], {},
                 "--model-path:"),
    "sampling": (["--direct", "--engine-url", E1, "--default-sampling-params", "{"], {}, "not a JSON object"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage_is_one_line_and_exit_2(launcher, name):
    flags, env, text = WRONG[name]
    done = launcher.run("serve", *flags, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("fairlead serve: ") and text in done.stderr
    assert done.stderr.count("\n") == 1


def test_unknown_commands_get_a_hint(launcher):
    done = launcher.run("srve")
    assert done.returncode == 2 and "did you mean `serve`?" in done.stderr
    assert launcher.run().returncode == 2
    for command in ("worker", "parse"):
        assert launcher.run(command).returncode == 2


def test_help_names_every_command_and_goes_to_stdout(launcher):
    done = launcher.run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for command in ("serve", "demo", "mock-engine", "probe", "tokenize", "render", "config", "version"):
        assert f"\n  {command} " in done.stdout
        one = launcher.run(command, "--help")
        assert one.returncode == 0 and f"fairlead {command}" in one.stdout
    assert launcher.run("version").stdout.startswith("fairlead ")


def in_force(launcher, *flags, env=None):
    done = launcher.run("config", "check", *flags, env=env)
    assert done.returncode == 0, done.stderr
    return dict(line.split("  # ")[0].split(" = ", 1) for line in done.stdout.splitlines())


def test_flags_over_own_variables_over_dyn_variables_over_file(launcher, tmp_path):
    file = tmp_path / "f.toml"
    file.write_text(f'direct = true\nengine-url = ["{E1}", "{E2}"]\nhttp_port = 1\nrouter-mode = "random"\n'
                    "[serve]\nmax-attempts = 2\n[demo]\nhttp-port = 9\n")
    flags = ["--config", str(file)]
    found = in_force(launcher, *flags)
    assert found["engine-url"] == f"{E1},{E2}" and found["max-attempts"] == "2"
    assert (found["http-port"], found["router-mode"]) == ("1", "random")
    env = {"DYN_HTTP_PORT": "2"}
    assert in_force(launcher, *flags, env=env)["http-port"] == "2"
    env["FAIRLEAD_HTTP_PORT"] = "3"
    assert in_force(launcher, *flags, env=env)["http-port"] == "3"
    assert in_force(launcher, *flags, "--http-port", "4", env=env)["http-port"] == "4"
    assert in_force(launcher, env={"FAIRLEAD_CONFIG": str(file)})["http-port"] == "1"
    done = launcher.run("config", "check", *flags, "--router-ttl-secs", "60", "--active-prefill-tokens-threshold", "None")
    assert "\nrouter-ttl-secs = 60  # --router-ttl-secs\n" in done.stdout
    assert "\nactive-prefill-tokens-threshold" not in done.stdout
    assert done.stderr == ("fairlead config check: no effect without --router-mode kv (it is random): "
                           "--router-ttl-secs, --active-prefill-tokens-threshold\n")
    file.write_text("http-prot = 1\n")
    done = launcher.run("serve", *flags)
    assert done.returncode == 2 and f"{file}:1: unknown key `http-prot`; did you mean `http-port`?" in done.stderr


@pytest.mark.parametrize("text, words", [
    ("[sreve]\nhttp-port = 0\n", "line 1: `[sreve]` is the table of no command; did you mean `[serve]`?"),
    ("http-port = 1\nhttp-port = 0\n", "2: `http-port` is set twice, first in line 1"),
    ('config = "/none"\n', "1: `config` names this file and cannot stand in it"),
])
def test_a_file_that_would_not_mean_what_it_says_is_refused(launcher, tmp_path, text, words):
    file = tmp_path / "f.toml"
    file.write_text(text)
    done = launcher.run("serve", "--config", file, "--direct", "--engine-url", E1)
    assert done.returncode == 2 and words in done.stderr and str(file) in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_environment_alone_is_enough(launcher, mock_engine):
    engine = mock_engine(model="demo")
    process = launcher.start("serve", env={
        "FAIRLEAD_DIRECT": "1", "DYN_ENGINE_URL": engine.url, "FAIRLEAD_HTTP_PORT": "0",
        "FAIRLEAD_HTTP_HOST": "127.0.0.1", "FAIRLEAD_MODEL_PATH": DEMO, "DYN_ENABLE_RL": "1",
        "DYN_ROUTER_TEMPERATURE": "0.5"})
    assert process.ready()["http"].startswith("127.0.0.1:")
    process.wait_log("DYN_ENABLE_RL has no effect")
    process.wait_log(r"no effect without --router-mode kv \(it is round-robin\): DYN_ROUTER_TEMPERATURE")
    process.stop()


def test_a_taken_port_is_a_clear_error(launcher, mock_engine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = launcher.run("serve", "--direct", "--engine-url", E1, "--model-path", DEMO,
                            "--http-host", "127.0.0.1", "--http-port", port)
        assert done.returncode == 1
        assert f"127.0.0.1:{port}" in done.stderr and "in use" in done.stderr
        assert done.stdout == ""
        busy = launcher.run("mock-engine", "--listen", f"127.0.0.1:{port}")
        assert busy.returncode == 1 and f"{port}" in busy.stderr


def test_mock_engine_mistakes_name_the_flag(launcher):
    for flags, text in ((["--fault", "explode"], "--fault"), (["--role", "both"], "--role"),
                        (["--reply", "song"], "--reply"), (["--without", "wings"], "--without"),
                        (["--listen", "nowhere"], "--listen"), (["--backend", "tgi"], "--backend"),
                        (["--extra-engine-args", "{\"x\":1}"], "--extra-engine-args")):
        done = launcher.run("mock-engine", *flags)
        assert done.returncode == 2, (flags, done.stderr)
        assert text in done.stderr and done.stderr.count("\n") == 1


def test_probe_prints_json_or_says_why_not(launcher, mock_engine):
    engine = mock_engine(model="demo")
    done = launcher.run("probe", engine.url)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["endpoint"] == engine.url and report["served_model_name"] == "demo"
    http = mock_engine(model="demo", backend="vllm-http")
    for words in (["--direct-backend", "vllm-http", http.url], [f"vllm-http={http.url}"]):
        done = launcher.run("probe", *words)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["endpoint"] == http.url and report["served_model_name"] == "demo"
    later = launcher.run("probe", f"openai-http={http.url}")
    assert later.returncode == 2 and "`openai-http` is not supported yet" in later.stderr
    assert launcher.run("probe").returncode == 2
    assert launcher.run("probe", "https://h:1").returncode == 2
    gone = launcher.run("probe", E1, "--timeout-secs", "2")
    assert gone.returncode == 1 and E1 in gone.stderr


def test_the_page_of_options_is_what_the_program_prints(launcher):
    assert launcher.run("config", "docs").stdout == (ROOT / "docs/configuration.md").read_text()


def test_output_that_cannot_be_written_is_a_failure():
    for command in (["version"], ["--help"], ["config", "docs"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([binary_path(), *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
        assert done.returncode == 1
        assert done.stderr == "fairlead: the output could not be written\n"


def test_closed_standard_descriptors_do_not_become_sockets(mock_engine):
    engine = mock_engine()
    code = "import os, sys; os.closerange(0, 3); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, str(binary_path()), "serve", "--http-port", "0",
                                "--http-host", "127.0.0.1", "--direct", "--engine-url", engine.url])
    try:
        def standard():
            return [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)]

        wait_until(lambda: standard() == ["/dev/null"] * 3 and len(os.listdir(f"/proc/{process.pid}/fd")) > 6, 20,
                   "the frontend")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
