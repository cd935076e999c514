"""The sources of a workspace: its paths, and which posts are read.

They are stored in `sources.json`. Publii sites in the usual folders are found and offered.
"""

import json
import os
import re
import secrets
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ownwords.archive.ingest import versions_in
from ownwords.archive.report import Report, SourceVersion
from ownwords.archive.settings import ArchiveConfig
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import Workspace, path_text, source_name, write_atomically
from ownwords.serve.errors import conflict, not_found

UPLOADS = "uploads"
_FILE = "sources.json"
_MAX_NAME = 100
_ABANDONED_S = 24 * 3600
_DOCUMENTS = re.compile(r'^XDG_DOCUMENTS_DIR="(.+)"', re.MULTILINE)
_UNSAFE = re.compile(r"[^\w. -]+")
_FLAGS = {
    "--drafts": ("drafts", True),
    "--hidden": ("hidden", True),
    "--private": ("private", True),
    "--no-pages": ("pages", False),
}
How = Literal["path", "upload", "feed"]


@dataclass(frozen=True)
class PostFilter:
    """Which posts are read besides the published ones."""

    drafts: bool = ArchiveConfig.drafts
    hidden: bool = ArchiveConfig.hidden
    private: bool = ArchiveConfig.private
    pages: bool = ArchiveConfig.pages

    def flags(self) -> list[str]:
        """Return the differences from the defaults as options of a command."""
        changed = [(name, value) for name, value in encode(self).items() if value != _USUAL[name]]
        settings = [f"archive.{name}={str(value).lower()}" for name, value in changed]
        return [word for setting in settings for word in ("--set", setting)]


_USUAL = encode(PostFilter())


@dataclass(frozen=True)
class SourceRecord:
    """A source; a path in the workspace is stored relative to it, so that the folder can move."""

    id: str
    how: How
    name: str
    path: str
    label: str = ""
    version: SourceVersion | None = None  # of another source; not read until the user decides


@dataclass(frozen=True)
class _Contents:
    sources: tuple[SourceRecord, ...] = ()
    filter: PostFilter = field(default_factory=PostFilter)


@dataclass(frozen=True)
class Source(SourceRecord):
    """A source as the page sees it, with its whole path; `problem` says why it cannot be read."""

    bytes: int | None = None
    problem: str = ""
    read_at: float | None = None  # None: not read yet
    newest_day: str = ""  # of its newest post, if it was read


class SourceList:
    """The sources of one workspace. Thread-safe; every change is written at once.

    Until the page changes them, they are the paths that the server was started with, or those of
    the last look.
    """

    def __init__(
        self,
        workspace: Workspace,
        given: Sequence[Path] = (),
        *,
        last_report: Callable[[], Report],
    ) -> None:
        self._workspace = workspace
        self._given, self._last_report = tuple(given), last_report
        self._file = workspace.root / _FILE
        self._mutex = threading.RLock()

    @property
    def uploads(self) -> Path:
        """The folder of uploaded and fetched files."""
        return self._workspace.root.absolute() / UPLOADS

    def sources(self) -> list[Source]:
        """Return all sources."""
        return [self._shown(record) for record in self._read().sources]

    def paths(self) -> list[Path]:
        """Return the paths of all sources. Raises ApiError if there is none or one is missing."""
        paths = [self._path(record) for record in self._read().sources if not record.version]
        if not paths:
            raise conflict("no blog chosen yet", hint="choose one under Your blog")
        if missing := next((path for path in paths if not path.exists()), None):
            raise conflict(
                f"{missing} does not exist",
                hint="remove it under Your blog, or choose where it is now",
            )
        return paths

    @property
    def filter(self) -> PostFilter:
        """Which posts are read."""
        return self._read().filter

    @property
    def config(self) -> ArchiveConfig:
        """The filter as `look` takes it."""
        return ArchiveConfig(**encode(self.filter))

    def set_filter(self, changes: Mapping[str, object]) -> None:
        """Change which posts the next look reads."""
        with self._mutex:
            contents = self._read()
            changed = decode(PostFilter, encode(contents.filter) | dict(changes))
            self._write(replace(contents, filter=changed))

    def find_version(
        self, path: Path, found: Iterable[SourceVersion] | None = None
    ) -> SourceVersion | None:
        """Return the listed source that the path is a new version of, among those `found`."""
        contents = self._read()
        paths = [self._path(record).resolve() for record in contents.sources]
        if path.resolve() in paths:
            return None
        if found is None:
            found = versions_in(self._workspace.archive, path, self.config)
        return next((each for each in found if Path(each.of).resolve() in paths), None)

    def add(
        self,
        path: Path,
        how: How,
        label: str,
        name: str = "",
        version: SourceVersion | None = None,
    ) -> Source:
        """Add a path, unless it is a source already.

        A new version of another source is not read until the user decides.
        """
        with self._mutex:
            contents = self._read()
            for record in contents.sources:
                if self._path(record) == path:
                    return self._shown(record)
            record = SourceRecord(
                id=secrets.token_hex(4),
                how=how,
                name=name or source_name(path),
                path=self._stored(path),
                label=label,
                version=version,
            )
            self._write(replace(contents, sources=(*contents.sources, record)))
            return self._shown(record)

    def new_folder(self, name: str) -> Path:
        """Return a path for an uploaded or fetched source, in a folder of its own; not created yet.

        Its last part names the source.
        """
        with self._mutex:
            self._forget_abandoned()
        safe = _UNSAFE.sub("-", name).strip("-.")[:_MAX_NAME] or "posts"
        return self.uploads / secrets.token_hex(4) / safe

    def _forget_abandoned(self) -> None:
        """Delete the folders of uploads that were interrupted long ago."""
        paths = [self._path(record) for record in self._read().sources]
        for folder in self.uploads.glob("*"):
            is_used = any(path.is_relative_to(folder) for path in paths)
            with suppress(OSError):
                if not is_used and time.time() - folder.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(folder, ignore_errors=True)

    def decide(self, id_: str, *, replaces: bool) -> None:
        """Read a new version from now on; if it `replaces` the old one, in its place."""
        with self._mutex:
            contents = self._read()
            record = self._find(contents, id_)
            old = Path(record.version.of).resolve() if replaces and record.version else None

            def decided(each: SourceRecord) -> SourceRecord:
                if each is record:
                    return replace(each, version=None)
                if each.version and Path(each.version.of).resolve() == old:
                    # Another new version of the same source is now a version of this one.
                    version = replace(each.version, of=path_text(self._path(record)))
                    return replace(each, version=version)
                return each

            self._write(replace(contents, sources=tuple(map(decided, contents.sources))))
            for each in contents.sources:
                if self._path(each).resolve() == old:
                    self.remove(each.id)

    def _find(self, contents: _Contents, id_: str) -> SourceRecord:
        record = next((each for each in contents.sources if each.id == id_), None)
        if record is None:
            raise not_found("this source is no longer in the list")
        return record

    def remove(self, id_: str) -> None:
        """Remove a source; uploaded or fetched files are deleted, the user's own never."""
        with self._mutex:
            contents = self._read()
            record = self._find(contents, id_)
            rest = tuple(each for each in contents.sources if each.id != id_)
            self._write(replace(contents, sources=rest))
            path = self._path(record)
            if record.how != "path" and path.is_relative_to(self.uploads):
                shutil.rmtree(self.uploads / path.relative_to(self.uploads).parts[0], True)

    # --- the file --------------------------------------------------------------------------------

    def _read(self) -> _Contents:
        """Return the contents of the file, or the defaults until the page changes any."""
        with suppress(OSError, ValueError, OwnwordsError):  # none yet, or a damaged one
            return decode(_Contents, json.loads(self._file.read_bytes()), unknown="ignore")
        paths, post_filter = self._given, PostFilter()
        with suppress(OwnwordsError):  # no archive yet, or a damaged one
            report = self._last_report()
            located = (source.located(self._workspace.root) for source in report.sources)
            paths = paths or tuple(located)
            post_filter = filter_of(report.command)
        records = tuple(
            SourceRecord(f"given-{i}", "path", source_name(path), self._stored(path))
            for i, path in enumerate(paths)
        )
        return _Contents(records, post_filter)

    def _write(self, contents: _Contents) -> None:
        if not self._workspace.root.is_dir():
            self._workspace.create()
        write_atomically(self._file, json.dumps(encode(contents), ensure_ascii=False) + "\n")

    def _stored(self, path: Path) -> str:
        path, root = path.absolute(), self._workspace.root.absolute()
        return path_text(path.relative_to(root) if path.is_relative_to(root) else path)

    def _path(self, record: SourceRecord) -> Path:
        return self._workspace.root.absolute() / record.path

    def _shown(self, record: SourceRecord) -> Source:
        path, size, problem = self._path(record), None, ""
        try:
            stat = path.stat()
            size = stat.st_size if path.is_file() else None
        except OSError as error:
            problem = f"{path_text(path)} cannot be read: {error.strerror or error}"
        shown = vars(record) | {"path": path_text(path)}
        return Source(**shown, bytes=size, problem=problem)


def filter_of(command: str) -> PostFilter:
    """Return which posts an `ownwords look` command reads."""
    try:
        words = shlex.split(command)
    except ValueError:
        return PostFilter()
    chosen = {name: value for flag, (name, value) in _FLAGS.items() if flag in words}
    return replace(PostFilter(), **chosen)


# --- Publii sites ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundSite:
    """A Publii site that was found."""

    path: str
    name: str
    label: str = "a Publii site"


def find_publii_sites(home: Path | None = None) -> list[FoundSite]:
    """Return the Publii sites of this user, the last saved first. Nothing in them is read."""
    saved: dict[Path, float] = {}
    for folder in _documents(home or Path.home()):
        for database in folder.glob("Publii/sites/*/input/db.sqlite"):
            saved[database.parents[1]] = database.stat().st_mtime
    sites = sorted(saved, key=lambda site: -saved[site])
    return [FoundSite(path_text(site), site.name) for site in sites]


def _documents(home: Path) -> Iterator[Path]:
    """Yield the folders in which Publii stores its sites by default."""
    yield from (home / "Documents", home / "OneDrive" / "Documents")
    if sys.platform not in ("win32", "darwin"):
        yield home
        # The documents folder of a Linux desktop has a name in the user's language.
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        with suppress(OSError):
            text = (config / "user-dirs.dirs").read_text("utf-8", "replace")
            if named := _DOCUMENTS.search(text):
                yield Path(named[1].replace("$HOME", str(home)))
