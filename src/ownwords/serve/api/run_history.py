"""What the trainings of a workspace tell about themselves, read from their files as these grow.

Nothing is kept beside those files: a training begun in a terminal is told of just as well, and a
server that was started anew knows all that the one before it knew.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ownwords.core.progress import Event, parse_event
from ownwords.training.run_history import RunHistory

_MOST_RUNS = 30
_MOST_SAMPLES = 40
_MOST_BYTES = 16 << 20  # of what people read in a file: samples, a plan
_STEP = re.compile(r"^--- step (\d+)\n", re.MULTILINE)


class MetricsTail:
    """The events of a `metrics.jsonl`: each call gives those written since the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._inode = -1

    def new(self) -> tuple[bool, list[Event]]:
        """Whether the file is another than before, and its events that were not given yet."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                is_another = stat.st_ino != self._inode or stat.st_size < self._at
                if is_another:
                    self._inode, self._at = stat.st_ino, 0
                file.seek(self._at)
                data = file.read()
        except OSError:  # not there yet, or taken away
            was_there, self._inode, self._at = self._inode != -1, -1, 0
            return was_there, []
        whole = data.rfind(b"\n") + 1  # the last line may be half written
        self._at += whole
        events = map(parse_event, data[:whole].splitlines())
        return is_another, [event for event in events if event is not None]


class RunReader:
    """The trainings in a workspace's `runs`; one thread at a time may ask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[MetricsTail, RunHistory]] = {}
        self._look = MetricsTail(folder / "look" / "metrics.jsonl")
        self._looked: list[Event] = []

    def names(self) -> list[str]:
        """The names of the trainings, the one that has last told something first."""
        found = []
        try:
            folders = list(self._folder.iterdir())
        except OSError:
            return []
        for path in folders:
            try:
                # Whatever else lies in `runs` has no plan.
                if (path / "plan.toml").is_file():
                    log = path / "metrics.jsonl"
                    newest = log if log.exists() else path / "plan.toml"
                    found.append((newest.stat().st_mtime, path.name))
            except OSError:
                continue
        return [name for _, name in sorted(found, reverse=True)[:_MOST_RUNS]]

    def course(self, name: str) -> RunHistory:
        """What the training of that name, one of `names`, has told by now."""
        if name not in self._known:
            self._known[name] = (MetricsTail(self._folder / name / "metrics.jsonl"), RunHistory())
        lines, course = self._known[name]
        is_another, events = lines.new()
        if is_another:
            course = RunHistory()
            self._known[name] = (lines, course)
        for event in events:
            course.add(event)
        return course

    def reading(self) -> list[tuple[float, str]]:
        """What was told of the last reading of the texts, in sentences."""
        is_another, events = self._look.new()
        self._looked = ([] if is_another else self._looked) + events
        return list(_told(self._looked))

    def samples(self, name: str) -> list[dict[str, Any]]:
        """What the model wrote on the way, the newest last."""
        parts = _STEP.split(_text(self._folder / name / "samples.txt"))
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        found = [{"step": int(step), "text": text.strip("\n")} for step, text in pairs]
        return found[-_MOST_SAMPLES:]

    def plan(self, name: str) -> dict[str, Any] | None:
        """The plan's numbers with their reasons, and what was expected; None where there is none.

        Read as the file says it, without the rooms of training, which bring PyTorch.
        """
        return _toml(self._folder / name / "plan.toml")

    def settings(self, name: str) -> str:
        """The run's `config.toml`, as it stands."""
        return _text(self._folder / name / "config.toml")


def _told(events: Sequence[Event]) -> Iterator[tuple[float, str]]:
    for event in events:
        if event.kind == "note" and event.message:
            yield event.time, event.message
        elif event.kind == "done" and event.stage:
            counted = f": {event.done:,} {event.unit}" if event.done and event.unit else ""
            yield event.time, f"{event.stage}{counted}{', stopped' if event.message else ''}."


def _toml(path: Path) -> dict[str, Any] | None:
    try:
        said = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError:
        return None
    numbers = said.get("number")
    if not isinstance(numbers, list):
        return None
    names = ("key", "value", "reason", "source", "origin")
    return {
        "numbers": [
            {name: each.get(name, "") for name in names}
            for each in numbers
            if isinstance(each, dict)
        ],
        "expected": said.get("expected", {}),
    }


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
