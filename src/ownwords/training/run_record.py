"""The progress of a run, which each checkpoint stores as JSON beside its tensors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ownwords.training import deadline
from ownwords.training.deadline import ShortenedRun
from ownwords.training.divergence import DivergenceDetector


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation after `step` steps."""

    step: int
    tokens: int  # trained on by then
    bits_per_byte: float | None  # None: nothing is held out
    averaged_bits_per_byte: float | None = None  # of the averaged weights, if there are any
    memorised: float | None = None  # fraction of the training text that the model can recite

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
    lr_factor: float = 1.0
    setbacks: int = 0
    stopped: str = ""  # the reason, once the run has ended
    evaluations: list[Evaluation] = field(default_factory=list)
    divergence: DivergenceDetector = field(default_factory=DivergenceDetector)
    shortened: ShortenedRun | None = None  # if the time was too short for the planned steps

    def steps(self, planned: int) -> int:
        """The total number of steps of the run."""
        return self.shortened.steps if self.shortened else planned

    def position(self, planned: int) -> float:
        """The position of the next step in the planned schedule."""
        return deadline.position(self.step, planned, self.shortened)

    def is_evaluated(self) -> bool:
        """Whether the current weights have been evaluated."""
        return bool(self.evaluations) and self.evaluations[-1].step == self.step

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
            "shortened": asdict(self.shortened) if self.shortened else None,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "RunRecord":
        """Make a record from the state in a checkpoint."""
        shortened = state["shortened"]
        return cls(
            **{name: state[name] for name in _PLAIN},
            evaluations=[Evaluation(**each) for each in state["evaluations"]],
            divergence=DivergenceDetector.restored(state["divergence"]),
            shortened=ShortenedRun(**shortened) if shortened else None,
        )


_PLAIN = ("step", "tokens", "seconds", "lr_factor", "setbacks", "stopped")


def exceeds(evaluation: Evaluation, memorised_limit: float) -> bool:
    """Whether the model memorised more than the limit; 0 means no limit."""
    return bool(memorised_limit) and (evaluation.memorised or 0.0) > memorised_limit
