"""What becomes of a run that turns out too long for its time: fewer steps, the same course.

A plan counts steps from a speed measured beforehand, and a machine may slow down later. A
`ShortenedRun` compresses the rest of the schedule, evaluations and learning-rate decay included,
into fewer steps. The run record stores it, so a resumed run keeps to it whatever the clock says.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

_PATIENCE = 0.25  # share of the time before which nothing is said: what is slow may pass
_MEMORY = 0.06  # the pace is that of about the last so much of the time there is
_LATE = 0.04  # a run is shortened if it would take so much more time than there is
_LEAST_S = 1.0  # of either of them
_BETWEEN = 4.0  # so much of that memory has gone by before a second word
_LEAST_STEPS = 4  # seen before anything is said about the pace
_DESCENT = 0.1  # from the peak, a rate may fall within so much of what was trained before


@dataclass(frozen=True)
class ShortenedRun:
    """From `step` on, at `position` of the planned course, the run ends after `steps` in all."""

    step: int
    position: float
    steps: int


def position(step: int, planned: int, cut: ShortenedRun | None) -> float:
    """Where a step stands in the planned course; the step itself where nothing was cut."""
    if cut is None or step <= cut.step:
        return step
    share = (step - cut.step) / (cut.steps - cut.step)
    return cut.position + share * (planned - cut.position)


def points(planned: int, count: int, cut: ShortenedRun | None) -> set[int]:
    """The steps after which the held-out text is read: evenly spread, the last at the end."""
    places = {round(k * planned / count) for k in range(1, count + 1)} - {0}
    if cut is None:
        return places
    ahead = planned - cut.position
    moved = (
        cut.step + round((cut.steps - cut.step) * (place - cut.position) / ahead)
        for place in places
        if place > cut.position
    )
    return {place for place in places if place <= cut.step} | {max(cut.step + 1, p) for p in moved}


class Deadline:
    """Watches how long steps take; `fitting` says when not all can be done in `seconds`.

    Of an infinite number of seconds it never says so.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._memory_s = max(_LEAST_S, _MEMORY * seconds)
        self._steps = self._steps_s = self._seen_s = 0.0
        self._silent_s = self._memory_s
        self._seen = self._evaluations = 0
        self._pause_s = 0.0
        self._since = clock()

    def paused(self, *, evaluated: bool = False) -> None:
        """What was done since the last step was none; if it was an evaluation, more will come.

        The first of those counts not either.
        """
        now = self._clock()
        self._evaluations += evaluated
        if evaluated and self._evaluations > 1:
            self._pause_s = now - self._since
        self._since = now

    def stepped(self) -> None:
        """A step is done. The first, in which all is compiled and warmed, counts not."""
        now = self._clock()
        took_s, self._since = now - self._since, now
        self._seen += 1
        if self._seen == 1:
            return
        fade = math.exp(-took_s / self._memory_s)
        self._steps, self._steps_s = self._steps * fade + 1, self._steps_s * fade + took_s
        self._seen_s += took_s

    def fitting(self, step: int, steps: int, spent_s: float, pauses: int, rate: float) -> int:
        """How many steps there can be in all if `steps` are too many, else 0.

        `step` are done in `spent_s`, `pauses` are to come, and `rate` is the share of the peak that
        the rate has now: a high one must not break off, even if that takes a little longer.
        """
        left = steps - step
        if left < 2 or self._seen <= _LEAST_STEPS or self._seen_s < self._silent_s:
            return 0
        if spent_s < _PATIENCE * self._seconds:
            return 0
        step_s = self._steps_s / self._steps
        time_s = self._seconds - spent_s - pauses * self._pause_s
        if left * step_s - time_s <= max(_LEAST_S, _LATE * self._seconds):
            return 0
        least = max(1, math.ceil(_DESCENT * rate * step))
        fitting = max(least, int(time_s / step_s))
        if fitting >= left:
            return 0
        self._seen_s, self._silent_s = 0.0, _BETWEEN * self._memory_s
        return step + fitting
