"""Source: a saved RSS or Atom feed, which often holds only the latest posts and their excerpts.

A folder holds the pages of one feed, from the newest, as `feed-001.xml` and so on.
"""

import html
import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax import SAXException

import feedparser

from ownwords.archive import readability, untrusted_files
from ownwords.archive.document import (
    ExpectedCount,
    Markup,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
)
from ownwords.core.errors import SourceError

NAME = "RSS and Atom feeds"

_ROOTS = frozenset({"rss", "feed", "rdf"})
_FIRST_ELEMENT = re.compile(r"<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)")
# An unclosed comment or instruction ends at the end of the text; otherwise the search would be
# quadratic.
_NOT_ELEMENTS = re.compile(r"<\?.*?(?:\?>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL)
_COMMENT_FEED = re.compile(
    r"^(comments|kommentare|commentaires|comentarios) (on|for|zu|sur|en)\b", re.I
)
_COMMENT_TITLE = re.compile(r"^(by: \S|comment (on|by) )", re.I)
_EXCERPT = re.compile(r"(…|\.\.\.|\[…\]|\[\.\.\.\]|read more|continue reading)\W*$", re.I)
# The footer WordPress adds to every feed entry.
_APPEARED = re.compile(
    r"(?<!\s)\s*<p>\s*The post\s*<a [^<>]*>[^<>]*</a>\s*(?:first appeared|appeared first) on"
    r"\s*<a [^<>]*>[^<>]*</a>\.?\s*</p>\s*$"
)
# Share buttons and lists of related posts, which programs put below every entry.
_CHROME = """
.sharedaddy, .jp-relatedposts, .feedflare, .addtoany_share_save_container, .yarpp-related,
.wp-block-jetpack-subscriptions, .subscription-widget-wrap, .subscription-widget-wrap-editor
"""
_PAGE = re.compile(r"feed-\d{3}\.xml")
_FEW_ENTRIES = 20
_LOOK_BYTES = 64 << 10


def detect(path: Path) -> str | None:
    """Recognise a file by its first element, whatever its name, and a folder of pages."""
    if pages := _pages_in(path):
        path = pages[0]
    text = _NOT_ELEMENTS.sub(
        "", untrusted_files.decode_text(untrusted_files.read_head(path, _LOOK_BYTES))
    )
    first = _FIRST_ELEMENT.search(text[:4096])
    if first is None or first[1].casefold() not in _ROOTS or not text.lstrip().startswith("<"):
        return None
    return "an RSS or Atom feed"


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the entries in the order of the feed; comments are only counted."""
    pages = _pages_in(path) or [path]
    feed = _parsed(pages[0])
    name, home = _title(feed["feed"]), readability.web_url(_text(feed["feed"], "link"))
    yield SiteInfo(name or home)
    if isinstance(feed.get("bozo_exception"), SAXException):
        yield SourceNote(f"{path.name} is damaged; what could be read of it was read.")
    entries = [*feed["entries"], *(x for page in pages[1:] for x in _parsed(page)["entries"])]
    yield ExpectedCount(len(entries))
    yield from _entries(entries, bool(_COMMENT_FEED.match(name)))


def _pages_in(path: Path) -> list[Path]:
    """Return the pages of a feed in a folder that holds nothing else."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else []
    except OSError:
        return []
    return files if files and all(_PAGE.fullmatch(file.name) for file in files) else []


def _parsed(path: Path) -> dict[str, Any]:
    data = untrusted_files.read_file(path, untrusted_files.MAX_EXPORT_BYTES)
    try:
        # Pass a stream: feedparser tries plain bytes as a file name first.
        feed: dict[str, Any] = feedparser.parse(
            io.BytesIO(data), sanitize_html=False, resolve_relative_uris=False
        )
    except Exception as error:  # feedparser may raise anything on arbitrary input
        raise SourceError(f"{path} cannot be read as a feed: {type(error).__name__}") from error
    if not feed.get("version") and not feed["entries"]:
        raise SourceError(f"{path} is not a feed", hint="save the feed itself: it begins with <rss")
    return feed


def _entries(entries: list[dict[str, Any]], comments_only: bool) -> Iterator[SourceItem]:
    refs: set[str] = set()
    excerpts = read = 0
    for number, entry in enumerate(entries, 1):
        title, body, markup, excerpt = _content(entry)
        if comments_only or _is_comment(entry, title):
            yield SkippedItem("comment", "other people's words")
            continue
        ref = f"entry/{_text(entry, 'id') or _text(entry, 'link') or number}"
        if ref in refs:
            yield SkippedItem("post", "its entry appears twice in the feed", title=title, ref=ref)
            continue
        refs.add(ref)
        if not body.strip():
            yield SkippedItem("post", "the feed holds only its title", title=title, ref=ref)
            continue
        read += 1
        excerpts += excerpt
        link = readability.web_url(_text(entry, "link"))
        yield RawDocument(
            ref=ref,
            title=title,
            body=body,
            markup=markup,
            status="draft" if _text(entry, "app_draft").casefold() == "yes" else "published",
            date=_date(entry),
            url=link,
            author=_text(entry, "author"),
            tags=tuple(
                html.unescape(tag["term"]) for tag in entry.get("tags", ()) if tag.get("term")
            ),
        )
    if excerpts:
        yield SourceNote(
            f"{excerpts} of {read} entries look like excerpts, not whole posts; an export of the"
            " blog contains the whole posts."
        )
    if 0 < read <= _FEW_ENTRIES:
        yield SourceNote(
            f"The feed holds {read} entr{'ies' if read > 1 else 'y'}; feeds often hold only the"
            " last 10 to 20 posts of a blog. An export holds all of them."
        )


def _text(entry: dict[str, Any], key: str) -> str:
    # feedparser's own lookup replaces missing dates by other dates, and warns.
    value = dict.get(entry, key)
    return value.strip() if isinstance(value, str) else ""


def _title(entry: dict[str, Any]) -> str:
    """Return the title of an entry or of the feed, with any markup removed."""
    title = _text(entry, "title")
    plain = dict.get(entry, "title_detail", {}).get("type") == "text/plain"
    return title if plain else readability.node_text(readability.parse(title))


def _is_comment(entry: dict[str, Any], title: str) -> bool:
    return "thr_in-reply-to" in entry or bool(_COMMENT_TITLE.match(title))


def _content(entry: dict[str, Any]) -> tuple[str, str, Markup, bool]:
    """Return title, body, the body's markup, and whether it looks like an excerpt."""
    title = _title(entry)
    bodies = [part for part in dict.get(entry, "content", ()) if (part.get("value") or "").strip()]
    part = max(bodies, key=lambda part: len(part["value"]), default=None)
    is_whole = part is not None
    if part is None:
        part = dict.get(entry, "summary_detail", {})
    body = part.get("value") or ""
    plain = part.get("type") == "text/plain"
    shown = body if plain else readability.node_text(readability.parse(body))
    ends = _EXCERPT.search(shown.rstrip()[-40:]) is not None
    # A description with paragraphs is often the whole post; without them it rarely is.
    excerpt = ends or (not is_whole and "<p" not in body)
    if plain:
        return title, body, "text", excerpt
    # The footer may be above or below the share buttons.
    body = readability.remove_chrome(_APPEARED.sub("", body), _CHROME)
    return title, _APPEARED.sub("", body), "html", excerpt


def _date(entry: dict[str, Any]) -> datetime | None:
    for key in ("published_parsed", "updated_parsed", "created_parsed"):
        value = dict.get(entry, key)
        if isinstance(value, time.struct_time):
            try:
                return datetime(*value[:6], tzinfo=UTC)
            except ValueError:
                continue
    return None
