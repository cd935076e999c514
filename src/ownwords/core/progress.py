"""Progress of a job as one stream of events, for the terminal, a file, or any subscriber.

`Timeline` adds up what remains of a whole job; `logged_job` writes the log that the page reads.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.workspace import data_folder, try_lock

# "expect" and "begin" are about the parts of a whole job, such as the reading, training and scoring
# of `make`; "overall" is how far the job is with all of them. The others are about one stage.
EventKind = Literal["start", "advance", "done", "note", "metric", "expect", "begin", "overall"]

STAGE_KINDS: Final[Collection[EventKind]] = ("start", "done", "note", "metric")
ADVANCE_INTERVAL_S = 0.1  # "advance" events are at least this far apart
_RATE_WINDOW_S = 15.0  # time constant of the exponentially weighted rate
_UNKNOWN_S = 1.0  # for a part that nobody has estimated: it counts, but hardly
_OVERDUE_SHARE = 0.1  # of the time so far: a part that is about to end still needs so much
_MOST = 0.99  # of a job that is not done
_CORRECTED = 1.25  # times the seconds that were told, from which the true ones are told
_INTERVAL_S = 0.5  # between two reports, longer in a long job, so that they never fill the disk
# Training fills the minutes that it was given: saving and the choice of weights come after its
# last step, so the steps alone would say too little.
TIMED_PART = "train"
_REPORTS = 1000
# The environment of a job: where its log is, how long its earlier attempts took, and the name of
# its blog if it trains.
LOG_VARIABLE: Final = "OWNWORDS_JOB_LOG"
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


def parse_event(line: str | bytes) -> Event | None:
    """Parse a line written by `JsonLines`; None if the line is damaged."""
    try:
        return msgspec.json.decode(line, type=Event)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # such as one cut by a crash
        return None


class Progress:
    """Passes events to its subscribers, in the thread that reports them."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self.subscribers = list(subscribers)

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator["Stage"]:
        """Open a part of the work, from "start" to "done"; concurrent stages must differ in name.

        A total that becomes known later can be set as `stage.total`, and so can `remaining_s`.
        """
        stage = Stage(self, name, total, unit)
        stage.tell("start")
        try:
            yield stage
        except BaseException:
            # An error of the log must not hide the error of the job.
            with suppress(WorkspaceError):
                stage.tell("done", "stopped")
            raise
        stage.tell("done")

    def note(self, message: str) -> None:
        self.tell(Event(time.time(), "", "note", message=message))

    def expect(self, part: str, seconds: float | None = None) -> None:
        """Announce a part of the job, and how long it will take if that is known."""
        values = {} if seconds is None else {"seconds": seconds}
        self.tell(Event(time.time(), part, "expect", values=values))

    def begin(self, part: str) -> None:
        """Report that a part of the job begins; the one before it has ended."""
        self.tell(Event(time.time(), part, "begin"))

    def tell(self, event: Event) -> None:
        for subscriber in self.subscribers:
            subscriber(event)


class Stage:
    """A running stage, made by `Progress.stage`; not thread-safe."""

    def __init__(self, progress: Progress, name: str, total: int | None, unit: str) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self.remaining_s: float | None = None  # if it is known better than from the rate
        self.limit_s = math.inf  # after which it ends, whatever is left to do
        self._progress = progress
        self._began = time.monotonic()
        self._rate = RateEstimator(self._began)
        self._next = self._began + ADVANCE_INTERVAL_S

    def advance(self, n: int = 1) -> None:
        """Count `n` more units as done. Cheap enough for the innermost loop."""
        self.done += n
        if self._progress.subscribers and time.monotonic() >= self._next:
            self._next = time.monotonic() + ADVANCE_INTERVAL_S
            self.tell("advance")

    def note(self, message: str) -> None:
        """Report a sentence; never throttled."""
        self.tell("note", message)

    def metric(self, **values: float) -> None:
        """Report measured values; never throttled, so the caller decides how often."""
        self.tell("metric", values=values)

    def tell(
        self, kind: EventKind, message: str = "", values: dict[str, float] | None = None
    ) -> None:
        """Pass an event of this stage to every subscriber."""
        if not self._progress.subscribers:
            return
        now = time.monotonic()
        self._rate.update(self.done, now)
        left_s = self.remaining_s
        if left_s is None:
            left_s = self._rate.remaining_s(self.total)
        if left_s is not None:
            left_s = max(0.0, min(left_s, self.limit_s - (now - self._began)))
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
                remaining_s=left_s,
            )
        )


class RateEstimator:
    """The rate at which a count grows, exponentially weighted."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._done = 0
        self._weighted_units = self._weighted_s = 0.0

    def update(self, done: int, now: float) -> None:
        """Record the count at a time."""
        elapsed = now - self._now
        fade = math.exp(-elapsed / _RATE_WINDOW_S)
        self._weighted_units = self._weighted_units * fade + (done - self._done)
        self._weighted_s = self._weighted_s * fade + elapsed
        self._now, self._done = now, done

    def remaining_s(self, total: int | None) -> float | None:
        """Seconds until `total` is reached; None while unknown."""
        if total is None or self._weighted_units <= 0:
            return None
        return max(0, total - self._done) * self._weighted_s / self._weighted_units


class JsonLines:
    """Appends events to a file, one JSON object a line, unbuffered.

    Only the `kinds` are written. Raises WorkspaceError if the file cannot be written.
    """

    def __init__(self, path: Path, kinds: Collection[EventKind] = STAGE_KINDS) -> None:
        self._path, self._kinds = path, kinds
        try:
            self._file = path.open("a+b", buffering=0)
            # Begin a new line if a crash left an incomplete one.
            if self._file.tell():
                self._file.seek(-1, 2)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")
        except OSError as error:
            raise self._failed(error) from error

    def __call__(self, event: Event) -> None:
        if event.kind not in self._kinds:
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
        try:
            data += b"\n"
            while data:  # a disk that fills up may write only a part
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._file.close()

    def _failed(self, error: OSError) -> WorkspaceError:
        return WorkspaceError(
            f"the log {self._path} could not be written: {error.strerror}",
            hint="free some space or give another --workspace, then run the same command again",
        )


def _encodable(text: str) -> str:
    """The text without what UTF-8 cannot encode, as in the name of a file."""
    return text.encode("utf-8", "replace").decode()


# --- the whole job --------------------------------------------------------------------------------


@dataclass
class _Part:
    expected_s: float | None = None
    began: float | None = None
    ended: float | None = None


class Timeline:
    """A subscriber that adds up what remains of a job, and reports it as "overall" events.

    The parts are announced by `Progress.expect` and opened by `Progress.begin`. The time left in
    the current part is what its longest stage reports, or what is left of its expected time; the
    parts after it count with theirs. The share never goes back. `spent_s` is the time that earlier
    attempts at the same job took.
    """

    def __init__(
        self,
        report: Subscriber,
        *,
        spent_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._spent_s, self._clock = report, spent_s, clock
        self._parts: dict[str, _Part] = {}
        self._current = ""
        self._stages: dict[str, tuple[float, float]] = {}  # by name: time, and remaining seconds
        self._began = clock()
        self._reported_at = -math.inf
        self.share = 0.0
        self._told_s, self._told_at = math.inf, self._began  # the time left as reported last

    def __call__(self, event: Event) -> None:
        """Take in an event, and report how far the job is, at most every half second."""
        now = self._clock()
        if event.kind == "expect":
            part = self._parts.setdefault(event.stage, _Part())
            part.expected_s = event.values.get("seconds", part.expected_s)
            if event.stage == TIMED_PART and part.expected_s:
                # A resumed training has only the rest of its time.
                rest_s = part.expected_s - self._spent_s
                part.expected_s = max(rest_s, _OVERDUE_SHARE * part.expected_s)
        elif event.kind == "begin" and event.stage in self._parts:
            self._begin(event.stage, now)
        elif event.kind == "done":
            self._stages.pop(event.stage, None)
        elif event.remaining_s is not None:
            self._stages[event.stage] = (now, event.remaining_s)
        elapsed = self._spent_s + now - self._began
        if self._current and now - self._reported_at >= max(_INTERVAL_S, elapsed / _REPORTS):
            self._tell(now)

    def remaining_s(self) -> float:
        """Seconds until the whole job is done, as far as is known."""
        return sum(self._left(name, part) for name, part in self._parts.items())

    def _begin(self, name: str, now: float) -> None:
        for part in self._parts.values():
            if part.began is not None and part.ended is None:
                part.ended = now
        # Parts before it that never began are not going to.
        for before, part in self._parts.items():
            if before == name:
                break
            part.ended = part.ended or now
        self._parts[name].began, self._parts[name].ended = now, None
        self._current = name
        self._stages.clear()
        self._reported_at = -math.inf

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
        # A resumed training has the rest of its time only, so there the steps say more.
        is_timed = name == TIMED_PART and not self._spent_s
        if stages and not is_timed:
            return max(stages)
        return max(expected - elapsed, _OVERDUE_SHARE * elapsed, *(stages or [late]))

    def _tell(self, now: float) -> None:
        elapsed = self._spent_s + now - self._began
        remaining = self.remaining_s()
        # Where a little too little was told, it falls the more slowly; where it is wrong, it rises.
        if remaining / _CORRECTED < self._told_s < remaining:
            self._told_s *= 1 - min(1.0, (now - self._told_at) / remaining)
        else:
            self._told_s = remaining
        self._told_at = now
        self.share = max(self.share, min(_MOST, elapsed / max(elapsed + remaining, 1e-9)))
        self._reported_at = now
        self._report(
            Event(
                time=time.time(),
                stage=self._current,
                kind="overall",
                values={"share": round(self.share, 4), "remaining_s": round(self._told_s, 1)},
            )
        )


def left_after(promised_s: float, silent_s: float) -> float:
    """The seconds left when nothing was heard since so many were promised.

    What is late is taken to need as long again: nobody knows, and "a few seconds" would be untrue.
    """
    return abs(promised_s - silent_s)


@contextmanager
def logged_job(progress: Progress, environment: Mapping[str, str]) -> Iterator[None]:
    """Log the parts, the notes and the time left, if this process is a job of the server."""
    path = environment.get(LOG_VARIABLE)
    if not path:
        yield
        return
    spent = environment.get(SPENT_VARIABLE, "")
    with closing(JsonLines(Path(path), ("note", "expect", "begin", "overall"))) as log:
        progress.subscribers.append(log)
        blog = environment.get(TRAINS_VARIABLE)
        with _alone(progress, blog) if blog else nullcontext():
            spent_s = float(spent) if spent.replace(".", "").isdecimal() else 0
            progress.subscribers.append(Timeline(log, spent_s=spent_s))
            yield


def print_answer(work: Callable[[], Mapping[str, Any]]) -> int:
    """Print what a job of the server finds, or its error, as JSON; return the exit status."""
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
    """Seconds as text: "0.4 s", "12 s", "3 min", "2 h 5 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def printable(text: str) -> str:
    """The text with "?" in place of control characters."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
