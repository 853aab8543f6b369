"""A hub of models on the loopback, as the Hugging Face Hub answers, with faults on demand."""

import contextlib
import hashlib
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


def git_sum(data: bytes) -> str:
    """The ETag of an ordinary file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def lfs_sum(data: bytes) -> str:
    """The ETag of a file in LFS."""
    return hashlib.sha256(data).hexdigest()


@dataclass
class Repository:
    """One model at one commit."""

    commit: str
    files: dict[str, bytes]
    lfs: set[str] = field(default_factory=set)
    references: tuple[str, ...] = ("main",)
    token: str | None = None  # needed to see it
    listed: list[str] | None = None  # what the list says instead of the files' names

    def etag(self, name: str) -> str:
        return (lfs_sum if name in self.lfs else git_sum)(self.files[name])


@dataclass
class Request:
    """What somebody asked for."""

    method: str
    path: str
    headers: dict[str, str]

    def file(self) -> str | None:
        """The file that it concerns, at the hub itself."""
        found = re.fullmatch(r"/[^?]+?/resolve/[^/]+/(.+)", self.path)
        return unquote(found[1]) if found else None


class Answer:
    """What a fault may do with a request in place of the hub."""

    def __init__(self, handler: BaseHTTPRequestHandler, hub: "FakeHub"):
        self._handler = handler
        self.hub = hub
        self.headers = handler.headers

    def head(self, status: int, headers: dict[str, object], close: bool = False) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, str(value))
        if close:
            self._handler.close_connection = True
            self._handler.send_header("Connection", "close")
        self._handler.end_headers()

    def bytes(self, data: bytes) -> None:
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def error(self, status: int, code: str | None = None, **headers: object) -> None:
        self.head(status, {"Content-Length": 0, **({"X-Error-Code": code} if code else {}), **headers})

    def cut(self) -> None:
        """Ends the connection here."""
        self._handler.close_connection = True


Fault = Callable[[Answer], None]


class FakeHub:
    """Serves repositories; large files are behind redirections to a second server."""

    def __init__(self, certificate: Path | None = None, store: "FakeHub | None" = None):
        self.repositories: dict[str, list[Repository]] = {}
        self.store = store
        self.blobs: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.released = threading.Event()  # for faults that wait
        self._faults: dict[tuple[str, str], list[Fault]] = {}
        self._lock = threading.Lock()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer()

            def do_HEAD(self):
                self.answer()

            def answer(self):
                try:
                    hub._answer(self)
                except OSError:  # the client left
                    self.close_connection = True

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "FakeHub":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Refuses connections from here on."""
        self.released.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}"

    def add(self, name: str, repository: Repository) -> Repository:
        """Another commit of a model."""
        self.repositories.setdefault(name, []).append(repository)
        return repository

    def fault(self, method: str, what: str, *faults: Fault) -> None:
        """The next requests for a file, or for the `list`, are answered by these, one each."""
        self._faults.setdefault((method, what), []).extend(faults)

    def asked(self, method: str, file: str | None = None) -> list[Request]:
        """Requests so far for a file, or for any."""
        with self._lock:
            return [r for r in self.requests if r.method == method and (file is None or r.file() == file)]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        request = Request(handler.command, handler.path, {k.lower(): v for k, v in handler.headers.items()})
        with self._lock:
            self.requests.append(request)
            what = request.file() or ("list" if "/revision/" in request.path else request.path)
            waiting = self._faults.get((request.method, what))
            fault = waiting.pop(0) if waiting else None
        answer = Answer(handler, self)
        if fault:
            fault(answer)
        else:
            self.normal(answer, request)

    def _find(self, name: str, revision: str) -> Repository | None:
        return next((r for r in reversed(self.repositories.get(name, []))
                     if revision == r.commit or revision in r.references), None)

    def normal(self, answer: Answer, request: Request) -> None:
        """As the real hub answers."""
        path = urlsplit(request.path).path
        if path.startswith("/blob/"):
            return self.send(answer, request, self.blobs[path.removeprefix("/blob/")], {})
        api = re.fullmatch(r"/api/models/(.+?)/(revision|tree)/(.+)", path)
        file = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        found = api and (api[1], api[3]) or file and (file[1], file[2])
        if not found or found[0] not in self.repositories:
            return answer.error(*((404, "RepoNotFound") if "authorization" in request.headers else (401, "RepoNotFound")))
        repository = self._find(found[0], unquote(found[1]))
        if repository is None:
            return answer.error(404, "RevisionNotFound")
        if repository.token and request.headers.get("authorization") != f"Bearer {repository.token}":
            return answer.error(401, "GatedRepo")
        if file:
            return self._file(answer, request, repository, unquote(file[3]))
        entries = [self._entry(repository, name) for name in repository.files]
        if api[2] == "tree":
            return self._json(answer, entries)
        names = repository.listed if repository.listed is not None else list(repository.files)
        return self._json(answer, {"id": found[0], "sha": repository.commit,
                                   "siblings": [{"rfilename": name} for name in names]})

    @staticmethod
    def _entry(repository: Repository, name: str) -> dict:
        data = repository.files[name]
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_sum(data)}
        if name in repository.lfs:
            entry["lfs"] = {"oid": lfs_sum(data), "size": len(data), "pointerSize": 130}
        return entry

    @staticmethod
    def _json(answer: Answer, document) -> None:
        data = json.dumps(document).encode()
        answer.head(200, {"Content-Type": "application/json", "Content-Length": len(data)})
        answer.bytes(data)

    def _file(self, answer: Answer, request: Request, repository: Repository, name: str) -> None:
        if name not in repository.files:
            return answer.error(404, "EntryNotFound")
        data, etag = repository.files[name], repository.etag(name)
        common = {"X-Repo-Commit": repository.commit}
        if name in repository.lfs:
            self.store.blobs[etag] = data
            return answer.head(302, {**common, "Location": f"{self.store.url}/blob/{etag}", "Content-Length": 0,
                                     "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": len(data)})
        return self.send(answer, request, data, {**common, "ETag": f'"{etag}"'})

    @staticmethod
    def send(answer: Answer, request: Request, data: bytes, headers: dict[str, object]) -> None:
        """The bytes, or the range of them that is asked for."""
        wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        start = int(wanted[1]) if wanted else 0
        if wanted and start >= len(data):
            return answer.error(416, **{"Content-Range": f"bytes */{len(data)}"})
        if wanted:
            headers = {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        answer.head(206 if wanted else 200, {**headers, "Content-Length": len(data) - start})
        if request.method == "GET":
            answer.bytes(data[start:])


def make_certificate(folder: Path) -> Path:
    """A key and a self-signed certificate of 127.0.0.1 in one file; it is its own authority."""
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=fake hub",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@contextlib.contextmanager
def fake_hub(certificate: Path | None = None):
    """A hub with its store of large files."""
    with FakeHub(certificate) as store, FakeHub(certificate, store) as hub:
        yield hub
