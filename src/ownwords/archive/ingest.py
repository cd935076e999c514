"""Update an archive from paths: store new and changed documents, remove deleted ones.

A link in a document leads to a document of the archive, elsewhere on the site, outside, or nowhere.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
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
    SourceItem,
    SourceNote,
)
from ownwords.archive.parser_pool import Entry, Outcome, ParsedPost, ParserPool, parse_post
from ownwords.archive.report import SourceSummary
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.store import Archive
from ownwords.archive.text_repair import repair_line
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.workspace import path_text, source_name

# Increment when parsing changes, so that stored documents are parsed again.
READER_VERSION = "8"

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
    names: dict[str, str] = field(default_factory=dict)  # the same for names; "" if several
    hosts: set[str] = field(default_factory=set)

    def add(self, document_id: str, document: RawDocument) -> None:
        """Register the addresses of a document; an address already taken stays as it is."""
        for address in filter(None, (document.url, document.ref, *document.aliases)):
            plain = _normalise(address)
            self.targets.setdefault(plain, document_id)
            if "/" not in address and self.names.setdefault(plain, document_id) != document_id:
                self.names[plain] = ""

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
            name = _normalise(unquote(href[4:]))
            return self._of(self.targets.get(name) or self._named(name))
        try:
            address = urljoin(base, href)
            parts = urlsplit(address)
        except ValueError:  # an invalid address such as "http://["
            return "other", ""
        if parts.scheme not in ("http", "https", "") or href.startswith("#") or not href:
            return "other", ""
        if known := self.targets.get(_normalise(address)):
            return "internal", known
        if parts.netloc and _host(parts.netloc) not in self.hosts:
            return "external", ""
        local = _normalise(parts._replace(scheme="", netloc="").geturl())
        if local and local in self.targets:  # a document known only by its path
            return "internal", self.targets[local]
        path = _path(parts.path)
        if _NOT_A_DOCUMENT.search(path) or _DATES.search(path) or _FILE.search(parts.path.lower()):
            return "site", ""
        return self._of(self._named(path))

    def _named(self, path: str) -> str:
        # Site programs make addresses of dates and categories, but they end in the text's name.
        return self.names.get(path.rpartition("/")[2], "")

    def _of(self, target: str) -> tuple[LinkState, str]:
        return ("internal", target) if target else ("dead", "")


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
    stored = set(before.values())
    used: Counter[str] = Counter()
    for path in paths:
        name = source_name(path)
        used[name] += 1
        name = name if used[name] == 1 else f"{name}-{used[name]}"
        kind, label = sources.detect_source(path)
        result.sources.append(SourceSummary(path_text(path), label))
        with progress.stage(f"Reading {name}", unit="posts") as stage, ParserPool() as pool:
            site = SiteInfo(name)
            entries = _entries(sources.load_source(kind).read(path), config, stored)
            for (item, key, _), outcome in pool.parse(entries):
                match item:
                    case RawDocument():
                        prefix = site.identity or name
                        _add(archive, item, key, outcome, site, prefix, config, before, result)
                        stage.advance(1)
                    case ExpectedCount():
                        stage.total = (stage.total or 0) + item.documents
                    case SiteInfo():
                        site = item
                        result.resolver.add_home(site.url)
                        # An export with several sites is named after the first.
                        summary = result.sources[-1]
                        summary.site_name = summary.site_name or repair_line(site.name)
                    case SkippedItem():
                        result.skipped.append(item)
                    case SourceNote():
                        result.notes.append(item.text)
    gone = set(before) - set(result.keys)
    by_key = {key: id_ for id_, key in result.keys.items() if id_ not in before}
    result.renamed = {id_: by_key[before[id_]] for id_ in gone if before[id_] in by_key}
    archive.remove(gone)
    return result


def _entries(
    items: Iterable[SourceItem], config: ArchiveConfig, stored: Set[str]
) -> Iterator[Entry]:
    """Yield the items with their content keys and whether they are to be parsed."""
    for item in items:
        if isinstance(item, RawDocument) and not exclusion_reason(item, config):
            key = _content_key(item)
            yield Entry(item, key, None if key in stored else item)
        else:
            yield Entry(item)


def _add(
    archive: Archive,
    raw: RawDocument,
    key: str,
    outcome: Outcome | None,
    site: SiteInfo,
    prefix: str,
    config: ArchiveConfig,
    before: Mapping[str, str],
    result: IngestResult,
) -> None:
    """Store a document if it is new or changed, and note its addresses; or why it is left out."""
    title, reason = repair_line(raw.title), exclusion_reason(raw, config)
    if reason and raw.status != "published":
        excluded = result.statuses_excluded
        excluded[raw.status] = excluded.get(raw.status, 0) + 1
    document_id, n = f"{prefix}:{raw.ref}", 1
    while document_id in result.keys:  # a damaged export may use a ref twice
        n += 1
        document_id = f"{prefix}:{raw.ref}#{n}"
    is_new = not reason and before.get(document_id) != key
    if is_new:
        outcome = outcome or parse_post(raw.body, raw.markup)  # stored before, under another id
    if isinstance(outcome, str):
        reason = outcome
    if reason:
        result.skipped.append(SkippedItem(raw.kind, reason, title=title, ref=raw.ref))
        return
    if is_new and isinstance(outcome, ParsedPost):
        document = Document(
            id=document_id,
            title=title,
            segments=outcome.body.segments,
            kind=raw.kind,
            status=raw.status,
            date=raw.date,
            url=raw.url,
            author=repair_line(raw.author),
            tags=tuple(repair_line(tag) for tag in raw.tags),
        )
        archive.put(document, key, outcome.body, outcome.features)
    result.keys[document_id] = key
    if not site.whole:
        result.partial.add(document_id)
    result.bases[document_id] = raw.base or raw.url or site.url
    result.resolver.add(document_id, raw)
    result.sources[-1].documents += 1


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
        raw.base,
        *raw.tags,
        "aliases",
        *raw.aliases,
    )
