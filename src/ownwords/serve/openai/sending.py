"""How answers go out: JSON, server-sent events, and what is watched for meanwhile."""

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import anyio
from starlette.types import Receive, Send

from ownwords.serve.sse import HEADERS

_DONE = b"data: [DONE]\n\n"


def as_json(value: Mapping[str, object]) -> bytes:
    """JSON as it goes out: UTF-8, nothing escaped that need not be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class EventStreamSender:
    """An answer of server-sent events under way; several tasks may send at once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = anyio.Lock()
        self.began = False  # from then on errors are events, too

    async def begin(self) -> None:
        """Send the head of the answer."""
        self.began = True
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        await self._send(
            {"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers}
        )

    async def tell(self, value: Mapping[str, object]) -> None:
        await self._put(b"data: " + as_json(value) + b"\n\n")

    async def end(self) -> None:
        """Say that this was all."""
        await self._put(_DONE)
        await self.close()

    async def close(self) -> None:
        """End the answer, said or not that this was all."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _put(self, data: bytes) -> None:
        async with self._lock:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def while_there(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do that work, and leave off as soon as whoever asked for it is gone.

    The body of the request has to be read before.
    """
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await work()
        group.cancel_scope.cancel()
