"""Source: a Ghost export, the JSON file of Settings > Export, or a folder or zip that holds it."""

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from ownwords.archive import readability, untrusted_files
from ownwords.archive.dates import parse_epoch_ms, parse_iso_date
from ownwords.archive.document import (
    ExpectedCount,
    Markup,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
    site_identity,
)
from ownwords.archive.text_repair import repair_surrogates
from ownwords.core.errors import SourceError

LABEL = "a Ghost export"

Row = dict[str, Any]

_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb'^(?:\xef\xbb\xbf)?\s*\{\s*"(?:db|data|meta)"\s*:'),
    ("*.json", "data/*.json"),
    (".json",),
    # Tables are sorted by name, so this one comes late in the file.
    anywhere=b'"posts"',
)
_SITE_URL = "__GHOST_URL__"
_KEYS = ("id", "post_id", "tag_id", "author_id", "visibility")
_STATUSES: dict[str, Status] = {
    "published": "published",
    "sent": "published",  # sent as a newsletter only
    "scheduled": "scheduled",
    "draft": "draft",
}


def detect(path: Path) -> str | None:
    """Recognise JSON with Ghost's beginning and a "posts" table, or a folder or zip with it."""
    return LABEL if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the site, its posts and pages in the order of the export, then what was skipped."""
    name, export = next(_contents(path), ("", None))
    if not name:
        raise SourceError(
            f"{path} holds no Ghost export", hint="give the JSON file of Ghost's export"
        )
    tables = _tables(export)
    if tables is None:
        raise SourceError(
            f"{name} is JSON, but has no posts where a Ghost export has them (db, data, posts)",
            hint="give the file of Settings > Export in Ghost",
        )
    settings = {str(row.get("key")): row.get("value") for row in _rows(tables, "settings")}
    home = _word(settings, "url").rstrip("/")
    title = _word(settings, "title")
    yield SiteInfo(title or path.stem, home, identity=site_identity(home, title))
    if not home:
        yield SourceNote(
            "A Ghost export does not say the site's address, so posts are cited by title and date."
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


def _contents(path: Path) -> Iterator[tuple[str, object]]:
    for name, opened in _EXPORTS.open(path):
        data = opened.read(untrusted_files.MAX_EXPORT_BYTES + 1)
        if len(data) > untrusted_files.MAX_EXPORT_BYTES:
            raise SourceError(f"{name} is over {untrusted_files.MAX_EXPORT_BYTES >> 20} MiB")
        try:
            yield name, json.loads(untrusted_files.decode_text(data))
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{name} is not whole JSON: {error}", hint="export again in Ghost's settings"
            ) from error


class _ExportTables:
    """The export's tables of tags, authors and metadata, joined to their posts."""

    def __init__(self, tables: Row, home: str) -> None:
        self._home = home
        tags = {
            row.get("id"): _word(row, "name")
            for row in _rows(tables, "tags")
            if row.get("visibility") != "internal" and not _word(row, "name").startswith("#")
        }
        users = {row.get("id"): _word(row, "name") for row in _rows(tables, "users")}
        self._tags = _joined(tables, "posts_tags", "tag_id", tags)
        self._authors = _joined(tables, "posts_authors", "author_id", users)
        self._users = users

    def document(self, post: Row) -> RawDocument | SkippedItem:
        identity = post.get("id") or _word(post, "slug")
        kind = "page" if post.get("type") == "page" or post.get("page") in (1, True) else "post"
        ref, title, slug = f"{kind}/{identity}", _word(post, "title"), _word(post, "slug")
        if not identity:
            return SkippedItem("post", "it has neither number nor name", title=title)
        try:
            body, markup = _body(post)
        except UnreadableError:
            reason = "its text is not in a form of Ghost's editors"
            return SkippedItem("post", reason, title=title, ref=ref)
        path = f"/{slug}/" if slug else ""
        url = f"{self._home}{path}" if self._home and path else ""
        canonical = _word(post, "canonical_url").replace(_SITE_URL, self._home)
        author = ", ".join(self._authors.get(identity, ()))
        return RawDocument(
            ref=ref,
            title=title,
            body=body.replace(_SITE_URL, self._home),
            markup=markup,
            status=_STATUSES.get(_word(post, "status"), "draft"),
            kind="page" if kind == "page" else "post",
            date=_moment(post.get("published_at")) or _moment(post.get("created_at")),
            url=canonical if canonical.startswith("http") else url,
            author=author or self._users.get(post.get("author_id"), ""),
            tags=tuple(self._tags.get(identity, ())),
            base=url or path,
            aliases=tuple(name for name in (path, url) if name),
        )


def _body(post: Row) -> tuple[str, Markup]:
    """Body and markup: the rendered HTML if the export has it, else the editor's document."""
    if _word(post, "html").strip():
        return readability.remove_chrome(_word(post, "html"), _CARDS_CLASS, _CARD_CHROME), "html"
    if stored := post.get("lexical") or post.get("mobiledoc"):
        return repair_surrogates(editor_html(stored))[0], "html"
    if _word(post, "markdown").strip():
        return _word(post, "markdown"), "markdown"
    return _word(post, "plaintext"), "text"


def _joined(
    tables: Row, through: str, to: str, names: Mapping[object, str]
) -> dict[object, list[str]]:
    """The names linked to each post by the join table `through`, in its sort order."""
    joined: defaultdict[object, list[str]] = defaultdict(list)

    def order(row: Row) -> int:
        return row["sort_order"] if isinstance(row.get("sort_order"), int) else 0

    for row in sorted(_rows(tables, through), key=order):
        if name := names.get(row.get(to)):
            joined[row.get("post_id")].append(name)
    return joined


def _tables(export: object) -> Row | None:
    if isinstance(export, dict):
        db = export.get("db")
        inner = db[0] if isinstance(db, list) and db else export
        data = inner.get("data") if isinstance(inner, dict) else None
        if isinstance(data, dict) and isinstance(data.get("posts"), list):
            return data
    return None


def _rows(tables: Row, name: str) -> list[Row]:
    """The rows of a table, without those whose ids are not scalars."""
    rows = tables.get(name)
    return [
        row
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and not any(isinstance(row.get(key), list | dict) for key in _KEYS)
    ]


def _word(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return repair_surrogates(value)[0] if isinstance(value, str) else ""


def _moment(value: object) -> datetime | None:
    return (isinstance(value, str) and parse_iso_date(value)) or parse_epoch_ms(value)


# ---- the documents of Ghost's editors (Lexical, Mobiledoc) as HTML, if an export lacks it


# Bits of a Lexical text's `format`. Underline has no meaning of its own and is left out.
_FORMATS = ((16, "code"), (1, "strong"), (2, "em"), (4, "s"))
_BLOCKS = {"paragraph": "p", "quote": "blockquote", "aside": "blockquote", "listitem": "li"}
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_CARDS_WITHOUT_TEXT = frozenset(
    {"paywall", "signup", "button", "horizontalrule", "hr", "divider", "embed"}
)
# What the author wrote into cards, by field; the rest is of linked pages, and buttons.
_CARD_TEXTS = {
    **dict.fromkeys(("heading", "header", "productTitle"), "h4"),
    **dict.fromkeys(("subheading", "subheader", "calloutText", "fileTitle", "fileCaption"), "p"),
    **dict.fromkeys(("html", "content", "textValue", "productDescription"), "div"),
    "caption": "figcaption",
}


class UnreadableError(ValueError):
    """The stored document does not have the structure its editor writes."""


_CARDS_CLASS = re.compile("kg-")
# Parts of rendered cards: buttons, players' times, and the descriptions of linked pages.
_CARD_CHROME = (
    ".kg-bookmark-container, .kg-button-card, .kg-signup-card, .kg-callout-emoji, .kg-audio-player,"
    " .kg-video-player-container, .kg-file-card-metadata, .kg-btn, .kg-header-card-button,"
    " .kg-product-card-button, .kg-product-card-rating, .kg-cta-button,"
    " .kg-cta-sponsor-label-wrapper"
)


def editor_html(stored: object) -> str:
    """Convert a Lexical or Mobiledoc document, as stored, to HTML; raises UnreadableError."""
    try:
        document: Any = json.loads(stored) if isinstance(stored, str) else stored
        if "sections" in document:
            blocks = [_mobiledoc_section(document, section) for section in document["sections"]]
        else:
            blocks = [_lexical(node) for node in document["root"]["children"]]
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UnreadableError from error
    return "\n".join(filter(None, blocks))


def _lexical(node: Row) -> str:
    kind = node["type"].removeprefix("extended-")
    inside = "".join(map(_lexical, node.get("children", ())))
    match kind:
        case "linebreak":
            return "<br>"
        case "text":
            text, given = html.escape(str(node["text"]), quote=False), node.get("format") or 0
            for bit, tag in _FORMATS:
                if isinstance(given, int) and given & bit:
                    text = f"<{tag}>{text}</{tag}>"
            return text
        case "link" | "autolink":
            return f'<a href="{html.escape(str(node.get("url") or ""))}">{inside}</a>'
        case "heading":
            return _heading(node.get("tag"), inside)
        case "list":
            return _wrapped("ol" if node.get("listType") == "number" else "ul", inside)
    if kind in _BLOCKS:
        return _wrapped(_BLOCKS[kind], inside)
    return _card(kind, node) + _wrapped("p", inside)


def _mobiledoc_section(document: Row, section: list[Any]) -> str:
    match section:
        case [1, "blockquote" | "aside" | "pull-quote", markers, *_]:
            return _wrapped("blockquote", _markers(document, markers))
        case [1, tag, markers, *_]:
            return _heading(tag, _markers(document, markers))
        case [3, tag, items, *_]:
            lines = (_wrapped("li", _markers(document, item)) for item in items)
            return _wrapped("ol" if tag == "ol" else "ul", "".join(lines))
        case [10, index, *_]:
            name, *payload = document["cards"][index]
            return _card(name.removeprefix("card-"), payload[0] if payload else {})
        case [2, *_]:  # an image, of which only the address is stored
            return ""
    raise UnreadableError


def _markers(document: Row, markers: Iterable[list[Any]]) -> str:
    """The HTML of text runs; each opens some tags and closes a number of the innermost open."""
    out: list[str] = []
    still_open: list[str] = []
    for kind, opened, closed, value in markers:
        for index in opened:
            tag, *attributes = document["markups"][index]
            pairs = attributes[0] if attributes else []
            href = dict(zip(pairs[::2], pairs[1::2], strict=False)).get("href", "")
            out.append(f'<{tag} href="{html.escape(str(href))}">' if href else f"<{tag}>")
            still_open.append(tag)
        out.append(html.escape(str(value), quote=False) if kind == 0 else "<br>")
        out += [f"</{still_open.pop()}>" for _ in range(closed)]
    return "".join(out)


def _card(kind: str, card: Row) -> str:
    if kind in _CARDS_WITHOUT_TEXT:
        return _wrapped("figcaption", _word(card, "caption"))
    if kind in ("code", "codeblock"):
        language = html.escape(_word(card, "language"))
        code = html.escape(_word(card, "code"), quote=False)
        text = f'<pre class="language-{language}">{code}</pre>'
    elif kind == "markdown":
        text = str(MarkdownIt("commonmark").enable("table").render(_word(card, "markdown")))
    else:
        text = "".join(_card("image", image) for image in card.get("images") or ())
    return text + "".join(_wrapped(tag, _word(card, name)) for name, tag in _CARD_TEXTS.items())


def _heading(tag: object, inside: str) -> str:
    return _wrapped(str(tag) if tag in _HEADINGS else "p", inside)


def _wrapped(tag: str, inside: str) -> str:
    return f"<{tag}>{inside}</{tag}>" if inside else ""
