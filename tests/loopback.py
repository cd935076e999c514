"""A web server on this machine for the tests of what is fetched: files, ranges, failures."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from ownwords.base.downloads import Downloads

# As they are before a test is cut off from the network.
_CONNECT, _ASK = socket.socket.connect, socket.getaddrinfo
_HERE = "127.0.0.1"


@dataclass
class File:
    """What stands at a path; the lists hold one entry for each of the first requests."""

    data: bytes = b""
    etag: str = '"one"'
    takes_ranges: bool = True
    minds_versions: bool = True  # whether If-Range is obeyed
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # before the file
    breaks_after: list[int] = field(default_factory=list)  # bytes of the body
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True)
class Asked:
    """A request that was made."""

    path: str  # with its query
    headers: dict[str, str]
    status: int


class Server:
    """Files by path, and what was asked for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, File] = {}
        self.asked: list[Asked] = []

    def put(self, path: str, data: bytes | str = b"", **how: object) -> File:
        file = File(data.encode() if isinstance(data, str) else data, **how)  # type: ignore[arg-type]
        self.files[path] = file
        return file

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    def forget(self) -> None:
        self.asked.clear()


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server, and this test allowed to speak with it, and with nobody else."""

    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        assert address[0] == _HERE, f"the tests run offline, but for {_HERE}"
        _CONNECT(self, address)

    def ask(host: str, *more: object, **named: object) -> object:
        assert host == _HERE, f"the tests run offline, but for {_HERE}"
        return _ASK(host, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", ask)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    httpd = ThreadingHTTPServer((_HERE, 0), _Handler)
    httpd.daemon_threads = False  # waited for when it is closed
    server = Server(f"http://{_HERE}:{httpd.server_address[1]}")
    httpd.known = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def downloads(
    clock: Clock, *, between_s: float = 0.0, headers: dict[str, str] | None = None
) -> Downloads:
    return Downloads(sleep=clock.sleep, clock=clock, between_s=between_s, headers=headers)


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        server: Server = self.server.known  # type: ignore[attr-defined]
        path = unquote(self.path)
        file = server.files.get(path) or File(status=404)
        if file.answers:
            status, headers = file.answers.pop(0)
            self._answer(server, path, status, headers, b"", 0)
            return
        if file.status != 200:
            self._answer(server, path, file.status, file.headers, b"", 0)
            return
        headers = {"ETag": file.etag} if file.etag else {}
        begin, status = self._begin(file), 200
        if begin:
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{len(file.data) - 1}/{len(file.data)}"
        body = file.data[begin:]
        if begin >= len(file.data) > 0 and begin:
            status, body = 416, b""
            headers["Content-Range"] = f"bytes */{len(file.data)}"
        upto = file.breaks_after.pop(0) if file.breaks_after else len(body)
        self._answer(server, path, status, headers | file.headers, body[:upto], len(body))

    def _begin(self, file: File) -> int:
        """Where a request wants the file to begin, if it is still the file that was meant."""
        wanted = self.headers.get("Range", "")
        meant = self.headers.get("If-Range", file.etag) if file.minds_versions else file.etag
        if not wanted or not file.takes_ranges or meant != file.etag:
            return 0
        return int(wanted.removeprefix("bytes=").removesuffix("-"))

    def _answer(
        self,
        server: Server,
        path: str,
        status: int,
        headers: dict[str, str],
        body: bytes,
        length: int,
    ) -> None:
        server.asked.append(Asked(path, dict(self.headers), status))
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
