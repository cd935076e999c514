"""What `make` has finished: the result of each stage, with its inputs, and the posts learned."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ownwords.archive.report import Report
from ownwords.core.errors import ConfigError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import translate_os_errors, write_atomically

T = TypeVar("T")
LEARNED = "posts.json"  # the posts that the model knows, to say which ones are new to it


@dataclass(frozen=True)
class _Entry:
    depends_on: dict[str, str]
    seconds: float
    figures: dict[str, Any]


class StageCache:
    """The finished stages of a workspace; a damaged file is treated as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = _read(path)

    def get(self, stage: str, depends_on: Mapping[str, str], kind: type[T]) -> T | None:
        """The stage's result if its dependencies are equal, else None; `kind` is its dataclass."""
        entry = self._entries.get(stage)
        if entry is None or entry.depends_on != dict(depends_on):
            return None
        try:
            return decode(kind, entry.figures, complete=True)
        except ConfigError:  # written by another version of ownwords
            return None

    def latest(self, stage: str, kind: type[T]) -> T | None:
        """The stage's last result, whatever its dependencies were; None if there is none."""
        entry = self._entries.get(stage)
        return self.get(stage, entry.depends_on, kind) if entry else None

    def changed(self, stage: str, depends_on: Mapping[str, str]) -> tuple[str, ...]:
        """The names of the dependencies that changed since the stage was finished."""
        entry = self._entries.get(stage)
        if entry is None:
            return ()
        names = {**entry.depends_on, **depends_on}
        return tuple(n for n in names if entry.depends_on.get(n) != depends_on.get(n))

    def inputs(self, stage: str) -> Mapping[str, str]:
        """The dependencies that the stage's result was made from; empty if it never finished."""
        entry = self._entries.get(stage)
        return entry.depends_on if entry else {}

    def seconds(self, stage: str) -> float:
        """The seconds that the stage took; 0 if it never finished."""
        entry = self._entries.get(stage)
        return entry.seconds if entry else 0.0

    def put(
        self, stage: str, depends_on: Mapping[str, str], figures: object, seconds: float
    ) -> None:
        """Store the result of a stage, replacing the file atomically."""
        self._entries[stage] = _Entry(dict(depends_on), round(seconds, 2), encode(figures))
        data = {name: encode(entry) for name, entry in self._entries.items()}
        with translate_os_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def write_learned(folder: Path, report: Report) -> None:
    """Write the ids of the posts that the model was made from; held-out ones are not new either."""
    write_atomically(folder / LEARNED, json.dumps(sorted(post.id for post in report.posts)) + "\n")


def read_learned(folder: Path) -> frozenset[str] | None:
    """The ids of the posts that the model was made from; None if they are not known."""
    try:
        ids = json.loads((folder / LEARNED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return frozenset(map(str, ids)) if isinstance(ids, list) else None


def _read(path: Path) -> dict[str, _Entry]:
    try:
        return {
            name: _Entry(dict(raw["depends_on"]), float(raw["seconds"]), dict(raw["figures"]))
            for name, raw in json.loads(path.read_bytes()).items()
        }
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return {}
