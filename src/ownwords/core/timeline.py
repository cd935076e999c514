"""How far a whole job is: the share done and the time left over all of its parts."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from ownwords.core.progress import Event, Subscriber

_UNKNOWN_S = 1.0  # for a part that nobody has estimated: it counts, but hardly
_OVERDUE_SHARE = 0.1  # a part that takes longer than expected is taken to need this much more
_MOST = 0.99  # of a job that is not done
_INTERVAL_S = 0.5  # between two reports, longer in a long job, so that they never fill the disk
# Training fills the minutes that it was given: saving and the choice of weights come after its
# last step, so the steps alone would say too little.
TIMED_PARTS = frozenset({"train", "compare"})
_REPORTS = 1000


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

    def __call__(self, event: Event) -> None:
        """Take in an event, and report how far the job is, at most every half second."""
        now = self._clock()
        if event.kind == "expect":
            part = self._parts.setdefault(event.stage, _Part())
            part.expected_s = event.values.get("seconds", part.expected_s)
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
        # A stage that has been silent for longer than it promised needs a little more, too.
        stages = [
            max(left - (now - at), _OVERDUE_SHARE * (now - at))
            for at, left in self._stages.values()
        ]
        # A resumed training has the rest of its time only, so there the steps say more.
        is_timed = name in TIMED_PARTS and not self._spent_s
        if stages and not is_timed:
            return max(stages)
        return max(expected - elapsed, _OVERDUE_SHARE * elapsed, *stages)

    def _tell(self, now: float) -> None:
        elapsed = self._spent_s + now - self._began
        remaining = self.remaining_s()
        self.share = max(self.share, min(_MOST, elapsed / max(elapsed + remaining, 1e-9)))
        self._reported_at = now
        self._report(
            Event(
                time=time.time(),
                stage=self._current,
                kind="overall",
                values={"share": round(self.share, 4), "remaining_s": round(remaining, 1)},
            )
        )
