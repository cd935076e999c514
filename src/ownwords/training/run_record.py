"""The progress of a run, which each checkpoint stores as JSON beside its tensors.

A run ends after its steps or when its time is up, whichever comes first, and its learning rate
follows the same measure. So a machine that becomes slower or faster needs no other plan.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ownwords.training.divergence import DivergenceDetector

# The time moves the schedule by at most this much a step: after the machine was asleep, too, the
# learning rate decays over several steps.
_MOST_PROGRESS = 0.1
_ROUNDING = 1e-9  # ten times a tenth may be a little less than one
_PRIOR = 0.05  # weight of the planned steps in an estimate, as a share of the run


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation after `step` steps."""

    step: int
    tokens: int  # trained on by then
    bits_per_byte: float | None  # None: nothing is held out
    averaged_bits_per_byte: float | None = None  # of the averaged weights, if there are any
    memorised: float | None = None  # fraction of the training text that the model can recite
    progress: float = 0.0  # of the run, at this step

    @property
    def best(self) -> float | None:
        """The lower bits per byte of the weights and of their average."""
        scores = (self.bits_per_byte, self.averaged_bits_per_byte)
        return min((score for score in scores if score is not None), default=None)

    @property
    def is_averaged_better(self) -> bool:
        return self.best is not None and self.best != self.bits_per_byte


@dataclass
class RunRecord:
    """The progress of a run. `step` is the number of steps done."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    elapsed: float = 0.0  # share of the run's time that is used; 0 where only the steps count
    progress: float = 0.0  # share of the schedule that lies behind; it never decreases
    lr_factor: float = 1.0
    setbacks: int = 0
    stopped: str = ""  # the reason, once the run has ended
    evaluations: list[Evaluation] = field(default_factory=list)
    divergence: DivergenceDetector = field(default_factory=DivergenceDetector)

    def update_progress(self, max_steps: int, elapsed: float) -> None:
        """Set the progress from the steps done and the share of the time used.

        Call it once before each step, and after the last.
        """
        self.elapsed = elapsed
        by_time = min(elapsed, self.progress + _MOST_PROGRESS)
        progress = max(self.progress, self.step / max_steps, by_time)
        self.progress = progress if progress < 1 - _ROUNDING else 1.0

    @property
    def is_over(self) -> bool:
        return self.progress >= 1

    def total_steps(self, planned: int) -> int:
        """How many steps the run will have: at first as planned, then more and more at its pace."""
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
        scored = [each for each in self.evaluations if each.best is not None]
        fair = [each for each in scored if not exceeds(each, memorised_limit)]
        return min(fair or scored, key=lambda each: each.best or 0.0, default=None)

    def stop_reason(self, patience: int, memorised_limit: float) -> str:
        """ "early" or "memorised" if the last evaluation ends the run; else empty."""
        if self.evaluations and exceeds(self.evaluations[-1], memorised_limit):
            return "memorised"
        scores = [each.best for each in self.evaluations if each.best is not None]
        if patience and scores and len(scores) - scores.index(min(scores)) > patience:
            return "early"
        return ""

    def state(self) -> dict[str, object]:
        """The state for a checkpoint."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "evaluations": [asdict(each) for each in self.evaluations],
            "divergence": self.divergence.state(),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "RunRecord":
        """Make a record from the state in a checkpoint."""
        return cls(
            **{name: state[name] for name in _PLAIN},
            evaluations=[Evaluation(**each) for each in state["evaluations"]],
            divergence=DivergenceDetector.restored(state["divergence"]),
        )


_PLAIN = ("step", "tokens", "seconds", "elapsed", "progress", "lr_factor", "setbacks", "stopped")


def exceeds(evaluation: Evaluation, memorised_limit: float) -> bool:
    """Whether the model memorised more than the limit; 0 means no limit."""
    return bool(memorised_limit) and (evaluation.memorised or 0.0) > memorised_limit
