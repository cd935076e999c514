"""What `ownwords make` reports while it runs, and its result."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ownwords.archive.report import Report
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scorecard import Scorecard
from ownwords.make import scoring
from ownwords.make.paragraph import FirstParagraph
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import PROVENANCE
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.untrusted_files import read_json
from ownwords.training.plan import Forecast
from ownwords.tune.verdict import percent

if TYPE_CHECKING:
    from ownwords.training.plan import Plan
    from ownwords.training.recipes import TrainedModel

Value = bool | int | float | str
_SAME = ("base", "settings")  # inputs that the search and the request must share


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
        return cls(
            key=key,
            run=made.run.folder.name,
            parameters=plan.recipe.model.parameters,
            steps=outcome.steps,
            tokens=outcome.tokens,
            epochs=round(plan.expected.epochs_of(outcome.tokens), 2),
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

    def on_trained(self, trained: TrainingSummary, seconds: float | None) -> None:
        """Called when the model is saved."""

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        """Called when the model starts to write, with the title or ""; must consume `pieces`."""
        for _ in pieces:
            pass

    def on_comparison_start(self, seconds: float) -> None:
        """Called before a model is trained from scratch for about `seconds`, for comparison."""

    def on_comparison_end(
        self, trained: TrainingSummary | None, error: str, seconds: float | None
    ) -> None:
        """Called when that model is trained; if it cannot be, `error` says why."""

    def on_scoring_start(self) -> None:
        """Called when scoring starts; `Progress` reports how far it is."""

    def on_scored(self, card: Scorecard, seconds: float | None) -> None:
        """Called when the scorecard is written."""


# --- the model that `ownwords tune` installed, which `ownwords make` keeps ------------------------


@dataclass(frozen=True)
class TunedModel:
    """The winner of a search, summarised like a model that `ownwords make` has trained."""

    trained: TrainingSummary
    seconds: float  # duration of its training
    sentence: str  # for the user: where the model comes from


def find_tuned_model(folder: Path, wanted: Mapping[str, str], posts: int) -> TunedModel | None:
    """The model in the folder if a search with the same texts, base and settings made it."""
    try:
        provenance = read_json(readable_dir(folder) / PROVENANCE)
        search = provenance["tune"]
        if provenance["corpus"] != wanted["texts"]:
            return None
        if not isinstance(search, dict) or any(search[name] != wanted[name] for name in _SAME):
            return None
        trained = _summary(provenance, search, model_fingerprint(folder), posts)
        seconds = float(cast("dict[str, Any]", provenance["outcome"])["seconds"])
        return TunedModel(trained, seconds, _sentence(search))
    except (OwnwordsError, OSError, LookupError, TypeError, ValueError):
        return None  # no tuned model, or written by another version


def _summary(
    provenance: Mapping[str, Any], search: Mapping[str, Any], key: str, posts: int
) -> TrainingSummary:
    outcome, share = provenance["outcome"], provenance["share_of_tuned_weights"]
    expected = decode(Forecast, provenance["expected"], unknown="ignore")
    return TrainingSummary(
        key=key,
        run=search["run"],
        parameters=provenance["recipe"]["model"]["parameters"],
        steps=outcome["steps"],
        tokens=outcome["tokens"],
        epochs=round(expected.epochs_of(outcome["tokens"]), 2),
        stopped=outcome["stopped"],
        bits_per_byte=outcome["validation_bits_per_byte"],
        before=outcome["validation_bits_per_byte_before"],
        share=1.0 if share is None else share,
        plan=tuple(
            PlanValue(n["key"], n["value"], n["reason"], n["source"]) for n in provenance["plan"]
        ),
        expected=expected.sentences(),
        judged=tuple(provenance["compared"]),
        posts=posts,
    )


def _sentence(search: Mapping[str, Any]) -> str:
    trial, trials = search["trial"], search["trials"]
    if search["verdict"] == "better":
        what = f"trial {trial} has {percent(search['gain'])} fewer bits per byte than the plan"
    elif search["verdict"] == "instead":
        what = f"trial {trial} is the best of {trials}"
    else:
        what = f"the plan's own settings, out of {trials} choices"
    return (
        f"`ownwords tune` found the model that is here: {what}. It is kept; other --minutes train a"
        " new one."
    )
