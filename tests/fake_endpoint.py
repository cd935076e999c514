"""A fake OpenAI-compatible endpoint on this machine, well-behaved or not."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from this_machine import HERE, reachable


@dataclass
class FakeEndpoint:
    """Its behaviour. `replies` are sent in turn, the last one repeatedly.

    A reply is the text of an answer, a status with a JSON body, or a function of the handler that
    does as it likes.
    """

    port: int = 0
    models: Sequence[dict[str, Any]] = ({"id": "writer", "object": "model"},)
    replies: list[Any] = field(default_factory=lambda: ["Nothing."])
    usage: dict[str, int] | None = None
    finish: str | None = "stop"
    pieces: int = 7  # characters of each
    paths: dict[str, Any] = field(default_factory=dict)  # further ones, and what stands there
    wants_key: str = ""
    requests: list[tuple[str, str, dict[str, Any], dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{HERE}:{self.port}/v1"

    def bodies(self, path: str = "/v1/chat/completions") -> list[dict[str, Any]]:
        return [body for _, requested, body, _ in self.requests if requested == path]

    def prompts(self) -> list[str]:
        """All prompts that were sent."""
        return ["\n\n".join(m["content"] for m in body["messages"]) for body in self.bodies()]


@contextmanager
def fake_endpoint(monkeypatch: pytest.MonkeyPatch, **behaviour: Any) -> Iterator[FakeEndpoint]:  # noqa: ANN401
    """A running endpoint with the given behaviour."""
    endpoint = FakeEndpoint(**behaviour)
    httpd = ThreadingHTTPServer((HERE, 0), _Handler)
    httpd.daemon_threads = True  # one that plays a slow one need not be waited for
    httpd.block_on_close = False
    httpd.endpoint = endpoint  # type: ignore[attr-defined]
    endpoint.port = httpd.server_address[1]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with reachable(monkeypatch):
            yield endpoint
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def breaks_off(after: str) -> Callable[["_Handler"], None]:
    """Sends some text and disconnects."""

    def reply(handler: "_Handler") -> None:
        handler.begin("text/event-stream")
        handler.wfile.write(chunk(after))
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    return reply


def drips(seconds: float, text: str = "a ") -> Callable[["_Handler"], None]:
    """Sends a little at a time, without end."""

    def reply(handler: "_Handler") -> None:
        handler.begin("text/event-stream")
        with suppress(OSError):
            while True:
                handler.wfile.write(chunk(text))
                handler.wfile.flush()
                time.sleep(seconds)

    return reply


def is_silent(handler: "_Handler") -> None:
    """Sends nothing until the client has closed the connection."""
    with suppress(OSError):
        handler.connection.recv(1)


def sends(data: bytes, kind: str = "text/event-stream") -> Callable[["_Handler"], None]:
    """Sends these bytes."""

    def reply(handler: "_Handler") -> None:
        handler.begin(kind)
        handler.wfile.write(data)

    return reply


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""

    @property
    def endpoint(self) -> FakeEndpoint:
        endpoint: FakeEndpoint = self.server.endpoint  # type: ignore[attr-defined]
        return endpoint

    def do_GET(self) -> None:
        self.endpoint.requests.append(("GET", self.path, {}, dict(self.headers)))
        if self.path == "/v1/models":
            self.give(200, {"object": "list", "data": list(self.endpoint.models)})
        else:
            self.give_path()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.endpoint.requests.append(("POST", self.path, body, dict(self.headers)))
        if self.path != "/v1/chat/completions":
            self.give_path(body)
            return
        key = self.endpoint.wants_key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self.give(401, {"error": {"message": "Incorrect API key provided"}})
            return
        replies = self.endpoint.replies
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if callable(reply):
            reply(self)
        elif isinstance(reply, tuple):
            self.give(*reply)
        else:
            self.stream(reply)

    def give_path(self, body: dict[str, Any] | None = None) -> None:
        reply = self.endpoint.paths.get(self.path)
        if callable(reply):
            self.give(200, reply(body))
        elif isinstance(reply, bytes):
            self.begin("application/json")
            self.wfile.write(reply)
        elif reply is None:
            self.give(404, {"error": {"message": "no such thing"}})
        else:
            self.give(200, reply)

    def stream(self, text: str) -> None:
        endpoint = self.endpoint
        self.begin("text/event-stream")
        self.wfile.write(b": a comment that keeps the line open\n\n")
        for at in range(0, len(text), endpoint.pieces):
            self.wfile.write(chunk(text[at : at + endpoint.pieces]))
        if endpoint.finish:
            self.wfile.write(chunk("", endpoint.finish))
        if endpoint.usage:
            self.wfile.write(event({"choices": [], "usage": endpoint.usage}))
        self.wfile.write(b"data: [DONE]\n\n")

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def give(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
