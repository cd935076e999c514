"""The Write page: text as it is written, what the copy guard kept back, where it may come from."""

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.archive.store import Archive
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.sentence_matching import best_sentences
from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.evaluation.verbatim import SharedPassage, shared_passages
from ownwords.inference import generation
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.api.fields import JsonFields
from ownwords.serve.api.sending import EventStreamResponse, event
from ownwords.serve.app_state import FROM_NOTHING, AppState
from ownwords.serve.loaded_model import LoadedModel
from ownwords.serve.model_worker import GenerationStream
from ownwords.serve.text_stream import TextStream
from ownwords.tokenizers.tokenizer import Tokenizer

_MOST_PROMPT = 20_000  # characters: more than any of our models reads
_MOST_TOKENS = 4000
_TOKENS = 300
_SEEDS = 2**31 - 1
_SHARED_WORDS = 5  # in a row; fewer are shared by everybody who writes English
_MOST_SHARED, _NEAREST = 12, 4
_QUERY_WORDS = 60  # of a text that is searched for: of more the search only gets slower
_LOOKED_THROUGH = 64 << 20  # characters of posts, in a second or four
_PASSAGE_WORDS = 12  # shown before a place where the guard stepped in
_PASSAGE_TOKENS = 200  # that hold so many words in any case
_MOST_HELD = 50


def routes(state: AppState) -> list[BaseRoute]:
    """What the Write page asks for."""
    pages = _Write(state)
    return [
        Route("/api/write", pages.models),
        Route("/api/write", pages.write, methods=["POST"]),
        Route("/api/write/origins", pages.origins, methods=["POST"]),
    ]


class _Write:
    def __init__(self, state: AppState) -> None:
        self._state = state

    async def models(self, _: Request) -> Response:
        """The models there are, and how they write unless told otherwise."""
        return JSONResponse(
            {
                "models": await self._state.run(self._named),
                "usual": {
                    "tokens": _TOKENS,
                    "most_tokens": _MOST_TOKENS,
                    "temperature": DEFAULT_SAMPLING.temperature,
                    "top_p": DEFAULT_SAMPLING.top_p,
                    "min_p": DEFAULT_SAMPLING.min_p,
                },
            }
        )

    async def write(self, asked: Request) -> Response:
        """Events: `begin`, then `text` as it comes, then `end`; `error` where it breaks off."""
        fields = await JsonFields.of(asked)
        prompt = fields.text("prompt", most=_MOST_PROMPT)
        is_guarded = fields.flag("guard", default=True)
        sampling = replace(
            DEFAULT_SAMPLING,
            temperature=fields.number(
                "temperature", least=0, most=5, default=DEFAULT_SAMPLING.temperature
            ),
            top_p=fields.number("top_p", least=0.01, most=1, default=DEFAULT_SAMPLING.top_p),
            min_p=fields.number("min_p", least=0, most=1, default=DEFAULT_SAMPLING.min_p),
        )
        tokens = fields.whole("tokens", least=1, most=_MOST_TOKENS, default=_TOKENS)
        seed = fields.whole("seed", least=0, most=_SEEDS, default=1)
        opened = await self._state.opened(fields.text("model", most=300))
        wanted = opened.model.request(
            prompt, max_tokens=tokens, seed=seed, sampling=sampling, quote=not is_guarded
        )
        async with AsyncExitStack() as stack:
            # What must be refused is refused while the answer can still have a status of its own.
            written = await stack.enter_async_context(opened.worker.write(wanted))
            return EventStreamResponse(_told(opened, wanted, written), stack.pop_all())

    async def origins(self, asked: Request) -> Response:
        """Of a text: what stands in the posts word for word, and the passages nearest to it."""
        text = (await JsonFields.of(asked)).text("text", most=_MOST_PROMPT)
        return JSONResponse(await self._state.run_long(partial(self._origins, text)))

    # --- in a thread -----------------------------------------------------------------------------

    def _named(self) -> list[dict[str, Any]]:
        own = self._state.own
        bases = {each.name for each in catalogue.entries()}
        return [{"name": name, "role": _role(name, own, bases)} for name in self._state.models()]

    def _origins(self, text: str) -> dict[str, Any]:
        archive = self._state.archive()
        texts = _Texts(archive)
        shared = shared_passages(text, texts, _SHARED_WORDS)
        shared.sort(key=lambda one: one.start - one.end)
        nearest: Sequence[RetrievedPassage] = ()
        if text.strip():
            query = " ".join(text.split()[-_QUERY_WORDS:])
            found = self._state.searcher().find(query, limit=_NEAREST)
            nearest = found.passages or found.nearest
        return {
            "shared": [
                told
                for one in shared[:_MOST_SHARED]
                if (told := _of_a_post(archive, text, one)) is not None
            ],
            "nearest": [
                {**asdict(one), "matching": _matching(text, one.text)} for one in nearest[:_NEAREST]
            ],
            "is_whole": texts.is_whole,
        }


class _Texts:
    """The posts' names and texts, one at a time; of a huge archive only the first ones."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.is_whole = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        read = 0
        for document in self._archive.documents():
            text = f"{document.title}\n\n{document.text()}"
            read += len(text)
            if read > _LOOKED_THROUGH:
                self.is_whole = False
                return
            yield document.id, text


def _matching(text: str, passage: str) -> str:
    """The sentence of the passage that is most like the text; empty where none is."""
    spans = best_sentences(text, passage)
    return passage[spans[0][0] : spans[0][1]] if spans else ""


def _of_a_post(archive: Archive, text: str, one: SharedPassage) -> dict[str, Any] | None:
    """What the two share; None where the post was taken out meanwhile."""
    post = next(archive.documents([one.document]), None)
    if post is None:
        return None
    passage = text[one.start : one.end]
    return {
        "text": passage,
        "words": len(passage.split()),
        "start": one.start,
        "document": one.document,
        "title": post.title,
        "date": post.date.date().isoformat() if post.date else None,
        "url": post.url,
    }


async def _told(
    opened: LoadedModel, wanted: generation.GenerationRequest, written: GenerationStream
) -> AsyncIterator[bytes]:
    """The events of a text."""
    tokenizer, began = opened.model.tokenizer, time.monotonic()
    pieces = TextStream(written, tokenizer)
    held = HeldBack(wanted.guard, tokenizer, wanted.ids) if wanted.guard else None
    begun = {"model": opened.name, "seed": wanted.seed, "guarded": wanted.guard is not None}
    yield event("begin", json.dumps({**begun, "has_guard": opened.model.guard is not None}))
    try:
        async for piece in pieces:
            if held:
                held.feed([drawn.id for drawn in piece.drawn])
            if piece.text:
                yield event("text", json.dumps(piece.text, ensure_ascii=False))
    except OwnwordsError as error:
        yield event("error", json.dumps({"message": error.message, "hint": error.hint}))
        return
    said = {
        "finished": pieces.finished,
        "tokens": pieces.tokens,
        "seconds": round(time.monotonic() - began, 3),
        "held": held.after if held else [],
    }
    yield event("end", json.dumps(said, ensure_ascii=False))


class HeldBack:
    """Notes where the guard closed the way of a text, token by token, by the last words before.

    There some token would have made a run of the author's text too long. Whether it would have
    been chosen nobody knows: it was never a choice.
    """

    def __init__(self, guard: CopyGuard, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self.after: list[str] = []
        self._guard, self._tokenizer = guard, tokenizer
        self._ids = np.array(prompt, np.int32)
        self._was_closed = False

    def feed(self, ids: Sequence[int]) -> None:
        """These tokens come next."""
        place = len(self._ids)
        self._ids = np.append(self._ids, np.array(ids, np.int32))
        for end in range(place, len(self._ids)):
            if len(self.after) == _MOST_HELD:
                return
            before = self._ids[:end]
            is_closed = len(self._guard.banned(before)) > 0
            if is_closed and not self._was_closed:  # else it is the same passage that goes on
                text = self._tokenizer.decode(before[-_PASSAGE_TOKENS:].tolist())
                self.after.append(" ".join(text.split()[-_PASSAGE_WORDS:]))
            self._was_closed = is_closed


def _role(name: str, own: str, bases: set[str]) -> str:
    if name == own:
        return "tuned"
    if name == FROM_NOTHING:
        return "from nothing"
    return "base" if name in bases else "other"
