"""`fairlead demo`: what it prints works as pasted."""

import re
import socket
import subprocess
import sys

import pytest
from fairlead.waiting import scaled


@pytest.fixture
def demo(launcher):
    def start(*flags):
        process = launcher.start("demo", *flags)
        ready = process.ready()
        process.wait_log("Ctrl-C ends the demo")
        return process, ready

    return start


def test_the_printed_lines_work_as_pasted(demo):
    process, ready = demo("--http-port", "0")
    assert ready["model"] == "fairlead-demo"
    text = process.log_text()
    assert f"http://{ready['http']}" in text

    curl = re.search(r"^curl .*$", text, re.MULTILINE).group(0)
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=scaled(30), check=True)
    assert '"content":"Hello, how are you today?"' in done.stdout

    snippet = re.search(r"^from openai import.*?^print\(\)$", text, re.MULTILINE | re.DOTALL).group(0)
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=scaled(60),
                          check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Tell me a story about a ship.\n"
    # Pasted into the interactive interpreter as well, which needs a blank line behind a loop.
    done = subprocess.run([sys.executable, "-i", "-q"], input=snippet + "\n", capture_output=True, text=True,
                          timeout=scaled(60), check=False)
    assert "Error" not in done.stderr, done.stderr
    assert "Tell me a story about a ship." in done.stdout
    process.stop()


def test_a_taken_port_is_replaced_by_a_free_one(demo):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process, ready = demo("--http-port", str(port))
        assert not ready["http"].endswith(f":{port}")
        assert "in use" in process.log_text()
        process.stop()


def test_both_engines_answer(demo):
    import httpx

    process, ready = demo("--http-port", "0")
    url = f"http://{ready['http']}"
    workers = httpx.get(url + "/health", trust_env=False).json()["instances"]
    assert len(workers) == 2 and all(worker["healthy"] for worker in workers)
    for n in range(4):
        answer = httpx.post(url + "/v1/chat/completions", trust_env=False, timeout=scaled(30), json={
            "model": "fairlead-demo", "messages": [{"role": "user", "content": f"Number {n}."}]})
        assert answer.json()["choices"][0]["message"]["content"] == f"Number {n}."
    process.stop()
