"""The history of a training, built from its events, live or read from metrics.jsonl."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ownwords.core.progress import Event

COMPARISON = "comparison"  # beginning of the name of a run that is only compared with
STAGE = "train"  # the stage that reports training metrics
SAMPLE = "sample: "  # prefix of a note that holds text the model wrote
MOST_POINTS = 300  # of the curve, about as many as a screen can show
_SMOOTHED = 20  # metrics over which the curve is smoothed, fewer at the start
_MOST_NOTES = 400
_EVALUATED = frozenset({"validation_bits_per_byte", "averaged_bits_per_byte", "memorised"})


class CurvePoint(NamedTuple):
    """One point of the training curve; NaN where a figure is missing."""

    step: float
    bits: float
    smooth: float
    loss: float
    speed: float
    rate: float
    norm: float


@dataclass(frozen=True, slots=True)
class EvalPoint:
    """The scores of an evaluation on held-out posts."""

    step: int
    bits: float | None
    averaged: float | None  # with the averaged weights
    memorised: float | None

    @property
    def best(self) -> float | None:
        return min((b for b in (self.bits, self.averaged) if b is not None), default=None)


@dataclass
class RunHistory:
    """Steps, curve, evaluations and notes of one training."""

    began: float | None = None  # when the latest process of this run started
    time: float = 0.0  # of the latest event
    step: int = 0
    total: int | None = None
    is_ended: bool = False
    is_stopped: bool = False  # ended before its last step
    latest: dict[str, float] = field(default_factory=dict)
    points: list[CurvePoint] = field(default_factory=list)
    evaluations: list[EvalPoint] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    sample: str = ""
    smooth: float = math.nan  # bits per byte in training, smoothed
    _remaining_s: float | None = None  # at `time`
    _before: int = 0  # steps done by earlier processes
    _metrics: int = 0
    _every: int = 1

    @property
    def best(self) -> EvalPoint | None:
        """The evaluation with the fewest bits per byte in this history."""
        scored = [point for point in self.evaluations if point.best is not None]
        return min(scored, key=lambda point: point.best or 0.0, default=None)

    @property
    def is_best_so_far(self) -> bool:
        """Whether the latest evaluation is better than at least one earlier, and all of them."""
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
            self.is_ended, self.is_stopped = True, event.message == "stopped"
            ended = "stopped" if self.is_stopped else "ended"
            self._note(f"Training {ended} after step {self.step:,}.")

    def _start(self, event: Event) -> None:
        self.began, self.is_ended, self.is_stopped = event.time, False, False
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
        names = ("loss", "tokens_per_s", "rate", "gradient_norm")
        point = CurvePoint(step, bits, self.smooth, *(values.get(n, math.nan) for n in names))
        # Keep the latest point, and only every n-th of the others.
        if self.points and (self._metrics - 1) % self._every:
            self.points[-1] = point
        else:
            self.points.append(point)
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self._every *= 2

    def _add_evaluation(self, values: dict[str, float]) -> None:
        point = EvalPoint(
            self.step,
            values.get("validation_bits_per_byte"),
            values.get("averaged_bits_per_byte"),
            values.get("memorised"),
        )
        self.evaluations = [each for each in self.evaluations if each.step < self.step] + [point]
        if point.best is not None:
            best = ", the best so far" if self.is_best_so_far else ""
            self._note(
                f"Step {self.step:,}: {point.best:.3f} bits per byte on held-out posts{best}."
            )

    def _add_note(self, event: Event) -> None:
        if event.message.startswith(SAMPLE):
            self.sample = event.message.removeprefix(SAMPLE)
        elif event.message:
            self._note(event.message, event.time)

    def _note(self, text: str, time: float | None = None) -> None:
        self.notes.append((self.time if time is None else time, text))
        del self.notes[:-_MOST_NOTES]
