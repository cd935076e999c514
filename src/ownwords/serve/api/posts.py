"""The Posts page: the report, every post, the search, and the author's decisions."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, get_args

from starlette.routing import BaseRoute

from ownwords.archive import report_view as summary
from ownwords.archive.corpus import training_text
from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.report import PostSummary, Report
from ownwords.archive.report_view import report_view
from ownwords.archive.selection import (
    AuthorChoice,
    Decision,
    read_choices,
    select_posts,
    write_choices,
)
from ownwords.archive.settings import ProvenanceConfig
from ownwords.archive.store import Archive
from ownwords.ask.passages import Passage, content_stems, excerpt_of, stems
from ownwords.core.config import parse_toml, resolve
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.serve.app_state import AppState
from ownwords.serve.archive_access import CachedReport
from ownwords.serve.errors import ApiError
from ownwords.serve.json_api import ApiCall, NoBody, json_route
from ownwords.serve.source_list import command_here
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


_SECTION = "provenance"


@dataclass(frozen=True)
class DecisionRequest:
    """The body of a POST to /api/corpus/decide; "proposed" leaves the decision to ownwords."""

    id: str
    decision: Decision | Literal["proposed"]


class _Decisions:
    """What becomes of the posts of one look, and what will after the next one."""

    def __init__(self, workspace: Workspace, cached: CachedReport) -> None:
        self._workspace, self._cached = workspace, cached
        # The last selection and what it was made with, since showing any post needs it.
        self._last: tuple[object, Mapping[str, PostSummary]] = None, {}

    def about(self, id_: str, choices: Sequence[AuthorChoice]) -> dict[str, Any]:
        """The present state of one post, and its state after the next look."""
        post, decision = self._cached.post(id_), self._after(choices).get(id_)
        if post is None or decision is None:
            raise no_such_post(id_)
        return {
            "id": post.id,
            "title": fmt.title_of(post.title),
            "own_words": post.own_words,
            "share": post.share,
            "flagged": summary.flags(post),
            "now": _decision(post),
            "then": _decision(decision),
            "by": "you" if any(choice.id == id_ for choice in choices) else "default",
            "pending": _is_pending(post, decision),
        }

    def overview(self, choices: Sequence[AuthorChoice]) -> dict[str, Any]:
        """The posts that need a decision, and how many words are learned from."""
        after, chosen = self._after(choices), {choice.id for choice in choices}
        rows = [
            self.about(post.id, choices)
            for post in self._cached.report.posts
            if post.id in after
            and (
                post.flags
                or post.decision != "keep"
                or post.id in chosen
                or _is_pending(post, after[post.id])
            )
        ]
        return {
            "rows": rows,
            "pending": sum(row["pending"] for row in rows),
            "words_now": self._cached.report.totals.training_words,
            "words_then": sum(decision.training_words for decision in after.values()),
        }

    def decide(self, archive: Archive, request: DecisionRequest) -> dict[str, Any]:
        """Add a decision to `choices.toml`, keeping the others; return its effect."""
        # A running look rewrites the file, too, and keeps the archive locked meanwhile.
        with archive.transaction():
            before = read_choices(self._workspace.choices)
            choices = [choice for choice in before if choice.id != request.id]
            if request.decision != "proposed":
                choices.append(AuthorChoice(request.id, request.decision))
            changed, after = self.about(request.id, choices), self._after(choices)
            posts = [after[post.id] for post in self._cached.report.posts]
            write_atomically(self._workspace.choices, write_choices(posts, choices))
        return self.overview(choices) | {"changed": changed}

    def _after(self, choices: Sequence[AuthorChoice]) -> Mapping[str, PostSummary]:
        """The decision about each post that the next look will make with these choices."""
        key = _read_config(self._workspace), tuple(choices)
        if self._last[0] != key:
            report = self._cached.report
            outliers = report.style_outliers
            self._last = key, select_posts(report.posts, report.duplicates, outliers, *key)
        return self._last[1]


def no_such_post(id_: str) -> ApiError:
    """Create the error for a post that is not in the archive."""
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"there is no post {fmt.plain(id_, 80)!r} in the archive",
        hint="it may have been deleted or renamed: search for its title",
    )


def _is_pending(post: PostSummary, decision: PostSummary) -> bool:
    after = decision.decision, decision.training_words
    return (post.decision, post.training_words) != after


def _decision(post: PostSummary) -> dict[str, Any]:
    return {
        "decision": post.decision,
        "word": summary.decision(post),
        "reason": fmt.sentence(post.reason) if post.reason else "",
        "training_words": post.training_words,
    }


def _read_config(workspace: Workspace) -> ProvenanceConfig:
    """Read the settings of the next look from the settings files."""
    names = {field.name for field in fields(ProvenanceConfig)}
    values: dict[str, object] = {}
    here, there = Path(workspace.settings.name).absolute(), workspace.settings.absolute()
    for path in dict.fromkeys((here, there)):
        try:
            table = parse_toml(path.read_bytes().decode("utf-8-sig")).get(_SECTION, {})
        except (OSError, ValueError):
            continue  # `look` reports an invalid file
        if isinstance(table, dict):
            values |= {name: x for name, x in table.items() if name in names}
    return resolve(ProvenanceConfig, flags=values).settings


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
        """Show the name of the workspace."""
        try:
            return {"name": summary.name(self._cache().report)}
        except ApiError:  # nothing has been read yet
            return {"name": self._state.own_name}

    def report(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """Show the report of the last look, with the command for the workspace as it lies now."""
        root = self._state.workspace.root

        def drawn(cached: CachedReport) -> str:
            command = fmt.plain(command_here(cached.report.command, root))
            return str(html.fragment(report_view(replace(cached.report, command=command))))

        return {"html": self._cache.derived("report", drawn)}

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
        post = cached.post(id_)
        document = next(archive.documents([id_]), None) if post else None
        if post is None or document is None:
            raise no_such_post(id_)
        return {
            "post": row(post, cached.tags) | {"author": document.author, "url": document.url},
            "segments": _segments(document, word_counts([post]).learned_words, post.decision),
            "findings": _findings(cached.report, id_),
            "around": _neighbours(cached.report, id_),
            "decision": self._decision(id_),
        }

    def _decision(self, id_: str) -> dict[str, Any]:
        try:
            return self._decided().about(id_, read_choices(self._state.workspace.choices))
        except OwnwordsError as error:  # show the post even if choices.toml is invalid
            return {"error": {"message": error.message, "hint": error.hint}}

    def passage(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """Show the text of one passage."""
        text = call.query.get("id", "")
        number = int(text) if text.isdecimal() and len(text) < 16 else -1
        passages = self._state.searcher().index.passages([(number, 0.0)])
        if not passages:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "this passage is no longer in the archive",
                hint="its post has changed; search for it again",
            )
        return {"text": passages[0].text}

    def search(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """Search the passages of all posts."""
        question = call.query.get("q", "")[:_MAX_QUESTION].strip()
        if not question:
            return {"passages": [], "is_weak": False, "why": "", "nearest": [], "notes": []}
        result = self._state.searcher().find(question, limit=_MAX_PASSAGES)
        searched = result.searched_question(question)
        wanted = content_stems(searched)

        def hit(passage: Passage) -> dict[str, Any]:
            cosines = result.window_cosines.get(passage.id, ())
            text = passage.text
            # The words of the text, in its own spelling, that match the query.
            words = {word for word in _WORD.findall(text) if wanted & set(stems(word))}
            return asdict(passage) | {
                "title": fmt.title_of(passage.title),
                "excerpt": text[slice(*excerpt_of(searched, text, cosines).span)],
                "words": sorted(words),
            }

        return {
            "passages": [hit(passage) for passage in result.passages],
            "is_weak": result.is_weak,
            "why": fmt.sentence(result.why) if result.why else "",
            "nearest": [hit(passage) for passage in result.nearest],
            "notes": [substitution.note for substitution in result.substitutions],
        }

    def decisions(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """List the posts that stand out, and what becomes of them."""
        return self._decided().overview(read_choices(self._state.workspace.choices))

    def decide(self, call: ApiCall[DecisionRequest]) -> dict[str, Any]:
        """Decide what becomes of a post in the next training."""
        return self._decided().decide(self._state.archive(), call.body)

    def _decided(self) -> _Decisions:
        decisions: _Decisions = self._cache.derived(
            "decisions", lambda cached: _Decisions(self._state.workspace, cached)
        )
        return decisions


def _segments(document: Document, words: int, decision: str) -> list[dict[str, Any]]:
    """The parts of a post, whose words they are, and whether they are in the training text."""
    learned = training_text(document, words) if words and decision != "leave out" else ""
    rows, position = [], 0
    for segment in document.segments:
        start = learned.find(segment.text, position) if segment.kind in OWN_KINDS else -1
        position = start + len(segment.text) if start >= 0 else position
        whose = _ORIGINS.get(segment.kind, "own")
        rows.append(asdict(segment) | {"whose": whose, "learned": start >= 0})
    return rows


def _findings(report: Report, id_: str) -> dict[str, Any]:
    """The posts that share text with a post, and how its style differs from the others'."""
    twins = [
        {
            "id": pair.other_id if pair.id == id_ else pair.id,
            "title": fmt.title_of(pair.other_title if pair.id == id_ else pair.title),
            "shared": "the same text" if pair.exact else f"{fmt.percent(pair.share)} shared",
        }
        for pair in report.duplicates
        if id_ in (pair.id, pair.other_id)
    ]
    unlike = (summary.style_signs(post) for post in report.style_outliers if post.id == id_)
    return {"twins": twins[:_MAX_TWINS], "unlike": next(unlike, "")}


def _neighbours(report: Report, id_: str) -> dict[str, Any]:
    """The previous and the next post by date."""
    dated = sorted((post for post in report.posts if post.day), key=lambda p: (p.day, p.id))
    rows = [{"id": post.id, "title": fmt.title_of(post.title)} for post in dated]
    position = next((i for i, each in enumerate(rows) if each["id"] == id_), None)
    around = [None, *rows, None]
    earlier, later = (None, None) if position is None else (around[position], around[position + 2])
    return {"earlier": earlier, "later": later}
