"""The Posts page: the report, every post, the search, and the author's decisions."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from starlette.routing import BaseRoute

from ownwords.archive import report_view as summary
from ownwords.archive.choices import read_choices, write_choices
from ownwords.archive.document import OWN_KINDS, Document, Segment
from ownwords.archive.features import Features
from ownwords.archive.report import Duplicate, PostSummary, Report, UnlikePost
from ownwords.archive.report_view import report_view
from ownwords.archive.selection import AuthorChoice, Decision, PostDecision, PostFacts, select_posts
from ownwords.archive.settings import ProvenanceConfig
from ownwords.archive.store import Archive
from ownwords.ask.passages import RetrievedPassage, content_stems, excerpt_of, stems
from ownwords.core.config import parse_toml, resolve
from ownwords.core.errors import OwnwordsError
from ownwords.core.version import __version__
from ownwords.core.workspace import SUFFIX, Workspace, path_text, write_atomically
from ownwords.evaluation.scorecard import DATA
from ownwords.serve.app_state import AppState
from ownwords.serve.archive_access import CachedReport
from ownwords.serve.errors import ApiError
from ownwords.serve.json_api import ApiCall, NoBody, json_route
from ownwords.serve.source_list import command_here
from ownwords.training.corpus import training_text
from ownwords.view import format as fmt
from ownwords.view import html

Sort = Literal["date", "words", "share", "title", "learned_words"]
PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
_MAX_TAGS = 200
_UNDATED = "none"
HELD_OUT = ("validation", "test")

_SORT_KEYS: Mapping[Sort, Callable[[PostSummary], tuple[Any, ...]]] = {
    "date": lambda post: (post.day,),
    "words": lambda post: (post.own_words, post.words),
    "share": lambda post: (post.share,),
    "title": lambda post: (post.title.casefold(),),
    "learned_words": lambda post: (word_counts([post]).learned_words,),
}


@dataclass(frozen=True, slots=True)
class PostQuery:
    """The filters, order and page of a query for posts; empty filters match everything."""

    sort: Sort = "date"
    descending: bool = True
    first: int = 0
    most: int = PAGE_SIZE
    decision: str = ""
    split: str = ""  # train, validation, test
    tag: str = ""
    year: str = ""  # a year such as "2014", or "none" for posts without a date
    kind: str = ""  # post, page
    flag: str = ""
    title: str = ""  # words that must occur, in any order

    def matches(self, post: PostSummary, tags: tuple[str, ...]) -> bool:
        """Whether the post passes all filters."""
        pairs = (
            (self.decision, post.decision),
            (self.split, post.split),
            (self.kind, post.kind),
            (self.year, post.day[:4] or _UNDATED),
        )
        if any(wanted and wanted != value for wanted, value in pairs):
            return False
        if (self.flag and self.flag not in post.flags) or (self.tag and self.tag not in tags):
            return False
        title = post.title.casefold()
        return all(word in title for word in self.title.casefold().split())


def parse_query(query: Mapping[str, str]) -> PostQuery:
    """Parse the query string of a URL; invalid values are ignored."""
    sorts = [sort for sort in get_args(Sort) if sort == query.get("sort")]
    filters = ("decision", "split", "tag", "year", "kind", "flag")
    return PostQuery(
        sort=sorts[0] if sorts else "date",
        descending=query.get("order", "") != "up",
        first=_number(query.get("first", ""), 0, 10_000_000),
        most=max(1, _number(query.get("most", ""), PAGE_SIZE, MAX_PAGE_SIZE)),
        title=query.get("title", "")[:200],
        **{name: query.get(name, "") for name in filters},
    )


def find_posts(cached: CachedReport, query: PostQuery) -> dict[str, Any]:
    """A page of rows, with the totals of posts and words that match."""
    posts = [x for x in cached.report.posts if query.matches(x, cached.tags.get(x.id, ()))]
    # Posts without a date come last. Ties keep the report's order, longest first.
    undated = [post for post in posts if not post.day] if query.sort == "date" else []
    dated = [post for post in posts if post.day] if query.sort == "date" else posts
    rows = sorted(dated, key=_SORT_KEYS[query.sort], reverse=query.descending) + undated
    return {
        "total": len(posts),
        "texts": count_texts(posts),
        "own_words": sum(post.own_words for post in posts),
        **asdict(word_counts(posts)),
        "first": query.first,
        "rows": [row(post, cached.tags) for post in rows[query.first : query.first + query.most]],
    }


def count_texts(posts: Iterable[PostSummary]) -> str:
    """Count posts and pages in words, such as "53 posts and 1 page"."""
    kinds = Counter("page" if post.kind == "page" else "post" for post in posts)
    counted = (fmt.count(kinds[kind], kind) for kind in ("post", "page") if kinds[kind])
    return " and ".join(counted) or "No posts"


@dataclass(frozen=True, slots=True)
class WordCounts:
    """What becomes of the author's own words: the three add up to all of them."""

    learned_words: int  # a model is trained on
    held_out_words: int  # held back, to choose and to judge the model by
    left_out_words: int


def word_counts(posts: Iterable[PostSummary]) -> WordCounts:
    """Count what becomes of the words of some posts."""
    learned = held_out = own = 0
    for post in posts:
        own += post.own_words
        learned += post.training_words if post.split == "train" else 0
        held_out += post.training_words if post.split in HELD_OUT else 0
    return WordCounts(learned, held_out, own - learned - held_out)


def row(post: PostSummary, tags: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """One post as JSON, with its decision in words."""
    return asdict(post) | {
        "title": fmt.title_of(post.title),
        **asdict(word_counts([post])),
        "tags": list(tags.get(post.id, ())),
        "decided": summary.decision(post),
        "flagged": summary.flags(post),
        "reason": fmt.sentence(post.reason) if post.reason else "",
    }


def facets(cached: CachedReport) -> dict[str, list[tuple[str, int]]]:
    """The values of each filter, with the number of posts that match."""
    posts = cached.report.posts
    tags = Counter(tag for post in posts for tag in cached.tags.get(post.id, ()))
    return {
        "years": sorted(Counter(post.day[:4] or _UNDATED for post in posts).items(), reverse=True),
        "tags": sorted(tags.most_common(_MAX_TAGS), key=lambda item: item[0].casefold()),
        "decisions": Counter(post.decision for post in posts).most_common(),
        "splits": Counter(post.split for post in posts if post.split).most_common(),
        "kinds": Counter(post.kind for post in posts).most_common(),
        "flags": Counter(flag for post in posts for flag in post.flags).most_common(),
    }


def _number(text: str, default: int, most: int) -> int:
    # isdecimal: int() rejects superscript digits; at most nine: int() of many digits is slow.
    return min(int(text), most) if text.isdecimal() and len(text) < 10 else default


_SelectionKey = tuple[ProvenanceConfig, tuple[AuthorChoice, ...]]
_SECTION = "provenance"


@dataclass(frozen=True)
class DecisionRequest:
    """The body of a POST to /api/corpus/decide; "proposed" leaves the decision to ownwords."""

    id: str
    decision: Decision | Literal["proposed"]


@dataclass(frozen=True)
class _Settings:
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)


@dataclass(frozen=True)
class SelectionInputs:
    """The inputs to the selection of posts, from one look; small even for large texts."""

    posts: list[PostFacts]
    pairs: list[Duplicate]
    outliers: list[UnlikePost]
    # Cache of the last selection by its key, since showing any post needs it.
    last: dict[_SelectionKey, dict[str, PostDecision]] = field(default_factory=dict)


def read_selection_inputs(archive: Archive, cached: CachedReport) -> SelectionInputs:
    """Read the inputs from the archive, which takes about 0.1 ms per text."""
    report = cached.report
    posts = []
    for id_, features in archive.features():
        if id_ in cached.positions:
            post = report.posts[cached.positions[id_]]
            day = date.fromisoformat(post.day) if post.day else None
            posts.append(PostFacts(id_, post.title, _without_comparisons(features), day))
    return SelectionInputs(posts, report.duplicates, report.style_outliers)


def preview(
    workspace: Workspace, inputs: SelectionInputs, choices: Sequence[AuthorChoice]
) -> Mapping[str, PostDecision]:
    """Compute the decision about each post that the next look will make with these choices."""
    key = _read_config(workspace), tuple(choices)
    decisions = inputs.last.get(key)
    if decisions is None:
        decisions = select_posts(inputs.posts, inputs.pairs, inputs.outliers, *key)
        inputs.last.clear()
        inputs.last[key] = decisions
    return decisions


def overview(workspace: Workspace, cached: CachedReport, inputs: SelectionInputs) -> dict[str, Any]:
    """The posts that need a decision, with their present state and that after the next look."""
    choices = read_choices(workspace.choices)
    chosen = {choice.id for choice in choices}
    after = preview(workspace, inputs, choices)

    def is_listed(post: PostSummary) -> bool:
        stands_out = post.flags or post.decision != "keep" or post.id in chosen
        return bool(stands_out) or _is_pending(post, after[post.id])

    posts = [post for post in cached.report.posts if post.id in after and is_listed(post)]
    rows = [_row(cached, post.id, after, chosen) for post in posts]
    return {
        "rows": rows,
        "pending": sum(row["pending"] for row in rows),
        "words_now": cached.report.totals.training_words,
        "words_then": sum(decision.training_words for decision in after.values()),
    }


def decision_about(
    workspace: Workspace, cached: CachedReport, inputs: SelectionInputs, id_: str
) -> dict[str, Any]:
    """The present state of one post, and its state after the next look."""
    choices = read_choices(workspace.choices)
    after = preview(workspace, inputs, choices)
    if id_ not in after:
        raise no_such_post(id_)
    return _row(cached, id_, after, {choice.id for choice in choices})


def decide(
    workspace: Workspace,
    archive: Archive,
    cached: CachedReport,
    inputs: SelectionInputs,
    request: DecisionRequest,
) -> dict[str, Any]:
    """Add a decision to `choices.toml`, keeping the others; return its effect."""
    id_ = request.id
    if id_ not in cached.positions:
        raise no_such_post(id_)
    # A running look rewrites the file, too, and keeps the archive locked meanwhile.
    with archive.transaction():
        choices = [choice for choice in read_choices(workspace.choices) if choice.id != id_]
        if request.decision != "proposed":
            choices.append(AuthorChoice(id_, request.decision))
        after = preview(workspace, inputs, choices)
        if id_ not in after:
            raise no_such_post(id_)
        posts = [_decided(post, after[post.id]) for post in cached.report.posts if post.id in after]
        write_atomically(workspace.choices, write_choices(posts, choices))
    changed = _row(cached, id_, after, {choice.id for choice in choices})
    return overview(workspace, cached, inputs) | {"changed": changed}


def no_such_post(id_: str) -> ApiError:
    """Create the error for a post that is not in the archive."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"there is no post {fmt.plain(id_, 80)!r} in the archive",
        hint="it may have been deleted or renamed: search for its title",
    )


def _row(
    cached: CachedReport, id_: str, after: Mapping[str, PostDecision], chosen: set[str]
) -> dict[str, Any]:
    post, decision = cached.report.posts[cached.positions[id_]], after[id_]
    return {
        "id": post.id,
        "title": fmt.title_of(post.title),
        "day": post.day,
        "words": post.words,
        "own_words": post.own_words,
        "share": post.share,
        "flagged": summary.flags(post),
        "now": _decision(post),
        "then": _decision(_decided(post, decision)),
        "by": "you" if id_ in chosen else "default",
        "pending": _is_pending(post, decision),
    }


def _decided(post: PostSummary, decision: PostDecision) -> PostSummary:
    """The post as it is after the next look."""
    return replace(
        post,
        decision=decision.decision,
        reason=decision.reason,
        training_words=decision.training_words,
    )


def _is_pending(post: PostSummary, decision: PostDecision) -> bool:
    after = decision.decision, decision.training_words
    return (post.decision, post.training_words) != after


def _decision(post: PostSummary) -> dict[str, Any]:
    return {
        "decision": post.decision,
        "word": summary.decision(post),
        "reason": fmt.sentence(post.reason) if post.reason else "",
        "training_words": post.training_words,
    }


def _without_comparisons(features: Features) -> Features:
    """The features without the large ones that only the comparison of posts needs."""
    empty = np.empty(0)
    return replace(
        features,
        sketch=empty.astype(np.uint64),
        vocabulary=empty.astype(np.uint32),
        counts=empty.astype(np.uint16),
        style=empty.astype(np.float32),
    )


def _read_config(workspace: Workspace) -> ProvenanceConfig:
    """Read the settings of the next look from the settings files."""
    names = {field.name for field in fields(ProvenanceConfig)}
    values: dict[str, object] = {}
    for path in dict.fromkeys(
        (Path(workspace.settings.name).absolute(), workspace.settings.absolute())
    ):
        if not path.exists():
            continue
        try:
            table = parse_toml(path.read_bytes().decode("utf-8-sig")).get(_SECTION, {})
        except ValueError:
            continue  # `look` reports the invalid file
        if isinstance(table, dict):
            values |= {f"{_SECTION}.{name}": x for name, x in table.items() if name in names}
    return resolve(_Settings, flags=values).settings.provenance


_MAX_PASSAGES = 20
_WORD = re.compile(r"[^\W_]+")
_MAX_QUESTION = 1000  # characters of a search query that are used
_MAX_TWINS = 20
# Labels of the segments that are not the author's own words.
_ORIGINS = {"quote": "quoted", "code": "code", "table": "table", "log": "machine"}


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/corpus, and /api/workspace."""
    corpus = _Corpus(state)
    return [
        json_route(state, "GET", "/api/workspace", corpus.workspace),
        json_route(state, "GET", "/api/corpus", corpus.report),
        json_route(state, "GET", "/api/corpus/facets", corpus.facets),
        json_route(state, "GET", "/api/corpus/posts", corpus.posts),
        json_route(state, "GET", "/api/corpus/post", corpus.post),
        json_route(state, "GET", "/api/corpus/passage", corpus.passage),
        json_route(state, "GET", "/api/corpus/search", corpus.search),
        json_route(state, "GET", "/api/corpus/decisions", corpus.decisions),
        json_route(state, "POST", "/api/corpus/decide", corpus.decide, body=DecisionRequest),
    ]


class _Corpus:
    """Computes the responses of the routes, in the threads of `AppState.run`."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._cache = state.report

    def workspace(self, _: ApiCall[NoBody]) -> dict[str, Any]:
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
                "score": (workspace.root / DATA).exists(),
            },
        }

    def report(self, _: ApiCall[NoBody]) -> Any:  # noqa: ANN401 - JSON
        """Show the report of the last look."""
        command = self._command()
        drawn = self._cache.derived("report", lambda it: _drawn(it.report, command))
        return {"html": drawn, "command": command}

    def _command(self) -> str:
        """The command that reads the posts again, for the workspace as it lies now."""
        return fmt.plain(command_here(self._cache().report.command, self._state.workspace.root))

    def facets(self, _: ApiCall[NoBody]) -> Any:  # noqa: ANN401 - JSON
        """List the values of each filter, with the number of posts."""
        return self._cache.derived("facets", facets)

    def posts(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """List posts: filtered, sorted, and in pages."""
        return find_posts(self._cache(), parse_query(call.query))

    def post(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """Show one post, and what becomes of each part of it."""
        cached, archive = self._cache(), self._state.archive()
        id_ = call.query.get("id", "")
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
            return decision_about(self._state.workspace, cached, inputs, id_)
        except OwnwordsError as error:  # show the post even if choices.toml is invalid
            return {"error": {"message": error.message, "hint": error.hint}}

    def passage(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """Show one passage."""
        text = call.query.get("id", "")
        number = int(text) if text.isdecimal() and len(text) < 16 else -1
        passages = self._state.searcher().index.passages([(number, 0.0)])
        if not passages:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "this passage is no longer in the archive",
                hint="its post has changed; search for it again",
            )
        return _passage(passages[0])

    def search(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """Search the passages of all posts."""
        question = call.query.get("q", "")[:_MAX_QUESTION].strip()
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

    def decisions(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """List the posts that stand out, and what becomes of them."""
        inputs = self._inputs(self._state.archive())
        listed = overview(self._state.workspace, self._cache(), inputs)
        return listed | {"command": self._command()}

    def decide(self, call: ApiCall[DecisionRequest]) -> dict[str, Any]:
        """Decide what becomes of a post in the next training."""
        archive, cached = self._state.archive(), self._cache()
        inputs = self._inputs(archive)
        return decide(self._state.workspace, archive, cached, inputs, call.body)

    def _inputs(self, archive: Archive) -> SelectionInputs:
        inputs: SelectionInputs = self._cache.derived(
            "selection", lambda cached: read_selection_inputs(archive, cached)
        )
        return inputs


def _drawn(report: Report, command: str) -> str:
    return str(html.fragment(report_view(replace(report, command=command))))


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
