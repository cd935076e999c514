"""The types that an archive is made of: documents, their typed segments, and source items."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

Markup = Literal["html", "markdown", "blocks", "text"]
Status = Literal["published", "hidden", "draft", "scheduled", "private", "trashed"]
Kind = Literal["post", "page"]
SegmentKind = Literal["prose", "heading", "list", "caption", "quote", "code", "table", "log"]

# What programs call a status, in lower case.
_STATUSES: Mapping[Status, str] = {
    "published": "published publish live sent",  # sent as a newsletter only
    "scheduled": "scheduled future",
    "private": "private",
    "trashed": "trash soft_trashed hard_trashed",
}

# Kinds with the author's own words; other kinds are quotations, code, or machine output.
OWN_KINDS: frozenset[SegmentKind] = frozenset({"prose", "heading", "list", "caption"})


def status_of(word: str) -> Status:
    """Return the status that a program's word stands for; a draft if it is unknown."""
    known = (status for status, words in _STATUSES.items() if word.lower() in words.split())
    return next(known, "draft")


def _day(date: datetime | None) -> str:
    return date.date().isoformat() if date else ""


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A text as its source stores it, with an unparsed body.

    `ref` identifies it within its source and is stable between runs ("post/12", "notes/a.md").
    `url` is for citations.
    """

    ref: str
    title: str
    body: str
    markup: Markup
    status: Status = "published"
    kind: Kind = "post"
    date: datetime | None = None  # timezone-aware, UTC
    url: str = ""
    author: str = ""
    tags: tuple[str, ...] = ()

    @property
    def day(self) -> str:
        """The ISO day; empty without a date."""
        return _day(self.date)


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something left out of the archive, and why; `ref` and `title` are empty for a count."""

    what: str  # "comment", "file", "post" ...; "part" is a part of a post in the archive
    reason: str
    count: int = 1
    title: str = ""
    ref: str = ""
    source: int = 0  # index in the report's sources


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """A site's name.

    `identity` is the prefix of its documents' ids, by default the path's name. A source sets
    it if each of its exports has a different file name.
    """

    name: str
    identity: str = ""


def site_identity(url: str, title: str) -> str:
    """Return a prefix for a site's post ids: from its address, or else from its title."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    host = parts.netloc.rpartition("@")[2].casefold().removeprefix("www.")
    name = f"{host}/{parts.path.strip('/')}" if host else title
    return re.sub(r"[^\w./-]+", "-", name).strip("-./")


@dataclass(frozen=True, slots=True)
class SourceNote:
    """A sentence for the author about a source ("feeds often hold only the last 10 posts")."""

    text: str


@dataclass(frozen=True, slots=True)
class ExpectedCount:
    """An estimate of how many more documents follow, for the progress display."""

    documents: int


SourceItem = RawDocument | SkippedItem | SiteInfo | SourceNote | ExpectedCount


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of text of one kind; newlines separate lines, and prose has no blank lines.

    `detail` is a heading's level ("2") or the language of code; in older archives, who is quoted.
    """

    kind: SegmentKind
    text: str
    detail: str = ""


class ParsedBody(NamedTuple):
    """A parsed body; `dropped` counts what was removed, by reason."""

    segments: tuple[Segment, ...]
    dropped: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Document:
    """A post or page as clean typed segments. `id` is unique in the archive."""

    id: str
    title: str
    segments: tuple[Segment, ...]
    kind: Kind = "post"
    status: Status = "published"
    date: datetime | None = None
    url: str = ""
    author: str = ""
    tags: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)  # to be stored; not read back

    @property
    def day(self) -> str:
        """The ISO day; empty without a date."""
        return _day(self.date)

    def text(self, kinds: frozenset[SegmentKind] | None = None) -> str:
        """Return the segments (of the given kinds) as plain text, separated by blank lines."""
        return "\n\n".join(s.text for s in self.segments if kinds is None or s.kind in kinds)
