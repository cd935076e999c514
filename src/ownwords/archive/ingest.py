"""Update an archive from paths: store new and changed documents, remove deleted ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
READER_VERSION = "10"


@dataclass(slots=True)
class IngestResult:
    """The results of reading the paths, besides the documents stored in the archive."""

    sources: list[SourceSummary] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)  # document id -> content key
    skipped: list[SkippedItem] = field(default_factory=list)
    statuses_excluded: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # former document id -> current id


def ingest(
    archive: Archive, paths: Sequence[Path], config: ArchiveConfig, progress: Progress
) -> IngestResult:
    """Update the archive from the paths; only changed documents are parsed again."""
    result = IngestResult()
    before = archive.keys()
    used: Counter[str] = Counter()
    for path in paths:
        name = source_name(path)
        used[name] += 1
        name = name if used[name] == 1 else f"{name}-{used[name]}"
        kind, label = sources.detect_source(path)
        result.sources.append(SourceSummary(path_text(path), label))
        with progress.stage(f"Reading {name}", unit="posts") as stage:
            site = SiteInfo(name)
            for item in sources.load_source(kind).read(path):
                match item:
                    case RawDocument():
                        prefix = site.identity or name
                        _add(archive, item, site, prefix, config, before, result)
                        stage.advance(1)
                    case ExpectedCount():
                        stage.total = (stage.total or 0) + item.documents
                    case SiteInfo():
                        site = item
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


def _add(
    archive: Archive,
    raw: RawDocument,
    site: SiteInfo,
    prefix: str,
    config: ArchiveConfig,
    before: Mapping[str, str],
    result: IngestResult,
) -> None:
    """Store a document if it is new or changed, or note why it is left out."""
    title, reason = repair_line(raw.title), exclusion_reason(raw, config)
    if reason and raw.status != "published":
        excluded = result.statuses_excluded
        excluded[raw.status] = excluded.get(raw.status, 0) + 1
    document_id, n = f"{prefix}:{raw.ref}", 1
    while document_id in result.keys:  # a damaged export may use a ref twice
        n += 1
        document_id = f"{prefix}:{raw.ref}#{n}"
    key = "" if reason else _content_key(raw)
    if not reason and before.get(document_id) != key:
        try:
            body = parse_body(raw.body, raw.markup)
            reason = "" if body.segments else "no text"
        except SourceError as error:
            reason = error.message
        if not reason:
            document = Document(
                id=document_id,
                title=title,
                segments=body.segments,
                kind=raw.kind,
                status=raw.status,
                date=raw.date,
                url=raw.url,
                author=repair_line(raw.author),
                tags=tuple(repair_line(tag) for tag in raw.tags),
            )
            archive.put(document, key, body, encode_features(extract_features(document)))
    if reason:
        result.skipped.append(SkippedItem(raw.kind, reason, title=title, ref=raw.ref))
        return
    result.keys[document_id] = key
    result.sources[-1].documents += 1


def exclusion_reason(document: RawDocument, config: ArchiveConfig) -> str:
    """The reason to leave a document out of the archive; empty to take it in."""
    if document.status == "trashed":
        return "in the trash"
    if document.status == "draft" and not config.drafts:
        return "still a draft"
    if document.status == "scheduled" and not config.drafts:
        return "scheduled, not yet published"
    if document.status == "private" and not config.private:
        return "a private post"
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
        *raw.tags,
    )
