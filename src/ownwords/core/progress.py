"""How far the work is: one stream of events, for the terminal, a file, or whoever subscribes."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from ownwords.core.errors import WorkspaceError

EventKind = Literal["start", "advance", "done", "note", "metric"]

EVERY_S = 0.1  # advances of a stage reach the subscribers no more often than this
_MEMORY_S = 15.0  # the pace is that of about the last so many seconds


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a stage; `time` is in seconds since 1970.

    "advance" and "done" say how many of how many `unit`s are done; a stage that was cut short is
    "done" with the message "stopped". `total` and `remaining_s` are None where nobody can know.
    """

    time: float
    stage: str
    kind: EventKind
    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # since the stage started
    remaining_s: float | None = None


Subscriber = Callable[[Event], None]


def parse_event(line: str | bytes) -> Event | None:
    """Return the event of a line that `JsonLines` wrote; None where the line is damaged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # a crash in the middle of a line
        return None
    if not isinstance(record, dict) or record.get("kind") not in get_args(EventKind):
        return None
    when, done, total = (_finite(record.get(name)) for name in ("time", "done", "total"))
    if when is None:
        return None
    values = record.get("values")
    figures = values.items() if isinstance(values, dict) else ()
    return Event(
        time=when,
        stage=str(record.get("stage", "")),
        kind=record["kind"],
        done=int(done or 0),
        total=None if total is None else int(total),
        unit=str(record.get("unit", "")),
        message=str(record.get("message", "")),
        values={name: value for name, each in figures if (value := _finite(each)) is not None},
    )


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


class Progress:
    """Hands events to its subscribers, in the thread that reports them; with none it is silent."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self.subscribers = list(subscribers)

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator["Stage"]:
        """A part of the work, from start to done; stages open at the same time differ in name.

        A total that shows only on the way is set as `stage.total`.
        """
        stage = Stage(self, name, total, unit)
        stage.tell("start")
        try:
            yield stage
        except BaseException:
            # What went wrong in the work is what must be told, not that it could not be logged.
            with suppress(WorkspaceError):
                stage.tell("done", "stopped")
            raise
        stage.tell("done")

    def note(self, message: str) -> None:
        """A sentence for whoever watches."""
        self.tell(Event(time.time(), "", "note", message=message))

    def tell(self, event: Event) -> None:
        """Hand an event to every subscriber."""
        for subscriber in self.subscribers:
            subscriber(event)


class Stage:
    """A stage under way; made by `Progress.stage`, used by one thread."""

    def __init__(self, progress: Progress, name: str, total: int | None, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self._progress = progress
        self._began = time.monotonic()
        self._pace = Pace(self._began)
        self._next = self._began + EVERY_S

    def advance(self, n: int = 1) -> None:
        """So many more units are done. Cheap enough for the innermost loop."""
        self.done += n
        if self._progress.subscribers and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            self.tell("advance")

    def note(self, message: str) -> None:
        """A sentence for whoever watches; never thinned out."""
        self.tell("note", message)

    def metric(self, **values: float) -> None:
        """Figures measured at this point; never thinned out, so the caller says how often."""
        self.tell("metric", values=values)

    def tell(
        self, kind: EventKind, message: str = "", values: Mapping[str, float] | None = None
    ) -> None:
        """Hand an event of this stage to every subscriber."""
        if not self._progress.subscribers:
            return
        now = time.monotonic()
        self._pace.seen(self.done, now)
        self._progress.tell(
            Event(
                time=time.time(),
                stage=self.name,
                kind=kind,
                done=self.done,
                total=self.total,
                unit=self.unit,
                message=message,
                values=values or {},
                seconds=now - self._began,
                remaining_s=self._pace.remaining_s(self.total),
            )
        )


class Pace:
    """How fast a count grows, the last seconds weighing most; the one place estimates come from."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._done = 0
        self._weighted_units = self._weighted_s = 0.0

    def seen(self, done: int, now: float) -> None:
        """The count stood at `done` at that time."""
        elapsed = now - self._now
        fade = math.exp(-elapsed / _MEMORY_S)
        self._weighted_units = self._weighted_units * fade + (done - self._done)
        self._weighted_s = self._weighted_s * fade + elapsed
        self._now, self._done = now, done

    def remaining_s(self, total: int | None) -> float | None:
        """Seconds until `total` is reached; None while nobody can know."""
        if total is None or self._weighted_units <= 0:
            return None
        return max(0, total - self._done) * self._weighted_s / self._weighted_units


class JsonLines:
    """Writes events to a file, one JSON object a line, each there at once; opened for appending.

    Advances are left out: how far the work was at each tenth of a second is of no use afterwards.
    A disk that refuses ends the work with a WorkspaceError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("a+b", buffering=0)
            # After a crash in the middle of a line, the next event still gets one of its own.
            if self._file.tell():
                self._file.seek(-1, 2)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")
        except OSError as error:
            raise self._failed(error) from error

    def __call__(self, event: Event) -> None:
        if event.kind == "advance":
            return
        record = {
            "time": round(event.time, 3),
            "stage": event.stage,
            "kind": event.kind,
            "done": event.done,
            "total": event.total,
            "unit": event.unit,
            "message": event.message,
            # JSON knows neither nan nor infinity.
            "values": {k: v if math.isfinite(v) else None for k, v in event.values.items()},
        }
        line = json.dumps(
            {key: value for key, value in record.items() if value not in ("", {}, None)}
        )
        try:
            data = line.encode("ascii") + b"\n"
            while data:  # a disk that fills up takes a part first, and refuses then
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._file.close()

    def _failed(self, error: OSError) -> WorkspaceError:
        return WorkspaceError(
            f"the log {self._path} could not be written: {error.strerror}",
            hint="make room or give another --workspace, then run the same command again",
        )


def in_words(seconds: float) -> str:
    """A duration to read: "0.4 s", "12 s", "3 min", "2 h 5 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def printable(text: str) -> str:
    """The text without what a terminal would obey rather than show."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
