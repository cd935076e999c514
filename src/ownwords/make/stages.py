"""The request of `ownwords make`, the results of its stages, and their cache."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ownwords.archive.report import Report
from ownwords.archive.settings import LookSettings
from ownwords.base import catalogue
from ownwords.core.config import resolve
from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import Workspace, translate_os_errors, write_atomically
from ownwords.evaluation.scorecard import PAGE, Scorecard
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.models.directory import model_fingerprint
from ownwords.models.model_library import ModelLibrary
from ownwords.training.settings import Recipe

if TYPE_CHECKING:
    from ownwords.training.plan import Plan
    from ownwords.training.trained_model import TrainedModel

T = TypeVar("T")

FINISHED = Path("runs", "make", "finished.json")  # of a workspace
MINUTES = 4.0  # until the texts are read, and the time that the best base needs is known
MAX_MINUTES = 10_000_000  # nineteen years
SCRATCH = "none"  # the base that means training from scratch
SCORING_SHARE = 0.35  # of the minutes, beside loading the models and the first paragraph
_QUICK_BELOW = 3.0  # minutes
_QUICK_SCORING = ScoreConfig(seeds=5, prompts=3, max_tokens=300, base_samples=2, passages=64)


def find_base(name: str) -> Path | None:
    """Return the folder of a base by name or path: "" is the built-in one, "none" gives None."""
    return None if name == SCRATCH else catalogue.find(name)


def check_minutes(minutes: float) -> None:
    """Raise ConfigError if the minutes are not positive, or too many."""
    if not minutes > 0:
        raise ConfigError(f"--minutes must be more than 0, not {minutes:g}")
    if minutes > MAX_MINUTES:
        raise ConfigError(f"--minutes must be at most {MAX_MINUTES:,}")


@dataclass(frozen=True)
class MakeRequest:
    """The texts, the base, the time and the settings.

    The minutes cover reading, planning and training, but not scoring.
    """

    paths: Sequence[Path]
    workspace: Path | None = None  # ./NAME.ownwords unless given
    minutes: float | None = None  # None: as many as the base needs, see `estimates.usual_minutes`
    base: str = ""  # a name or a path; "": the best installed one that there is time for
    name: str = ""  # of the model; without one it gets the workspace's, with a number
    trims: bool = True  # a large vocabulary to what the author writes
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's training settings
    reading: LookSettings = field(default_factory=LookSettings)
    scoring: ScoreConfig | None = None  # None: depends on the minutes
    device: str = "auto"

    @property
    def resolved_workspace(self) -> Workspace:
        return Workspace(self.workspace) if self.workspace else Workspace.default_for(self.paths[0])

    @property
    def resolved_minutes(self) -> float:
        return MINUTES if self.minutes is None else self.minutes

    @property
    def score_config(self) -> ScoreConfig:
        """How much to measure: less if the user has little time."""
        usual = ScoreConfig() if self.resolved_minutes >= _QUICK_BELOW else _QUICK_SCORING
        return self.scoring or replace(usual, seconds=SCORING_SHARE * 60 * self.resolved_minutes)

    def check(self) -> None:
        """Raise OwnwordsError for wrong minutes, settings or name, before reading texts."""
        check_minutes(self.resolved_minutes)
        resolve(Recipe, flags=self.fixed)
        if self.name:
            library = ModelLibrary(self.resolved_workspace.root)
            # When this is resumed, the current model has the name already.
            if not any(model.is_current and model.name == self.name for model in library.models()):
                library.check_name(self.name)


# --- the results of the stages --------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingSummary:
    """The figures of a finished training; bits per byte are measured on the validation posts."""

    key: str  # fingerprint of the model directory
    run: str  # name of the run
    parameters: int
    steps: int
    epochs: float  # passes over the author's texts
    stopped: str  # done | early
    bits_per_byte: float | None
    before: float | None  # bits per byte of the base; None for a model from scratch
    judged: tuple[str, ...]  # sentences that compare the plan with the outcome
    posts: int  # number of posts in the archive

    @classmethod
    def of(cls, made: "TrainedModel", posts: int) -> "TrainingSummary":
        """Summarise a training that has just ended."""
        plan, outcome = made.plan, made.outcome
        return cls(
            key=model_fingerprint(made.folder),
            run=made.run.folder.name,
            parameters=plan.recipe.model.parameters,
            steps=outcome.steps,
            epochs=round(plan.expected.epochs_of(outcome.tokens), 2),
            stopped=outcome.stopped,
            bits_per_byte=made.bits_per_byte,
            before=made.before,
            judged=made.judged,
            posts=posts,
        )


@dataclass(frozen=True)
class FirstParagraph:
    """A text and the title it continues; the title is "" if no test post has a usable one."""

    title: str
    text: str


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
    scorecard: Scorecard | None
    seconds: Mapping[str, float]
    is_new: bool  # False if every stage was cached

    @property
    def report_page(self) -> Path:
        return Workspace(self.workspace).report_page

    @property
    def scorecard_page(self) -> Path:
        return self.workspace / PAGE

    def to_dict(self) -> dict[str, Any]:
        card = self.scorecard
        return {
            "workspace": str(self.workspace),
            "model": str(self.model),
            "report_page": str(self.report_page),
            "scorecard_page": str(self.scorecard_page) if card else None,
            "trained": encode(self.trained),
            "paragraph": encode(self.paragraph),
            "scorecard": card.to_dict() if card else None,
            "seconds": dict(self.seconds),
            "is_new": self.is_new,
        }


CHANGED = "Changed"  # the label of a notice on the differences from the last training


class MakeCallbacks:
    """Base class of the callbacks, whose methods do nothing.

    `seconds` is the duration of a stage, None if its result was cached.
    """

    def on_read(self, report: Report, seconds: float) -> None:
        """Called when the texts are read."""

    def on_notice(self, label: str, text: str) -> None:
        """Called with news between the stages, such as which base was chosen."""

    def on_planned(self, plan: "Plan", base: str) -> None:
        """Called when the plan is made; `base` names the model to fine-tune, "" for none."""

    def on_trained(self, trained: TrainingSummary, seconds: float | None) -> None:
        """Called when the model is saved."""

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        """Called when the model starts to write, with the title or ""; must consume `pieces`."""
        for _ in pieces:
            pass

    def on_scored(self, card: Scorecard, seconds: float | None) -> None:
        """Called when the scorecard is written."""


# --- what is finished -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    depends_on: dict[str, str]
    seconds: float
    figures: dict[str, Any]


class StageCache:
    """The finished stages of a workspace, with their inputs; a damaged file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, _Entry] = {}
        try:
            for name, entry in json.loads(path.read_bytes()).items():
                self._entries[name] = decode(_Entry, entry)
        except (OSError, ValueError, AttributeError, RecursionError, ConfigError):
            self._entries = {}

    def get(self, stage: str, depends_on: Mapping[str, str], kind: type[T]) -> T | None:
        """Return the stage's result as a `kind` if its dependencies are equal, else None."""
        if self.inputs(stage) != depends_on:
            return None
        return self.latest(stage, kind)

    def latest(self, stage: str, kind: type[T]) -> T | None:
        """Return the stage's last result, whatever its dependencies were; None if there is none."""
        entry = self._entries.get(stage)
        try:
            return decode(kind, entry.figures, unknown="ignore") if entry else None
        except ConfigError:  # written by another version of ownwords
            return None

    def inputs(self, stage: str) -> Mapping[str, str]:
        """Return the dependencies of the stage's result; empty if the stage never finished."""
        entry = self._entries.get(stage)
        return entry.depends_on if entry else {}

    def seconds(self, stage: str) -> float:
        """Return the seconds that the stage took; 0 if it never finished."""
        entry = self._entries.get(stage)
        return entry.seconds if entry else 0.0

    def put(
        self, stage: str, depends_on: Mapping[str, str], figures: object, seconds: float
    ) -> None:
        """Store the result of a stage, replacing the file atomically."""
        self._entries[stage] = _Entry(dict(depends_on), round(seconds, 2), encode(figures))
        data = {name: encode(entry) for name, entry in self._entries.items()}
        with translate_os_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


# --- the first paragraph --------------------------------------------------------------------------

SEED = 1  # the first seed: the text is not the best of several
MAX_TOKENS = 300
# The text ends at the end of a paragraph after 350 characters, of a sentence after 700.
_ENDS = (
    re.compile(r"(?s).{349,}?\S(?=\s*\n)"),
    re.compile(r"(?s).{699,}?[.!?…][\"'”’)]*(?=\s)"),
)
_MIN_WORDS = 100  # of a post whose title is used
_TITLE_WORDS = range(2, 21)
_SHORT_TITLE = 9  # words; longer titles only if no test post has a short one


def title_for(report: Report) -> str:
    """Return the title of a test post, always the same one; "" if none is usable."""
    usable = {
        " ".join(post.title.split())
        for post in report.posts
        if post.split == "test"
        and post.decision != "leave out"
        and post.kind == "post"
        and post.own_words >= _MIN_WORDS
    }
    titles = [
        title for title in usable if len(title.split()) in _TITLE_WORDS and title.isprintable()
    ]
    return min(
        titles, key=lambda title: (len(title.split()) > _SHORT_TITLE, digest(title)), default=""
    )


def prompt_of(title: str) -> str:
    """Return the prompt for a text with this title, in the format of `archive.corpus`."""
    return f"{title}\n\n" if title else ""


def cut_at_paragraph(pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces up to the end of a paragraph, or of a sentence in a long paragraph.

    Leading and trailing whitespace is dropped. A shorter text is yielded in full.
    """
    text, shown = "", 0
    for piece in pieces:
        text = (text + piece).lstrip()
        ends = [match.end() for match in (end.match(text) for end in _ENDS) if match]
        whole = text[: min(ends, default=len(text))].rstrip()
        if len(whole) > shown:
            yield whole[shown:]
            shown = len(whole)
        if ends:
            return
