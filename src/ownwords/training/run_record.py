"""What a run knows about itself beside its tensors; a checkpoint holds it as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ownwords.training import deadline
from ownwords.training.deadline import ShortenedRun
from ownwords.training.divergence import DivergenceDetector


@dataclass(frozen=True)
class Evaluation:
    """What the held-out text said after so many steps."""

    step: int
    tokens: int  # trained on by then
    bits_per_byte: float | None  # None: nothing is held out
    averaged_bits_per_byte: float | None = None  # of the averaged weights, where they are kept
    memorised: float | None = None

    @property
    def best(self) -> float | None:
        """The better of the two."""
        found = [b for b in (self.bits_per_byte, self.averaged_bits_per_byte) if b is not None]
        return min(found) if found else None

    @property
    def is_averaged_better(self) -> bool:
        return self.best is not None and self.best != self.bits_per_byte


@dataclass
class RunRecord:
    """Where a run stands. `step` is the number of steps done."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    rate_scale: float = 1.0
    setbacks: int = 0
    stopped: str = ""  # why, once it has
    evaluations: list[Evaluation] = field(default_factory=list)
    watch: DivergenceDetector = field(default_factory=DivergenceDetector)
    cut: ShortenedRun | None = None  # made where the time did not suffice for the steps planned

    def steps(self, planned: int) -> int:
        """How many there are in all."""
        return self.cut.steps if self.cut else planned

    def position(self, planned: int) -> float:
        """Where the next step stands in the planned course."""
        return deadline.position(self.step, planned, self.cut)

    def is_evaluated(self) -> bool:
        """Whether the weights as they are have been evaluated."""
        return bool(self.evaluations) and self.evaluations[-1].step == self.step

    def best(self, memorised_limit: float) -> Evaluation | None:
        """The evaluation with the fewest bits, the earlier of two alike.

        One over the limit of what may be memorised only where all are.
        """
        scored = [each for each in self.evaluations if each.best is not None]
        fair = [each for each in scored if not is_over(each, memorised_limit)]
        return min(fair or scored, key=lambda each: each.best or 0.0, default=None)

    def why_stop(self, patience: int, memorised_limit: float) -> str:
        """ "early" or "memorised" if the last evaluation ends the run; else empty."""
        if self.evaluations and is_over(self.evaluations[-1], memorised_limit):
            return "memorised"
        scored = [each.best for each in self.evaluations if each.best is not None]
        if patience and scored and len(scored) - scored.index(min(scored)) > patience:
            return "early"
        return ""

    def state(self) -> dict[str, object]:
        """For a checkpoint."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "rate_scale": self.rate_scale,
            "setbacks": self.setbacks,
            "stopped": self.stopped,
            "evaluations": [asdict(each) for each in self.evaluations],
            "watch": self.watch.state(),
            "cut": asdict(self.cut) if self.cut else None,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "RunRecord":
        """As it was when `state` was taken."""
        return cls(
            **{
                **state,
                "evaluations": [Evaluation(**each) for each in state["evaluations"]],
                "watch": DivergenceDetector.restored(state["watch"]),
                "cut": ShortenedRun(**cut) if (cut := state.get("cut")) else None,
            }
        )


def is_over(evaluation: Evaluation, memorised_limit: float) -> bool:
    """Whether more was learned by heart than may be; a limit of 0 is none."""
    return bool(memorised_limit) and (evaluation.memorised or 0.0) > memorised_limit
