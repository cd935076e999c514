"""Figures that are not measured twice: each under the key of everything that it depends on."""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ownwords.core.fingerprint import digest
from ownwords.core.version import __version__
from ownwords.core.workspace import translate_os_errors, write_atomically
from ownwords.evaluation.serialization import from_plain, to_plain

_MOST = 200  # files; those that were used last stay

T = TypeVar("T")


class MetricCache:
    """A folder of figures, one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}  # what each part took when it was measured
        self.measured: list[str] = []  # the parts that had to be measured now

    def part(
        self, name: str, kind: type[T], depends_on: Iterable[str], measure: Callable[[], T]
    ) -> T:
        """The part kept under this key, or else measured and kept.

        `kind` is a dataclass. A file that cannot be read is measured and written anew, and so is
        what another version of ownwords measured, perhaps in another way.
        """
        key = digest(__version__, name, *depends_on)
        path = self.folder / f"{name}-{key[:16]}.json"
        found = self._read(path, key, kind)
        if found is not None:
            figures, self.seconds[name] = found
            with suppress(OSError):
                path.touch()  # the last use, by which `prune` goes
            return figures
        began = time.perf_counter()
        figures = measure()
        seconds = round(time.perf_counter() - began, 3)
        said = {"key": key, "seconds": seconds, "figures": to_plain(figures)}
        with translate_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(said, ensure_ascii=False, indent=1) + "\n")
        self.seconds[name] = seconds
        self.measured.append(name)
        return figures

    def prune(self) -> None:
        """Delete what was not used for longest, beyond so many files."""
        with suppress(OSError):
            files = sorted(self.folder.glob("*.json"), key=lambda path: -path.stat().st_mtime_ns)
            for path in files[_MOST:]:
                path.unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path, key: str, kind: type[T]) -> tuple[T, float] | None:
        try:
            said = json.loads(path.read_bytes())
            if said["key"] != key:
                return None
            return from_plain(kind, said["figures"]), float(said["seconds"])
        # Whatever is wrong with it: what it held can be measured again.
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
