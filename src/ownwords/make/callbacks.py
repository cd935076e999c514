"""Whoever looks on while a model is made, and what there is to be told."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ownwords.archive.report import PostSummary, Report

if TYPE_CHECKING:
    from ownwords.evaluation.scorecard import Scorecard
    from ownwords.make.result import TrainingSummary
    from ownwords.training.plan import Plan


class MakeCallbacks:
    """Told of each thing as soon as it is known; this one keeps it to itself.

    `seconds` is what a stage took; None where it was done before and only found again.
    """

    def on_read(self, report: Report, seconds: float) -> None:
        """The texts are read."""

    def on_changed(self, sentence: str) -> None:
        """Something is not as it was when a model was made here before, if one was."""

    def on_new_language(self) -> None:
        """The texts are in another language than what the base in the box has read."""

    def on_planned(self, plan: "Plan", base: str) -> None:
        """The plan is made; `base` is the name of what is tuned. What this raises ends the work."""

    def on_trained(self, trained: "TrainingSummary", seconds: float | None) -> None:
        """The model is saved."""

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        """It writes on from a title, or with an empty one a new text; the pieces are to be read."""
        for _ in pieces:
            pass

    def on_comparison_start(self, seconds: float) -> None:
        """A model from nothing is trained beside it, for so long."""

    def on_comparison_end(
        self, trained: "TrainingSummary | None", why_not: str, seconds: float | None
    ) -> None:
        """What that one came to; or why there is none."""

    def on_ablation_start(self, post: PostSummary, seconds: float) -> None:
        """A model is trained that learns all of a post, of which the author's learned less."""

    def on_ablation_end(
        self, trained: "TrainingSummary | None", why_not: str, seconds: float | None
    ) -> None:
        """What that one came to; or why there is none."""

    def on_scoring_start(self, seconds: float) -> None:
        """The model is being scored, which takes about so long."""

    def on_scored(self, card: "Scorecard", seconds: float | None) -> None:
        """The scorecard is written."""
