"""The result of `ownwords make` as dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ownwords.archive.report import Report
from ownwords.core.validation import encode
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scorecard import Scorecard
from ownwords.make import scoring
from ownwords.make.paragraph import FirstParagraph

if TYPE_CHECKING:
    from ownwords.training.recipes import TrainedModel

Value = bool | int | float | str


@dataclass(frozen=True)
class PlanValue:
    """A value of the training plan, with its reason and source."""

    key: str
    value: Value
    reason: str
    source: str


@dataclass(frozen=True)
class TrainingSummary:
    """The figures of a finished training; bits per byte are measured on the validation posts."""

    key: str  # fingerprint of the model directory
    run: str  # name of the run
    parameters: int
    steps: int
    tokens: int
    epochs: float  # passes over the author's texts
    stopped: str  # done | early | memorised
    bits_per_byte: float | None
    before: float | None  # bits per byte of the base; None for a model from scratch
    share: float  # weight of the tuned weights, where they are averaged with the base's
    plan: tuple[PlanValue, ...]
    expected: tuple[str, ...]
    judged: tuple[str, ...]  # sentences that compare the plan with the outcome
    posts: int  # number of posts in the archive

    @classmethod
    def of(cls, made: "TrainedModel", key: str, posts: int) -> "TrainingSummary":
        """Summarise a training that has just finished; `key` is the model's fingerprint."""
        plan, outcome = made.plan, made.outcome
        epochs = outcome.tokens / max(plan.expected.tokens, 1) * plan.expected.epochs
        return cls(
            key=key,
            run=made.run.folder.name,
            parameters=plan.recipe.model.parameters,
            steps=outcome.steps,
            tokens=outcome.tokens,
            epochs=round(epochs, 2),
            stopped=outcome.stopped,
            bits_per_byte=made.bits_per_byte,
            before=made.before,
            share=made.share,
            plan=tuple(PlanValue(n.key, n.value, n.reason, n.source) for n in plan.reasons),
            expected=plan.expected.sentences(),
            judged=made.judged,
            posts=posts,
        )


@dataclass(frozen=True)
class MakeResult:
    """The paths of the model, the result of each stage and the seconds each took.

    `scorecard` is None if no text was held out for testing.
    """

    workspace: Path
    model: Path
    report: Report
    trained: TrainingSummary
    paragraph: FirstParagraph
    compared: TrainingSummary | None  # the model from scratch
    scorecard: Scorecard | None
    seconds: Mapping[str, float]
    is_new: bool  # False if every stage was cached

    @property
    def report_page(self) -> Path:
        return Workspace(self.workspace).report_page

    @property
    def scorecard_page(self) -> Path:
        return self.workspace / scoring.PAGE

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data for JSON."""
        card = self.scorecard
        return {
            "workspace": str(self.workspace),
            "model": str(self.model),
            "report_page": str(self.report_page),
            "scorecard_page": str(self.scorecard_page) if card else None,
            "trained": encode(self.trained),
            "paragraph": encode(self.paragraph),
            "compared": encode(self.compared) if self.compared else None,
            "scorecard": card.to_dict() if card else None,
            "seconds": dict(self.seconds),
            "is_new": self.is_new,
        }
