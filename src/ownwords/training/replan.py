"""What the first steps of a run say of its plan: whether that was made for another speed.

A plan counts steps from a speed measured in a few seconds, and a machine may have been busy, or
idle, for just those. The first steps show it while hardly anything is lost: the plan is then made
anew, once, and the run begins again (making.py). What happens later is for the deadline.
"""

import time
from collections.abc import Callable

_LOOK = 0.02  # share of the time that is looked at as one
_LEAST_S, _MOST_S = 1.0, 10.0  # of such a look
_LEAST_STEPS = 3  # in it
_LOOKS = 4  # then the outset is over: to begin again costs what was trained until then
FASTER = 1.25  # so much faster than planned, a fifth of the time would be left over
# What is fast once can be so always, what is slow may pass; and a deadline shortens a slow run too,
# if not as well: its model and its batches stay those of a longer one.
SLOWER = 2.0


class ReplanRequested(Exception):  # noqa: N818 - a request, no error
    """A run is to begin again, as another plan has it that was put in the place of its own."""


class ReplanMonitor:
    """Watches the first steps of a run of `seconds` in which one should take `step_s`.

    `plan_anew` is asked once at most, with what a step takes here; whether there is another plan
    then is what `leads_elsewhere` says too.
    """

    def __init__(
        self,
        seconds: float,
        step_s: float,
        plan_anew: Callable[[float], bool],
        *,
        unseen: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step_s, self._plan_anew, self._clock = step_s, plan_anew, clock
        self._look_s = min(_MOST_S, max(_LEAST_S, _LOOK * seconds))
        self._unseen = unseen  # steps in which all is compiled, warmed, or put into a queue only
        self._steps, self._steps_s = 0, 0.0
        self._looks: list[float] = []  # seconds of a step
        self._since = clock()

    def paused(self) -> None:
        """What was done since the last step was none."""
        self._since = self._clock()

    def stepped(self) -> None:
        """A step is done."""
        now = self._clock()
        took_s, self._since = now - self._since, now
        if self._unseen:
            self._unseen -= 1
            return
        self._steps += 1
        self._steps_s += took_s

    def leads_elsewhere(self, is_last: bool = False) -> bool:
        """Whether there is another plan now; to be asked before each step, and after the last."""
        look_s = 0.0 if is_last else self._look_s  # a run may end before anybody has looked
        if self.is_over or self._steps < _LEAST_STEPS or self._steps_s < look_s:
            return False
        seen_s = self._steps_s / self._steps
        self._steps, self._steps_s = 0, 0.0
        self._looks.append(seen_s)
        if self._step_s >= FASTER * seen_s:
            found_s = seen_s
        elif len(self._looks) == _LOOKS and min(self._looks) >= SLOWER * self._step_s:
            found_s = min(self._looks)
        else:
            return False
        self._looks = [found_s] * _LOOKS
        return self._plan_anew(found_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing will be said any more."""
        return len(self._looks) >= _LOOKS
