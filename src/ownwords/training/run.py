"""The progress of a run, and its history from its events; without PyTorch."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from ownwords.core.progress import SAMPLE, Event

CHECKPOINTS = "checkpoints"  # name of the subfolder in a run's folder
STAGE = "train"  # the stage that reports training metrics
_SMOOTHED = 20  # reports over which the bits per byte are smoothed, fewer at the start

# The elapsed time advances the schedule by at most this much per step, so that the learning rate
# decays over several steps even after the machine was asleep.
_MAX_PROGRESS = 0.1
_ROUNDING = 1e-9  # the sum of ten times 0.1 may be slightly below 1
_PRIOR = 0.05  # weight of the planned steps in an estimate, as a share of the run

# For the detection of divergence:
WINDOW = 64  # number of losses for the median and the spread
_MIN_LOSSES = 32  # before a check: a new model's loss may rise before it falls
_IN_A_ROW = 4  # high losses in a row: a single one may be caused by an unusual text
_NATS = 1.0
_SPREADS = 8.0
_NOT_FINITE_IN_A_ROW = 3


@dataclass(frozen=True)
class Evaluation:
    """The score of an evaluation after `step` steps."""

    step: int
    bits_per_byte: float | None  # on held-out text; None: nothing is held out
    progress: float = 0.0  # of the run, at this step


@dataclass
class DivergenceDetector:
    """Checks the loss of every step, in order.

    A run diverges if four losses in a row each exceed the lowest median so far by more than one nat
    and by more than eight robust standard deviations (scaled median absolute deviations). Comparing
    with the lowest median, not the last one, finds a slow divergence too.
    """

    losses: list[float] = field(default_factory=list)  # the last ones, without high ones
    lowest: float = math.inf  # the lowest median so far
    high: int = 0  # number of high losses in a row
    without_gradient: int = 0  # steps in a row

    def check(self, loss: float, gradient_norm: float) -> str:
        """Check a step; return the problem as the beginning of a sentence, or ""."""
        if not math.isfinite(loss):
            return "the loss is not a number"
        # The optimizer skips such a step; only several in a row are a problem.
        finite = math.isfinite(gradient_norm)
        self.without_gradient = 0 if finite else self.without_gradient + 1
        if self.without_gradient >= _NOT_FINITE_IN_A_ROW:
            return f"the gradients of {_NOT_FINITE_IN_A_ROW} steps in a row are not finite"
        if len(self.losses) >= _MIN_LOSSES and loss > self._bound():
            self.high += 1
            if self.high >= _IN_A_ROW:
                return f"the loss diverged, from {self.lowest:.2f} to {loss:.2f} nats"
            return ""
        self.high = 0
        self.losses = [*self.losses, loss][-WINDOW:]
        if len(self.losses) >= _MIN_LOSSES:
            self.lowest = min(self.lowest, statistics.median(self.losses))
        return ""

    def _bound(self) -> float:
        median = statistics.median(self.losses)
        spread = 1.4826 * statistics.median(abs(loss - median) for loss in self.losses)
        return self.lowest + max(_NATS, _SPREADS * spread)


@dataclass
class RunRecord:
    """The progress of a run, which each checkpoint stores; `step` is the number of steps done.

    A run ends after its steps or when its time is up, whichever comes first. The learning rate
    follows the same measure, so the plan holds even if the machine becomes slower or faster.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0  # share of the run's time used so far; 0 if only the steps count
    progress: float = 0.0  # share of the schedule done so far; never decreases
    lr_factor: float = 1.0
    rollbacks: int = 0
    stopped: Literal["", "done", "early"] = ""  # the reason, once the run has ended
    evaluations: list[Evaluation] = field(default_factory=list)
    divergence: DivergenceDetector = field(default_factory=DivergenceDetector)

    def update_progress(self, max_steps: int, elapsed: float) -> None:
        """Set the progress from the steps done and the share of the time used.

        Call it once before each step, and after the last.
        """
        self.elapsed = elapsed
        by_time = min(elapsed, self.progress + _MAX_PROGRESS)
        progress = max(self.progress, self.step / max_steps, by_time)
        self.progress = progress if progress < 1 - _ROUNDING else 1.0

    @property
    def is_over(self) -> bool:
        return self.progress >= 1

    @property
    def fewest_steps_left(self) -> int:
        """The steps left once the time is up: each advances the schedule by `_MAX_PROGRESS`."""
        return math.ceil((1 - self.progress) / _MAX_PROGRESS - _ROUNDING)

    def total_steps(self, planned: int) -> int:
        """Estimate the steps of the run, at first from the plan, and increasingly from its pace."""
        pace = (self.step + _PRIOR * planned) / (self.progress + _PRIOR)
        return self.step + round((1 - self.progress) * pace)

    def is_evaluation_due(self, count: int) -> bool:
        """Whether to evaluate now, given `count` evenly spaced evaluations, the last at the end."""
        before = self.evaluations[-1].progress if self.evaluations else 0.0
        return int(self.progress * count + _ROUNDING) > int(before * count + _ROUNDING)

    def is_past_best(self, patience: int) -> bool:
        """Whether the last `patience` evaluations did not beat an earlier one; never if 0."""
        scores = [each.bits_per_byte for each in self.evaluations if each.bits_per_byte is not None]
        return bool(patience and scores) and len(scores) - scores.index(min(scores)) > patience


def best_of(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """Return the evaluation with the fewest bits per byte, the earlier of two equal ones."""
    scored = [each for each in evaluations if each.bits_per_byte is not None]
    return min(scored, key=lambda each: each.bits_per_byte or 0.0, default=None)


# --- from the events ------------------------------------------------------------------------------


@dataclass
class RunHistory:
    """The steps, metrics and evaluations of one training run, and its last sample."""

    step: int = 0
    total: int | None = None
    latest: dict[str, float] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)
    sample: str = ""
    smooth: float = math.nan  # bits per byte in training, smoothed
    _before: int = 0  # steps done by earlier processes
    _metrics: int = 0

    @property
    def best(self) -> Evaluation | None:
        return best_of(self.evaluations)

    @property
    def is_best_so_far(self) -> bool:
        """Whether there are earlier evaluations and the latest is better than all of them."""
        return len(self.evaluations) > 1 and self.best is self.evaluations[-1]

    def add(self, event: Event) -> None:
        if event.kind == "note" and event.message.startswith(SAMPLE):
            self.sample = event.message.removeprefix(SAMPLE)
        if event.stage != STAGE:
            return
        if event.kind == "start":
            self.total = event.total
        elif event.kind == "metric":
            self._add_metric(event)

    def _add_metric(self, event: Event) -> None:
        values = {name: value for name, value in event.values.items() if math.isfinite(value)}
        self.latest.update(values)
        step = int(values.get("step", self._before + event.done))
        if step < self.step:  # rolled back to an earlier checkpoint
            self.evaluations = [each for each in self.evaluations if each.step < step]
        self.step = step
        # `done` counts the steps of this process, `step` those of the whole run.
        self._before = max(self._before, self.step - event.done)
        if event.total is not None:
            self.total = self._before + event.total
        if (bits := values.get("bits_per_byte")) is not None:
            self._metrics += 1
            share = max(min(1.0, 3 / (self._metrics + 2)), 1 / _SMOOTHED)
            before = bits if math.isnan(self.smooth) else self.smooth
            self.smooth = before + share * (bits - before)
        if (held_out := values.get("validation_bits_per_byte")) is not None:
            self.evaluations = [each for each in self.evaluations if each.step < step]
            self.evaluations.append(Evaluation(self.step, held_out))
