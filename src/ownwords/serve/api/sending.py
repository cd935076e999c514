"""Server-sent events, as the page reads them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ownwords.serve.sse import HEADERS

KEEP_OPEN: Final = b": still here\n\n"  # a comment, which readers pass over


def event(name: str, json_text: str) -> bytes:
    """One event; its data is JSON, in which no line ends."""
    return f"event: {name}\ndata: {json_text}\n\n".encode("utf-8", "replace")


class EventStreamResponse(StreamingResponse):
    """Events as they come. What `held` holds is let go of when they end, or their reader leaves."""

    def __init__(self, events: AsyncIterator[bytes], held: AsyncExitStack | None = None) -> None:
        super().__init__(events, headers=HEADERS)
        self._held = held or AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not by the events themselves: a reader may be gone before the first of them is asked for.
        async with self._held:
            await super().__call__(scope, receive, send)
