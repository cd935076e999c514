"""The Posts page: the report, every post, and the author's decisions."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from starlette.routing import BaseRoute

from ownwords.archive import report_view as summary
from ownwords.archive.blog_name import blog_name
from ownwords.archive.corpus import training_text
from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.file_list import FileEntry, list_files
from ownwords.archive.report import PostSummary, Report
from ownwords.archive.report_view import report_view
from ownwords.archive.selection import (
    Choices,
    Decision,
    read_choices,
    select_posts,
    write_choices,
)
from ownwords.archive.settings import ProvenanceConfig
from ownwords.archive.store import Archive
from ownwords.core.config import resolve
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.serve.app_state import AppState
from ownwords.serve.archive_access import CachedReport
from ownwords.serve.errors import ApiError, invalid, not_found
from ownwords.serve.json_api import ApiCall, json_route
from ownwords.view import format as fmt
from ownwords.view import html

_PAGE_SIZE, _MAX_PAGE_SIZE = 50, 200
_MAX_TAGS = 200
_MAX_TWINS = 20
_MAX_TITLE = 60
_UNDATED = "none"
# The origin of segments that are not the author's own words.
_ORIGINS = {"quote": "quoted", "code": "code", "table": "table", "log": "machine"}


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /api/corpus, and /api/workspace."""
    return [
        json_route(state, "GET", "/api/workspace", show_workspace),
        json_route(state, "GET", "/api/corpus", show_report),
        json_route(state, "GET", "/api/corpus/facets", show_facets),
        json_route(
            state, "GET", "/api/corpus/posts", lambda s, call: find_posts(s.report(), call.query)
        ),
        json_route(state, "GET", "/api/corpus/files", find_files),
        json_route(state, "GET", "/api/corpus/post", show_post),
        json_route(state, "GET", "/api/corpus/decisions", list_decisions),
        json_route(state, "POST", "/api/corpus/decide", decide),
    ]


def show_workspace(state: AppState, _: ApiCall) -> dict[str, str]:
    """Show the name of the blog, and what was read last in the folders that are followed."""
    titles = state.follower.titles
    what = fmt.quoted(titles[0], _MAX_TITLE) if len(titles) == 1 else fmt.count(len(titles), "text")
    read = f"Read just now: {what}" if titles else ""
    return {"name": blog_name(state.workspace.root), "read": read}


def show_report(state: AppState, _: ApiCall) -> dict[str, str]:
    """Show the report of the last look, without commands and folders, which the page replaces."""

    def drawn(cached: CachedReport) -> str:
        sources = [replace(each, path=Path(each.path).name) for each in cached.report.sources]
        shown = replace(cached.report, command="", sources=sources)
        return str(html.fragment(report_view(shown)))

    return {"html": state.report.derived("report", drawn)}


# --- lists ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How the author's own words are used; the three counts add up to all of them."""

    learned_words: int  # used for training
    held_out_words: int  # held out, to choose and to judge the model
    left_out_words: int


def word_counts(posts: Iterable[PostSummary]) -> WordCounts:
    """Count how the words of some posts are used."""
    learned = held_out = own = 0
    for post in posts:
        own += post.own_words
        learned += post.training_words if post.split == "train" else 0
        held_out += post.training_words if post.split in ("validation", "test") else 0
    return WordCounts(learned, held_out, own - learned - held_out)


_SORT_KEYS: Mapping[str, Callable[[PostSummary], Any]] = {
    "date": lambda post: post.day,
    "words": lambda post: (post.own_words, post.words),
    "share": lambda post: post.share,
    "title": lambda post: post.title.casefold(),
    "learned_words": lambda post: word_counts([post]).learned_words,
}


def find_posts(cached: CachedReport, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of the posts that match a query, with the totals of their words.

    Invalid values of the query are ignored.
    """
    sort = query.get("sort", "")
    sort = sort if sort in _SORT_KEYS else "date"
    first = _number(query.get("first", ""), 0)
    most = min(_MAX_PAGE_SIZE, max(1, _number(query.get("most", ""), _PAGE_SIZE)))
    posts = [
        post for post in cached.report.posts if _matches(post, cached.tags.get(post.id, ()), query)
    ]
    # Posts without a date come last. Ties keep the report's order: longest first.
    undated = [post for post in posts if not post.day] if sort == "date" else []
    dated = [post for post in posts if post.day] if sort == "date" else posts
    rows = sorted(dated, key=_SORT_KEYS[sort], reverse=query.get("order") != "up") + undated
    pages = sum(post.kind == "page" for post in posts)
    return {
        "total": len(posts),
        "texts": summary.count_texts(len(posts) - pages, pages),
        "own_words": sum(post.own_words for post in posts),
        **asdict(word_counts(posts)),
        "first": first,
        "rows": [_row(post, cached.tags) for post in rows[first : first + most]],
    }


def find_files(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Return a page of the files that match a query, those that were left out first."""

    def listed(cached: CachedReport) -> list[FileEntry]:
        return sorted(list_files(cached.report, state.workspace.root), key=lambda file: file.status)

    words, status = call.query.get("words", "")[:200].casefold().split(), call.query.get("status")
    files: list[FileEntry] = state.report.derived("files", listed)
    found = [file for file in files if file.matches(words)]
    counts = Counter(file.status for file in found)
    found = [file for file in found if not status or file.status == status]
    first = _number(call.query.get("first", ""), 0)
    rows = found[first : first + _PAGE_SIZE]
    return {"total": len(found), "counts": [*counts.items()], "first": first, "rows": rows}


def _matches(post: PostSummary, tags: Sequence[str], query: Mapping[str, str]) -> bool:
    """Whether the post passes all filters of the query."""
    values: Mapping[str, Sequence[str]] = {
        "decision": [post.decision],
        "split": [post.split],
        "kind": [post.kind],
        "year": [_year(post)],
        "flag": post.flags,
        "tag": tags,
    }
    title = post.title.casefold()
    return all(
        not query.get(name) or query[name] in allowed for name, allowed in values.items()
    ) and all(word in title for word in query.get("title", "")[:200].casefold().split())


def _year(post: PostSummary) -> str:
    return post.day[:4] or _UNDATED


def _number(text: str, default: int) -> int:
    # isdecimal: int() rejects superscript digits; at most nine: int() of many digits is slow.
    return int(text) if text.isdecimal() and len(text) < 10 else default


def _row(post: PostSummary, tags: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return a post as JSON, with its decision in words."""
    return asdict(post) | {
        "title": fmt.title_of(post.title),
        **asdict(word_counts([post])),
        "tags": list(tags.get(post.id, ())),
        "decided": summary.decision(post),
        "flagged": summary.flags(post),
    }


def show_facets(state: AppState, _: ApiCall) -> Any:  # noqa: ANN401 - JSON
    """List the values of each filter, with the number of posts."""

    def count(cached: CachedReport) -> dict[str, list[tuple[str, int]]]:
        posts = cached.report.posts
        tags = Counter(tag for post in posts for tag in cached.tags.get(post.id, ()))
        return {
            "years": sorted(Counter(map(_year, posts)).items(), reverse=True),
            "tags": sorted(tags.most_common(_MAX_TAGS), key=lambda item: item[0].casefold()),
            "decisions": Counter(post.decision for post in posts).most_common(),
            "splits": Counter(post.split for post in posts if post.split).most_common(),
            "kinds": Counter(post.kind for post in posts).most_common(),
            "flags": Counter(flag for post in posts for flag in post.flags).most_common(),
        }

    return state.report.derived("facets", count)


# --- one post ------------------------------------------------------------------------------------


def show_post(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Show a post, and how each part of it is used."""
    cached, id_ = state.report(), call.query.get("id", "")
    document = next(state.archive().documents([id_]), None)
    if document is None:
        raise _no_such_post(id_)
    post = cached.post(id_) or _unreported(state.archive(), document)
    try:
        if cached.post(id_) is None:
            raise not_found("this text is new, and will be compared with the others in a moment")
        decision = _decisions(state).about(id_, read_choices(state.workspace.choices))
    except OwnwordsError as error:  # show the post even if choices.toml is invalid
        decision = {"error": {"message": error.message, "hint": error.hint}}
    return {
        "post": _row(post, cached.tags) | {"author": document.author, "url": document.url},
        "segments": _segments(document, word_counts([post]).learned_words, post.decision),
        "twins": _twins(cached.report, id_),
        "decision": decision,
    }


def _unreported(archive: Archive, document: Document) -> PostSummary:
    """Return the entry of a text that was read after the last look."""
    ((_, features),) = archive.features([document.id])
    return PostSummary(
        id=document.id,
        title=document.title,
        url=document.url,
        day=document.day,
        kind=document.kind,
        words=features.all_words,
        own_words=features.own_words,
        decision="leave out",
    )


def _no_such_post(id_: str) -> ApiError:
    return not_found(
        f"there is no post {fmt.plain(id_, 80)!r} in the archive",
        hint="it may have been deleted or renamed: search for its title",
    )


def _segments(document: Document, words: int, decision: str) -> list[dict[str, Any]]:
    """Return the parts of a post, their origin, and whether they are used for training."""
    learned = training_text(document, words) if words and decision != "leave out" else ""
    rows, position = [], 0
    for segment in document.segments:
        start = learned.find(segment.text, position) if segment.kind in OWN_KINDS else -1
        position = start + len(segment.text) if start >= 0 else position
        whose = _ORIGINS.get(segment.kind, "own")
        rows.append(asdict(segment) | {"whose": whose, "learned": start >= 0})
    return rows


def _twins(report: Report, id_: str) -> list[dict[str, str]]:
    """Return the posts that share text with a post."""
    titles = {post.id: fmt.title_of(post.title) for post in report.posts}
    twins = [
        {
            "id": (other := pair.other_id if pair.id == id_ else pair.id),
            "title": titles.get(other, ""),
            "shared": "the same text" if pair.exact else f"{fmt.percent(pair.share)} shared",
        }
        for pair in report.duplicates
        if id_ in (pair.id, pair.other_id)
    ]
    return twins[:_MAX_TWINS]


# --- decisions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecisionRequest:
    """The body of a POST to /api/corpus/decide; "proposed" leaves the decision to ownwords.

    It applies to the post `id`, or to all posts that match the list's filters.
    """

    decision: Decision | Literal["proposed"]
    id: str = ""
    matching: Mapping[str, str] = field(default_factory=dict)


def list_decisions(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the posts that stand out, and the decisions about them."""
    return _decisions(state).overview(read_choices(state.workspace.choices))


def decide(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Add a decision to `choices.toml`, keeping the others; return its effect."""
    asked, path = call.body(DecisionRequest), state.workspace.choices
    decisions, cached, ids = _decisions(state), state.report(), [asked.id]
    if asked.matching:
        tags, filters = cached.tags, asked.matching
        ids = [
            each.id
            for each in cached.report.posts
            if _matches(each, tags.get(each.id, ()), filters)
        ]
    elif not asked.id:
        raise invalid("say which posts: `id` or `matching` is missing", param="id")
    # A running look also rewrites the file, and holds the archive's lock meanwhile.
    with state.archive().transaction():
        choices = read_choices(path)
        for id_ in ids:
            choices.pop(id_, None)
            if asked.decision != "proposed":
                choices[id_] = asked.decision
        changed = None if asked.matching else decisions.about(asked.id, choices)
        after = decisions.after(choices)
        summaries = [after[post.id] for post in cached.report.posts]
        write_atomically(path, write_choices(summaries, choices))
    return decisions.overview(choices) | {"changed": changed, "decided": len(ids)}


def _decisions(state: AppState) -> "_Decisions":
    decisions: _Decisions = state.report.derived(
        "decisions", lambda cached: _Decisions(state.workspace, cached)
    )
    return decisions


class _Decisions:
    """The decisions about the posts of one look, and those that the next look will make."""

    def __init__(self, workspace: Workspace, cached: CachedReport) -> None:
        self._workspace, self._cached = workspace, cached
        # The last selection and its inputs: showing any post needs it.
        self._last: tuple[object, Mapping[str, PostSummary]] = None, {}

    def about(self, id_: str, choices: Choices) -> dict[str, Any]:
        """Return the state of a post, and its state after the next look."""
        now, then = self._cached.post(id_), self.after(choices).get(id_)
        if now is None or then is None:
            raise _no_such_post(id_)
        return self._row(now, then, is_chosen=id_ in choices)

    def overview(self, choices: Choices) -> dict[str, Any]:
        """Return the posts that need a decision, and the numbers of training words."""
        after = self.after(choices)
        rows = [
            self._row(post, after[post.id], is_chosen=post.id in choices)
            for post in self._cached.report.posts
            if post.flags
            or post.decision != "keep"
            or post.id in choices
            or _is_pending(post, after[post.id])
        ]
        return {
            "rows": rows,
            "pending": sum(row["pending"] for row in rows),
            "words_now": self._cached.report.totals.training_words,
            "words_then": sum(post.training_words for post in after.values()),
        }

    def _row(self, now: PostSummary, then: PostSummary, *, is_chosen: bool) -> dict[str, Any]:
        return {
            "id": now.id,
            "title": fmt.title_of(now.title),
            "own_words": now.own_words,
            "share": now.share,
            "flagged": summary.flags(now),
            "now": _decision(now),
            "then": _decision(then),
            "by": "you" if is_chosen else "default",
            "pending": _is_pending(now, then),
        }

    def after(self, choices: Choices) -> Mapping[str, PostSummary]:
        """Return the decision about each post that the next look will make with these choices."""
        key = _read_config(self._workspace), dict(choices)
        if self._last[0] != key:
            report = self._cached.report
            outliers = report.style_outliers
            self._last = key, select_posts(report.posts, report.duplicates, outliers, *key)
        return self._last[1]


def _is_pending(now: PostSummary, then: PostSummary) -> bool:
    return (now.decision, now.training_words) != (then.decision, then.training_words)


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
    for path in (Path(workspace.settings.name), workspace.settings):
        with suppress(OSError, ValueError, AttributeError):  # `look` reports an invalid file
            table = tomllib.loads(path.read_bytes().decode("utf-8-sig")).get("provenance", {})
            values |= {name: x for name, x in table.items() if name in names}
    return resolve(ProvenanceConfig, flags=values).settings
