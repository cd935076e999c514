"""What the trainings of a workspace tell about themselves, read from their files as these grow.

Nothing is kept beside those files: a training begun in a terminal is told of just as well, and a
server that was started anew knows all that the one before it knew.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ownwords.core.progress import Pace

STAGE = "train"  # the stage whose metrics are the training's
SAMPLE = "sample: "  # a note that begins so is text the model wrote
MOST_POINTS = 300  # of a curve: more than a screen shows side by side
_SMOOTHED = 20  # metrics over which the curve is smoothed, the first over fewer
_MOST_RUNS = 30
_MOST_NOTES = 400
_MOST_SAMPLES = 40
_MOST_BYTES = 16 << 20  # of what people read in a file: samples, a plan
_STEP = re.compile(r"^--- step (\d+)\n", re.MULTILINE)

Event = Mapping[str, Any]
Point = tuple[float, ...]  # step, bits, smoothed bits, loss, tokens/s, rate, gradient norm
COLUMNS = ("step", "bits", "smooth", "loss", "speed", "rate", "norm")


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
        return is_another, list(_events(data[:whole]))


def _events(data: bytes) -> Iterator[Event]:
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # a crash in the middle of a line
            continue
        if isinstance(event, dict) and isinstance(event.get("time"), int | float):
            yield event


@dataclass(frozen=True, slots=True)
class EvalPoint:
    """What the held-out posts said after so many steps."""

    step: int
    bits: float | None
    averaged: float | None
    memorised: float | None

    @property
    def best(self) -> float | None:
        return min((b for b in (self.bits, self.averaged) if b is not None), default=None)


@dataclass
class RunHistory:
    """One training, as far as its events have told it."""

    began: float | None = None  # of the process that is, or was, the last at it
    time: float = 0.0  # of the last event
    step: int = 0
    total: int | None = None
    is_ended: bool = False
    is_stopped: bool = False  # ended, and not of itself
    latest: dict[str, float] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    marks: list[EvalPoint] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    _pace: Pace | None = None
    _before: int = 0  # steps done by earlier processes
    _left: int | None = None
    _smooth: float = math.nan
    _metrics: int = 0
    _every: int = 1

    @property
    def best(self) -> EvalPoint | None:
        scored = [mark for mark in self.marks if mark.best is not None]
        return min(scored, key=lambda mark: mark.best or 0.0, default=None)

    def remaining_s(self, now: float) -> float | None:
        """Seconds until the last step, as the last ones went; None while nobody can know."""
        if self._pace is None or self.is_ended:
            return None
        left = self._pace.remaining_s(self._left)
        return None if left is None else max(0.0, left - max(0.0, now - self.time))

    def take(self, event: Event) -> None:
        """Learn from an event of the run's log."""
        if event.get("stage") != STAGE:
            if event.get("kind") == "note":
                self._note(event)
            return
        self.time = float(event["time"])
        kind = event.get("kind")
        if kind == "start":
            self._start(event)
        elif kind == "metric":
            self._metric(event)
        elif kind == "note":
            self._note(event)
        elif kind == "done":
            self.is_ended, self.is_stopped = True, event.get("message") == "stopped"
            ended = "stopped" if self.is_stopped else "ended"
            self._say(self.time, f"Training {ended} after step {self.step:,}.")

    def _start(self, event: Event) -> None:
        self.began, self.is_ended, self.is_stopped = self.time, False, False
        self._pace, self._before = Pace(self.time), 0
        total = _number(event.get("total"))
        self._left = int(total) if total is not None else None
        if self.total is None or not self.step:
            self.total = self._left
        if self._left is not None:
            again = "goes on" if self.step else "begins"
            self._say(self.time, f"Training {again}: {self._left:,} steps to go.")

    def _metric(self, event: Event) -> None:
        said = event.get("values")
        values = {
            name: value
            for name, each in (said if isinstance(said, dict) else {}).items()
            if (value := _number(each)) is not None
        }
        self.latest.update(values)
        done = int(_number(event.get("done")) or 0)
        step = int(values.get("step", self._before + done))
        self.step = step
        self._before = max(0, step - done)
        total = _number(event.get("total"))
        if total is not None:
            self._left = int(total)
            self.total = self._before + self._left
        if self._pace is not None:
            self._pace.seen(done, self.time)
        if "bits_per_byte" in values:
            self._point(step, values)
        if {"validation_bits_per_byte", "averaged_bits_per_byte", "memorised"} & values.keys():
            self._mark(step, values)

    def _point(self, step: int, values: Mapping[str, float]) -> None:
        bits = values["bits_per_byte"]
        if self.points and step <= self.points[-1][0]:  # gone back to an earlier checkpoint
            self.points = [point for point in self.points if point[0] < step]
            self.marks = [mark for mark in self.marks if mark.step < step]
        self._metrics += 1
        share = max(min(1.0, 3 / (self._metrics + 2)), 1 / _SMOOTHED)
        old = self._smooth
        self._smooth = bits if math.isnan(old) else old + share * (bits - old)
        rest = (values.get(name, math.nan) for name in ("loss", "tokens_per_s", "rate"))
        point = (step, bits, self._smooth, *rest, values.get("gradient_norm", math.nan))
        # The last one is always there, the others as thinly as the screen is.
        if self.points and (self._metrics - 1) % self._every:
            self.points[-1] = point
        else:
            self.points.append(point)
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self._every *= 2

    def _mark(self, step: int, values: Mapping[str, float]) -> None:
        mark = EvalPoint(
            step,
            values.get("validation_bits_per_byte"),
            values.get("averaged_bits_per_byte"),
            values.get("memorised"),
        )
        self.marks = [each for each in self.marks if each.step < step] + [mark]
        if mark.best is not None:
            is_best = self.best is mark and len(self.marks) > 1
            best = ", the best so far" if is_best else ""
            said = f"Step {step:,}: {mark.best:.3f} bits a byte on posts held out{best}."
            self._say(self.time, said)

    def _note(self, event: Event) -> None:
        message = str(event.get("message", ""))
        if message and not message.startswith(SAMPLE):
            self._say(float(event["time"]), message)

    def _say(self, time: float, text: str) -> None:
        self.notes.append((time, text))
        del self.notes[:-_MOST_NOTES]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


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
            course.take(event)
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
        stage, kind, time = str(event.get("stage", "")), event.get("kind"), float(event["time"])
        done, unit = _number(event.get("done")), str(event.get("unit", ""))
        if kind == "note" and event.get("message"):
            yield time, str(event["message"])
        elif kind == "done" and stage:
            counted = f": {int(done):,} {unit}" if done and unit else ""
            yield time, f"{stage}{counted}{', stopped' if event.get('message') else ''}."


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
