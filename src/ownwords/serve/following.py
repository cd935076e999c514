"""Follows the folders of a workspace while it is served, and reads what changes in them."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ownwords.archive.follow import FolderWatch, has_changed_since
from ownwords.archive.ingest import ingest_changed
from ownwords.archive.sources import text_suffixes
from ownwords.archive.store import Archive
from ownwords.core.errors import OwnwordsError
from ownwords.serve.archive_access import CachedReport
from ownwords.serve.jobs import JobManager, JobRequest
from ownwords.serve.source_list import SourceList

_log = logging.getLogger("ownwords.serve")

_MIN_PAUSE_S = 10.0  # without changes, before all posts are compared again
_PAUSES = 10  # times as long as that takes
_IDLE_S = 5.0
_JOIN_S = 2.0


class Follower:
    """Reads changed files into the archive after a second, and starts a look when all is quiet.

    The search finds a changed text at once; the report follows with the look. Nothing is read while
    another process works in the workspace, because a training needs its posts as they were.
    """

    def __init__(
        self,
        sources: SourceList,
        jobs: JobManager,
        archive: Callable[[], Archive],
        report: Callable[[], CachedReport],
    ) -> None:
        self.titles: list[str] = []  # of the texts that were read last
        self._sources, self._jobs = sources, jobs
        self._archive, self._report = archive, report
        self._stopped = threading.Event()
        self._changed: set[Path] = set()
        self._look_at: float | None = None  # by the monotonic clock
        self._needs_look = False  # before anything else is read
        self._job = ""  # the last look that was started here
        self._thread: threading.Thread | None = None
        self._watch: FolderWatch | None = None

    @property
    def is_following(self) -> bool:
        """Whether changes will be read without a request."""
        return self._watch is not None and not self._stopped.is_set()

    def start(self) -> None:
        """Begin to follow the folders, in a thread."""
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        is_first = True
        while not self._stopped.is_set():
            paths = self._paths()
            self._watch = FolderWatch(paths, self._stopped) if paths else None
            if self._watch is None:
                self._stopped.wait(_IDLE_S)
                continue
            if is_first:
                self._look_if_stale(paths)
                is_first = False
            for changed in self._watch.changes():
                self._changed |= changed
                try:
                    self._read()
                except OwnwordsError as error:
                    _log.warning("changed files could not be read: %s", error)
                except Exception:
                    _log.exception("changed files could not be read")
                if self._paths() != paths:
                    break

    def _paths(self) -> list[Path]:
        """Return the paths to follow: the user's own that exist and were read."""
        try:
            read = self._report().report.sources_by_path(self._archive().path.parent)
        except OwnwordsError:  # nothing was read yet
            return []
        own = [Path(each.path).resolve() for each in self._sources.sources() if each.how == "path"]
        return [path for path in own if path in read and path.exists()]

    def _look_if_stale(self, paths: list[Path]) -> None:
        """Read everything if it has changed since the last look, before the server was started."""
        page = self._archive().path.with_name("report.html")
        if page.exists() and has_changed_since(paths, page.stat().st_mtime):
            self._needs_look, self._look_at = True, time.monotonic()

    def _read(self) -> None:
        if not (self._changed or self._look_at) or self._jobs.find_worker():
            return
        if self._changed and not self._needs_look:
            self._read_changed()
        self._changed.clear()
        if self._look_at and time.monotonic() >= self._look_at:
            self._look_at, self._needs_look = None, False
            self._look()

    def _read_changed(self) -> None:
        archive, config = self._archive(), self._sources.config
        with archive.transaction():
            titles = ingest_changed(archive, self._report().report, self._changed, config)
            if titles:
                self.titles = titles  # before the page learns of the change
        if titles is None:
            self._needs_look, self._look_at = True, time.monotonic()
        elif any(path.suffix.lower() in text_suffixes() for path in self._changed):
            self._look_at = time.monotonic() + self._pause_s()

    def _pause_s(self) -> float:
        last = next((job for job in self._jobs.jobs() if job.kind == "look" and job.ended), None)
        return max(_MIN_PAUSE_S, _PAUSES * ((last.ended or 0) - last.began) if last else 0.0)

    def _look(self) -> None:
        """Start a look, which replaces the last one started here in the list of jobs."""
        known = {job.id: job for job in self._jobs.jobs()}
        if self._job in known and known[self._job].ended:
            self._jobs.remove(self._job)
        self._job = self._jobs.start(JobRequest("look")).id
