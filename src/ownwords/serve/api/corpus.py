"""The page's first part: the report, every text, the search, and what is decided about each."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from ownwords.archive.document import OWN_KINDS, Document, Segment
from ownwords.archive.report import formatting as say
from ownwords.archive.report import summary
from ownwords.archive.store import Archive
from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.sentence_matching import content_stems, stems
from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.core.workspace import SUFFIX, path_text
from ownwords.evaluation.card import files as card
from ownwords.serve.api.decisions import Weighed, change, gone, of_post, overview, weighed
from ownwords.serve.api.fields import JsonFields
from ownwords.serve.api.posts import facets, line, page_of, wanted
from ownwords.serve.api.report import facts
from ownwords.serve.api.report_cache import CachedReport, ReportCache
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.training.corpus import training_text

_PASSAGES = 20  # that a search shows
_WORD = re.compile(r"[^\W_]+")
_QUESTION = 1000  # characters of one that are looked at
_MOST_NAME = 4000  # characters of a text's id, which may be an address
# Of the segments that are not the author's own words, whose they are.
_WHOSE = {"quote": "quoted", "code": "code", "table": "table", "log": "machine"}


def routes(state: AppState) -> list[BaseRoute]:
    """The addresses under /api/corpus, and /api/place, which says what is being served."""
    rooms = _Rooms(state)

    def answering(work: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> JSONResponse:
            return JSONResponse(await state.run(lambda: work(request)))

        return endpoint

    async def decide(request: Request) -> JSONResponse:
        fields = await JsonFields.of(request)
        id_, decision = (fields.text(name, most=_MOST_NAME) for name in ("id", "decision"))
        return JSONResponse(await state.run(lambda: rooms.decide(id_, decision)))

    gets = {
        "/api/place": rooms.place,
        "/api/corpus": rooms.report,
        "/api/corpus/facets": rooms.facets,
        "/api/corpus/posts": rooms.posts,
        "/api/corpus/post": rooms.post,
        "/api/corpus/passage": rooms.passage,
        "/api/corpus/search": rooms.search,
        "/api/corpus/decisions": rooms.decisions,
    }
    made: list[BaseRoute] = [Route(path, answering(work)) for path, work in gets.items()]
    return [*made, Route("/api/corpus/decide", decide, methods=["POST"])]


class _Rooms:
    """What each address answers; all of it runs on the house's threads."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        self.known = ReportCache(state)

    def place(self, _: Request) -> dict[str, Any]:
        workspace = self.state.workspace
        try:
            name = summary.name(self.known().report)
        except ApiError:  # nothing has been read yet
            name = path_text(workspace.root.resolve()).rpartition("/")[2].removesuffix(SUFFIX)
        return {
            "name": name,
            "version": __version__,
            "workspace": path_text(workspace.root),
            "has": {
                "archive": workspace.archive.exists(),
                "model": bool(self.state.own),
                "score": (workspace.root / card.DATA).exists(),
            },
        }

    def report(self, _: Request) -> Any:  # noqa: ANN401 - JSON
        return self.known.drawn("facts", facts)

    def facets(self, _: Request) -> Any:  # noqa: ANN401 - JSON
        return self.known.drawn("facets", facets)

    def posts(self, request: Request) -> dict[str, Any]:
        return page_of(self.known(), wanted(request.query_params))

    def post(self, request: Request) -> dict[str, Any]:
        known, archive = self.known(), self.state.archive()
        id_ = request.query_params.get("id", "")
        document = next(archive.documents([id_]), None) if id_ in known.places else None
        if document is None:
            raise gone(id_)
        post = known.report.posts[known.places[id_]]
        return {
            "post": line(post, known.tags) | {"author": document.author, "url": document.url},
            "segments": _segments(document, post.training_words, post.decision),
            "findings": _findings(known, id_),
            "around": _around(known, id_),
            "decision": self._decision(known, archive, id_),
        }

    def _decision(self, known: CachedReport, archive: Archive, id_: str) -> dict[str, Any]:
        try:
            return of_post(self.state.workspace, known, self._weighed(archive), id_)
        except OwnwordsError as error:  # a slip in choices.toml is no reason not to show a text
            return {"error": {"message": error.message, "hint": error.hint}}

    def passage(self, request: Request) -> dict[str, Any]:
        said = request.query_params.get("id", "")
        number = int(said) if said.isdecimal() and len(said) < 16 else -1
        found = self.state.searcher().index.passages([(number, 0.0)])
        if not found:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "that passage is no longer in the archive",
                hint="its post was changed since; search for it again",
            )
        return _passage(found[0])

    def search(self, request: Request) -> dict[str, Any]:
        question = request.query_params.get("q", "")[:_QUESTION].strip()
        if not question:
            return {"passages": [], "is_weak": False, "why": "", "nearest": []}
        found = self.state.searcher().find(question, limit=_PASSAGES)
        wanted = content_stems(question)
        return {
            "passages": [
                _passage(one) | {"words": _words_of(one.text, wanted)} for one in found.passages
            ],
            "is_weak": found.is_weak,
            "why": say.sentence(found.why) if found.why else "",
            "nearest": [
                _passage(one) | {"words": _words_of(one.text, wanted)} for one in found.nearest
            ],
        }

    def decisions(self, _: Request) -> dict[str, Any]:
        archive = self.state.archive()
        return overview(self.state.workspace, self.known(), self._weighed(archive))

    def decide(self, id_: str, decision: str) -> dict[str, Any]:
        archive, known = self.state.archive(), self.known()
        return change(self.state.workspace, archive, known, self._weighed(archive), id_, decision)

    def _weighed(self, archive: Archive) -> Weighed:
        found: Weighed = self.known.drawn("weighed", lambda known: weighed(archive, known))
        return found


def _passage(one: RetrievedPassage) -> dict[str, Any]:
    return {
        "id": one.id,
        "document": one.document,
        "title": say.title_of(one.title),
        "date": one.date,
        "url": one.url,
        "heading": one.heading,
        "text": one.text,
        "whose": one.whose,
        "found_by": list(one.found_by),
    }


def _words_of(text: str, wanted: set[str]) -> list[str]:
    """The words of a text, as they stand in it, that a question asks about."""
    return sorted({word for word in _WORD.findall(text) if wanted & set(stems(word))})


def _segments(document: Document, words: int, decision: str) -> list[dict[str, Any]]:
    learned = "" if decision == "leave out" else training_text(document, words)
    made, at = [], 0
    for segment in document.segments:
        is_learned, at = _is_learned(segment, learned, at)
        made.append(
            {
                "kind": segment.kind,
                "text": segment.text,
                "detail": segment.detail,
                "whose": _WHOSE.get(segment.kind, "own"),
                "learned": is_learned,
            }
        )
    return made


def _is_learned(segment: Segment, learned: str, at: int) -> tuple[bool, int]:
    """Whether a segment stands in what a model reads, and where the next one may begin."""
    if segment.kind not in OWN_KINDS:
        return False, at
    found = learned.find(segment.text, at)
    return (True, found + len(segment.text)) if found >= 0 else (False, at)


def _findings(known: CachedReport, id_: str) -> dict[str, Any]:
    report = known.report
    twins = [
        {
            "id": pair.other_id if pair.id == id_ else pair.id,
            "title": say.title_of(pair.other_title if pair.id == id_ else pair.title),
            "said": "the same text" if pair.exact else f"{say.percent(pair.share)} shared",
        }
        for pair in report.duplicates
        if id_ in (pair.id, pair.other_id)
    ]
    unlike = next((summary.style_signs(one) for one in report.style_outliers if one.id == id_), "")
    dumps = sum(one.words for one in report.dumps if one.id == id_)
    return {"twins": twins[:20], "unlike": unlike, "dump_words": dumps}


def _around(known: CachedReport, id_: str) -> dict[str, Any]:
    """The texts before and after this one in time."""
    dated = sorted((post for post in known.report.posts if post.day), key=lambda p: (p.day, p.id))
    place = next((n for n, post in enumerate(dated) if post.id == id_), None)
    if place is None:
        return {"earlier": None, "later": None}

    def named(n: int) -> dict[str, str] | None:
        if not 0 <= n < len(dated):
            return None
        return {"id": dated[n].id, "title": say.title_of(dated[n].title), "day": dated[n].day}

    return {"earlier": named(place - 1), "later": named(place + 1)}
