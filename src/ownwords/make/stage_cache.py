"""What a making has finished: each stage under the names of all that it depends on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ownwords.core.workspace import translate_os_errors, write_atomically
from ownwords.evaluation.serialization import from_plain, to_plain

T = TypeVar("T")


@dataclass(frozen=True)
class _Stage:
    depends_on: dict[str, str]
    seconds: float
    figures: dict[str, Any]


class StageCache:
    """A file that says which stages are done, what they came to, and what that was made from.

    A file that is damaged is as if no stage were finished: each is then done again, or found where
    its own room keeps it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stages = _read(path)

    def found(self, stage: str, depends_on: Mapping[str, str], kind: type[T]) -> T | None:
        """What the stage came to, if it was finished with just this; `kind` is a dataclass."""
        there = self._stages.get(stage)
        if there is None or there.depends_on != dict(depends_on):
            return None
        try:
            return from_plain(kind, there.figures)
        except ValueError:  # of another version of ownwords
            return None

    def last(self, stage: str, kind: type[T]) -> T | None:
        """What the stage came to, whatever it was made from."""
        there = self._stages.get(stage)
        return self.found(stage, there.depends_on, kind) if there else None

    def changed(self, stage: str, depends_on: Mapping[str, str]) -> tuple[str, ...]:
        """The names of what is not as it was when the stage was finished; none if it never was."""
        there = self._stages.get(stage)
        if there is None:
            return ()
        names = {**there.depends_on, **depends_on}
        return tuple(one for one in names if there.depends_on.get(one) != depends_on.get(one))

    def seconds(self, stage: str) -> float:
        """What the stage took when it was done."""
        there = self._stages.get(stage)
        return there.seconds if there else 0.0

    def keep(
        self, stage: str, depends_on: Mapping[str, str], figures: object, seconds: float
    ) -> None:
        """Note that a stage is done; the file is replaced whole."""
        self._stages[stage] = _Stage(dict(depends_on), round(seconds, 2), to_plain(figures))
        said = {name: to_plain(one) for name, one in self._stages.items()}
        with translate_os_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps(said, ensure_ascii=False, indent=1) + "\n")


def _read(path: Path) -> dict[str, _Stage]:
    try:
        said = json.loads(path.read_bytes())
        return {
            name: _Stage(dict(one["depends_on"]), float(one["seconds"]), dict(one["figures"]))
            for name, one in said.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return {}
