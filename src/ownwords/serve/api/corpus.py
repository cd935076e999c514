"""The Posts page: the report, every post, the search, and the author's decisions."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute

from ownwords.archive import report_view as summary
from ownwords.archive.document import OWN_KINDS, Document, Segment
from ownwords.archive.report_view import report_view
from ownwords.archive.store import Archive
from ownwords.ask.passages import RetrievedPassage, content_stems, excerpt_of, stems
from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.core.workspace import SUFFIX, path_text
from ownwords.evaluation import scorecard_files as card
from ownwords.serve.api import decisions
from ownwords.serve.api.decisions import DecisionRequest, SelectionInputs, no_such_post
from ownwords.serve.api.posts import facets, find_posts, parse_query, row, word_counts
from ownwords.serve.api_route import ApiRoute
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.json_body import read_body
from ownwords.serve.report_cache import CachedReport
from ownwords.serve.sources.source_list import command_here
from ownwords.training.corpus import training_text
from ownwords.view import format as fmt
from ownwords.view import html

_POSTS_QUERY = dict.fromkeys(("decision", "split", "tag", "year", "kind", "flag"), "a value of it")
_POSTS_QUERY |= {"title": "words of the title", "sort": "a column", "order": "up or down"}
_POSTS_QUERY |= {"first": "the number of rows to skip", "most": "the number of rows"}
_MAX_PASSAGES = 20
_WORD = re.compile(r"[^\W_]+")
_MAX_QUESTION = 1000  # characters of a search query that are used
_MAX_TWINS = 20
# Labels of the segments that are not the author's own words.
_ORIGINS = {"quote": "quoted", "code": "code", "table": "table", "log": "machine"}


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/corpus, and /api/workspace."""
    corpus = _Corpus(state)

    def get(
        path: str, work: Callable[[Request], Any], query: Mapping[str, str] | None = None
    ) -> ApiRoute:
        async def endpoint(request: Request) -> JSONResponse:
            return JSONResponse(await state.run(lambda: work(request)))

        return ApiRoute("GET", path, endpoint, summary=str(work.__doc__), query=query)

    async def decide(request: Request) -> JSONResponse:
        """Decide what becomes of a post in the next training."""
        asked = await read_body(state, request, DecisionRequest)
        return JSONResponse(await state.run(lambda: corpus.decide(asked)))

    return [
        get("/api/workspace", corpus.workspace),
        get("/api/corpus", corpus.report),
        get("/api/corpus/facets", corpus.facets),
        get("/api/corpus/posts", corpus.posts, _POSTS_QUERY),
        get("/api/corpus/post", corpus.post, {"id": "of the post"}),
        get("/api/corpus/passage", corpus.passage, {"id": "of the passage"}),
        get("/api/corpus/search", corpus.search, {"q": "what to look for"}),
        get("/api/corpus/decisions", corpus.decisions),
        ApiRoute("POST", "/api/corpus/decide", decide, body=DecisionRequest),
    ]


class _Corpus:
    """Computes the responses of the routes, in the threads of `AppState.run`."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._cache = state.report

    def workspace(self, _: Request) -> dict[str, Any]:
        """Show the name of the workspace, and what is in it."""
        workspace = self._state.workspace
        try:
            name = summary.name(self._cache().report)
        except ApiError:  # nothing has been read yet
            name = path_text(workspace.root.resolve()).rpartition("/")[2].removesuffix(SUFFIX)
        return {
            "name": name,
            "version": __version__,
            "path": path_text(workspace.root),
            "has": {
                "archive": workspace.archive.exists(),
                "model": bool(self._state.own_model),
                "score": (workspace.root / card.DATA).exists(),
            },
        }

    def report(self, _: Request) -> Any:  # noqa: ANN401 - JSON
        """Show the report of the last look."""
        report = self._cache.derived("report", lambda it: html.fragment(report_view(it.report)))
        return {"html": report, "command": self._command()}

    def _command(self) -> str:
        """The command that reads the posts again, for the workspace as it lies now."""
        return fmt.plain(command_here(self._cache().report.command, self._state.workspace.root))

    def facets(self, _: Request) -> Any:  # noqa: ANN401 - JSON
        """List the values of each filter, with the number of posts."""
        return self._cache.derived("facets", facets)

    def posts(self, request: Request) -> dict[str, Any]:
        """List posts: filtered, sorted, and in pages."""
        return find_posts(self._cache(), parse_query(request.query_params))

    def post(self, request: Request) -> dict[str, Any]:
        """Show one post, and what becomes of each part of it."""
        cached, archive = self._cache(), self._state.archive()
        id_ = request.query_params.get("id", "")
        document = next(archive.documents([id_]), None) if id_ in cached.positions else None
        if document is None:
            raise no_such_post(id_)
        post = cached.report.posts[cached.positions[id_]]
        return {
            "post": row(post, cached.tags) | {"author": document.author, "url": document.url},
            "segments": _segments(document, word_counts([post]).learned_words, post.decision),
            "findings": _findings(cached, id_),
            "around": _neighbours(cached, id_),
            "decision": self._decision(cached, archive, id_),
        }

    def _decision(self, cached: CachedReport, archive: Archive, id_: str) -> dict[str, Any]:
        try:
            inputs = self._inputs(archive)
            return decisions.decision_about(self._state.workspace, cached, inputs, id_)
        except OwnwordsError as error:  # show the post even if choices.toml is invalid
            return {"error": {"message": error.message, "hint": error.hint}}

    def passage(self, request: Request) -> dict[str, Any]:
        """Show one passage."""
        text = request.query_params.get("id", "")
        number = int(text) if text.isdecimal() and len(text) < 16 else -1
        passages = self._state.searcher().index.passages([(number, 0.0)])
        if not passages:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "this passage is no longer in the archive",
                hint="its post has changed; search for it again",
            )
        return _passage(passages[0])

    def search(self, request: Request) -> dict[str, Any]:
        """Search the passages of all posts."""
        question = request.query_params.get("q", "")[:_MAX_QUESTION].strip()
        if not question:
            return {"passages": [], "is_weak": False, "why": "", "nearest": [], "notes": []}
        result = self._state.searcher().find(question, limit=_MAX_PASSAGES)
        searched = result.searched_question(question)
        wanted = content_stems(searched)

        def hit(passage: RetrievedPassage) -> dict[str, Any]:
            cosines = result.window_cosines.get(passage.id, ())
            excerpt = passage.text[slice(*excerpt_of(searched, passage.text, cosines).span)]
            words = _matching_words(passage.text, wanted)
            return _passage(passage) | {"excerpt": excerpt, "words": words}

        return {
            "passages": [hit(passage) for passage in result.passages],
            "is_weak": result.is_weak,
            "why": fmt.sentence(result.why) if result.why else "",
            "nearest": [hit(passage) for passage in result.nearest],
            "notes": [substitution.note for substitution in result.substitutions],
        }

    def decisions(self, _: Request) -> dict[str, Any]:
        """List the posts that stand out, and what becomes of them."""
        inputs = self._inputs(self._state.archive())
        overview = decisions.overview(self._state.workspace, self._cache(), inputs)
        return overview | {"command": self._command()}

    def decide(self, request: DecisionRequest) -> dict[str, Any]:
        archive, cached = self._state.archive(), self._cache()
        inputs = self._inputs(archive)
        return decisions.decide(self._state.workspace, archive, cached, inputs, request)

    def _inputs(self, archive: Archive) -> SelectionInputs:
        inputs: SelectionInputs = self._cache.derived(
            "selection", lambda cached: decisions.read_selection_inputs(archive, cached)
        )
        return inputs


def _passage(passage: RetrievedPassage) -> dict[str, Any]:
    return {
        "id": passage.id,
        "document": passage.document,
        "title": fmt.title_of(passage.title),
        "date": passage.date,
        "url": passage.url,
        "heading": passage.heading,
        "text": passage.text,
        "whose": passage.whose,
        "found_by": list(passage.found_by),
    }


def _matching_words(text: str, wanted: set[str]) -> list[str]:
    """The words of the text, in its own spelling, that match the query."""
    return sorted({word for word in _WORD.findall(text) if wanted & set(stems(word))})


def _segments(document: Document, words: int, decision: str) -> list[dict[str, Any]]:
    learned = training_text(document, words) if words and decision != "leave out" else ""
    rows, position = [], 0
    for segment in document.segments:
        is_learned, position = _is_learned(segment, learned, position)
        rows.append(
            {
                "kind": segment.kind,
                "text": segment.text,
                "detail": segment.detail,
                "whose": _ORIGINS.get(segment.kind, "own"),
                "learned": is_learned,
            }
        )
    return rows


def _is_learned(segment: Segment, learned: str, position: int) -> tuple[bool, int]:
    """Return whether the segment is in the training text, and where to search for the next."""
    if segment.kind not in OWN_KINDS:
        return False, position
    start = learned.find(segment.text, position)
    return (True, start + len(segment.text)) if start >= 0 else (False, position)


def _findings(cached: CachedReport, id_: str) -> dict[str, Any]:
    report = cached.report
    twins = [
        {
            "id": pair.other_id if pair.id == id_ else pair.id,
            "title": fmt.title_of(pair.other_title if pair.id == id_ else pair.title),
            "shared": "the same text" if pair.exact else f"{fmt.percent(pair.share)} shared",
        }
        for pair in report.duplicates
        if id_ in (pair.id, pair.other_id)
    ]
    return {
        "twins": twins[:_MAX_TWINS],
        "unlike": next(
            (summary.style_signs(post) for post in report.style_outliers if post.id == id_), ""
        ),
        "dump_words": sum(dump.words for dump in report.dumps if dump.id == id_),
    }


def _neighbours(cached: CachedReport, id_: str) -> dict[str, Any]:
    """The previous and the next post by date."""
    dated = sorted((post for post in cached.report.posts if post.day), key=lambda p: (p.day, p.id))
    position = next((i for i, post in enumerate(dated) if post.id == id_), None)

    def post_at(i: int) -> dict[str, str] | None:
        if not 0 <= i < len(dated):
            return None
        return {"id": dated[i].id, "title": fmt.title_of(dated[i].title), "day": dated[i].day}

    if position is None:
        return {"earlier": None, "later": None}
    return {"earlier": post_at(position - 1), "later": post_at(position + 1)}
