"""The Write page: its models, and the checks and drafts of a text.

Texts themselves are written by /v1/completions.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.ask.servers import Endpoint
from ownwords.base import catalogue
from ownwords.base.catalogue import RECOMMENDED, find_known
from ownwords.core.validation import Meta, encode
from ownwords.drafts import drafting, rewriting
from ownwords.drafts.check import check_view
from ownwords.drafts.endpoint_drafting import EndpointWriter
from ownwords.drafts.voice_card import voice_card
from ownwords.inference.generation import BatchScheduler
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.api.ask import EndpointCache
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid
from ownwords.serve.json_api import ApiCall, json_route, read_body
from ownwords.serve.model_worker import FairLock, LoadedModel
from ownwords.serve.sse import EventStreamResponse, ThreadEvents
from ownwords.view import html

_DEFAULT_TOKENS = 300
_SHOWN_S = 0.2  # between two looks at a text that grows


@dataclass(frozen=True)
class DraftRequest:
    """The body of a POST to /api/check, /api/rewrite, or /api/draft, where the text holds notes.

    `lines` are those of a draft to continue. With `endpoint`, the `name` of one of /api/write, that
    model writes instead of one of ours; without it, a rewrite needs no model.
    """

    text: Annotated[str, Meta(max_length=200_000)] = ""
    lines: tuple[drafting.DraftLine, ...] = ()
    model: Annotated[str, Meta(max_length=300)] = ""
    endpoint: Annotated[str, Meta(max_length=500)] = ""
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes of the Write page.

    /api/draft and /api/rewrite stream `end` with the output of `ownwords draft --json` or
    `rewrite --json`, and with an endpoint `trying` events for its tries, each with its text so far.
    A draft also streams its `notes` at the start, and each `line` that is written: with an
    endpoint, a paragraph; else after `begun` with the number of lines begun so far.
    """
    found = EndpointCache()

    def models(_: AppState, __: ApiCall) -> dict[str, Any]:
        return list_models(state) | {"endpoints": found.offered()}

    async def chosen(asked: DraftRequest) -> Endpoint | None:
        return await state.run(lambda: found.choose(asked.endpoint)) if asked.endpoint else None

    async def draft(request: Request) -> Response:
        asked = await read_body(state, request, DraftRequest)
        notes = await state.run(lambda: drafting.Notes.parse(asked.text))
        endpoint = await chosen(asked)
        loaded = await _model_for_notes(state, asked)

        def write(events: ThreadEvents) -> dict[str, Any]:
            if endpoint:
                writer = _endpoint_writer(state, endpoint, asked.text, events)
                written = writer.paragraphs(notes, seed=asked.seed, begun=asked.lines)
            elif loaded:
                model = _SharedModel(loaded, state.compute_lock, events)
                written = drafting.write_lines(model, notes, seed=asked.seed, begun=asked.lines)
            written = drafting.with_rules(written, state.marks_file())
            lines = [next(written) for _ in asked.lines]  # raises unless they are of these notes
            events.send(notes.blocks if endpoint else notes.lines, "notes")
            for line in written:
                events.send(line, "line")
                lines.append(line)
            return {"seed": asked.seed, **drafting.Draft(tuple(lines)).to_dict()}

        return EventStreamResponse(partial(state.send_work, write, "end"))

    async def rewrite(request: Request) -> Response:
        asked = await read_body(state, request, DraftRequest)
        _require_draft(asked.text)
        endpoint = await chosen(asked)

        def write(events: ThreadEvents) -> dict[str, Any]:
            writer = _endpoint_writer(state, endpoint, asked.text, events) if endpoint else None
            return rewriting.rewrite(asked.text, state.learned.habits(), writer).to_dict()

        return EventStreamResponse(partial(state.send_work, write, "end"))

    return [
        json_route(state, "GET", "/api/write", models),
        json_route(state, "POST", "/api/check", check),
        Route("/api/draft", draft, methods=["POST"]),
        Route("/api/rewrite", rewrite, methods=["POST"]),
    ]


def list_models(state: AppState) -> dict[str, Any]:
    """List the models and the default settings."""
    bases = {entry.name for entry in catalogue.entries()}
    own, models, known = state.own_model, state.models(), find_known(RECOMMENDED)

    def role(name: str) -> str:
        if name == own:
            return "tuned"
        return "base" if name in bases else "other"

    return {
        "models": [
            {
                "name": name,
                "role": role(name),
                "label": catalogue.display_name(folder) if name in bases else state.label_of(name),
                "writes_from_notes": drafting.can_write(folder),
            }
            for name, folder in models.items()
        ],
        # A base to install if no model can write from notes.
        "installable": None
        if not known or any(map(drafting.can_write, models.values()))
        else {"name": known.name, "title": known.title, "bytes": known.download_bytes},
        "defaults": {"tokens": _DEFAULT_TOKENS, "temperature": DEFAULT_SAMPLING.temperature},
    }


# --- drafts ---------------------------------------------------------------------------------------


def check(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Check a draft; return the output of `ownwords check --json`, and the same as HTML."""
    text = call.body(DraftRequest).text
    _require_draft(text)
    found = state.learned.style().check(text)
    return {**encode(found), "html": html.drawn(check_view(found))}


def _require_draft(text: str) -> None:
    if not text.strip():
        raise invalid("there is no draft", hint="write or paste one first")


async def _model_for_notes(state: AppState, asked: DraftRequest) -> LoadedModel | None:
    """Load the model that is asked for; None if an endpoint is.

    Raises ApiError if it has not learned to write from notes.
    """
    if asked.endpoint:
        return None
    loaded = await state.get_model(asked.model)
    if not await state.run(lambda: drafting.can_write(loaded.folder)):
        raise invalid(
            f"{state.label_of(loaded.name)} has not learned to write from notes",
            hint="make one from a starting model that can: ownwords base add smollm2-135m",
            param="model",
        )
    return loaded


def _endpoint_writer(
    state: AppState, endpoint: Endpoint, about: str, events: ThreadEvents
) -> EndpointWriter:
    """Return a writer that sends its tries as they grow, and ends once the reader has left."""
    sent_at = float("-inf")
    events.on_leave = endpoint.cancel

    def show(number: int, text: str) -> None:
        nonlocal sent_at
        events.check()
        if time.monotonic() - sent_at >= _SHOWN_S:
            sent_at = time.monotonic()
            events.send({"number": number, "text": text}, "trying")

    return EndpointWriter(
        endpoint,
        state.learned.style,
        lambda words: voice_card(state.archive(), about=about, words=words).text,
        show,
    )


class _SharedModel(Model):
    """A loaded model that writes for one reader, alternating with its other work.

    It sends the number of texts begun. Once the reader has left, it ends at the next token.
    """

    def __init__(self, loaded: LoadedModel, turn: FairLock, events: ThreadEvents) -> None:
        model = loaded.model
        super().__init__(model.engine, model.tokenizer, model.guard, model.stop_ids)
        self._lines = 0
        self._turn, self._events = turn, events

    def write_several(self, prompt: str, **how: Any) -> list[str]:  # noqa: ANN401 - as in Model
        self._lines += 1
        self._events.send({"number": self._lines}, "begun")
        with self._turn.hold():
            how["on_tokens"] = lambda _: self._events.check()
            return super().write_several(prompt, **how)

    def score(
        self, prompt: str, texts: Sequence[str], scheduler: BatchScheduler | None = None
    ) -> list[float]:
        with self._turn.hold():
            return super().score(prompt, texts, scheduler)
