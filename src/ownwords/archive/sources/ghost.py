"""Source: a Ghost export, the JSON file of Settings > Export, or a folder or zip that holds it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ownwords.archive import readability, untrusted_files
from ownwords.archive.dates import parse_moment
from ownwords.archive.document import (
    ExpectedCount,
    Kind,
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
    settings = {str(row.get("key")): row.get("value") for row in objects_in(tables.get("settings"))}
    home = text_value(settings, "url").rstrip("/")
    title = text_value(settings, "title")
    yield SiteInfo(title or path.stem, identity=site_identity(home, title))
    if not home:
        yield SourceNote(
            "A Ghost export lacks the site's address, so posts are cited by title and date."
        )
    users = {str(row.get("id")): text_value(row, "name") for row in objects_in(tables.get("users"))}
    tags = {
        str(row.get("id")): text_value(row, "name")
        for row in objects_in(tables.get("tags"))
        if row.get("visibility") != "internal" and not text_value(row, "name").startswith("#")
    }
    tags_of = _joined(tables, "posts_tags", "tag_id", tags)
    authors_of = _joined(tables, "posts_authors", "author_id", users)
    posts = objects_in(tables["posts"])
    yield ExpectedCount(len(posts))
    for post in posts:
        id_ = str(post.get("id") or text_value(post, "slug"))
        authors = authors_of[id_] or [users.get(str(post.get("author_id")), "")]
        yield _document(post, id_, home, ", ".join(authors), tags_of[id_])
    if comments := len(objects_in(tables.get("comments"))):
        yield SkippedItem("comment", "other people's words", comments)
    if broken := len(tables["posts"]) - len(posts):
        yield SkippedItem("post", "not a valid post", broken)


def _document(
    post: Row, id_: str, home: str, author: str, tags: list[str]
) -> RawDocument | SkippedItem:
    title, slug = text_value(post, "title"), text_value(post, "slug")
    if not id_:
        return SkippedItem("post", "it has neither an id nor a name", title=title)
    is_page = post.get("type") == "page" or post.get("page") in (1, True)
    kind: Kind = "page" if is_page else "post"
    body, markup = _body(post)
    canonical = text_value(post, "canonical_url").replace(_SITE_URL, home)
    url = f"{home}/{slug}/" if home and slug else ""
    return RawDocument(
        ref=f"{kind}/{id_}",
        title=title,
        body=body.replace(_SITE_URL, home),
        markup=markup,
        status=status_of(text_value(post, "status")),
        kind=kind,
        date=parse_moment(post.get("published_at")) or parse_moment(post.get("created_at")),
        url=canonical if canonical.startswith("http") else url,
        author=author,
        tags=tuple(tags),
    )


def _body(post: Row) -> tuple[str, Markup]:
    """Return body and markup: the HTML that Ghost stores beside its own format, or Markdown."""
    if text_value(post, "html").strip():
        return readability.remove_chrome(text_value(post, "html"), _CHROME), "html"
    if text_value(post, "markdown").strip():
        return text_value(post, "markdown"), "markdown"
    return text_value(post, "plaintext"), "text"


def _joined(
    tables: Row, through: str, to: str, names: dict[str, str]
) -> defaultdict[str, list[str]]:
    """Return the names linked to each post by the join table `through`, in its sort order."""
    joined: defaultdict[str, list[str]] = defaultdict(list)

    def order(row: Row) -> int:
        return row["sort_order"] if isinstance(row.get("sort_order"), int) else 0

    for row in sorted(objects_in(tables.get(through)), key=order):
        if name := names.get(str(row.get(to))):
            joined[str(row.get("post_id"))].append(name)
    return joined


def _tables(export: object) -> Row | None:
    inner = (*objects_in(as_object(export).get("db")), as_object(export))[0]
    data = as_object(inner.get("data"))
    return data if isinstance(data.get("posts"), list) else None
