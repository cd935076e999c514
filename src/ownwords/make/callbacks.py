"""Callbacks through which `ownwords make` reports its progress."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ownwords.archive.report import Report

if TYPE_CHECKING:
    from ownwords.evaluation.scorecard import Scorecard
    from ownwords.make.result import TrainingSummary
    from ownwords.training.plan import Plan


class MakeCallbacks:
    """Base class of the callbacks, whose methods do nothing.

    `seconds` is the duration of a stage, None if its result was cached.
    """

    def on_read(self, report: Report, seconds: float) -> None:
        """Called when the texts are read."""

    def on_base_chosen(self, sentences: Sequence[str]) -> None:
        """Called when the base is chosen: which, what to expect, what a better one would cost."""

    def on_changed(self, sentence: str) -> None:
        """Called when the training differs from the last one in this workspace."""

    def on_new_language(self) -> None:
        """Called when the texts are in another language than the built-in base's training text."""

    def on_planned(self, plan: "Plan", base: str) -> None:
        """Called when the plan is made; `base` names the model to fine-tune, "" for none."""

    def on_trained(self, trained: "TrainingSummary", seconds: float | None) -> None:
        """Called when the model is saved."""

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        """Called when the model starts to write, with the title or ""; must consume `pieces`."""
        for _ in pieces:
            pass

    def on_comparison_start(self, seconds: float) -> None:
        """Called before a model is trained from scratch for about `seconds`, for comparison."""

    def on_comparison_end(
        self, trained: "TrainingSummary | None", error: str, seconds: float | None
    ) -> None:
        """Called when that model is trained; if it cannot be, `error` says why."""

    def on_scoring_start(self) -> None:
        """Called when scoring starts; `Progress` reports how far it is."""

    def on_scored(self, card: "Scorecard", seconds: float | None) -> None:
        """Called when the scorecard is written."""
