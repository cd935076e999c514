"""Update an archive from paths: store new and changed documents, remove deleted ones.

A link in a document leads to a document of the archive, elsewhere on the site, outside, or nowhere.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urljoin, urlsplit

from ownwords.archive import sources
from ownwords.archive.document import (
    Document,
    ExpectedCount,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceNote,
)
from ownwords.archive.features import extract_features
from ownwords.archive.report import SourceSummary
from ownwords.archive.segments import parse_body
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.store import Archive
from ownwords.archive.text_repair import repair_line
from ownwords.core.errors import SourceError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.workspace import path_text, source_name

# Increment when parsing changes, so that stored documents are parsed again.
READER_VERSION = "6"

LinkState = Literal["internal", "site", "external", "dead", "other"]

# Addresses on the site that are not documents: listings, feeds, files.
_NOT_A_DOCUMENT = re.compile(
    r"^$|^(subscribe|tags?|categor(y|ies)|authors?|page|feed|rss|search|archives?|media|assets|static|images?"
    r"|img|files?|uploads?|wp-content|wp-admin|content)(/|$)"
)
_POST_NUMBER = re.compile(r"(?<![^&])(?:p|page_id)=\d+(?![^&])")
_DATES = re.compile(r"^(19|20)\d\d(/\d\d?){0,2}$")  # yearly, monthly and daily archive pages
_FILE = re.compile(r"\.(?!html?$|php$|aspx?$|md$|markdown$)[a-z0-9]{2,5}$")


@dataclass(slots=True)
class LinkResolver:
    """Resolves links by all known addresses of an archive's documents."""

    targets: dict[str, str] = field(default_factory=dict)  # normalised address -> document id
    hosts: set[str] = field(default_factory=set)

    def add(self, document_id: str, document: RawDocument) -> None:
        """Register the addresses of a document; an address already taken stays as it is."""
        for address in (document.url, document.ref, *document.aliases):
            if address:
                self.targets.setdefault(_normalise(address), document_id)

    def add_home(self, address: str) -> None:
        """Register the home address of a site: links to its host are internal."""
        try:
            host = _host(urlsplit(address).netloc)
        except ValueError:  # an invalid address typed into a site's settings
            return
        if host:
            self.hosts.add(host)

    def resolve(self, href: str, base: str) -> tuple[LinkState, str]:
        """The state of a link and the id of its target; `base` is its document's base address."""
        href = href.strip()
        if href.startswith("ref:"):
            target = self.targets.get(_normalise(unquote(href[4:])))
            return ("internal", target) if target else ("dead", "")
        try:
            address = urljoin(base, href)
            parts = urlsplit(address)
        except ValueError:  # an invalid address such as "http://["
            return "other", ""
        if parts.scheme not in ("http", "https", "") or href.startswith("#") or not href:
            return "other", ""
        target = self.targets.get(_normalise(address))
        if target:
            return "internal", target
        if parts.netloc and _host(parts.netloc) not in self.hosts:
            return "external", ""
        local = _normalise(parts._replace(scheme="", netloc="").geturl())
        if local and local in self.targets:  # a document known only by its path
            return "internal", self.targets[local]
        path = _path(parts.path)
        if (
            _NOT_A_DOCUMENT.search(path)
            or _DATES.search(path)
            or _FILE.search(parts.path.casefold())
        ):
            return "site", ""
        return "dead", ""


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2].casefold().removeprefix("www.")


def _path(path: str) -> str:
    plain = unquote(path).casefold().strip("/")
    plain = re.sub(r"(^|/)index\.(html?|php)$", "", plain)
    return re.sub(r"\.(html?|md|markdown)$", "", plain)


def _normalise(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    # WordPress's default addresses identify posts by number ("?p=12").
    number = _POST_NUMBER.search(parts.query)
    place = _path(parts.path) + (f"?{number[0]}" if number else "")
    return f"//{_host(parts.netloc)}/{place}" if parts.netloc else place


@dataclass(slots=True)
class IngestResult:
    """The results of reading the paths, besides the documents stored in the archive."""

    sources: list[SourceSummary] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)  # document id -> content key
    skipped: list[SkippedItem] = field(default_factory=list)
    statuses_excluded: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    homes: list[str] = field(default_factory=list)  # home addresses of the sites
    partial: set[str] = field(default_factory=set)  # ids of documents of partly read sites
    bases: dict[str, str] = field(default_factory=dict)  # document id -> base of its relative links
    resolver: LinkResolver = field(default_factory=LinkResolver)
    renamed: dict[str, str] = field(default_factory=dict)  # former document id -> current id


def ingest(
    archive: Archive, paths: Sequence[Path], config: ArchiveConfig, progress: Progress
) -> IngestResult:
    """Update the archive from the paths; only changed documents are parsed again."""
    result = IngestResult()
    before = archive.keys()
    for path, name in zip(paths, _names(paths), strict=True):
        kind, label = sources.detect_source(path)
        result.sources.append(SourceSummary(path_text(path), label))
        reader = _SourceReader(archive, name, kind, config, before, result)
        with progress.stage(f"Reading {name}", unit="posts") as stage:
            for item in sources.load_source(kind).read(path):
                if isinstance(item, RawDocument):
                    reader.add(item)
                    stage.advance(1)
                elif isinstance(item, ExpectedCount):
                    stage.total = (stage.total or 0) + item.documents
                else:
                    reader.note(item)
    gone = set(before) - set(result.keys)
    by_key = {key: id_ for id_, key in result.keys.items() if id_ not in before}
    result.renamed = {id_: by_key[before[id_]] for id_ in gone if before[id_] in by_key}
    archive.remove(gone)
    return result


def _names(paths: Sequence[Path]) -> Iterator[str]:
    """Yield a short unique name for each path."""
    used: dict[str, int] = {}
    for path in paths:
        name = source_name(path)
        used[name] = used.get(name, 0) + 1
        yield name if used[name] == 1 else f"{name}-{used[name]}"


class _SourceReader:
    """Stores the documents of one path, and records the other items in the result."""

    def __init__(
        self,
        archive: Archive,
        name: str,
        source: str,
        config: ArchiveConfig,
        before: dict[str, str],
        result: IngestResult,
    ) -> None:
        self._archive, self._name, self._source = archive, name, source
        self._config, self._before, self._result = config, before, result
        self._prefix = name  # prefix of the document ids
        self._is_whole = True  # False if only a part of the site is read

    def note(self, item: SiteInfo | SkippedItem | SourceNote) -> None:
        result = self._result
        if isinstance(item, SiteInfo):
            result.homes.append(item.url)
            result.resolver.add_home(item.url)
            self._is_whole = item.whole
            self._prefix = item.identity or self._name
            summary = result.sources[-1]
            # An export with several sites is named after the first.
            summary.site_name = summary.site_name or repair_line(item.name)
            summary.site_url = summary.site_url or item.url
        elif isinstance(item, SkippedItem):
            result.skipped.append(item)
        else:
            result.notes.append(item.text)

    def add(self, raw: RawDocument) -> None:
        result, title = self._result, repair_line(raw.title)
        if reason := exclusion_reason(raw, self._config):
            result.skipped.append(SkippedItem(raw.kind, reason, title=title, ref=raw.ref))
            if raw.status != "published":
                excluded = result.statuses_excluded
                excluded[raw.status] = excluded.get(raw.status, 0) + 1
            return
        document_id = _free_id(f"{self._prefix}:{raw.ref}", result.keys)
        key = _content_key(raw)
        if self._before.get(document_id) != key and not self._store(document_id, title, raw, key):
            return
        result.keys[document_id] = key
        if not self._is_whole:
            result.partial.add(document_id)
        home = result.homes[-1] if result.homes else ""
        result.bases[document_id] = raw.base or raw.url or home
        result.resolver.add(document_id, raw)
        result.sources[-1].documents += 1

    def _store(self, document_id: str, title: str, raw: RawDocument, key: str) -> bool:
        try:
            body = parse_body(raw.body, raw.markup)
            reason = "" if body.segments else "no text"
        except SourceError as error:
            reason = error.message
        if reason:
            self._result.skipped.append(SkippedItem(raw.kind, reason, title=title, ref=raw.ref))
            return False
        document = Document(
            id=document_id,
            title=title,
            segments=body.segments,
            source=self._source,
            kind=raw.kind,
            status=raw.status,
            date=raw.date,
            url=raw.url,
            author=repair_line(raw.author),
            tags=tuple(repair_line(tag) for tag in raw.tags),
            summary=repair_line(raw.summary),
        )
        self._archive.put(document, key, body, extract_features(document))
        return True


def exclusion_reason(document: RawDocument, config: ArchiveConfig) -> str:
    """The reason to leave a document out of the archive; empty to take it in."""
    if document.status == "trashed":
        return "in the trash"
    if document.status == "draft" and not config.drafts:
        return "a draft"
    if document.status == "scheduled" and not config.drafts:
        return "scheduled, not yet published"
    if document.status == "private" and not config.private:
        return "private"
    if document.status == "hidden" and not config.hidden:
        return "hidden: live at its address, listed nowhere"
    if document.kind == "page" and not config.pages:
        return "a page, not a post"
    if len(document.body) > config.max_post_characters:
        return (
            f"{len(document.body):,} characters long, over the limit of"
            f" {config.max_post_characters:,}"
        )
    return ""


def _free_id(wanted: str, used: dict[str, str]) -> str:
    """`wanted`, with a number added if it is taken: a damaged export may use a ref twice."""
    document_id, n = wanted, 1
    while document_id in used:
        n += 1
        document_id = f"{wanted}#{n}"
    return document_id


def _content_key(raw: RawDocument) -> str:
    return digest(
        READER_VERSION,
        raw.markup,
        raw.body,
        raw.title,
        raw.status,
        raw.kind,
        raw.date.isoformat() if raw.date else "",
        raw.url,
        raw.author,
        raw.summary,
        raw.base,
        *raw.tags,
        "aliases",
        *raw.aliases,
    )
