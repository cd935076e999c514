"""The Write page: its models, and where a text may come from. /v1/completions writes."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive.store import Archive
from ownwords.ask.passages import Passage, best_sentence
from ownwords.base import catalogue
from ownwords.base.known_bases import RECOMMENDED, find_known
from ownwords.core.validation import Meta
from ownwords.drafts.drafting import can_write
from ownwords.evaluation.verbatim import shared_passages
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.serve.app_state import AppState
from ownwords.serve.json_api import ApiCall, json_response, json_route, read_body

_MAX_PROMPT = 20_000  # characters; longer than the context of our models
_DEFAULT_TOKENS = 300
_MIN_SHARED_WORDS = 5  # consecutive words; shorter runs are common English
_MAX_SHARED, _MAX_NEAREST = 12, 4
_QUERY_WORDS = 60  # from the end of the text; more would slow the search down
_MAX_SEARCHED = 64 << 20  # characters of posts; these take one to four seconds


@dataclass(frozen=True)
class OriginsRequest:
    """The body of a POST to /api/write/origins."""

    text: Annotated[str, Meta(max_length=_MAX_PROMPT)] = ""


def routes(state: AppState) -> list[BaseRoute]:
    """The routes of the Write page."""

    async def origins(request: Request) -> Response:
        """Find runs of words that a text shares with the posts, and the most similar passages."""
        asked = await read_body(state, request, OriginsRequest)
        return json_response(await state.run_long(lambda: _origins(state, asked.text)))

    return [
        json_route(state, "GET", "/api/write", list_models),
        Route("/api/write/origins", origins, methods=["POST"]),
    ]


def list_models(state: AppState, _: ApiCall) -> dict[str, Any]:
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
                "writes_from_notes": can_write(folder),
            }
            for name, folder in models.items()
        ],
        # A base to install if no model can write from notes.
        "installable": None
        if not known or any(map(can_write, models.values()))
        else {"name": known.name, "title": known.title, "bytes": known.download_bytes},
        "defaults": {"tokens": _DEFAULT_TOKENS, "temperature": DEFAULT_SAMPLING.temperature},
    }


# --- where a text may come from ------------------------------------------------------------------


def _origins(state: AppState, text: str) -> dict[str, Any]:
    posts = _Posts(state.archive())
    shared = shared_passages(text, posts, _MIN_SHARED_WORDS)
    shared.sort(key=lambda passage: -passage.words)
    nearest: Sequence[Passage] = ()
    if text.strip():
        query = " ".join(text.split()[-_QUERY_WORDS:])
        nearest = state.searcher().find(query, limit=_MAX_NEAREST).passages
    return {
        "shared": [
            {
                "text": text[passage.start : passage.end],
                "words": passage.words,
                **posts.rows[passage.document],
            }
            for passage in shared[:_MAX_SHARED]
        ],
        "nearest": [
            {**asdict(passage), "matching": passage.text[slice(*(span or (0, 0)))]}
            for passage in nearest
            for span in [best_sentence(text, passage.text)]
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
