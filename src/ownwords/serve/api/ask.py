"""The Ask page: an answer, streamed by sentence, with the passages it is based on."""

import threading
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.ask import servers
from ownwords.ask.answer import answer
from ownwords.ask.encoder import KNOWN
from ownwords.ask.servers import Endpoint
from ownwords.core.errors import OwnwordsError
from ownwords.core.packages import install_command
from ownwords.core.validation import Meta
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid, not_found
from ownwords.serve.json_api import read_body
from ownwords.serve.sse import EventStreamResponse, ThreadEvents

NO_BACKEND = "none"  # no answer, passages only
_FRESH_S = 15.0  # how long the list of endpoints is cached


@dataclass(frozen=True)
class AskRequest:
    """The body of a POST to /api/ask."""

    question: Annotated[str, Meta(max_length=2000)] = ""  # the default of ask.answer
    backend: Annotated[str, Meta(max_length=500)] = NO_BACKEND  # or its --model


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes of the Ask page."""
    found = EndpointCache()

    async def backends(request: Request) -> Response:
        """List the models that can write an answer; `refresh` searches for endpoints again.

        `vectors` counts the passages that the search by meaning has read. If it is not installed,
        `encoders` lists those that can be, or `missing` is the command to run before.
        """
        refresh = "refresh" in request.query_params
        listed = await state.run(partial(found.offered, refresh=refresh))
        ready, passages = await state.run(partial(_vectors, state))
        is_open = ready is None and not state.settings.embed
        needs_tokenizers = is_open and find_spec("tokenizers") is None
        return JSONResponse(
            {
                "endpoints": listed,
                "vectors": {"ready": ready, "passages": passages},
                "encoders": [
                    {"name": each.name, "megabytes": each.megabytes}
                    for each in KNOWN
                    if is_open and not needs_tokenizers
                ],
                "missing": install_command("embed") if needs_tokenizers else "",
            }
        )

    async def ask(request: Request) -> Response:
        """Stream the events `passages`, `text` for each sentence, and the whole `answer`."""
        asked = await read_body(state, request, AskRequest)
        question = " ".join(asked.question.split())
        if not question:
            raise invalid("there is no question", hint="type one, then ask")
        backend = None
        if asked.backend != NO_BACKEND:
            backend = await state.run(lambda: found.choose(asked.backend))
        await state.run(state.archive)  # raises ApiError if the archive is missing

        def work(events: ThreadEvents) -> dict[str, Any]:
            if backend:
                events.on_leave = backend.cancel
            return answer(
                question,
                state.searcher(),
                backend,
                on_text=lambda text: events.send(text, "text") if text else events.check(),
                on_passages=lambda some: events.send([asdict(each) for each in some], "passages"),
            ).to_dict()

        return EventStreamResponse(partial(state.send_work, work, "answer"))

    return [
        Route("/api/ask", backends, methods=["GET"]),
        Route("/api/ask", ask, methods=["POST"]),
    ]


def _vectors(state: AppState) -> tuple[int | None, int]:
    try:
        return state.vector_counts()
    except OwnwordsError:  # no archive yet, or a damaged encoder, which asking reports
        return None, 0


class EndpointCache:
    """Caches the list of models that run on this machine for a few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._endpoints: list[Endpoint] = []
        self._found_at = float("-inf")

    def get(self, *, refresh: bool = False) -> list[Endpoint]:
        """Return the available endpoints; may block while it probes them."""
        with self._lock:
            if refresh or time.monotonic() - self._found_at > _FRESH_S:
                found = servers.discover()
                self._endpoints = [replace(each, model=x) for each in found for x in each.models]
                self._found_at = time.monotonic()
            return self._endpoints

    def choose(self, name: str) -> Endpoint:
        """Return an available endpoint by its `option`; ApiError if it is no longer there."""
        for endpoint in self.get():
            if name == endpoint.option:
                return replace(endpoint)
        raise not_found(
            "the model that you chose is no longer available",
            hint="start it again, or choose another",
        )

    def offered(self, *, refresh: bool = False) -> list[dict[str, str]]:
        """Return the names of the available endpoints for the page."""
        return [
            {"name": each.option, "label": each.model, "where": each.server}
            for each in self.get(refresh=refresh)
        ]
