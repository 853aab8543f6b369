"""Models named by the hub's names: found in the Hugging Face cache, or downloaded from a fake hub."""

import hashlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest
from fairlead.fake_hub import Repository, fake_hub, git_sum, make_certificate
from fairlead.launcher import ROOT
from fairlead.process import child_environment
from fairlead.waiting import scaled, wait_until

DEMO = ROOT / "share/demo"
NAME = "org/name"
COMMIT, SECOND = "1" * 40, "2" * 40
TEXT = {name: (DEMO / name).read_bytes() for name in os.listdir(DEMO) if name.endswith((".json", ".jinja"))}
LARGE = "tokenizer.json"
WEIGHTS = {"model.safetensors": b"w" * 1000, "pytorch_model.bin": b"w", "README.md": b"read", "onnx/config.json": b"{}"}
LINE = json.dumps({"text": "Hello"}) + "\n"


@pytest.fixture
def hub():
    with fake_hub() as started:
        started.add(NAME, Repository(COMMIT, {**TEXT, **WEIGHTS}, lfs={LARGE, "model.safetensors"}))
        yield started


@pytest.fixture
def env(tmp_path, hub):
    """The variables of a user without any, but for the endpoint and a cache of his own."""
    return clean_environment(tmp_path, hub.url)


def clean_environment(tmp_path, endpoint, **more):
    unset = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
             "TRANSFORMERS_OFFLINE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
             "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_DISABLE_IMPLICIT_TOKEN")
    return {**dict.fromkeys(unset, ""), "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf"),
            "HF_ENDPOINT": endpoint, **more}


@pytest.fixture
def model(tmp_path):
    """The model's folder in the cache."""
    return tmp_path / "hf/hub/models--org--name"


@pytest.fixture
def tokenize(launcher, env):
    """Runs `fairlead tokenize` with a model by name."""
    def run(name=NAME, **more):
        return launcher.run("tokenize", "--model", name, stdin=LINE, env={**env, **more}, timeout=60)
    return run


def expect_done(done):
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ids"]


def expect_refusal(done, *parts):
    """One clear line, wrong usage."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("fairlead tokenize: "), done.stderr
    for part in parts:
        assert part in last
    assert done.stdout == ""


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if not path.is_dir())


def python(code, env):
    """Runs code that uses the real `huggingface_hub`; what it prints as JSON."""
    plain = {name: value for name, value in child_environment(env).items() if value != ""}
    done = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True, timeout=scaled(120))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def stall(count):
    """Sends so many bytes of the tokenizer and then nothing, until the hub is released."""
    def fault(answer):
        data = TEXT[LARGE]
        answer.head(200, {"Content-Length": len(data)})
        answer.bytes(data[:count])
        answer.hub.released.wait(scaled(60))
        answer.cut()
    return fault


def cut(count):
    """Breaks the connection after so many bytes of the tokenizer."""
    def fault(answer):
        start = int(answer.headers.get("Range", "bytes=0-")[6:-1])
        data = TEXT[LARGE]
        ranged = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        answer.head(206 if start else 200, {"Content-Length": len(data) - start, **ranged})
        answer.bytes(data[start:start + count])
        answer.cut()
    return fault


def drip(answer):
    """Sends the tokenizer a byte at a time until the hub is released."""
    data = TEXT[LARGE]
    answer.head(200, {"Content-Length": len(data)})
    sent = 0
    while sent < len(data) // 2 and not answer.hub.released.wait(0.01):
        answer.bytes(data[sent:sent + 1])
        sent += 1
    answer.bytes(data[sent:])


def instead(data, headers=None):
    """Other bytes than the tokenizer's."""
    def fault(answer):
        answer.head(200, {"Content-Length": len(data), **(headers or {})})
        answer.bytes(data)
    return fault


def status(code, name=None, **headers):
    return lambda answer: answer.error(code, name, **headers)


def blob_path(hub):
    """Where the store has the tokenizer."""
    return f"/blob/{hashlib.sha256(TEXT[LARGE]).hexdigest()}"


# Downloads.

def test_a_model_is_downloaded_once_without_weights(tokenize, hub, model):
    done = tokenize()
    expect_done(done)
    assert f"downloading {len(TEXT)} files" in done.stderr and "downloaded `org/name`" in done.stderr
    assert files_below(model / "snapshots" / COMMIT) == sorted(TEXT)
    for name, data in TEXT.items():
        link = model / "snapshots" / COMMIT / name
        etag = hashlib.sha256(data).hexdigest() if name == LARGE else git_sum(data)
        assert os.readlink(link) == f"../../blobs/{etag}" and link.read_bytes() == data
    assert len(files_below(model / "blobs")) == len(set(TEXT.values()))
    assert (model / "refs/main").read_text() == COMMIT
    assert {request.file() for request in hub.asked("GET")} == {None, *TEXT}
    before = len(hub.requests)
    again = tokenize()
    expect_done(again)
    assert again.stdout == done.stdout and again.stderr == "" and len(hub.requests) == before


def test_the_frontend_serves_a_downloaded_model(serve, mock_engine, env, model):
    server = serve([mock_engine(model="demo")], model_path=NAME, env=env)
    answer = server.client().chat.completions.create(model="demo", messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
    assert answer.usage.completion_tokens == 4
    server.process.wait_log("downloaded `org/name`")
    assert (model / "refs/main").read_text() == COMMIT


def test_a_model_named_for_one_engine_is_downloaded_before_serving(serve, mock_engine, env, hub):
    server = serve([mock_engine(model="demo")], model_path=f"demo={NAME}", env=env)
    assert server.client().completions.create(model="demo", prompt="Hi", max_tokens=2).choices
    assert hub.asked("GET", LARGE)


def test_render_finds_models_the_same_way(launcher, env, hub):
    line = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}) + "\n"
    done = launcher.run("render", "--model", NAME, stdin=line, env=env)
    assert done.returncode == 0 and "Hi" in json.loads(done.stdout)["prompt"], done.stderr
    assert hub.asked("GET", LARGE)
    gone = launcher.run("render", "--model", "org/absent", stdin=line, env=env)
    assert gone.returncode == 2 and "fairlead render: cannot download `org/absent`" in gone.stderr


def test_a_folder_of_that_name_wins(launcher, env, hub, tmp_path, monkeypatch):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/name").symlink_to(DEMO)
    monkeypatch.chdir(tmp_path)
    expect_done(launcher.run("tokenize", "--model", NAME, stdin=LINE, env=env))
    expect_done(launcher.run("tokenize", "--model", DEMO / LARGE, stdin=LINE, env=env))
    assert not hub.requests


@pytest.mark.parametrize("revision", ["v1.0", "refs/pr/1", SECOND])
def test_a_revision_is_named_behind_an_at_sign(tokenize, hub, model, revision):
    other = {**TEXT, "config.json": b'{"vocab_size": 7}'}
    hub.add(NAME, Repository(SECOND, other, references=("v1.0", "refs/pr/1")))
    expect_done(tokenize(f"{NAME}@{revision}"))
    assert (model / "snapshots" / SECOND / "config.json").read_bytes() == other["config.json"]
    assert files_below(model / "refs") == ([] if revision == SECOND else [revision])
    before = len(hub.requests)
    expect_done(tokenize(f"{NAME}@{revision}"))
    assert len(hub.requests) == before
    expect_done(tokenize())  # the only snapshot so far is not the main one's; some blobs are the same
    assert len(hub.requests) > before and (model / "refs/main").read_text() == COMMIT


def test_templates_in_their_folder_are_fetched(tokenize, hub, model):
    more = {**TEXT, "additional_chat_templates/rag.jinja": b"x"}
    hub.add(NAME, Repository(SECOND, more))
    expect_done(tokenize())
    link = model / "snapshots" / SECOND / "additional_chat_templates/rag.jinja"
    assert link.read_bytes() == b"x" and os.readlink(link).startswith("../../../blobs/")


# The same cache as Python's tools.

def test_python_finds_what_was_downloaded(tokenize, env, model):
    expect_done(tokenize())
    found = python(f"""
import json
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache
files = [hf_hub_download({NAME!r}, name, local_files_only=True) for name in {sorted(TEXT)!r}]
folder = snapshot_download({NAME!r}, local_files_only=True, allow_patterns=["*.json", "*.jinja"])
scan = scan_cache_dir()
absent = try_to_load_from_cache({NAME!r}, "nothing.json")
print(json.dumps([files, folder, [str(w) for w in scan.warnings], [r.repo_id for r in scan.repos], absent]))
""", {**env, "HF_HUB_OFFLINE": "1"})
    snapshot = model / "snapshots" / COMMIT
    assert found == [[str(snapshot / name) for name in sorted(TEXT)], str(snapshot), [], [NAME], None]


def test_what_python_downloaded_is_used_without_network(tokenize, env, hub, model):
    folder = python(f"""
import json
from huggingface_hub import snapshot_download
print(json.dumps(snapshot_download({NAME!r}, allow_patterns=["*.json", "*.jinja"])))
""", {**env, "HF_HUB_DISABLE_XET": "1"})
    assert folder == str(model / "snapshots" / COMMIT)
    before = len(hub.requests)
    done = tokenize()
    expect_done(done)
    assert len(hub.requests) == before and done.stderr == ""


def test_what_python_downloaded_in_part_is_completed(tokenize, env, hub, model):
    python(f"""
import json
from huggingface_hub import hf_hub_download
print(json.dumps(hf_hub_download({NAME!r}, {LARGE!r})))
""", {**env, "HF_HUB_DISABLE_XET": "1"})
    assert files_below(model / "snapshots" / COMMIT) == [LARGE]
    before = len(hub.asked("GET", LARGE))
    expect_done(tokenize())
    assert files_below(model / "snapshots" / COMMIT) == sorted(TEXT)
    assert len(hub.asked("GET", LARGE)) == before


def test_a_part_is_used_when_the_hub_is_gone(tokenize, hub, model):
    snapshot = model / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / LARGE).write_bytes(TEXT[LARGE])
    hub.close()
    done = tokenize()
    expect_done(done)
    assert "using what" in done.stderr and "cannot download `org/name`" in done.stderr


# Broken connections and wrong bytes.

def test_a_broken_connection_is_resumed(tokenize, hub, model):
    hub.store.fault("GET", blob_path(hub), cut(1000), cut(2000))
    done = tokenize()
    expect_done(done)
    ranges = [r.headers.get("range") for r in hub.store.asked("GET")]
    assert ranges == [None, "bytes=1000-", "bytes=3000-"]
    assert "trying again" in done.stderr


def test_progress_is_told_now_and_then(launcher, env, hub):
    hub.store.fault("GET", blob_path(hub), drip)
    begin = time.monotonic()
    process = launcher.start("tokenize", "--model", NAME, env=env)
    process.wait_log("downloading `org/name`: tokenizer.json, 0.0 of [0-9.]+ MiB", timeout=20)
    hub.store.released.set()
    assert process.wait_exit(30) == 0
    assert process.log_text().count("tokenizer.json, ") <= (time.monotonic() - begin) / 3


def test_another_process_resumes(launcher, tokenize, env, hub, model):
    hub.store.fault("GET", blob_path(hub), stall(5000))
    first = launcher.start("tokenize", "--model", NAME, env=env)
    part = model / "blobs" / f"{hashlib.sha256(TEXT[LARGE]).hexdigest()}.incomplete"
    wait_until(lambda: part.stat().st_size == 5000)
    first.kill()
    expect_done(tokenize())
    assert [r.headers.get("range") for r in hub.store.asked("GET")] == [None, "bytes=5000-"]
    assert not part.exists()


def test_wrong_remains_of_an_earlier_download_are_dropped(tokenize, hub, model):
    part = model / "blobs" / f"{hashlib.sha256(TEXT[LARGE]).hexdigest()}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 100)
    expect_done(tokenize())
    assert [r.headers.get("range") for r in hub.store.asked("GET")] == ["bytes=100-", None]
    assert (model / "snapshots" / COMMIT / LARGE).read_bytes() == TEXT[LARGE]


def test_remains_that_are_too_long_are_dropped(tokenize, hub, model):
    part = model / "blobs" / f"{hashlib.sha256(TEXT[LARGE]).hexdigest()}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(TEXT[LARGE] + b"x")
    expect_done(tokenize())
    assert [r.headers.get("range") for r in hub.store.asked("GET")] == [None]


def test_a_server_that_ignores_ranges_is_read_from_the_start(tokenize, hub, model):
    hub.store.fault("GET", blob_path(hub), cut(1000), instead(TEXT[LARGE]))
    expect_done(tokenize())
    assert (model / "snapshots" / COMMIT / LARGE).read_bytes() == TEXT[LARGE]


def test_wrong_bytes_are_never_published(tokenize, hub, model):
    wrong = b"x" + TEXT[LARGE][1:]
    hub.store.fault("GET", blob_path(hub), *[instead(wrong)] * 2)
    expect_refusal(tokenize(), f"cannot download {LARGE} of `org/name`", "checksum")
    etag = hashlib.sha256(TEXT[LARGE]).hexdigest()
    assert not (model / "blobs" / etag).exists() and not (model / "refs/main").exists()
    expect_done(tokenize())


def test_bytes_that_were_wrong_once_are_fetched_again(tokenize, hub):
    hub.store.fault("GET", blob_path(hub), instead(b"x" + TEXT[LARGE][1:]))
    expect_done(tokenize())


def test_wrong_bytes_of_an_ordinary_file_are_noticed(tokenize, hub):
    hub.fault("GET", "config.json", *[instead(b"y" * len(TEXT["config.json"]))] * 2)
    expect_refusal(tokenize(), "config.json", "checksum", git_sum(TEXT["config.json"]))


def test_another_size_than_announced_is_refused(tokenize, hub):
    hub.store.fault("GET", blob_path(hub), instead(b"short"))
    expect_refusal(tokenize(), LARGE, f"the hub says {len(TEXT[LARGE])} bytes and sends 5")


def test_an_endless_body_is_cut_at_the_announced_size(tokenize, hub):
    def endless(answer):
        answer.head(200, {}, close=True)
        while True:
            answer.bytes(b"x" * 65536)
    hub.store.fault("GET", blob_path(hub), endless)
    expect_refusal(tokenize(), LARGE, f"longer than {len(TEXT[LARGE])} bytes")


def test_a_file_that_is_too_large_is_refused_unread(tokenize, hub):
    hub.fault("HEAD", LARGE, lambda answer: answer.error(
        302, None, Location="/x", **{"X-Linked-Etag": '"' + "3" * 64 + '"', "X-Linked-Size": 10**12}))
    hub.fault("HEAD", "/x", lambda answer: answer.head(200, {"Content-Length": 0}))
    expect_refusal(tokenize(), LARGE, "which no such file has")
    assert not hub.asked("GET", LARGE)


def test_an_endless_list_is_refused(tokenize, hub):
    def endless(answer):
        answer.head(200, {}, close=True)
        while True:
            answer.bytes(b"[" * 65536)
    hub.fault("GET", "list", endless)
    expect_refusal(tokenize(), "the list of its files is too long")


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"sha": "../../x", "siblings": []}', b'{"sha": "' + b"1" * 40 + b'"}'])
def test_an_answer_that_is_no_list_is_refused(tokenize, hub, body):
    hub.fault("GET", "list", instead(body))
    expect_refusal(tokenize(), "no list of a model's files")


def test_a_checksum_that_is_none_is_refused(tokenize, hub, model):
    hub.fault("HEAD", "config.json", lambda answer: answer.head(200, {"ETag": '"../../evil"', "Content-Length": 0}))
    expect_refusal(tokenize(), "config.json", "no checksum")


def test_hostile_names_are_left_alone(tokenize, hub, model, tmp_path):
    hub.repositories[NAME][0].listed = [
        "../tokenizer.json", "/etc/tokenizer.model", "..\\..\\x.model", "tokenizer.json\0.model", "a/../../x.model",
        "additional_chat_templates/../../../x.jinja", "x" * 5000 + ".model", "\u202exedoc.model", "", ".", "..", *TEXT]
    expect_done(tokenize())
    assert files_below(model / "snapshots") == sorted(f"{COMMIT}/{name}" for name in TEXT)
    assert {request.file() for request in hub.asked("HEAD")} == set(TEXT)


def test_a_model_without_text_side_is_refused(tokenize, hub):
    hub.add("org/weights", Repository(SECOND, WEIGHTS))
    expect_refusal(tokenize("org/weights"), "neither tokenizer nor configuration")


# What the hub refuses.

@pytest.mark.parametrize("token", ["", "hf_x"])
@pytest.mark.parametrize(("answer", "without", "with_token"), [
    ((401, "RepoNotFound"), "set HF_TOKEN", "or the token (HF_TOKEN) is not valid"),
    ((401, "GatedRepo"), "gated: accept its terms at", "the token (HF_TOKEN) has no access"),
    ((403, None), "forbidden (403); set HF_TOKEN", "also with the token"),
    ((404, "RepoNotFound"), "no such model (404)", "no such model (404)"),
    ((404, "RevisionNotFound"), "no revision `main`", "no revision `main`"),
    ((418, None), "status 418", "status 418"),
])
def test_refusals_are_explained(tokenize, hub, token, answer, without, with_token):
    hub.fault("GET", "list", status(*answer))
    expect_refusal(tokenize(HF_TOKEN=token), f"cannot download `org/name` from {hub.url}", with_token if token else without)
    assert len(hub.requests) == 1


def test_the_frontend_does_not_start_without_its_model(launcher, env):
    done = launcher.run("serve", "--direct", "--engine-url", "http://127.0.0.1:9", "--http-port", "0",
                        "--model-path", "org/absent", env=env)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("fairlead serve: --model-path: cannot download `org/absent` from")


def test_faults_that_pass_are_waited_for(tokenize, hub):
    hub.fault("GET", "list", status(500), status(503))
    hub.fault("HEAD", LARGE, status(502))
    hub.fault("GET", LARGE, status(429, **{"Retry-After": "0"}))
    done = tokenize()
    expect_done(done)
    assert "status 503; trying again" in done.stderr


def test_faults_that_stay_are_given_up(tokenize, hub):
    hub.fault("GET", "list", *[status(503)] * 100)
    expect_refusal(tokenize(), "the answer is status 503")
    assert len(hub.requests) == 5


def test_a_hub_that_does_not_listen_is_said(tokenize):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        expect_refusal(tokenize(HF_ENDPOINT=address), f"from {address}: ", "connect")


def test_a_silent_hub_is_given_up(tokenize, hub):
    hub.fault("GET", "list", *[lambda answer: answer.hub.released.wait(scaled(60))] * 5)
    expect_refusal(tokenize(HF_HUB_DOWNLOAD_TIMEOUT="1"), "too slow")


def test_offline_nothing_is_asked(tokenize, hub, model):
    expect_refusal(tokenize(HF_HUB_OFFLINE="1"), "neither a folder nor in the Hugging Face cache", "HF_HUB_OFFLINE forbids")
    assert not hub.requests
    expect_done(tokenize())
    before = len(hub.requests)
    expect_done(tokenize(HF_HUB_OFFLINE="1"))
    expect_refusal(tokenize(f"{NAME}@v9", HF_HUB_OFFLINE="1"), "refs/v9 names no snapshot")
    assert len(hub.requests) == before


def test_a_full_disk_is_said(launcher, env):
    """A limit of the process on the size of files stands for it."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    done = subprocess.run([launcher.binary, "tokenize", "--model", NAME], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env=child_environment(env), preexec_fn=limit, timeout=scaled(30))
    assert done.returncode == 2 and "File too large" in done.stderr.splitlines()[-1], done.stderr


def test_a_cache_that_cannot_be_written_is_said(tokenize, tmp_path):
    (tmp_path / "file").write_text("")
    expect_refusal(tokenize(HF_HUB_CACHE=str(tmp_path / "file/hub")), "the Hugging Face cache: cannot make")


# Tokens, redirections, encryption.

def test_only_the_hub_sees_the_token(tokenize, hub):
    hub.repositories[NAME][0].token = "hf_secret"
    expect_refusal(tokenize(), "gated")
    hub.requests.clear()
    expect_done(tokenize(HF_TOKEN="hf_secret"))
    assert {r.headers.get("authorization") for r in hub.requests} == {"Bearer hf_secret"}
    assert hub.store.requests and all("authorization" not in r.headers for r in hub.store.requests)


def test_the_token_may_be_in_a_file(tokenize, hub, tmp_path):
    hub.repositories[NAME][0].token = "hf_secret"
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text("hf_secret\n")
    expect_done(tokenize())


def test_redirections_of_the_hub_itself_are_followed_with_the_token(tokenize, hub):
    hub.repositories[NAME][0].token = "hf_secret"
    hub.add("org/renamed", hub.repositories[NAME][0])
    moved = status(307, None, Location=f"/org/renamed/resolve/{COMMIT}/config.json")
    hub.fault("HEAD", "config.json", moved)
    hub.fault("GET", "config.json", moved)
    expect_done(tokenize(HF_TOKEN="hf_secret"))
    assert len(hub.asked("GET", "config.json")) == 2


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"])
def test_redirections_to_other_protocols_are_refused(tokenize, hub, location):
    hub.fault("GET", LARGE, status(302, None, Location=location))
    expect_refusal(tokenize(), LARGE, "no URL that may be followed")


def test_redirections_in_a_circle_end(tokenize, hub):
    hub.fault("GET", LARGE, *[status(302, None, Location=f"/{NAME}/resolve/{COMMIT}/{LARGE}")] * 100)
    expect_refusal(tokenize(), "too many redirections")


def test_an_encrypted_hub_is_trusted_by_its_authority_only(launcher, tmp_path):
    certificate = make_certificate(tmp_path)
    with fake_hub(certificate) as hub:
        hub.add(NAME, Repository(COMMIT, TEXT, lfs={LARGE}))
        env = clean_environment(tmp_path, hub.url)
        expect_refusal(launcher.run("tokenize", "--model", NAME, stdin=LINE, env=env), "certificate")
        assert not hub.requests
        plain = status(302, None, Location=f"http://127.0.0.1/{NAME}")
        hub.fault("GET", "list", plain)
        trusting = {**env, "SSL_CERT_FILE": str(tmp_path / "certificate.pem")}
        expect_refusal(launcher.run("tokenize", "--model", NAME, stdin=LINE, env=trusting), "no URL that may be followed")
        expect_done(launcher.run("tokenize", "--model", NAME, stdin=LINE, env=trusting))
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        with fake_hub(certificate) as hub:
            hub.add(NAME, Repository(COMMIT, TEXT, lfs={LARGE}))
            (tmp_path / variable).mkdir()
            env = clean_environment(tmp_path / variable, hub.url, **{variable: str(tmp_path / "certificate.pem")})
            expect_done(launcher.run("tokenize", "--model", NAME, stdin=LINE, env=env))


# Several processes and signals.

def test_two_processes_download_once(launcher, env, hub):
    hub.store.fault("GET", blob_path(hub), lambda answer: (
        answer.hub.released.wait(scaled(60)), instead(TEXT[LARGE])(answer)))
    both = [launcher.start("tokenize", "--model", NAME, env=env) for _ in range(2)]
    wait_until(lambda: any("another process downloads" in p.log_text() for p in both), timeout=20)
    hub.store.released.set()
    assert [p.wait_exit(30) for p in both] == [0, 0], [p.log_tail() for p in both]
    for name in TEXT:
        assert len(hub.asked("GET", name)) == 1, name
    assert len(hub.store.asked("GET")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_download_at_once(launcher, env, hub, number):
    hub.store.fault("GET", blob_path(hub), stall(5000))
    process = launcher.start("serve", "--direct", "--engine-url", "http://127.0.0.1:9", "--http-port", "0",
                             "--model-path", NAME, env=env)
    wait_until(lambda: hub.store.asked("GET"), timeout=20)
    process.signal(number)
    assert process.wait_exit(2) == 0
    assert process.stdout_lines() == []


def test_a_lock_of_python_is_respected(launcher, env, hub, tmp_path):
    """Python's `filelock`, which huggingface_hub uses, and ours exclude each other."""
    lock = tmp_path / "hf/hub/.locks/models--org--name" / f"{hashlib.sha256(TEXT[LARGE]).hexdigest()}.lock"
    lock.parent.mkdir(parents=True)
    with filelock.FileLock(lock):
        process = launcher.start("tokenize", "--model", NAME, env=env)
        process.wait_log("another process downloads tokenizer.json")
        assert not hub.store.asked("GET")
    assert process.wait_exit(30) == 0
    assert len(hub.store.asked("GET")) == 1


# Models that engines and cards name.

def test_cards_may_name_models_of_the_hub(launcher, mock_engine, env, hub, tmp_path):
    folder = tmp_path / "cards"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"url": mock_engine(model="demo").url, "source_path": NAME}))
    server = launcher.serve([], "--discovery-backend", "file", "--discovery-dir", folder, env=env)
    server.wait_model("demo")
    wait_until(lambda: server.client().completions.create(model="demo", prompt="Hi", max_tokens=2).choices)
    assert hub.asked("GET", LARGE)


def test_a_stop_ends_a_download_in_the_background(launcher, mock_engine, env, hub, tmp_path):
    hub.store.fault("GET", blob_path(hub), stall(5000))
    folder = tmp_path / "cards"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"url": mock_engine(model="demo").url, "source_path": NAME}))
    server = launcher.serve([], "--discovery-backend", "file", "--discovery-dir", folder, env=env)
    wait_until(lambda: hub.store.asked("GET"), timeout=20)
    server.stop()
    assert "some threads do not end" not in server.process.log_text()


def test_an_engines_word_starts_no_download(serve, mock_engine, env, hub):
    server = serve([mock_engine(model=NAME)], env=env, wait_models=False)
    line = server.process.wait_log("cannot be loaded: no model `org/name`")
    assert "--model-path" in line.string
    assert not hub.requests
