"""Shortens a run that would take longer than its time: fewer steps, the same schedule.

A plan computes the number of steps from a speed measured beforehand, and the machine may slow down
later. A `ShortenedRun` compresses the rest of the schedule, including evaluations and
learning-rate decay, into fewer steps. The run record stores it, so a resumed run makes the same
steps, independent of the clock.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

_GRACE = 0.25  # fraction of the time in which a run is never shortened: slowness may pass
_MEMORY = 0.06  # speed is averaged over about this last fraction of the time
_TOLERANCE = 0.04  # a run is shortened if it would take this fraction longer than its time
_MIN_S = 1.0  # least seconds of _MEMORY and _TOLERANCE
_COOLDOWN = 4.0  # times _MEMORY between two decisions
_MIN_STEPS = 4  # steps before the first decision
_DESCENT = 0.1  # the rate may decay from its peak within this fraction of the steps before


@dataclass(frozen=True)
class ShortenedRun:
    """A run shortened at `step`, at `position` of the planned schedule, to `steps` in total."""

    step: int
    position: float
    steps: int


def position(step: int, planned: int, shortened: ShortenedRun | None) -> float:
    """The position of a step in the planned schedule; the step itself before any shortening."""
    if shortened is None or step <= shortened.step:
        return step
    share = (step - shortened.step) / (shortened.steps - shortened.step)
    return shortened.position + share * (planned - shortened.position)


def points(planned: int, count: int, shortened: ShortenedRun | None) -> set[int]:
    """The steps after which to evaluate: evenly spaced, the last at the end."""
    places = {round(k * planned / count) for k in range(1, count + 1)} - {0}
    if shortened is None:
        return places
    start, ahead = shortened.step, planned - shortened.position
    moved = (
        start + round((shortened.steps - start) * (place - shortened.position) / ahead)
        for place in places
        if place > shortened.position
    )
    return {place for place in places if place <= start} | {max(start + 1, p) for p in moved}


class Deadline:
    """Measures how long steps take, and finds how many steps fit into `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._memory_s = max(_MIN_S, _MEMORY * seconds)
        # Exponentially weighted counts of steps and of the seconds they took.
        self._steps = self._steps_s = self._measured_s = 0.0
        self._cooldown_s = self._memory_s
        self._count = self._evaluations = 0
        self._pause_s = 0.0
        self._since = clock()

    def pause_done(self, *, evaluated: bool = False) -> None:
        """Exclude time since the last step; ignore the first evaluation.

        Later evaluations predict how long the remaining ones will take.
        """
        now = self._clock()
        self._evaluations += evaluated
        if evaluated and self._evaluations > 1:
            self._pause_s = now - self._since
        self._since = now

    def step_done(self) -> None:
        """Count a step; the first step is ignored, because it compiles and warms up."""
        now = self._clock()
        took_s, self._since = now - self._since, now
        self._count += 1
        if self._count == 1:
            return
        fade = math.exp(-took_s / self._memory_s)
        self._steps, self._steps_s = self._steps * fade + 1, self._steps_s * fade + took_s
        self._measured_s += took_s

    def max_steps(self, step: int, steps: int, spent_s: float, pauses: int, lr_scale: float) -> int:
        """The total number of steps that fit into the time, or 0 if all `steps` fit.

        `step` steps were done in `spent_s`, and `pauses` evaluations remain. `lr_scale` is the
        current fraction of the peak learning rate: if it is high, enough steps are left to decay
        it, even if the run then takes a little too long.
        """
        left = steps - step
        if left < 2 or self._count <= _MIN_STEPS or self._measured_s < self._cooldown_s:
            return 0
        if spent_s < _GRACE * self._seconds:
            return 0
        step_s = self._steps_s / self._steps
        time_s = self._seconds - spent_s - pauses * self._pause_s
        if left * step_s - time_s <= max(_MIN_S, _TOLERANCE * self._seconds):
            return 0
        descent = max(1, math.ceil(_DESCENT * lr_scale * step))
        fitting = max(descent, int(time_s / step_s))
        if fitting >= left:
            return 0
        self._measured_s, self._cooldown_s = 0.0, _COOLDOWN * self._memory_s
        return step + fitting
