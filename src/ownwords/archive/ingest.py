"""Update an archive from paths, and recognise new versions of the sources that it was made from."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np

from ownwords.archive.document import (
    Document,
    ExpectedCount,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceNote,
)
from ownwords.archive.features import Features, encode_features, extract_features, sketch_size
from ownwords.archive.report import Report, SourceSummary, SourceVersion
from ownwords.archive.segments import parse_body
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.sources import (
    FILE_BY_FILE,
    DetectedSource,
    FileByFile,
    detect_source,
    load_source,
    text_suffixes,
)
from ownwords.archive.store import Archive
from ownwords.archive.text_repair import repair_line
from ownwords.core.errors import OwnwordsError, SourceError, WorkspaceError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.workspace import SUFFIX, Workspace, path_text, source_name

# Increment when parsing changes, so that stored documents are parsed again.
READER_VERSION = "10"

Detect = Callable[[Path], DetectedSource]


@dataclass(slots=True)
class IngestResult:
    """The results of reading the paths, besides the documents stored in the archive."""

    sources: list[SourceSummary] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)  # document id -> content key
    skipped: list[SkippedItem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # former document id -> current id
    origins: dict[str, int] = field(default_factory=dict)  # document id -> index in `sources`


def ingest(
    archive: Archive,
    paths: Sequence[Path],
    config: ArchiveConfig,
    progress: Progress,
    prefixes: Mapping[Path, str] = MappingProxyType({}),
    detect: Detect = detect_source,
) -> IngestResult:
    """Store new and changed documents, and remove those that are gone.

    `prefixes`, by resolved path, replaces a path's name as the prefix of its documents' ids.
    """
    result = IngestResult()
    skipped: Counter[SkippedItem] = Counter()
    before = archive.keys()
    used: Counter[str] = Counter()
    for path in paths:
        name = prefixes.get(path.resolve()) or source_name(path)
        used[name] += 1
        name = name if used[name] == 1 else f"{name}-{used[name]}"
        found = detect(path)
        absolute = path_text(path.absolute())
        summary = SourceSummary(
            path_text(path), found.label, prefix=name, absolute=absolute, kind=found.name
        )
        result.sources.append(summary)
        with progress.stage(f"Reading {name}", unit="posts") as stage:
            prefix = name
            for item in found.read():
                match item:
                    case RawDocument():
                        if left_out := _add(archive, item, prefix, config, before, result):
                            skipped[replace(left_out, source=len(result.sources) - 1)] += 1
                        stage.advance(1)
                    case ExpectedCount():
                        stage.total = (stage.total or 0) + item.documents
                    case SiteInfo():
                        prefix = item.identity or name
                        # An export with several sites is named after the first.
                        summary = result.sources[-1]
                        summary.site_name = summary.site_name or repair_line(item.name)
                    case SkippedItem():
                        left_out = replace(item, count=1, source=len(result.sources) - 1)
                        skipped[left_out] += item.count
                    case SourceNote():
                        result.notes.append(item.text)
    result.skipped = [replace(item, count=count) for item, count in skipped.items()]
    gone = before.keys() - result.keys
    if gone and (new := result.keys.keys() - before):
        result.renamed = pair_posts(_known_posts(archive, gone), _known_posts(archive, new))
    archive.remove(gone)
    return result


def ingest_changed(
    archive: Archive, report: Report, files: Set[Path], config: ArchiveConfig
) -> list[str] | None:
    """Store the texts of new and changed files; return their titles.

    Returns None, and stores nothing, if a file is gone, or if its source reads its files together.
    The report and the selection stay as they are until the next look.
    """
    folders = report.sources_by_path(archive.path.parent)
    changed: dict[Path, set[Path]] = defaultdict(set)
    for file in files:
        folder = next((path for path in folders if file.is_relative_to(path)), None)
        kind = folders[folder].kind if folder else ""
        if folder and kind in FILE_BY_FILE and file.suffix.lower() not in text_suffixes():
            continue
        if folder is None or kind not in FILE_BY_FILE or not file.exists():
            return None
        changed[folder].add(file)
    titles = []
    before, selection = archive.keys(), archive.selection()
    for folder, only in changed.items():
        source = replace(folders[folder])
        result = IngestResult([source])
        read = cast(FileByFile, load_source(source.kind)).read
        for item in read(folder, only if folder.is_dir() else None):
            if isinstance(item, RawDocument):
                _add(archive, item, source.prefix, config, before, result)
        new = [id_ for id_, key in result.keys.items() if before.get(id_) != key]
        titles += [header.title for header in archive.headers(new)]
    if titles:
        archive.set_selection((id_, *row) for id_, row in selection.items())
        archive.set_meta("ask_state", "")  # so that the search compares its texts with these
    return titles


def _add(
    archive: Archive,
    raw: RawDocument,
    prefix: str,
    config: ArchiveConfig,
    before: Mapping[str, str],
    result: IngestResult,
) -> SkippedItem | None:
    """Store a document if it is new or changed; returns it as skipped if it is left out."""
    reason = exclusion_reason(raw, config)
    document_id, n = f"{prefix}:{raw.ref}", 1
    while document_id in result.keys:  # a damaged export may use a ref twice
        n += 1
        document_id = f"{prefix}:{raw.ref}#{n}"
    key = "" if reason else _content_key(raw)
    if not reason and before.get(document_id) != key:
        try:
            document = _parse(raw, document_id)
            archive.put(document, key, encode_features(extract_features(document)))
        except SourceError as error:
            reason = error.message
    if reason:
        return SkippedItem(raw.kind, reason, title=repair_line(raw.title), ref=raw.ref)
    result.keys[document_id] = key
    result.origins[document_id] = len(result.sources) - 1
    source = result.sources[-1]
    source.documents += 1
    source.newest_day = max(source.newest_day, raw.day)
    return None


def _parse(raw: RawDocument, document_id: str) -> Document:
    """Parse a document; raises SourceError if it holds no text."""
    segments, dropped = parse_body(raw.body, raw.markup)
    if not segments:
        raise SourceError("no text")
    return Document(
        id=document_id,
        title=repair_line(raw.title),
        segments=segments,
        kind=raw.kind,
        status=raw.status,
        date=raw.date,
        url=raw.url,
        author=repair_line(raw.author),
        tags=tuple(repair_line(tag) for tag in raw.tags),
        dropped=dropped,
    )


def exclusion_reason(document: RawDocument, config: ArchiveConfig) -> str:
    """Return the reason to leave a document out of the archive; empty to take it in."""
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


# ---- new versions of a source, such as this week's export of a blog and last week's

_MAX_NEW_PATHS = 8  # compared with one another
_MIN_SIMILARITY = 0.5  # share of the shingles of the shorter of two versions of a post


@dataclass(frozen=True, slots=True)
class KnownPost:
    """What a post is recognised by; a post whose key is already known needs no features."""

    id: str  # after the first colon, its ref in its source
    key: str
    title: str
    day: str
    url: str
    features: Features | None

    @property
    def content(self) -> tuple[str, bytes]:
        return self.key, self.features.exact if self.features else b""

    @property
    def names(self) -> list[Hashable]:
        names: list[Hashable] = [("id", self.id.partition(":")[2])]
        names += [("url", self.url)] if self.url else []
        names += [("title", self.title.casefold(), self.day)] if self.title and self.day else []
        return names


def find_versions(
    archive: Archive, paths: Sequence[Path], config: ArchiveConfig, detect: Detect = detect_source
) -> list[SourceVersion]:
    """Find the paths that hold most posts of a source in the archive, or of another path.

    Paths that the archive was made from are not compared. Nothing is stored.
    """
    report = stored_report(archive)
    read = report.sources_by_path(archive.path.parent) if report else {}
    new = [path for path in paths if path.resolve() not in read]
    if not new or not (read or 1 < len(new) <= _MAX_NEW_PATHS):
        return []
    names = {path_text(path.absolute()) for path in new}
    known = list(_known_sources(archive, report)) if report else []
    keys = frozenset(archive.keys().values()) if len(new) == 1 else frozenset[str]()
    versions: list[SourceVersion] = []
    for path in new:
        name, posts = path_text(path.absolute()), list(_posts_at(detect(path), config, keys))
        newest = max((post.day for post in posts), default="")
        found: list[SourceVersion] = []
        for of, day, others in known:
            sides = (of, others), (name, posts)
            # Of two new paths, the one with the newer posts is the new version.
            old, later = reversed(sides) if of in names and newest < day else sides
            version = _compare(*old, *later)
            if version.is_one:
                found.append(version)
        if found:
            versions.append(max(reversed(found), key=lambda each: each.same + each.changed))
        known.append((name, newest, posts))
    return versions


def _known_sources(archive: Archive, report: Report) -> Iterator[tuple[str, str, list[KnownPost]]]:
    """Yield the path, the newest day and the posts of each source of an archive."""
    for number, source in enumerate(report.sources):
        ids = [post.id for post in report.posts if post.source == number]
        place = source.located(archive.path.parent)
        yield path_text(place), source.newest_day, _known_posts(archive, ids)


def versions_in(
    archive: Path, path: Path, config: ArchiveConfig, detect: Detect = detect_source
) -> list[SourceVersion]:
    """Return `find_versions` for one path and an archive's file; nothing if it is unreadable."""
    if archive.exists():
        with suppress(OwnwordsError), Archive(archive) as store:
            return find_versions(store, [path], config, detect)
    return []


def workspace_for(
    source: Path, folder: Path | None = None, detect: Detect = detect_source
) -> Workspace:
    """Return the default workspace of a source: NAME.ownwords in the folder, or the current one.

    Exports whose names differ only in their dates or numbers share it if they share posts. A
    different blog whose exports have the same name gets a workspace with the date in its name.
    """
    usual = Workspace.default_for(source, folder)
    full = Workspace(usual.root.with_name(source_name(source, full=True) + SUFFIX))
    if full.root == usual.root or not usual.archive.exists():
        return usual
    # Damage to the archive or the source is reported later.
    with suppress(OwnwordsError), Archive(usual.archive) as archive:
        report = Report.from_json(archive.get_meta("report"))
        is_known = source.resolve() in report.sources_by_path(archive.path.parent)
        if not (is_known or find_versions(archive, [source], ArchiveConfig(), detect)):
            return full
    return usual


def stored_report(archive: Archive) -> Report | None:
    """Return the report of the last look; None if there is none that can be read."""
    try:
        return Report.from_json(archive.get_meta("report"))
    except WorkspaceError:  # none yet, or of another version
        return None


def _posts_at(found: DetectedSource, config: ArchiveConfig, keys: Set[str]) -> Iterator[KnownPost]:
    """Yield the posts of a source; those whose key is among `keys` are not parsed."""
    for raw in found.read():
        if not isinstance(raw, RawDocument) or exclusion_reason(raw, config):
            continue
        features, key = None, _content_key(raw)
        if key not in keys:
            try:
                features = extract_features(_parse(raw, raw.ref))
            except SourceError:
                continue
        yield KnownPost(f":{raw.ref}", key, repair_line(raw.title), raw.day, raw.url, features)


def _known_posts(archive: Archive, ids: Iterable[str]) -> list[KnownPost]:
    ids = list(ids)
    keys, features = archive.keys(), dict(archive.features(ids))
    return [
        KnownPost(each.id, keys[each.id], each.title, each.day, each.url, features[each.id])
        for each in archive.headers(ids)
    ]


def _compare(
    of: str, old: Sequence[KnownPost], path: str, new: Sequence[KnownPost]
) -> SourceVersion:
    """Compare the posts at a path with those of a source."""
    pairs = pair_posts(old, new)
    before, now = ({post.id: post.content for post in posts} for posts in (old, new))
    same = sum(
        any(a and a == b for a, b in zip(before[former], now[id_], strict=True))
        for former, id_ in pairs.items()
    )
    return SourceVersion(
        path=path,
        of=of,
        new=len(new) - len(pairs),
        changed=len(pairs) - same,
        same=same,
        gone=len(old) - len(pairs),
    )


def pair_posts(old: Sequence[KnownPost], new: Sequence[KnownPost]) -> dict[str, str]:
    """Return the new id of each old post that is among the new ones, by its old id.

    A post with the same content is the same post. A post with the same ref, address or title is its
    new version if they share half of the text, or if most of the posts are paired already.
    """
    pairs: dict[str, str] = {}

    def pair(names: Callable[[KnownPost], Iterable[Hashable]], min_similarity: float = 0.0) -> None:
        found = set(pairs.values())
        free: dict[Hashable, list[KnownPost]] = defaultdict(list)
        for post in new:
            for name in names(post) if post.id not in found else ():
                free[name].append(post)
        for former in old:
            if former.id in pairs:
                continue
            for post in (each for name in names(former) for each in free.get(name, ())):
                if post.id not in found and _similarity(former, post) >= min_similarity:
                    pairs[former.id] = post.id
                    found.add(post.id)
                    break

    pair(lambda post: [post.key])
    pair(lambda post: [post.features.exact] if post.features else [])
    pair(lambda post: post.names, _MIN_SIMILARITY)
    if 2 * len(pairs) > min(len(old), len(new)):
        pair(lambda post: post.names)
    return pairs


def _similarity(post: KnownPost, other: KnownPost) -> float:
    """Estimate from the sketches what share of the shorter text's shingles the other one has."""
    if post.features is None or other.features is None:
        return 0.0
    level = max(post.features.level, other.features.level)
    first, second = (
        each.sketch[: sketch_size(each.sketch, level)] for each in (post.features, other.features)
    )
    shared = int(np.isin(first, second, assume_unique=True).sum())
    return shared / max(1, min(len(first), len(second)))
