"""Reads the files of a workspace's trainings as they grow.

These files are the only state, so trainings started in a terminal are shown, too, and a restarted
server shows the same as before.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ownwords.core.progress import Event
from ownwords.serve.jobs.tail import EventTail
from ownwords.training.run_history import RunHistory

_MAX_RUNS = 30
_MAX_SAMPLES = 40
_MAX_BYTES = 16 << 20  # read at most of samples.txt, plan.toml or config.toml
_STEP = re.compile(r"^--- step (\d+)\n", re.MULTILINE)


class RunFiles:
    """Reads the trainings in a workspace's `runs`; not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._histories: dict[str, tuple[EventTail, RunHistory]] = {}
        self._look = EventTail(folder / "look" / "metrics.jsonl")
        self._look_events: list[Event] = []
        self._texts: dict[Path, tuple[tuple[int, int], str]] = {}

    def names(self) -> list[str]:
        """The trainings' names, the most recently active first."""
        runs = []
        try:
            folders = list(self._folder.iterdir())
        except OSError:
            return []
        for path in folders:
            try:
                if (path / "plan.toml").is_file():  # other folders in `runs` have no plan
                    log = path / "metrics.jsonl"
                    newest = log if log.exists() else path / "plan.toml"
                    runs.append((newest.stat().st_mtime, path.name))
            except OSError:
                continue
        return [name for _, name in sorted(runs, reverse=True)[:_MAX_RUNS]]

    def history(self, name: str) -> RunHistory:
        """The history of a training so far; `name` is one of `names()`."""
        if name not in self._histories:
            tail = EventTail(self._folder / name / "metrics.jsonl")
            self._histories[name] = tail, RunHistory()
        tail, history = self._histories[name]
        is_replaced, events = tail.read()
        if is_replaced:
            history = RunHistory()
            self._histories[name] = tail, history
        for event in events:
            history.add(event)
        return history

    def look_notes(self) -> list[tuple[float, str]]:
        """The time and text of each note of the last `ownwords look`."""
        is_replaced, events = self._look.read()
        self._look_events = ([] if is_replaced else self._look_events) + events
        return list(_notes(self._look_events))

    def samples(self, name: str) -> list[dict[str, Any]]:
        """The sample texts generated during the training, the newest last."""
        parts = _STEP.split(self._text(self._folder / name / "samples.txt"))
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        samples = [{"step": int(step), "text": text.strip("\n")} for step, text in pairs]
        return samples[-_MAX_SAMPLES:]

    def plan(self, name: str) -> dict[str, Any] | None:
        """The plan's values with their reasons, and its forecast; None without a readable plan.

        Parsed as plain TOML, since the plan's own reader imports PyTorch.
        """
        try:
            plan = tomllib.loads(self._text(self._folder / name / "plan.toml"))
        except tomllib.TOMLDecodeError:
            return None
        numbers = plan.get("number")
        if not isinstance(numbers, list):
            return None
        columns = ("key", "value", "reason", "source", "origin")
        return {
            "numbers": [
                {column: number.get(column, "") for column in columns}
                for number in numbers
                if isinstance(number, dict)
            ],
            "expected": plan.get("expected", {}),
        }

    def settings(self, name: str) -> str:
        """The text of the run's `config.toml`."""
        return self._text(self._folder / name / "config.toml")

    def _text(self, path: Path) -> str:
        """The file's text, cached until the file changes; "" if it cannot be read."""
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                state = (stat.st_mtime_ns, stat.st_size)
                if path not in self._texts or self._texts[path][0] != state:
                    self._texts[path] = state, file.read(_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return self._texts[path][1]


def _notes(events: Sequence[Event]) -> Iterator[tuple[float, str]]:
    for event in events:
        if event.kind == "note" and event.message:
            yield event.time, event.message
        elif event.kind == "done" and event.stage:
            counted = f": {event.done:,} {event.unit}" if event.done and event.unit else ""
            yield event.time, f"{event.stage}{counted}{', stopped' if event.message else ''}."
