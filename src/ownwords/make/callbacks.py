"""Callbacks of `ownwords make`: what is reported while a model is made."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ownwords.archive.report import PostSummary, Report

if TYPE_CHECKING:
    from ownwords.evaluation.scorecard import Scorecard
    from ownwords.make.result import TrainingSummary
    from ownwords.training.plan import Plan


class MakeCallbacks:
    """Called as soon as each thing is known; the methods here ignore it.

    `seconds` is how long a stage took, None where its result was cached.
    """

    def on_read(self, report: Report, seconds: float) -> None:
        """The texts are read."""

    def on_changed(self, sentence: str) -> None:
        """Something differs from the last time a model was made here."""

    def on_new_language(self) -> None:
        """The texts are in another language than the built-in base was trained on."""

    def on_planned(self, plan: "Plan", base: str) -> None:
        """The plan is made; `base` names the model that is fine-tuned, "" for none."""

    def on_trained(self, trained: "TrainingSummary", seconds: float | None) -> None:
        """The model is saved."""

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        """The model writes, from a title if there is one; `pieces` must be consumed."""
        for _ in pieces:
            pass

    def on_comparison_start(self, seconds: float) -> None:
        """A model from scratch is about to be trained for so long, to compare with."""

    def on_comparison_end(
        self, trained: "TrainingSummary | None", error: str, seconds: float | None
    ) -> None:
        """That model is trained, or `error` says why it cannot be."""

    def on_ablation_start(self, post: PostSummary, seconds: float) -> None:
        """A model is about to be trained on all of the dominant post, to compare with."""

    def on_ablation_end(
        self, trained: "TrainingSummary | None", error: str, seconds: float | None
    ) -> None:
        """That model is trained, or `error` says why it cannot be."""

    def on_scoring_start(self) -> None:
        """Scoring starts; its progress says how long it still takes."""

    def on_scored(self, card: "Scorecard", seconds: float | None) -> None:
        """The scorecard is written."""
