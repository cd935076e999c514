"""Source: a WordPress export (WXR), one XML file or the several a large site is split into."""

import html
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from lxml import etree

from ownwords.archive import safe_xml, untrusted_files
from ownwords.archive.dates import parse_date, parse_iso_date
from ownwords.archive.document import (
    ExpectedCount,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    site_identity,
    status_of,
)
from ownwords.core.errors import SourceError
from ownwords.view import format as fmt

NAME = "WordPress"

_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb"wordpress\.org/export/"), ("*.xml", "*/*.xml"), (".xml",)
)
_NOT_TEXTS = {
    "attachment": "attached files, not texts",
    "revision": "older versions of posts",
    "nav_menu_item": "entries of the site's menu",
}
# Embedded videos and posts, which the editors store as a bare address or a shortcode.
_EMBEDDED = re.compile(
    r'(?<=<div class="wp-block-embed__wrapper">)\s*https?://[^\s<>"]+\s*(?=</div>)'
    r"|^[ \t]*https?://[^\s<>\"\[\]]+[ \t\r]*$"
    r"|\[(?:youtube|vimeo|twitter|tweet|gist|instagram|soundcloud|spotify|ted|dailymotion|flickr"
    r"|wpvideo)[ =](?=https?://|\d|[\w-]+=)[^\[\]<>\n]+\]",
    re.MULTILINE,
)
_CODE_EDGE = re.compile(r"(<pre\b|</pre>|\[(?:source)?code\b|\[/(?:source)?code\])", re.IGNORECASE)
_CODE_ENDS = {"<pre": "</pre>", "[code": "[/code]", "[sourcecode": "[/sourcecode]"}
_TITLE_MARKS = re.compile(r"</?(?:em|i|b|strong|span|small|sup|sub|code)\b[^<>]*>|<br ?/?>")


def detect(path: Path) -> str | None:
    """Recognise an XML file that names WordPress's export format, or a folder or zip with some."""
    count = _EXPORTS.count(path)
    # A folder of Markdown notes that also holds an old export is read as Markdown.
    if not count or (path.is_dir() and any(path.glob("*.md"))):
        return None
    if path.is_dir() or path.suffix.lower() == ".zip":
        return f"a WordPress export in {fmt.count(count, 'file')}"
    return "a WordPress export"


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the site, its posts and pages; once each, if files overlap."""
    known: set[tuple[str, str]] = set()
    introduced = False
    for name, opened in _EXPORTS.open(path):
        damage: list[str] = []
        authors: dict[str, str] | None = None
        yield ExpectedCount(untrusted_files.count_bytes(b"<item>", opened))
        for element in safe_xml.iter_elements(path, opened, ("item", "channel"), damage):
            if authors is None:
                site, authors = _head(element)
                if not introduced:
                    introduced = True
                    yield site
            if element.tag == "item":
                yield from _entry(element, authors, known)
        if authors is None and not introduced:
            raise SourceError(
                f"{name} holds no readable entry: {'; '.join(damage) or 'it is empty'}",
                hint="export again: Tools > Export > All content",
            )
        for detail in damage:
            yield SourceNote(f"{name} is damaged: {detail}.")


def _head(first: etree._Element) -> tuple[SiteInfo, dict[str, str]]:
    """Read the site and its authors' names by login from the channel's elements."""
    channel = first if first.tag == "channel" else first.getparent()
    children = [] if channel is None else [child for child in channel if child is not first]
    authors = [_parts(child) for child in children if safe_xml.local_name(child) == "author"]
    parts = _parts(children)
    title = parts.get("title", "")
    home = (parts.get("base_blog_url") or parts.get("link", "")).rstrip("/")
    names = {
        login: parts.get("author_display_name") or login
        for parts in authors
        if (login := parts.get("author_login", ""))
    }
    return SiteInfo(title, identity=site_identity(home, title)), names


def _entry(
    item: etree._Element,
    authors: dict[str, str],
    known: set[tuple[str, str]],
) -> Iterator[SourceItem]:
    parts = _parts(item)
    kind, number, guid = (parts.get(name, "") for name in ("post_type", "post_id", "guid"))
    if (number or guid) and (number, guid) in known:
        return
    known.add((number, guid))
    for comment in (child for child in item if safe_xml.local_name(child) == "comment"):
        is_ping = _parts(comment).get("comment_type", "") in ("pingback", "trackback")
        reason = "pingbacks from other sites" if is_ping else "other people's words"
        yield SkippedItem("comment", reason)
    if kind in _NOT_TEXTS:
        yield SkippedItem(kind.replace("_", " "), _NOT_TEXTS[kind])
    elif kind not in ("post", "page"):
        reason = f'of the type "{kind}", neither a post nor a page' if kind else "without a type"
        yield SkippedItem("entry", reason)
    elif "content:encoded" not in parts:
        ref = f"{kind}/{number}"
        title = _plain(parts.get("title", ""))
        yield SkippedItem(kind, "its text is missing from the file", 1, title, ref)
    else:
        link = parts.get("link", "")
        status = status_of(parts.get("status", ""))
        if parts.get("post_password") and status == "published":
            status = "private"
        terms = (c for c in item if c.get("domain") in ("category", "post_tag"))
        yield RawDocument(
            ref=f"{kind}/{number or guid}",
            title=_plain(parts.get("title", "")),
            body=_body(parts["content:encoded"]),
            markup="html",
            status=status,
            kind="page" if kind == "page" else "post",
            date=_date(parts),
            url=link,
            author=authors.get(parts.get("creator", ""), parts.get("creator", "")),
            tags=tuple(
                dict.fromkeys(
                    name for term in terms if (name := _plain(safe_xml.element_text(term)))
                )
            ),
        )


def _plain(title: str) -> str:
    """Return a title or tag without WordPress's entities and inline markup."""
    return html.unescape(_TITLE_MARKS.sub("", title)).strip()


def _body(body: str) -> str:
    """Mark embeds outside code as [embed] shortcodes, which `expand_shortcodes` counts."""
    parts = _CODE_EDGE.split(body)
    end = ""
    for number, part in enumerate(parts):
        if number % 2:
            end = ("" if part.lower() == end else end) or _CODE_ENDS.get(part.lower(), "")
        elif not end:
            parts[number] = _EMBEDDED.sub(lambda m: f"[embed]{m[0].strip()}[/embed]", part)
    return "".join(parts)


def _date(parts: dict[str, str]) -> datetime | None:
    """Return the publication date; drafts have a zero post_date_gmt and at best a local date."""
    published = parts.get("pubDate", "")
    return (
        parse_iso_date(parts.get("post_date_gmt", ""))
        # The zero date has the year -0001, which the parser would read as 2000.
        or ("-0001" not in published and parse_date(published))
        or parse_iso_date(parts.get("post_date", ""))
    )


def _parts(children: Iterable[etree._Element]) -> dict[str, str]:
    """Return the first text by local name; `encoded` becomes content:encoded or excerpt:encoded."""
    parts: dict[str, str] = {}
    for child in children:
        name, text = safe_xml.local_name(child), safe_xml.element_text(child)
        if name == "encoded":
            name = "excerpt:encoded" if "excerpt" in str(child.tag) else "content:encoded"
            parts.setdefault(name, text)
        elif name:
            parts.setdefault(name, text.strip())
    return parts
