"""Notice which files of a blog change.

Uses the system's notifications if the package `watchfiles` is installed, and polling otherwise.
Either way, the files are compared with their previous state, so a lost notification costs only
time.
"""

import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ownwords.archive.untrusted_files import PROGRAM_FOLDERS
from ownwords.core.workspace import SUFFIX

_QUIET_S = 1.0  # without changes, after which the files are complete
_MIN_POLL_S = 1.0
_MAX_LOAD = 0.01  # the share of a core that polling takes
_RESCAN_S = 60.0  # even with notifications, because network drives send none
_NOTICE_STEP_MS, _NOTICE_WAIT_MS = 100, 5000
_MAX_FILES = 200_000

_Snapshot = dict[str, tuple[int, int]]  # path -> time of the last change, size


def entries_of(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what changes with the posts at a path: their files and folders, or the database."""
    databases = [folder / "db.sqlite" for folder in (path, path / "input")]
    # Only the database of a Publii site: Publii also writes the whole site beside it.
    waiting = [next((str(file) for file in databases if file.exists()), str(path))]
    with suppress(OSError):
        yield waiting[0], Path(waiting[0]).stat()
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name in PROGRAM_FOLDERS or entry.name.endswith(SUFFIX):
                            continue
                        waiting.append(entry.path)
                    yield entry.path, entry.stat()


def has_changed_since(paths: Sequence[Path], time_s: float) -> bool:
    """Return whether anything at the paths has changed after a time."""
    return any(state.st_mtime > time_s for path in paths for _, state in entries_of(path))


def _is_outside_workspaces(_: object, path: str) -> bool:
    return f"{SUFFIX}{os.sep}" not in path  # a training writes its state all the time


class FolderWatch:
    """The files at some paths, and which of them change until `stopped` is set."""

    def __init__(self, paths: Sequence[Path], stopped: threading.Event) -> None:
        self._paths, self._stopped = paths, stopped
        self._scan_s = 0.0  # processor time of a scan
        self._files = self._scan()

    def changes(self) -> Iterator[set[Path]]:
        """Yield the files that have changed or are gone, once nothing has changed for a second.

        Yields an empty set every few seconds, so that the caller can do something else.
        """
        scanned_at = float("-inf")  # a file may have changed before the first notification
        for is_noticed in self._wakes():
            if is_noticed or time.monotonic() - scanned_at > _RESCAN_S:
                before, self._files = self._files, self._when_quiet()
                scanned_at = time.monotonic()
                yield {Path(path) for path, _ in before.items() ^ self._files.items()}
            else:
                yield set()

    def _when_quiet(self) -> _Snapshot:
        """Return the files once they have not changed for a second."""
        files, before = self._scan(), self._files
        while files != before and not self._stopped.is_set():
            newest = max((changed for _, (changed, _) in files.items() - before.items()), default=0)
            age_s = max(0.0, time.time() - newest / 1e9) if newest else 0.0
            self._stopped.wait(max(0.0, _QUIET_S - age_s))
            files, before = self._scan(), files
        return files

    def _scan(self) -> _Snapshot:
        began_s = time.thread_time()
        entries = (entry for path in self._paths for entry in entries_of(path))
        files = {
            path: (state.st_mtime_ns, state.st_size)
            for path, state in islice(entries, _MAX_FILES)
            if stat.S_ISREG(state.st_mode)
        }
        self._scan_s = time.thread_time() - began_s
        return files

    def _wakes(self) -> Iterator[bool]:
        """Yield True if something may have changed, and False after a few seconds without."""
        # The watch on a single file ends when a program replaces the file.
        if all(path.is_dir() for path in self._paths):
            with suppress(ImportError, OSError, RuntimeError):  # not installed, or too many files
                from watchfiles import watch  # noqa: PLC0415 - an extra

                for changes in watch(
                    *self._paths,
                    watch_filter=_is_outside_workspaces,
                    step=_NOTICE_STEP_MS,
                    rust_timeout=_NOTICE_WAIT_MS,
                    yield_on_timeout=True,
                    stop_event=self._stopped,
                    raise_interrupt=False,
                    ignore_permission_denied=True,
                ):
                    yield bool(changes)
        while not self._stopped.wait(max(_MIN_POLL_S, self._scan_s / _MAX_LOAD)):
            yield True
