"""From paths to an archive: what each path is, which documents it holds, what changed since."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ownwords.archive import sources
from ownwords.archive.document import (
    Document,
    ExpectedCount,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceNote,
)
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.links import LinkResolver, link_resolver
from ownwords.archive.policy import ArchiveConfig, why_left_out
from ownwords.archive.report import SourceSummary
from ownwords.archive.segments import parse_body
from ownwords.archive.store import Archive
from ownwords.archive.text_repair import repair_line
from ownwords.core.errors import SourceError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.workspace import path_text, source_name

# Raised whenever the same body would be read differently, so that stored documents are read anew.
READER_VERSION = "3"


@dataclass(slots=True)
class IngestResult:
    """What reading the paths brought, beside the documents now in the archive."""

    sources: list[SourceSummary] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)  # document id -> content key
    skipped: list[SkippedItem] = field(default_factory=list)
    statuses_excluded: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    homes: list[str] = field(default_factory=list)  # addresses of the sites
    is_whole: bool = True  # the source being read holds all of its site
    of_a_part: set[str] = field(default_factory=set)  # ids of documents of which that is not so
    bases: dict[str, str] = field(default_factory=dict)  # document id -> where its links start
    reachable: list[tuple[str, RawDocument]] = field(default_factory=list)  # without bodies
    new: int = 0

    def addresses(self) -> LinkResolver:
        """Every name by which the documents can be reached."""
        return link_resolver(self.reachable, self.homes)


def ingest(
    archive: Archive, paths: Sequence[Path], config: ArchiveConfig, progress: Progress
) -> IngestResult:
    """Bring the archive in line with the paths; only what changed is read anew."""
    intake = IngestResult()
    before = archive.keys()
    for path, name in zip(paths, _names(paths), strict=True):
        source_name, seen_as = sources.detect_source(path)
        intake.sources.append(SourceSummary(path_text(path), seen_as))
        intake.is_whole = True
        with progress.stage(f"Reading {name}", unit="posts") as stage:
            for item in sources.load_source(source_name).read(path):
                if isinstance(item, RawDocument):
                    _take_in(archive, item, name, source_name, config, before, intake)
                    stage.advance(1)
                elif isinstance(item, ExpectedCount):
                    stage.total = (stage.total or 0) + item.documents
                else:
                    _note_down(item, intake)
    archive.remove(set(before) - set(intake.keys))
    return intake


def _names(paths: Sequence[Path]) -> Iterator[str]:
    """A short name for each path, none of them twice; it begins the ids of its documents."""
    taken: dict[str, int] = {}
    for path in paths:
        name = source_name(path)
        taken[name] = taken.get(name, 0) + 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}"


def _note_down(item: SiteInfo | SkippedItem | SourceNote, intake: IngestResult) -> None:
    if isinstance(item, SiteInfo):
        intake.homes.append(item.url)
        intake.is_whole = item.whole
        read = intake.sources[-1]
        # One export may hold several sites; it is called after the first.
        read.site_name = read.site_name or repair_line(item.name)
        read.site_url = read.site_url or item.url
    elif isinstance(item, SkippedItem):
        intake.skipped.append(item)
    else:
        intake.notes.append(item.text)


def _take_in(
    archive: Archive,
    raw: RawDocument,
    name: str,
    source_name: str,
    config: ArchiveConfig,
    before: dict[str, str],
    intake: IngestResult,
) -> None:
    title = repair_line(raw.title)
    reason = why_left_out(raw, config)
    if reason:
        intake.skipped.append(SkippedItem(raw.kind, reason, title=title, ref=raw.ref))
        if raw.status != "published":
            excluded = intake.statuses_excluded
            excluded[raw.status] = excluded.get(raw.status, 0) + 1
        return
    document_id = _free_id(f"{name}:{raw.ref}", intake.keys)
    key = _content_key(raw)
    if before.get(document_id) != key:
        try:
            reading = parse_body(raw.body, raw.markup)
        except SourceError as error:
            intake.skipped.append(SkippedItem(raw.kind, error.message, title=title, ref=raw.ref))
            return
        if not reading.segments:
            intake.skipped.append(SkippedItem(raw.kind, "no text", title=title, ref=raw.ref))
            return
        document = Document(
            id=document_id,
            title=title,
            segments=reading.segments,
            source=source_name,
            kind=raw.kind,
            status=raw.status,
            date=raw.date,
            url=raw.url,
            author=repair_line(raw.author),
            tags=tuple(repair_line(tag) for tag in raw.tags),
            summary=repair_line(raw.summary),
        )
        archive.put(document, key, reading, encode_features(extract_features(document)))
        intake.new += 1
    intake.keys[document_id] = key
    if not intake.is_whole:
        intake.of_a_part.add(document_id)
    intake.bases[document_id] = raw.base or raw.url or (intake.homes[-1] if intake.homes else "")
    intake.reachable.append((document_id, replace(raw, body="")))
    intake.sources[-1].documents += 1


def _free_id(wanted: str, taken: dict[str, str]) -> str:
    """A damaged export may use one ref twice; both posts are kept."""
    document_id, n = wanted, 1
    while document_id in taken:
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
