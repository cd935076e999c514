"""The Write page: streams generated text, and shows what was blocked and possible sources."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive.store import Archive
from ownwords.ask.passages import Passage, best_sentence
from ownwords.base import catalogue
from ownwords.core.validation import Meta
from ownwords.evaluation.verbatim import shared_passages
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.generation import GenerationRequest
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import DEFAULT_SAMPLING, suffix_stops
from ownwords.serve.app_state import AppState
from ownwords.serve.json_api import ApiCall, json_response, json_route, read_body
from ownwords.serve.model_worker import DecodedStream, LoadedModel
from ownwords.serve.sse import EventSender, EventStreamResponse
from ownwords.tokenizers.tokenizer import Tokenizer

_MAX_PROMPT = 20_000  # characters; longer than the context of our models
_MAX_TOKENS, _DEFAULT_TOKENS = 4000, 300
_COMPLETION_TOKENS = 40
_LIKELIEST = SamplingParams(temperature=0)
_MIN_SHARED_WORDS = 5  # consecutive words; shorter runs are common English
_MAX_SHARED, _MAX_NEAREST = 12, 4
_QUERY_WORDS = 60  # from the end of the text; more would slow the search down
_MAX_SEARCHED = 64 << 20  # characters of posts; these take one to four seconds
_PASSAGE_WORDS = 12  # shown before a place where the copy guard blocked tokens
_PASSAGE_TOKENS = 200  # tokens that are certain to hold _PASSAGE_WORDS words
_MAX_BLOCKED = 50


@dataclass(frozen=True)
class WriteRequest:
    """The body of a POST to /api/write."""

    prompt: Annotated[str, Meta(max_length=_MAX_PROMPT)] = ""
    model: Annotated[str, Meta(max_length=300)] = ""
    guard: bool = True
    tokens: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] = _DEFAULT_TOKENS
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 1
    temperature: Annotated[float, Meta(ge=0, le=5)] = DEFAULT_SAMPLING.temperature
    min_p: Annotated[float, Meta(ge=0, le=1)] = DEFAULT_SAMPLING.min_p


@dataclass(frozen=True)
class CompleteRequest:
    """The body of a POST to /api/complete: what stands before the cursor, and after it."""

    text: Annotated[str, Meta(max_length=_MAX_PROMPT)] = ""
    suffix: str = ""
    model: Annotated[str, Meta(max_length=300)] = ""


@dataclass(frozen=True)
class OriginsRequest:
    """The body of a POST to /api/write/origins."""

    text: Annotated[str, Meta(max_length=_MAX_PROMPT)] = ""


def routes(state: AppState) -> list[BaseRoute]:
    """The routes of the Write page."""

    async def write(request: Request) -> Response:
        """Stream the events `begin`, `text` for each chunk, and `end`, or `error`."""
        asked = await read_body(state, request, WriteRequest)
        sampling = replace(
            DEFAULT_SAMPLING,
            temperature=asked.temperature,
            min_p=asked.min_p,
        )
        loaded = await state.get_model(asked.model)
        generation_request = loaded.model.request(
            asked.prompt,
            max_tokens=asked.tokens,
            seed=asked.seed,
            sampling=sampling,
            quote=not asked.guard,
        )
        return EventStreamResponse(partial(_send_text, loaded, generation_request))

    async def complete(request: Request) -> Response:
        """Stream the likeliest end of the sentence at the cursor, as events of `write`."""
        asked = await read_body(state, request, CompleteRequest)
        loaded = await state.get_model(asked.model)
        generation_request = loaded.model.request(
            asked.text,
            max_tokens=_COMPLETION_TOKENS,
            sampling=_LIKELIEST,
            completes_word=True,
        )
        stops = suffix_stops(asked.suffix)
        send = partial(_send_text, loaded, generation_request, stops=stops, sentence=True)
        return EventStreamResponse(send)

    async def origins(request: Request) -> Response:
        """Find runs of words that a text shares with the posts, and the most similar passages."""
        asked = await read_body(state, request, OriginsRequest)
        return json_response(await state.run_long(lambda: _origins(state, asked.text)))

    return [
        json_route(state, "GET", "/api/write", list_models),
        Route("/api/write", write, methods=["POST"]),
        Route("/api/complete", complete, methods=["POST"]),
        Route("/api/write/origins", origins, methods=["POST"]),
    ]


def list_models(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the models and the default settings."""
    bases = {entry.name for entry in catalogue.entries()}
    own = state.own_model

    def role(name: str) -> str:
        if name == own:
            return "tuned"
        return "base" if name in bases else "other"

    return {
        "models": [
            {"name": name, "role": role(name), "label": state.label_of(name)}
            for name in state.models()
        ],
        "defaults": {
            "tokens": _DEFAULT_TOKENS,
            "temperature": DEFAULT_SAMPLING.temperature,
            "min_p": DEFAULT_SAMPLING.min_p,
        },
    }


async def _send_text(
    loaded: LoadedModel,
    request: GenerationRequest,
    events: EventSender,
    *,
    stops: Sequence[str] = (),
    sentence: bool = False,
) -> None:
    tokenizer, started_at = loaded.model.tokenizer, time.monotonic()
    blocked = BlockedPassages(request.guard, tokenizer, request.ids) if request.guard else None
    async with loaded.worker.generate(request) as stream:
        text = DecodedStream(stream, tokenizer, stops, sentence=sentence)
        begin = {
            "model": loaded.name,
            "seed": request.seed,
            "guarded": request.guard is not None,
            "has_guard": loaded.model.guard is not None,
        }
        await events.send(begin, "begin")
        async for chunk in text:
            if blocked and chunk.id is not None:
                blocked.feed(chunk.id)
            if chunk.text:
                await events.send(chunk.text, "text")
    end = {
        "finished": text.finish_reason,
        "tokens": text.token_count,
        "seconds": round(time.monotonic() - started_at, 3),
        "blocked": blocked.contexts if blocked else [],
    }
    await events.send(end, "end")


# --- where a text may come from ------------------------------------------------------------------


def _origins(state: AppState, text: str) -> dict[str, Any]:
    posts = _Posts(state.archive())
    shared = shared_passages(text, posts, _MIN_SHARED_WORDS)
    shared.sort(key=lambda passage: passage.start - passage.end)
    nearest: Sequence[Passage] = ()
    if text.strip():
        query = " ".join(text.split()[-_QUERY_WORDS:])
        nearest = state.searcher().find(query, limit=_MAX_NEAREST).passages
    return {
        "shared": [
            {"text": words, "words": len(words.split()), **posts.rows[passage.document]}
            for passage in shared[:_MAX_SHARED]
            if (words := text[passage.start : passage.end])
        ],
        "nearest": [
            {**asdict(passage), "matching": _matching_sentence(text, passage.text)}
            for passage in nearest
        ],
        "is_complete": posts.is_complete,
    }


class _Posts:
    """Iterates over the posts' names and texts, up to _MAX_SEARCHED characters."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.rows: dict[str, dict[str, Any]] = {}  # of those that were read
        self.is_complete = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        characters = 0
        for document in self._archive.documents():
            text = f"{document.title}\n\n{document.text()}"
            characters += len(text)
            if characters > _MAX_SEARCHED:
                self.is_complete = False
                return
            self.rows[document.id] = {
                "document": document.id,
                "title": document.title,
                "date": document.date.date().isoformat() if document.date else None,
            }
            yield document.id, text


def _matching_sentence(text: str, passage: str) -> str:
    """The sentence of the passage that is most similar to the text; "" if none is similar."""
    span = best_sentence(text, passage)
    return passage[slice(*span)] if span else ""


class BlockedPassages:
    """Finds the places where the copy guard banned tokens, with the words before them.

    At such a place some token would have made a copied run too long; the model might not have
    chosen it anyway.
    """

    def __init__(self, guard: CopyGuard, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self.contexts: list[str] = []
        self._guard, self._tokenizer = guard, tokenizer
        self._ids = list(prompt)
        self._was_blocked = False

    def feed(self, token: int) -> None:
        """Process the next token."""
        if len(self.contexts) == _MAX_BLOCKED:
            return
        is_blocked = bool(self._guard.banned(self._ids))
        if is_blocked and not self._was_blocked:  # otherwise still the same passage
            text = self._tokenizer.decode(self._ids[-_PASSAGE_TOKENS:])
            self.contexts.append(" ".join(text.split()[-_PASSAGE_WORDS:]))
        self._was_blocked = is_blocked
        self._ids.append(token)
