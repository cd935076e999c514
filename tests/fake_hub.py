"""A web server on this machine that serves what huggingface_hub asks for, and plain files."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from this_machine import HERE, reachable

NAME = "someone/tiny-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class ServedFile:
    """The content at a path; `breaks_after` gives a number of bytes for each of the first GETs."""

    data: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    breaks_after: list[int] = field(default_factory=list)


class FakeServer:
    """Files by path, and the requests made: method, path, headers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, ServedFile] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    def put(self, path: str, data: bytes | str = b"", status: int = 200) -> ServedFile:
        content = data.encode() if isinstance(data, str) else data
        self.files[path] = ServedFile(content, status)
        return self.files[path]

    def publish(self, folder: Path, commit: str = COMMIT) -> None:
        """Serve a folder as the newest commit of the model, as huggingface.co does."""
        siblings, tree = [], []
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            data, name = path.read_bytes(), path.relative_to(folder).as_posix()
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry: dict[str, object] = {"size": len(data)}
            etag = git
            if name.endswith((".safetensors", ".bin")):
                etag = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"sha256": etag, "oid": etag, "size": len(data), "pointerSize": 134}
            siblings.append({"rfilename": name, "blobId": git, **entry})
            tree.append({"type": "file", "path": name, "oid": git, **entry})
            file = self.put(f"/{NAME}/resolve/{commit}/{name}", data)
            file.headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        info = {"id": NAME, "sha": commit, "siblings": siblings}
        self.put(f"/api/models/{NAME}", json.dumps(info))
        self.put(f"/api/models/{NAME}/revision/{commit}", json.dumps(info))
        self.put(f"/api/models/{NAME}/tree/{commit}", json.dumps(tree))

    def weights(self, commit: str = COMMIT) -> ServedFile:
        return self.files[f"/{NAME}/resolve/{commit}/model.safetensors"]

    def downloaded(self) -> set[str]:
        """The names of the model's files that were requested."""
        paths = (path for method, path, _ in self.requests if method == "GET")
        return {path.rpartition("/")[2] for path in paths if "/resolve/" in path}


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A server; the test may connect to it alone."""
    httpd = ThreadingHTTPServer((HERE, 0), _Handler)
    server = FakeServer(f"http://{HERE}:{httpd.server_address[1]}")
    httpd.fake_server = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with reachable(monkeypatch):
            yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        server: FakeServer = self.server.fake_server  # type: ignore[attr-defined]
        path = unquote(self.path)
        file = server.files.get(path) or server.files.get(urlsplit(path).path)
        file = file or ServedFile(status=404)
        server.requests.append((method, path, dict(self.headers)))
        begin = 0
        if requested := self.headers.get("Range", ""):
            begin = int(requested.removeprefix("bytes=").split("-")[0])
        body = file.data[begin:]
        self.send_response(206 if begin and file.status == 200 else file.status)
        if begin:
            end = len(file.data)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{end}")
        self.send_header("Content-Length", str(len(body)))
        for name, value in file.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if method == "GET":
            sent = file.breaks_after.pop(0) if file.breaks_after else len(body)
            self.wfile.write(body[:sent])
