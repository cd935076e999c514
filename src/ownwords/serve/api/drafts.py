"""Drafts of the Write page: checked, written from notes, and put into the author's manner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core.validation import Meta, encode
from ownwords.drafts import drafting, rewriting
from ownwords.drafts.check import AuthorStyle, check_view
from ownwords.drafts.rewriting import Habits
from ownwords.inference.generation import BatchScheduler
from ownwords.inference.model import Model
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid
from ownwords.serve.json_api import ApiCall, json_route, read_body
from ownwords.serve.model_worker import FairLock, LoadedModel
from ownwords.serve.sse import EventStreamResponse, ThreadEvents
from ownwords.view import html


@dataclass(frozen=True)
class DraftRequest:
    """The body of a POST to /api/check, /api/rewrite, or /api/draft, whose text are notes.

    `free` lets the model write each sentence, too. `lines` are those of a draft to go on with.
    """

    text: Annotated[str, Meta(max_length=200_000)] = ""
    free: bool = False
    lines: tuple[drafting.DraftLine, ...] = ()
    model: Annotated[str, Meta(max_length=300)] = ""
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1


def routes(state: AppState) -> list[BaseRoute]:
    """The routes /api/check, /api/draft and /api/rewrite.

    The latter two stream `begun` events with the number of texts begun so far, and `end` with what
    `ownwords draft --json` or `rewrite --json` prints. A draft also streams its `notes` first, and
    each `line` that is written.
    """

    async def draft(request: Request) -> Response:
        asked = await read_body(state, request, DraftRequest)
        notes = await state.run(lambda: drafting.Notes.parse(asked.text))
        loaded = await _model_for_notes(state, asked.model, drafting.can_write)

        def write(events: ThreadEvents) -> dict[str, Any]:
            model = _SharedModel(loaded, state.compute_lock, events)
            written = drafting.write_lines(model, notes, seed=asked.seed, begun=asked.lines)
            lines = [next(written) for _ in asked.lines]  # or they are not of these notes
            events.send(notes.lines, "notes")
            for line in written:
                events.send(line, "line")
                lines.append(line)
            return {"seed": asked.seed, **drafting.Draft(tuple(lines)).to_dict()}

        return EventStreamResponse(partial(state.send_work, write, "end"))

    async def rewrite(request: Request) -> Response:
        asked = await read_body(state, request, DraftRequest)
        if not asked.text.strip():
            raise invalid("there is no draft", hint="write or paste one first")
        loaded = None
        if asked.free:
            loaded = await _model_for_notes(state, asked.model, drafting.has_learned)

        def write(events: ThreadEvents) -> dict[str, Any]:
            model = _SharedModel(loaded, state.compute_lock, events) if loaded else None
            habits = state.report.derived("habits", lambda _: Habits.of(state.archive()))
            return rewriting.rewrite(asked.text, habits, model, seed=asked.seed).to_dict()

        return EventStreamResponse(partial(state.send_work, write, "end"))

    return [
        json_route(state, "POST", "/api/check", check),
        Route("/api/draft", draft, methods=["POST"]),
        Route("/api/rewrite", rewrite, methods=["POST"]),
    ]


def check(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Check a draft: what `ownwords check --json` prints, and the same drawn."""
    text = call.body(DraftRequest).text
    if not text.strip():
        raise invalid("there is no draft", hint="write or paste one first")
    style: AuthorStyle = state.report.derived("style", lambda _: AuthorStyle.of(state.archive()))
    found = style.check(text)
    return {**encode(found), "html": html.drawn(check_view(found))}


async def _model_for_notes(
    state: AppState, name: str, is_able: Callable[[Path], bool]
) -> LoadedModel:
    """The model of this name. Raises ApiError if it has not learned to write from notes."""
    loaded = await state.get_model(name)
    if not await state.run(lambda: is_able(loaded.folder)):
        raise invalid(
            f"{state.label_of(loaded.name)} has not learned to write from notes",
            hint="make one from a starting model that can: ownwords base add smollm2-135m",
            param="model",
        )
    return loaded


class _SharedModel(Model):
    """A loaded model that writes for one reader, by turns with its other work.

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
