"""Server-sent events; until the first event, a response can still fail with its own status."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ownwords.core.errors import OwnwordsError
from ownwords.serve.errors import error_body, internal_error

T = TypeVar("T")

_log = logging.getLogger("ownwords.serve")

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # keeps nginx from buffering events
]


class EventSender:
    """Sends events, also from several tasks; the response starts with the first event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = asyncio.Lock()
        self.has_started = False
        self.sent_at = 0.0  # by the monotonic clock

    async def send(self, value: object, event: str = "") -> None:
        """Send a value as JSON, with the event's name if it has one."""
        name = f"event: {event}\n".encode() if event else b""
        await self.send_bytes(name + b"data: " + msgspec.json.encode(value) + b"\n\n")

    async def keep_alive(self, silent_s: float = 0.0) -> None:
        """Keep the connection open by a comment, which clients ignore, after so much silence."""
        if time.monotonic() - self.sent_at >= silent_s:
            await self.send_bytes(b": keep-alive\n\n")

    async def send_bytes(self, data: bytes, *, more: bool = True) -> None:
        """Send raw bytes as part of the response."""
        async with self._lock:
            if not self.has_started:
                self.has_started = True
                start = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
                await self._send(start)
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
            self.sent_at = time.monotonic()


class ReaderLeftError(OwnwordsError):
    """The reader of a stream has left."""


class ThreadEvents:
    """Sends events from another thread. Raises ReaderLeftError once their reader has left."""

    def __init__(self, events: EventSender) -> None:
        self._events, self._loop = events, asyncio.get_running_loop()
        self._has_left = False
        self.on_leave: Callable[[], None] = lambda: None  # ends work that never calls `check`

    def send(self, value: object, event: str) -> None:
        """Send an event, and wait until it is sent."""
        self.check()
        asyncio.run_coroutine_threadsafe(self._events.send(value, event), self._loop).result()

    def check(self) -> None:
        """Raise ReaderLeftError if the reader has left."""
        if self._has_left:
            raise ReaderLeftError("the reader has left")

    def leave(self) -> None:
        """End the work of the other thread."""
        self._has_left = True
        self.on_leave()


class EventStreamResponse(Response):
    """A response of the events that `produce` sends, until it ends or the client disconnects.

    An error before the first event is sent with its own HTTP status; a later one as an event.
    """

    def __init__(self, produce: Callable[[EventSender], Awaitable[None]]) -> None:
        super().__init__()
        self._produce = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events, path = EventSender(send), str(scope["path"])

        async def work() -> None:
            try:
                await self._produce(events)
            except Exception as error:
                if not events.has_started:
                    raise
                if not isinstance(error, OwnwordsError):
                    _log.exception("a stream ended early", exc_info=error)
                    error = internal_error()
                body = error_body(path, error)
                if path.startswith("/v1/"):
                    await events.send(body)
                else:
                    await events.send(body["error"], "error")
            await events.send_bytes(b"", more=False)

        with suppress(ClientDisconnect):
            await run_until_disconnect(receive, work())


async def run_until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; cancel it, and raise ClientDisconnect, if the client leaves.

    The request's body must already have been read.
    """

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.create_task(work), asyncio.create_task(leave())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)
