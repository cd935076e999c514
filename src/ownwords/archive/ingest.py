"""Update an archive from paths: store new and changed documents, remove deleted ones."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ownwords.archive import sources
from ownwords.archive.document import (
    Document,
    ExpectedCount,
    ParsedBody,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceNote,
)
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.report import Report, SourceSummary, SourceVersion
from ownwords.archive.segments import parse_body
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.source_versions import KnownPost, compare, pair_posts
from ownwords.archive.store import Archive
from ownwords.archive.text_repair import repair_line
from ownwords.core.errors import OwnwordsError, SourceError, WorkspaceError
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
    origins: dict[str, int] = field(default_factory=dict)  # document id -> its place in `sources`


def ingest(
    archive: Archive,
    paths: Sequence[Path],
    config: ArchiveConfig,
    progress: Progress,
    prefixes: Mapping[Path, str] = MappingProxyType({}),
) -> IngestResult:
    """Update the archive from the paths; only changed documents are parsed again.

    `prefixes` of the documents' ids are given where they are not those of the paths' names.
    """
    result = IngestResult()
    before = archive.keys()
    used: Counter[str] = Counter()
    for path in paths:
        name = prefixes.get(path) or source_name(path)
        used[name] += 1
        name = name if used[name] == 1 else f"{name}-{used[name]}"
        kind, label = sources.detect_source(path)
        result.sources.append(SourceSummary(path_text(path), label, prefix=name))
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
    if gone and (new := set(result.keys) - set(before)):
        known = archive.known_posts(gone), archive.known_posts(new)
        result.renamed = pair_posts(*known)
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
            document, body = _parse(raw, document_id)
            archive.put(document, key, body, encode_features(extract_features(document)))
        except SourceError as error:
            reason = error.message
    if reason:
        result.skipped.append(SkippedItem(raw.kind, reason, title=title, ref=raw.ref))
        return
    result.keys[document_id] = key
    result.origins[document_id] = len(result.sources) - 1
    source = result.sources[-1]
    source.documents += 1
    source.newest_day = max(source.newest_day, _day(raw))


def _parse(raw: RawDocument, document_id: str) -> tuple[Document, ParsedBody]:
    """The document and its body. Raises SourceError if it holds no text."""
    body = parse_body(raw.body, raw.markup)
    if not body.segments:
        raise SourceError("no text")
    document = Document(
        id=document_id,
        title=repair_line(raw.title),
        segments=body.segments,
        kind=raw.kind,
        status=raw.status,
        date=raw.date,
        url=raw.url,
        author=repair_line(raw.author),
        tags=tuple(repair_line(tag) for tag in raw.tags),
    )
    return document, body


def _day(raw: RawDocument) -> str:
    return raw.date.date().isoformat() if raw.date else ""


# --- new versions of what was read before ---------------------------------------------------------

_MAX_NEW_PATHS = 8  # that are compared with one another


def find_versions(
    archive: Archive, paths: Sequence[Path], config: ArchiveConfig
) -> list[SourceVersion]:
    """The paths that hold most posts of a source in the archive, or of another of the paths.

    Those that the archive was made from are not compared. Nothing is stored.
    """
    report = stored_report(archive)
    read = {Path(source.path).resolve(): source for source in report.sources} if report else {}
    new = [path for path in paths if path.resolve() not in read]
    if not new or not (read or 1 < len(new) <= _MAX_NEW_PATHS):
        return []
    names = {path_text(path) for path in new}
    known: list[tuple[str, str, list[KnownPost]]] = []  # path, newest day, posts
    for number, source in enumerate(report.sources if report else ()):
        ids = [post.id for post in report.posts if post.source == number] if report else []
        known.append((source.path, source.newest_day, archive.known_posts(ids)))
    keys = frozenset(archive.keys().values()) if len(new) == 1 else frozenset[str]()
    versions: list[SourceVersion] = []
    for path in new:
        posts = list(_posts_at(path, config, keys))
        newest = max((post.day for post in posts), default="")
        found: list[SourceVersion] = []
        for of, day, others in known:
            sides = (of, others), (path_text(path), posts)
            # Of two that are both new here, the later one is the new version.
            old, later = reversed(sides) if of in names and newest < day else sides
            version = compare(*old, *later)
            if version.is_one:
                found.append(version)
        if found:
            versions.append(max(reversed(found), key=lambda each: each.same + each.changed))
        known.append((path_text(path), newest, posts))
    return versions


def versions_in(archive: Path, path: Path, config: ArchiveConfig) -> list[SourceVersion]:
    """What `find_versions` finds for one path in an archive's file; nothing if it is unreadable."""
    if not archive.exists():
        return []
    with suppress(OwnwordsError), Archive(archive) as store:
        return find_versions(store, [path], config)
    return []


def stored_report(archive: Archive) -> Report | None:
    """The report of the last look; None if there is none that can be read."""
    try:
        return Report.from_json(archive.get_meta("report"))
    except WorkspaceError:  # none yet, or of another version
        return None


def _posts_at(path: Path, config: ArchiveConfig, known_keys: Set[str]) -> Iterator[KnownPost]:
    """What the posts at a path are recognised by; those with a known key are not parsed."""
    kind, _ = sources.detect_source(path)
    for raw in sources.load_source(kind).read(path):
        if not isinstance(raw, RawDocument) or exclusion_reason(raw, config):
            continue
        features, key = None, _content_key(raw)
        if key not in known_keys:
            try:
                features = extract_features(_parse(raw, raw.ref)[0])
            except SourceError:
                continue
        yield KnownPost(f":{raw.ref}", key, repair_line(raw.title), _day(raw), raw.url, features)


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
