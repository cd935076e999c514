"""Caches measured figures on disk, each under a key of everything it depends on."""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.core.validation import decode, encode
from ownwords.core.version import __version__
from ownwords.core.workspace import translate_os_errors, write_atomically

# Increment when a figure is measured otherwise.
_VERSION = "2"
_MAX_FILES = 200  # the least recently used are deleted

T = TypeVar("T")


class MetricCache:
    """A folder with one file per figure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}  # time each figure took when it was measured
        self.measured: list[str] = []  # the figures that were not in the cache

    def get_or_measure(
        self, name: str, kind: type[T], depends_on: Iterable[str], measure: Callable[[], T]
    ) -> T:
        """Return the cached figure, or measure and cache it.

        `kind` is its dataclass. Damaged files, and files of another version of ownwords, which may
        measure differently, are measured and written again.
        """
        key = digest(__version__, _VERSION, name, *depends_on)
        path = self.folder / f"{name}-{key[:16]}.json"
        cached = self._read(path, key, kind)
        if cached is not None:
            figures, self.seconds[name] = cached
            with suppress(OSError):
                path.touch()  # records the last use for `prune`
            return figures
        began = time.perf_counter()
        figures = measure()
        seconds = round(time.perf_counter() - began, 3)
        entry = {"key": key, "seconds": seconds, "figures": encode(figures)}
        entry["checksum"] = _checksum(entry)
        with translate_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(entry, ensure_ascii=False, indent=1) + "\n")
        self.seconds[name] = seconds
        self.measured.append(name)
        return figures

    def prune(self) -> None:
        """Delete the least recently used files beyond the limit."""
        with suppress(OSError):
            files = sorted(self.folder.glob("*.json"), key=lambda path: -path.stat().st_mtime_ns)
            for path in files[_MAX_FILES:]:
                path.unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path, key: str, kind: type[T]) -> tuple[T, float] | None:
        try:
            entry = json.loads(path.read_bytes())
            if entry["key"] != key or entry["checksum"] != _checksum(entry):
                return None
            return decode(kind, entry["figures"], complete=True), float(entry["seconds"])
        # Any damage is harmless: the figure can be measured again.
        except (OSError, ValueError, LookupError, TypeError, RecursionError, ConfigError):
            return None


def _checksum(entry: dict[str, Any]) -> str:
    """Return a checksum, since a flipped byte often leaves valid JSON with another figure."""
    return digest(json.dumps([entry[name] for name in ("key", "seconds", "figures")]))
