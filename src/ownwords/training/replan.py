"""Replan if the measured step time is off.

A plan computes the number of steps from a speed measured within seconds, when the machine may have
been unusually busy or idle. The first steps of a run show this while little time is lost: then a
second plan is made, at most once, and the run starts again (`run_plan.py`). `deadline.py` handles
later changes.
"""

import time
from collections.abc import Callable

_WINDOW = 0.02  # fraction of the time that one window measures
_MIN_S, _MAX_S = 1.0, 10.0  # least and most seconds of a window
_MIN_STEPS = 3  # in a window
_WINDOWS = 4  # after these it stops: restarting loses what was trained until then
FASTER = 1.25  # replan if so much faster: a fifth of the time would be left over
# Replan if so much slower in all windows. This factor is larger because slowness may pass, and the
# deadline shortens a slow run too, though not as well: it keeps the model and batch size of a
# longer one.
SLOWER = 2.0


class ReplanRequested(Exception):  # noqa: N818 - a request, no error
    """The run must start again with its new plan."""


class ReplanMonitor:
    """Watches the first steps of a run of `seconds` in which a step should take `step_s`.

    It calls `replan` at most once, with the measured seconds of a step; `replan` returns whether
    there is a new plan, and `requested` passes this on. The first `unseen` steps, which compile,
    warm up or only fill a queue, are ignored.
    """

    def __init__(
        self,
        seconds: float,
        step_s: float,
        replan: Callable[[float], bool],
        *,
        unseen: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._step_s, self._replan, self._clock = step_s, replan, clock
        self._window_s = min(_MAX_S, max(_MIN_S, _WINDOW * seconds))
        self._unseen = unseen
        self._steps, self._steps_s = 0, 0.0
        self._windows: list[float] = []  # seconds of a step
        self._since = clock()

    def pause_done(self) -> None:
        """Exclude the time since the last step."""
        self._since = self._clock()

    def step_done(self) -> None:
        """Count a step and its time."""
        now = self._clock()
        took_s, self._since = now - self._since, now
        if self._unseen:
            self._unseen -= 1
            return
        self._steps += 1
        self._steps_s += took_s

    def requested(self, is_last: bool = False) -> bool:
        """Whether there is a new plan now; call it before each step, and after the last."""
        window_s = 0.0 if is_last else self._window_s  # a run may be shorter than a window
        if self.is_over or self._steps < _MIN_STEPS or self._steps_s < window_s:
            return False
        measured_s = self._steps_s / self._steps
        self._steps, self._steps_s = 0, 0.0
        self._windows.append(measured_s)
        if self._step_s < FASTER * measured_s:
            measured_s = min(self._windows)
            if len(self._windows) < _WINDOWS or measured_s < SLOWER * self._step_s:
                return False
        self._windows = [measured_s] * _WINDOWS
        return self._replan(measured_s)

    @property
    def is_over(self) -> bool:
        return len(self._windows) >= _WINDOWS
