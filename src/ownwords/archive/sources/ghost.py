"""Source: a Ghost export, the JSON file of Settings > Export, or a folder or zip that holds it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ownwords.archive import readability, untrusted_files
from ownwords.archive.dates import parse_moment
from ownwords.archive.document import (
    ExpectedCount,
    Markup,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    site_identity,
    status_of,
)
from ownwords.archive.text_repair import as_object, objects_in, text_value
from ownwords.core.errors import SourceError

NAME = "Ghost"

Row = dict[str, Any]

_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb'^(?:\xef\xbb\xbf)?\s*\{\s*"(?:db|data|meta)"\s*:'),
    ("*.json", "data/*.json"),
    (".json",),
    # Tables are sorted by name, so this one comes late in the file.
    anywhere=b'"posts"',
)
# Parts of rendered cards: buttons, players' times, and the descriptions of linked pages.
_CHROME = """
.kg-bookmark-container, .kg-button-card, .kg-signup-card, .kg-callout-emoji, .kg-audio-player,
.kg-video-player-container, .kg-file-card-metadata, .kg-btn, .kg-header-card-button,
.kg-product-card-button, .kg-product-card-rating, .kg-cta-button, .kg-cta-sponsor-label-wrapper
"""
_SITE_URL = "__GHOST_URL__"
_KEYS = ("id", "post_id", "tag_id", "author_id", "visibility")


def detect(path: Path) -> str | None:
    """Recognise JSON with Ghost's beginning and a "posts" table, or a folder or zip with it."""
    return "a Ghost export" if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the site, its posts and pages in the order of the export."""
    name, data = next(_EXPORTS.read(path), ("", b""))
    if not name:
        raise SourceError(
            f"{path} holds no Ghost export", hint="give the JSON file of Ghost's export"
        )
    tables = _tables(untrusted_files.parse_json(name, data))
    if tables is None:
        raise SourceError(
            f"{name} is JSON, but has no posts where a Ghost export has them (db, data, posts)",
            hint="give the file of Settings > Export in Ghost",
        )
    settings = {str(row.get("key")): row.get("value") for row in _rows(tables, "settings")}
    home = text_value(settings, "url").rstrip("/")
    title = text_value(settings, "title")
    yield SiteInfo(title or path.stem, identity=site_identity(home, title))
    if not home:
        yield SourceNote(
            "A Ghost export lacks the site's address, so posts are cited by title and date."
        )
    library = _ExportTables(tables, home)
    posts = _rows(tables, "posts")
    yield ExpectedCount(len(posts))
    for post in posts:
        yield library.document(post)
    if comments := len(_rows(tables, "comments")):
        yield SkippedItem("comment", "other people's words", comments)
    if broken := len(tables["posts"]) - len(posts):
        yield SkippedItem("post", "not in the form of a post", broken)


class _ExportTables:
    """The export's tags and authors, joined to their posts."""

    def __init__(self, tables: Row, home: str) -> None:
        self._home = home
        tags = {
            row.get("id"): text_value(row, "name")
            for row in _rows(tables, "tags")
            if row.get("visibility") != "internal" and not text_value(row, "name").startswith("#")
        }
        users = {row.get("id"): text_value(row, "name") for row in _rows(tables, "users")}
        self._tags = _joined(tables, "posts_tags", "tag_id", tags)
        self._authors = _joined(tables, "posts_authors", "author_id", users)
        self._users = users

    def document(self, post: Row) -> RawDocument | SkippedItem:
        identity = post.get("id") or text_value(post, "slug")
        kind = "page" if post.get("type") == "page" or post.get("page") in (1, True) else "post"
        ref, title, slug = f"{kind}/{identity}", text_value(post, "title"), text_value(post, "slug")
        if not identity:
            return SkippedItem("post", "it has neither an id nor a name", title=title)
        body, markup = _body(post)
        url = f"{self._home}/{slug}/" if self._home and slug else ""
        canonical = text_value(post, "canonical_url").replace(_SITE_URL, self._home)
        author = ", ".join(self._authors.get(identity, ()))
        return RawDocument(
            ref=ref,
            title=title,
            body=body.replace(_SITE_URL, self._home),
            markup=markup,
            status=status_of(text_value(post, "status")),
            kind="page" if kind == "page" else "post",
            date=parse_moment(post.get("published_at")) or parse_moment(post.get("created_at")),
            url=canonical if canonical.startswith("http") else url,
            author=author or self._users.get(post.get("author_id"), ""),
            tags=tuple(self._tags.get(identity, ())),
        )


def _body(post: Row) -> tuple[str, Markup]:
    """Return body and markup: the HTML that Ghost stores beside its own format, or Markdown."""
    if text_value(post, "html").strip():
        return readability.remove_chrome(text_value(post, "html"), _CHROME), "html"
    if text_value(post, "markdown").strip():
        return text_value(post, "markdown"), "markdown"
    return text_value(post, "plaintext"), "text"


def _joined(
    tables: Row, through: str, to: str, names: Mapping[object, str]
) -> dict[object, list[str]]:
    """Return the names linked to each post by the join table `through`, in its sort order."""
    joined: defaultdict[object, list[str]] = defaultdict(list)

    def order(row: Row) -> int:
        return row["sort_order"] if isinstance(row.get("sort_order"), int) else 0

    for row in sorted(_rows(tables, through), key=order):
        if name := names.get(row.get(to)):
            joined[row.get("post_id")].append(name)
    return joined


def _tables(export: object) -> Row | None:
    inner = (*objects_in(as_object(export).get("db")), as_object(export))[0]
    data = as_object(inner.get("data"))
    return data if isinstance(data.get("posts"), list) else None


def _rows(tables: Row, name: str) -> list[Row]:
    """Return the rows of a table, without those whose ids are not scalars."""
    return [
        row
        for row in objects_in(tables.get(name))
        if not any(isinstance(row.get(key), list | dict) for key in _KEYS)
    ]
