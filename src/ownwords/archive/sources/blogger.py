"""Source: a Blogger blog, Google Takeout's feed.atom or the single XML file of older exports."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lxml import etree

from ownwords.archive import safe_xml, untrusted_files
from ownwords.archive.dates import parse_iso_date
from ownwords.archive.document import (
    ExpectedCount,
    Kind,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
    status_of,
)
from ownwords.core.errors import SourceError

NAME = "Blogger"

_ATOM = "{http://www.w3.org/2005/Atom}"
_BLOGGER = "{http://schemas.google.com/blogger/2018}"
_APP = ("{http://purl.org/atom/app#}", "{http://www.w3.org/2007/app}")
_KIND_SCHEME = "http://schemas.google.com/g/2005#kind"
_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb"schemas\.google\.com/blogger/(?:2018|2008/kind#)"),
    (
        "feed.atom",
        "*/feed.atom",
        "Blogs/*/feed.atom",
        "Blogger/Blogs/*/feed.atom",
        "Takeout/Blogger/Blogs/*/feed.atom",
        "*.xml",
    ),
    (".atom", ".xml"),
    not_below="/Comments/",  # comments the author wrote on other blogs
)
_ADDRESS = re.compile(r"https?://([^\s\"'<>/]+)(/[^\s\"'<>?#:]+\.html)")


def detect(path: Path) -> str | None:
    """Recognise a Blogger feed, or a folder or zip (such as Takeout's) that holds some."""
    count = _EXPORTS.count(path)
    return ("a Blogger blog" if count == 1 else f"{count} Blogger blogs") if count else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield each blog's site, posts and pages."""
    for name, opened in _EXPORTS.open(path):
        yield from _feed(path, name, opened)


def _feed(path: Path, name: str, opened: IO[bytes]) -> Iterator[SourceItem]:
    damage: list[str] = []
    home = _home(path, opened)
    opened.seek(0)
    posts = untrusted_files.count_bytes(b">POST<", opened) or untrusted_files.count_bytes(
        b"kind#post", opened
    )
    begun = False
    for element in safe_xml.iter_elements(path, opened, (f"{_ATOM}entry", f"{_ATOM}feed"), damage):
        if not begun:
            begun = True
            feed = element if element.tag == f"{_ATOM}feed" else element.getparent()
            yield SiteInfo(_text(feed, f"{_ATOM}title"), identity="blogger")
            if not home:
                yield SourceNote(
                    f"{name} does not contain the blog's address, so the addresses of its posts"
                    " are unknown."
                )
            yield ExpectedCount(posts)
        if element.tag == f"{_ATOM}entry":
            yield _entry(element, home)
    if not begun:
        raise SourceError(
            f"{name} holds no readable entry: {'; '.join(damage) or 'it is empty'}",
            hint="export the blog again with Google Takeout",
        )
    for detail in damage:
        yield SourceNote(f"{name} is damaged: {detail}.")


def _entry(entry: etree._Element, home: str) -> RawDocument | SkippedItem:
    what = _what(entry)
    if what == "comment":
        return SkippedItem("comment", "other people's words")
    if what in ("post", "page"):
        return _document(entry, "page" if what == "page" else "post", home)
    reason = "part of the blog's settings, not a text" if what else "of an unknown type"
    return SkippedItem("entry", reason)


def _what(entry: etree._Element) -> str:
    """Return the entry's type: post, page, comment, settings or template; "" if it has none."""
    kind = _text(entry, f"{_BLOGGER}type").lower()
    for category in entry.iterfind(f"{_ATOM}category"):
        if category.get("scheme") == _KIND_SCHEME:
            kind = kind or str(category.get("term")).rpartition("#")[2]
    return kind


def _document(entry: etree._Element, kind: Kind, home: str) -> RawDocument:
    identity = _text(entry, f"{_ATOM}id")
    number = re.search(r"(?:post|page)-(\d+)$", identity)
    labels = (
        category.get("term")
        for category in entry.iterfind(f"{_ATOM}category")
        if category.get("scheme") != _KIND_SCHEME
    )
    file = _text(entry, f"{_BLOGGER}filename")
    url = home + file if home and file.startswith("/") else _url(entry)
    return RawDocument(
        ref=f"{kind}/{number[1] if number else identity}",
        title=_text(entry, f"{_ATOM}title"),
        body=_body(entry.find(f"{_ATOM}content")),
        markup="html",
        status=_status(entry),
        kind=kind,
        date=parse_iso_date(_text(entry, f"{_ATOM}published")),
        url=url,
        author=_text(entry.find(f"{_ATOM}author"), f"{_ATOM}name"),
        tags=tuple(dict.fromkeys(label for label in labels if label)),
    )


def _url(entry: etree._Element) -> str:
    links = entry.iterfind(f"{_ATOM}link")
    return next((link.get("href") or "" for link in links if link.get("rel") == "alternate"), "")


def _status(entry: etree._Element) -> Status:
    if _text(entry, f"{_BLOGGER}trashed"):
        return "trashed"
    given = _text(entry, f"{_BLOGGER}status")
    if given:
        return status_of(given)
    drafts = (_text(entry, f"{app}control/{app}draft") for app in _APP)
    return "draft" if "yes" in drafts else "published"


def _body(content: etree._Element | None) -> str:
    if content is None:
        return ""
    if content.get("type") == "xhtml":
        return "".join(etree.tostring(child, encoding="unicode") for child in content)
    return safe_xml.element_text(content)


def _text(element: etree._Element | None, name: str) -> str:
    child = element.find(name) if element is not None else None
    return safe_xml.element_text(child).strip()


def _home(path: Path, opened: IO[bytes]) -> str:
    """Guess the blog's address, which Takeout omits: the host of most links to its posts."""
    files: set[str] = set()
    linked: defaultdict[str, set[str]] = defaultdict(set)
    for entry in safe_xml.iter_elements(path, opened, (f"{_ATOM}entry",), []):
        if _what(entry) in ("post", "page"):
            url = _url(entry)
            files.add(_text(entry, f"{_BLOGGER}filename"))
            files.update(file for _, file in _ADDRESS.findall(url))
            for host, file in _ADDRESS.findall(f"{url} {_body(entry.find(f'{_ATOM}content'))}"):
                linked[f"https://{host}"].add(file)
    files.discard("")
    shared = {home: len(found & files) for home, found in linked.items() if found & files}
    return max(shared, key=shared.__getitem__, default="")
