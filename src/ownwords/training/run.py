"""The progress of a run, and its history as read from its events; without PyTorch."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ownwords.core.progress import SAMPLE, Event

CHECKPOINTS = "checkpoints"  # name of the subfolder in a run's folder
STAGE = "train"  # the stage that reports training metrics
MAX_POINTS = 300  # of the curve, about as many as a screen can show
_SMOOTHED = 20  # metrics over which the curve is smoothed, fewer at the start
_MAX_NOTES = 400
_EVALUATED = frozenset({"validation_bits_per_byte", "memorised"})

# The time moves the schedule by at most this much per step, so that the learning rate decays over
# several steps even after the machine was asleep.
_MAX_PROGRESS = 0.1
_ROUNDING = 1e-9  # ten times a tenth may be a little less than one
_PRIOR = 0.05  # weight of the planned steps in an estimate, as a share of the run

# Of the detection of divergence:
WINDOW = 64  # number of losses for the median and the spread
_MIN_LOSSES = 32  # before a check: a new model's loss may rise before it falls
_IN_A_ROW = 4  # high losses in a row: a single one may come from an odd text
_NATS = 1.0
_SPREADS = 8.0
_NOT_FINITE_IN_A_ROW = 3


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation after `step` steps."""

    step: int
    bits_per_byte: float | None  # on held-out text; None: nothing is held out
    memorised: float | None = None  # fraction of the training text that the model can recite
    progress: float = 0.0  # of the run, at this step


@dataclass
class DivergenceDetector:
    """Checks the loss of every step, in order.

    A run diverges if four losses in a row each exceed the lowest median so far by more than one nat
    and by more than eight robust standard deviations (scaled median absolute deviations). Comparing
    with the lowest median, not the last one, finds a slow divergence too.
    """

    losses: list[float] = field(default_factory=list)  # the last ones, without high ones
    lowest: float = math.inf  # median
    high: int = 0  # losses in a row
    without_gradient: int = 0  # steps in a row

    def check(self, loss: float, gradient_norm: float) -> str:
        """Check a step; returns the problem as the beginning of a sentence, or ""."""
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

    A run ends after its steps or when its time is up, whichever comes first. Its learning rate
    follows the same measure, so a machine that becomes slower or faster needs no other plan.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0  # share of the run's time that is used; 0 if only the steps count
    progress: float = 0.0  # share of the schedule that is done; never decreases
    lr_factor: float = 1.0
    rollbacks: int = 0
    stopped: Literal["", "done", "early", "memorised"] = ""  # the reason, once the run has ended
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
        """The steps left when the time is up: each moves the schedule by `_MAX_PROGRESS`."""
        return math.ceil((1 - self.progress) / _MAX_PROGRESS - _ROUNDING)

    def total_steps(self, planned: int) -> int:
        """Estimate the steps of the run: from the plan at first, and increasingly from its pace."""
        pace = (self.step + _PRIOR * planned) / (self.progress + _PRIOR)
        return self.step + round((1 - self.progress) * pace)

    def is_evaluation_due(self, count: int) -> bool:
        """Whether to evaluate now, for `count` evaluations evenly spaced, the last at the end."""
        before = self.evaluations[-1].progress if self.evaluations else 0.0
        return int(self.progress * count + _ROUNDING) > int(before * count + _ROUNDING)

    def best(self, memorised_limit: float) -> Evaluation | None:
        """The evaluation with the fewest bits per byte, the earlier of two equal ones.

        Evaluations that exceed the memorisation limit are ignored, unless all exceed it.
        """
        fair = [each for each in self.evaluations if not exceeds(each, memorised_limit)]
        return _best(fair) or _best(self.evaluations)

    def stop_reason(
        self, patience: int, memorised_limit: float
    ) -> Literal["", "early", "memorised"]:
        """ "early" or "memorised" if the last evaluation ends the run; else empty."""
        if self.evaluations and exceeds(self.evaluations[-1], memorised_limit):
            return "memorised"
        scores = [each.bits_per_byte for each in self.evaluations if each.bits_per_byte is not None]
        if patience and scores and len(scores) - scores.index(min(scores)) > patience:
            return "early"
        return ""


def _best(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """Return the one with the fewest bits per byte, the earlier of two equal ones."""
    scored = [each for each in evaluations if each.bits_per_byte is not None]
    return min(scored, key=lambda each: each.bits_per_byte or 0.0, default=None)


def exceeds(evaluation: Evaluation, memorised_limit: float) -> bool:
    """Whether the model memorised more than the limit; 0 means no limit."""
    return bool(memorised_limit) and (evaluation.memorised or 0.0) > memorised_limit


# --- from the events, live or read from metrics.jsonl ---------------------------------------------


class CurvePoint(NamedTuple):
    """One point of the training curve; NaN where a figure is missing."""

    step: float
    bits: float
    smooth: float
    loss: float
    speed: float


@dataclass
class RunHistory:
    """Steps, curve, evaluations and notes of one training."""

    began: float | None = None  # when the latest process of this run started
    time: float = 0.0  # of the latest event
    step: int = 0
    total: int | None = None
    is_ended: bool = False
    latest: dict[str, float] = field(default_factory=dict)
    points: list[CurvePoint] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    sample: str = ""
    smooth: float = math.nan  # bits per byte in training, smoothed
    _remaining_s: float | None = None  # at `time`
    _before: int = 0  # steps done by earlier processes
    _metrics: int = 0
    _every: int = 1

    @property
    def best(self) -> Evaluation | None:
        """The evaluation with the fewest bits per byte in this history."""
        return _best(self.evaluations)

    @property
    def is_best_so_far(self) -> bool:
        """Whether there are earlier evaluations and the latest is better than all of them."""
        return len(self.evaluations) > 1 and self.best is self.evaluations[-1]

    def remaining_s(self, now: float) -> float | None:
        """Seconds until the last step; None while unknown."""
        if self._remaining_s is None or self.is_ended:
            return None
        return max(0.0, self._remaining_s - max(0.0, now - self.time))

    def add(self, event: Event) -> None:
        """Add the next event of the run's log."""
        if event.stage != STAGE:
            if event.kind == "note":
                self._add_note(event)
            return
        self.time = event.time
        if event.kind in ("start", "metric"):
            self._remaining_s = event.remaining_s
        if event.kind == "start":
            self._start(event)
        elif event.kind == "metric":
            self._add_metric(event)
        elif event.kind == "note":
            self._add_note(event)
        elif event.kind == "done":
            self.is_ended = True
            ended = "stopped" if event.message == "stopped" else "ended"
            self._note(f"Training {ended} after step {self.step:,}.")

    def _start(self, event: Event) -> None:
        self.began, self.is_ended = event.time, False
        self._before = 0
        if self.total is None or not self.step:
            self.total = event.total
        if event.total is not None:
            again = "resumes" if self.step else "starts"
            self._note(f"Training {again}: {event.total:,} steps to go.")

    def _add_metric(self, event: Event) -> None:
        values = {name: value for name, value in event.values.items() if math.isfinite(value)}
        self.latest.update(values)
        self.step = int(values.get("step", self._before + event.done))
        # `done` counts the steps of this process, `step` those of the whole run.
        self._before = max(self._before, self.step - event.done)
        if event.total is not None:
            self.total = self._before + event.total
        if "bits_per_byte" in values:
            self._add_point(values)
        if values.keys() & _EVALUATED:
            self._add_evaluation(values)

    def _add_point(self, values: dict[str, float]) -> None:
        step, bits = self.step, values["bits_per_byte"]
        if self.points and step <= self.points[-1].step:  # rolled back to an earlier checkpoint
            self.points = [point for point in self.points if point.step < step]
            self.evaluations = [point for point in self.evaluations if point.step < step]
        self._metrics += 1
        share = max(min(1.0, 3 / (self._metrics + 2)), 1 / _SMOOTHED)
        self.smooth = (
            bits if math.isnan(self.smooth) else self.smooth + share * (bits - self.smooth)
        )
        loss, speed = (values.get(name, math.nan) for name in ("loss", "tokens_per_s"))
        point = CurvePoint(step, bits, self.smooth, loss, speed)
        # Keep the latest point, and only every n-th of the others.
        if self.points and (self._metrics - 1) % self._every:
            self.points[-1] = point
        else:
            self.points.append(point)
        if len(self.points) > MAX_POINTS:
            self.points = self.points[::2]
            self._every *= 2

    def _add_evaluation(self, values: dict[str, float]) -> None:
        point = Evaluation(
            self.step,
            values.get("validation_bits_per_byte"),
            values.get("memorised"),
        )
        self.evaluations = [each for each in self.evaluations if each.step < self.step] + [point]
        if point.bits_per_byte is not None:
            best = ", the best so far" if self.is_best_so_far else ""
            self._note(
                f"Step {self.step:,}: {point.bits_per_byte:.3f} bits per byte on held-out"
                f" posts{best}."
            )

    def _add_note(self, event: Event) -> None:
        if event.message.startswith(SAMPLE):
            self.sample = event.message.removeprefix(SAMPLE)
        elif event.message:
            self._note(event.message, event.time)

    def _note(self, text: str, time: float | None = None) -> None:
        self.notes.append((self.time if time is None else time, text))
        del self.notes[:-_MAX_NOTES]
