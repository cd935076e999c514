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
    name, data = next(_contents(path), ("", b""))
    if not data:
        raise SourceError(
            f"{path} holds no Ghost export", hint="give the JSON file of Ghost's export"
        )
    if len(data) > untrusted_files.MAX_MEMBER_BYTES:
        raise SourceError(f"{name} is over {untrusted_files.MAX_MEMBER_BYTES >> 20} MiB")
    try:
        export = json.loads(untrusted_files.decode_text(data))
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{name} is not whole JSON: {error}", hint="export again in Ghost's settings"
        ) from error
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
    comments = len(_rows(tables, "comments"))
    if comments:
        yield SkippedItem("comment", "other people's words", comments)
    broken = len(_list(tables, "posts")) - len(_rows(tables, "posts"))
    if broken:
        yield SkippedItem("post", "not in the form of a post", broken)


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    for name, opened in _EXPORTS.open(path):
        yield name, opened.read(untrusted_files.MAX_MEMBER_BYTES + 1)


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
    for field, convert in (("lexical", from_lexical), ("mobiledoc", from_mobiledoc)):
        stored = post.get(field)
        if stored:
            return repair_surrogates(convert(_parsed(stored)))[0], "html"
    if _word(post, "markdown").strip():
        return _word(post, "markdown"), "markdown"
    return _word(post, "plaintext"), "text"


def _parsed(stored: object) -> Row:
    try:
        document = json.loads(stored) if isinstance(stored, str) else stored
    except (ValueError, RecursionError) as error:
        raise UnreadableError from error
    if not isinstance(document, dict):
        raise UnreadableError
    return document


def _joined(
    tables: Row, through: str, to: str, names: Mapping[object, str]
) -> dict[object, list[str]]:
    """The names linked to each post by the join table `through`, in its sort order."""
    pairs: defaultdict[object, list[tuple[int, str]]] = defaultdict(list)
    for row in _rows(tables, through):
        name, order = names.get(row.get(to)), row.get("sort_order")
        if name:
            pairs[row.get("post_id")].append((order if isinstance(order, int) else 0, name))
    return {
        post: [name for _, name in sorted(pair_list, key=lambda pair: pair[0])]
        for post, pair_list in pairs.items()
    }


def _tables(export: object) -> Row | None:
    if isinstance(export, dict):
        db = export.get("db")
        inner = db[0] if isinstance(db, list) and db else export
        data = inner.get("data") if isinstance(inner, dict) else None
        if isinstance(data, dict) and isinstance(data.get("posts"), list):
            return data
    return None


def _list(tables: Row, name: str) -> list[Any]:
    rows = tables.get(name)
    return rows if isinstance(rows, list) else []


def _rows(tables: Row, name: str) -> list[Row]:
    """The rows of a table, without those whose ids are not scalars."""
    return [
        row
        for row in _list(tables, name)
        if isinstance(row, dict)
        and not any(
            isinstance(row.get(key), list | dict)
            for key in ("id", "post_id", "tag_id", "author_id", "visibility")
        )
    ]


def _word(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return repair_surrogates(value)[0] if isinstance(value, str) else ""


def _moment(value: object) -> datetime | None:
    return (isinstance(value, str) and parse_iso_date(value)) or parse_epoch_ms(value)


# ---- the documents of Ghost's editors (Lexical, Mobiledoc) as HTML, if an export lacks it


# Bits of a Lexical text's `format`. Underline has no meaning of its own and is left out.
_FORMATS = ((16, "code"), (1, "strong"), (2, "em"), (4, "s"))
_MOBILEDOC_MARKS = {"a", "b", "strong", "i", "em", "code", "s", "sub", "sup"}


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


def from_lexical(document: Row) -> str:
    """Convert a Lexical document (parsed JSON) to HTML; raises UnreadableError."""
    try:
        return "\n".join(filter(None, map(_lexical_block, document["root"]["children"])))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UnreadableError from error


def from_mobiledoc(document: Row) -> str:
    """Convert a Mobiledoc document (parsed JSON, version 0.3) to HTML; raises UnreadableError."""
    try:
        return "\n".join(
            filter(
                None, (_mobiledoc_section(document, section) for section in document["sections"])
            )
        )
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UnreadableError from error


def _lexical_block(node: Row) -> str:
    kind = node["type"].removeprefix("extended-")
    match kind:
        case "paragraph":
            return _wrapped("p", _inline(node))
        case "heading":
            return _wrapped(_heading_tag(node.get("tag")), _inline(node))
        case "quote" | "aside":
            return _wrapped("blockquote", _inline(node))
        case "list":
            tag = "ol" if node.get("listType") == "number" else "ul"
            return _wrapped(tag, "".join(map(_list_item, node.get("children", ()))))
        case "text" | "linebreak" | "link" | "autolink":
            return _wrapped("p", _lexical_inline(node))
    return _card(kind, node)


def _list_item(node: Row) -> str:
    """A list item; a nested list is a child of type "list"."""
    children = node.get("children", ())
    return _wrapped(
        "li",
        "".join(
            _lexical_block(child) if child["type"] == "list" else _lexical_inline(child)
            for child in children
        ),
    )


def _inline(node: Row) -> str:
    return "".join(map(_lexical_inline, node.get("children", ())))


def _lexical_inline(node: Row) -> str:
    kind = node["type"].removeprefix("extended-")
    if kind == "linebreak":
        return "<br>"
    if kind in ("link", "autolink"):
        return f'<a href="{html.escape(str(node.get("url") or ""))}">{_inline(node)}</a>'
    if kind == "list":
        return _lexical_block(node)
    if "text" not in node:
        return _inline(node)
    text = html.escape(str(node["text"]), quote=False)
    given = node.get("format") or 0
    for bit, tag in _FORMATS:
        if isinstance(given, int) and given & bit:
            text = f"<{tag}>{text}</{tag}>"
    return text


def _mobiledoc_section(document: Row, section: list[Any]) -> str:
    match section:
        case [1, tag, markers, *_]:
            tag = tag if tag in ("p", "blockquote", "aside", "pull-quote") else _heading_tag(tag)
            tag = "blockquote" if tag in ("aside", "pull-quote") else tag
            return _wrapped(tag, _markers(document, markers))
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
            tag = tag.lower()
            still_open.append(tag if tag in _MOBILEDOC_MARKS else "")
            if tag == "a":
                pairs = attributes[0] if attributes else []
                href = dict(zip(pairs[::2], pairs[1::2], strict=False)).get("href", "")
                out.append(f'<a href="{html.escape(str(href))}">')
            elif still_open[-1]:
                out.append(f"<{tag}>")
        if kind == 0:
            out.append(html.escape(str(value), quote=False))
        else:
            name = document["atoms"][value][0]
            out.append("<br>" if name == "soft-return" else "")
        for _ in range(closed):
            tag = still_open.pop()
            out.append(f"</{tag}>" if tag else "")
    return "".join(out)


def _card(kind: str, card: Row) -> str:
    caption = _wrapped("figcaption", _word(card, "caption"))
    match kind:
        case "image":
            source, alt = html.escape(_word(card, "src")), html.escape(_word(card, "alt"))
            return f'<figure><img src="{source}" alt="{alt}">{caption}</figure>'
        case "gallery":
            images = (_card("image", image) for image in card.get("images") or ())
            return "".join(images) + _wrapped("figure", caption)
        case "video" | "audio" | "embed":
            return f"<figure>{_word(card, 'html')}{caption}</figure>"
        case "code" | "codeblock":
            language = html.escape(_word(card, "language"))
            named = f' class="language-{language}"' if language else ""
            code = html.escape(_word(card, "code"), quote=False)
            return f"<pre><code{named}>{code}</code></pre>{_wrapped('figure', caption)}"
        case "bookmark":
            # The title and description are those of the linked page.
            return _wrapped("figure", caption)
        case "paywall" | "signup" | "button" | "horizontalrule" | "hr" | "divider":
            return ""
    return _text_card(kind, card)


def _text_card(kind: str, card: Row) -> str:
    match kind:
        case "markdown":
            return str(MarkdownIt("commonmark").enable("table").render(_word(card, "markdown")))
        case "html" | "email" | "email-cta":
            return _word(card, "html")
        case "call-to-action":
            return _word(card, "textValue")
        case "callout":
            return _wrapped("p", _word(card, "calloutText"))
        case "toggle":
            return _wrapped("h4", _word(card, "heading")) + _word(card, "content")
        case "header":
            heading = _word(card, "heading") or _word(card, "header")
            below = _word(card, "subheading") or _word(card, "subheader")
            return _wrapped("h2", heading) + _wrapped("p", below)
        case "product":
            return _wrapped("h4", _word(card, "productTitle")) + _word(card, "productDescription")
        case "file":
            title, below = _word(card, "fileTitle"), _word(card, "fileCaption")
            return _wrapped("p", title) + _wrapped("p", below)
    return _wrapped("p", _inline(card))


def _heading_tag(tag: object) -> str:
    return str(tag) if tag in ("h1", "h2", "h3", "h4", "h5", "h6") else "p"


def _wrapped(tag: str, inside: str) -> str:
    return f"<{tag}>{inside}</{tag}>" if inside else ""
