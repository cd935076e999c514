"""Progress of a job as one stream of events, for the terminal, a file, or any subscriber.

`Timeline` adds up what remains of a whole job; `reporting_job` stores it in a file for the server.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.workspace import data_folder, translate_os_errors, try_lock

# "expect" and "begin" are about the parts of a whole job, such as reading, training and scoring in
# `make`; the others are about one stage.
EventKind = Literal["start", "advance", "done", "note", "metric", "expect", "begin"]
PartStatus = Literal["waiting", "running", "done", "skipped"]

SAMPLE: Final = "sample: "  # prefix of a note that holds text the model wrote
ADVANCE_INTERVAL_S = 0.1  # minimum time between two "advance" events
_LOGGED = ("start", "done", "note", "metric")
_UNKNOWN_S = 1.0  # assumed for a part without an estimate, so that it counts a little
_OVERDUE_SHARE = 0.1  # of its elapsed time: an overdue part is assumed to need that much more
_MAX_SHARE = 0.99  # of a job that is not done
_SMALL_RISE = 1.25  # factor: an estimate up to this much above the shown one slows its fall
_INTERVAL_S = 0.5  # between two reports; longer in a long job
_REPORTS = 1000  # in a whole job, approximately
# Training fills the minutes it was given: saving and choosing the weights come after the last step,
# so the steps alone would promise too little.
TIMED_PART = "train"
# The environment of a job: the file for its progress, the duration of its earlier attempts, and the
# name of its blog if it trains.
STATE_VARIABLE: Final = "OWNWORDS_JOB_STATE"
SPENT_VARIABLE: Final = "OWNWORDS_JOB_SPENT_S"
TRAINS_VARIABLE: Final = "OWNWORDS_JOB_TRAINS"
_POLL_S = 0.5


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of a stage; `time` is in seconds since 1970.

    `done` of `total` units are complete; `total` and `remaining_s` are None while unknown. A stage
    that ends early is "done" with the message "stopped".
    """

    time: float
    stage: str
    kind: EventKind
    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""
    values: dict[str, float] = {}
    seconds: float = 0.0  # since the stage started
    remaining_s: float | None = None


Subscriber = Callable[[Event], None]


class Progress:
    """Passes events to its subscribers, in the thread that reports them."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self.subscribers = list(subscribers)

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator["Stage"]:
        """Open a stage of the work, from "start" to "done"; concurrent stages need unique names.

        A total that becomes known later can be set as `stage.total`, and so can `remaining_s`.
        """
        stage = Stage(self, name, total, unit)
        stage.report("start")
        try:
            yield stage
        except BaseException:
            # An error of the log must not hide the error of the job.
            with suppress(WorkspaceError):
                stage.report("done", "stopped")
            raise
        stage.report("done")

    def note(self, message: str) -> None:
        self.report(Event(time.time(), "", "note", message=message))

    def expect(self, part: str, seconds: float | None = None) -> None:
        """Announce a part of the job, and its duration if that is known."""
        values = {} if seconds is None else {"seconds": seconds}
        self.report(Event(time.time(), part, "expect", values=values))

    def begin(self, part: str) -> None:
        """Report that a part of the job begins; the part before it has ended."""
        self.report(Event(time.time(), part, "begin"))

    def report(self, event: Event) -> None:
        for subscriber in self.subscribers:
            subscriber(event)


class Stage:
    """A running stage, made by `Progress.stage`; not thread-safe."""

    def __init__(self, progress: Progress, name: str, total: int | None, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self.remaining_s: float | None = None  # overrides the estimate from the rate
        self.limit_s = math.inf  # the stage ends after this time, whatever is left to do
        self._progress = progress
        self._began = time.monotonic()
        self._next = self._began + ADVANCE_INTERVAL_S

    def advance(self, n: int = 1) -> None:
        """Count `n` more units as done. Cheap enough for the innermost loop."""
        self.done += n
        if self._progress.subscribers and time.monotonic() >= self._next:
            self._next = time.monotonic() + ADVANCE_INTERVAL_S
            self.report("advance")

    def note(self, message: str) -> None:
        """Report a sentence; never throttled."""
        self.report("note", message)

    def metric(self, **values: float) -> None:
        """Report measured values; never throttled, so the caller decides how often."""
        self.report("metric", values=values)

    def report(
        self, kind: EventKind, message: str = "", values: dict[str, float] | None = None
    ) -> None:
        if not self._progress.subscribers:
            return
        seconds = time.monotonic() - self._began
        left_s = self.remaining_s
        if left_s is None and self.total is not None and self.done:
            left_s = seconds * max(0, self.total - self.done) / self.done
        if left_s is not None:
            left_s = max(0.0, min(left_s, self.limit_s - seconds))
        self._progress.report(
            Event(
                time=time.time(),
                stage=self.name,
                kind=kind,
                done=self.done,
                total=self.total,
                unit=self.unit,
                message=message,
                values=values or {},
                seconds=seconds,
                remaining_s=left_s,
            )
        )


class JsonLines:
    """Appends the events of stages to a file, one JSON object per line, unbuffered.

    Raises WorkspaceError if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with translate_os_errors(path):
            self._file = path.open("a+b", buffering=0)
            # Begin a new line if a crash left an incomplete one.
            if self._file.tell():
                self._file.seek(-1, 2)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")

    def __call__(self, event: Event) -> None:
        if event.kind not in _LOGGED:
            return
        data = msgspec.json.encode(
            msgspec.structs.replace(
                event,
                time=round(event.time, 3),
                stage=_encodable(event.stage),
                message=_encodable(event.message),
                # JSON has neither NaN nor infinity.
                values={k: v for k, v in event.values.items() if math.isfinite(v)},
                seconds=0.0,
                remaining_s=None if event.remaining_s is None else round(event.remaining_s, 1),
            )
        )
        data += b"\n"
        with translate_os_errors(self._path):
            while data:  # a nearly full disk may take only a part
                data = data[self._file.write(data) :]

    def close(self) -> None:
        self._file.close()


def _encodable(text: str) -> str:
    """Replace the characters that UTF-8 cannot encode, such as those of some file names."""
    return text.encode("utf-8", "replace").decode()


# --- the whole job --------------------------------------------------------------------------------


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job is, over all of its parts, at a time in seconds since 1970."""

    time: float = 0.0
    part: str = ""  # the one under way
    parts: dict[str, PartStatus] = {}
    share: float = 0.0
    remaining_s: float | None = None
    note: str = ""  # the last sentence that it reported


@dataclass
class _Part:
    expected_s: float | None = None
    began: float | None = None
    ended: float | None = None

    @property
    def status(self) -> PartStatus:
        if self.ended is None and self.began is not None:
            return "running"
        if self.ended is not None:
            return "skipped" if self.began is None else "done"
        return "skipped" if self.expected_s == 0 else "waiting"


class Timeline:
    """A subscriber that adds up how far a job is, and reports it.

    Parts are announced by `Progress.expect` and opened by `Progress.begin`. The time left in the
    current part is what its longest stage reports, or the rest of its expected time; later parts
    count with their expected times. The share never goes back. `spent_s` is the duration of earlier
    attempts at the same job.
    """

    def __init__(
        self,
        report: Callable[[JobProgress], object],
        *,
        spent_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._spent_s, self._clock = report, spent_s, clock
        self._parts: dict[str, _Part] = {}
        self._current = ""
        self._stages: dict[str, tuple[float, float]] = {}  # by name: time, and remaining seconds
        self._began: float | None = None  # the first part; waiting for another job is not progress
        self._reported_at = -math.inf
        self._note = ""
        self.share = 0.0
        self._shown_s, self._shown_at = math.inf, 0.0  # the last reported time left, and when

    def __call__(self, event: Event) -> None:
        """Take in an event; report at most every half second, but a note or a new part at once."""
        now = self._clock()
        is_due = False
        if event.kind == "expect":
            self._expect(event)
        elif event.kind == "begin" and event.stage in self._parts:
            self._begin(event.stage, now)
            is_due = True
        elif event.kind == "done":
            self._stages.pop(event.stage, None)
        elif event.remaining_s is not None:
            self._stages[event.stage] = (now, event.remaining_s)
        if event.kind == "note" and event.message and not event.message.startswith(SAMPLE):
            self._note = event.message
            is_due = True
        interval_s = max(_INTERVAL_S, self._elapsed(now) / _REPORTS)
        if is_due or (self._current and now - self._reported_at >= interval_s):
            self._tell(now)

    def remaining_s(self) -> float:
        """Return the seconds until the whole job is done, as far as is known."""
        return sum(self._left(name, part) for name, part in self._parts.items())

    def _elapsed(self, now: float) -> float:
        return self._spent_s + (0.0 if self._began is None else now - self._began)

    def _expect(self, event: Event) -> None:
        part = self._parts.setdefault(event.stage, _Part())
        part.expected_s = event.values.get("seconds", part.expected_s)
        if event.stage == TIMED_PART and part.expected_s:
            # A resumed training has only the rest of its time.
            rest_s = part.expected_s - self._spent_s
            part.expected_s = max(rest_s, _OVERDUE_SHARE * part.expected_s)

    def _begin(self, name: str, now: float) -> None:
        self._began = now if self._began is None else self._began
        for part in self._parts.values():
            if part.began is not None and part.ended is None:
                part.ended = now
        # Parts before it that never began are skipped.
        for before, part in self._parts.items():
            if before == name:
                break
            part.ended = part.ended or now
        self._parts[name].began, self._parts[name].ended = now, None
        self._current = name
        self._stages.clear()

    def _left(self, name: str, part: _Part) -> float:
        if part.ended is not None:
            return 0.0
        expected = _UNKNOWN_S if part.expected_s is None else part.expected_s
        if part.began is None:
            return expected
        now = self._clock()
        elapsed = now - part.began
        late = 0.0 if part.expected_s is None else elapsed - expected
        stages = [
            max(left_after(left, now - at), _OVERDUE_SHARE * (now - at))
            for at, left in self._stages.values()
        ]
        # A resumed training has only the rest of its time, so its steps are the better estimate.
        is_timed = name == TIMED_PART and not self._spent_s
        if stages and not is_timed:
            return max(stages)
        return max(expected - elapsed, _OVERDUE_SHARE * elapsed, *(stages or [late]))

    def _tell(self, now: float) -> None:
        elapsed, remaining = self._elapsed(now), self.remaining_s()
        # If the shown time was slightly too short, it falls more slowly; if it was wrong, it rises.
        if remaining / _SMALL_RISE < self._shown_s < remaining:
            self._shown_s *= 1 - min(1.0, (now - self._shown_at) / remaining)
        else:
            self._shown_s = remaining
        self._shown_at = self._reported_at = now
        if self._current:
            share = elapsed / max(elapsed + remaining, 1e-9)
            self.share = max(self.share, min(_MAX_SHARE, share))
        self._report(
            JobProgress(
                time=time.time(),
                part=self._current,
                parts={name: part.status for name, part in self._parts.items()},
                share=round(self.share, 4),
                remaining_s=round(self._shown_s, 1) if self._current else None,
                note=_encodable(self._note),
            )
        )


def left_after(promised_s: float, silent_s: float) -> float:
    """Return the seconds left, `silent_s` after a report that `promised_s` were left.

    A late job is assumed to need as much time again as it is late.
    """
    return abs(promised_s - silent_s)


@contextmanager
def reporting_job(progress: Progress, environment: Mapping[str, str]) -> Iterator[None]:
    """Store the progress for the page's server if this process is one of its jobs."""
    path = environment.get(STATE_VARIABLE)
    if not path:
        yield
        return

    def store(state: JobProgress) -> None:
        draft = Path(f"{path}.unfinished")
        with suppress(OSError):  # a full disk must not end the job here
            draft.write_bytes(msgspec.json.encode(state))
            draft.replace(path)

    spent, blog = environment.get(SPENT_VARIABLE, ""), environment.get(TRAINS_VARIABLE)
    spent_s = float(spent) if spent.replace(".", "").isdecimal() else 0
    progress.subscribers.append(Timeline(store, spent_s=spent_s))
    with _alone(progress, blog) if blog else nullcontext():
        yield


def print_answer(work: Callable[[], Mapping[str, Any]]) -> int:
    """Print the result of a job of the server, or its error, as JSON; return the exit status."""
    status = 0
    try:
        answer = work()
    except KeyboardInterrupt:
        answer, status = {"error": {"message": "interrupted: nothing was added", "hint": ""}}, 130
    except OwnwordsError as error:
        answer, status = {"error": {"message": error.message, "hint": error.hint}}, 2
    sys.stdout.write(json.dumps(answer))
    return status


@contextmanager
def _alone(progress: Progress, blog: str) -> Iterator[None]:
    """Wait until no other blog is being trained: two at once would slow each other down."""
    try:
        path = data_folder() / "training.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a")
    except (OSError, OwnwordsError):  # such as a read-only disk
        yield
        return
    name = path.with_suffix(".txt")  # on Windows a locked file cannot be read
    with lock:
        if not try_lock(lock.fileno()):
            other = (name.exists() and name.read_text("utf-8", "replace")) or "another blog"
            progress.note(f"Waiting: {other} is being trained, and this starts after it.")
            while not try_lock(lock.fileno()):
                time.sleep(_POLL_S)
        name.write_text(blog, "utf-8", "replace")
        yield


# --- in words -------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Return seconds as text: "0.4 s", "12 s", "3 min", "2 h 5 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def printable(text: str) -> str:
    """Return the text with "?" in place of control characters."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
