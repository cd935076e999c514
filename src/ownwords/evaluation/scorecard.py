"""The scorecard as data: every figure on the page, in the terminal and in `--json`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ownwords.core.errors import ConfigError
from ownwords.core.validation import decode, encode
from ownwords.evaluation.fluency import Fluency
from ownwords.evaluation.intervals import Estimate
from ownwords.evaluation.voice import Voice

PAGE, DATA = "scorecard.html", "scorecard.json"  # the files of a workspace
# Names of rows.
OURS, BASE = "Your model", "Its base"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model, its training data and the posts it was measured on."""

    name: str  # of the blog
    model: str  # the model's folder
    base: str  # name of the base model; empty if trained from scratch
    parameters: int
    training_posts: int
    training_words: int
    training_bytes: int
    validation_posts: int
    test_posts: int  # held-out posts
    judged_posts: int  # number of test posts that were scored
    judged_bytes: int
    version: str
    made_on: str  # ISO day
    epochs: float | None = None  # the number of training epochs, if recorded


@dataclass(frozen=True, slots=True)
class BitsRow:
    """Bits per byte of one model on the held-out posts, with 95% intervals.

    `gain` is the difference in bits per byte by which our model is better on the same posts.
    """

    name: str
    how: str
    bits: float
    low: float | None  # None with too few posts
    high: float | None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class CopiedPassage:
    """The longest passage whose words occur in the same order in a training post."""

    text: str  # empty if there is none
    words: int
    title: str = ""
    day: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Memorised:
    """What the model has memorised, and what it copies."""

    words: int  # in the given prefix, and in the text to be reproduced
    training: Estimate  # share of training passages reproduced
    held_out: Estimate  # the same for held-out passages: the rate by chance
    unguarded: CopiedPassage
    guarded: CopiedPassage | None  # None without a guard
    real: CopiedPassage  # longest passage that held-out posts share with training posts


@dataclass(frozen=True, slots=True)
class WritingSample:
    """A text by the model, and one by its base with the same prompt and seed."""

    prompt: str  # empty: a new text
    seed: int
    tuned: str
    base: str | None  # None without a base
    title: str = ""  # of the held-out post whose beginning is the prompt


Topic = Literal["all", "prediction", "voice", "fluency", "copying"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A judgement in plain words, and its reasons."""

    about: Topic
    kind: str  # "writes like you"; see `verdict`
    sentence: str
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Everything measured about a model."""

    about: ModelFacts
    bits: tuple[BitsRow, ...]  # empty without held-out posts
    voice: Voice | None
    fluency: Fluency | None
    memorised: Memorised | None
    samples: tuple[WritingSample, ...]
    plan: tuple[str, ...] = ()  # forecasts of the training, and their outcomes
    notes: tuple[str, ...] = ()  # limits of the figures
    verdicts: tuple[Conclusion, ...] = ()  # overall conclusion first

    @property
    def verdict(self) -> Conclusion:
        return self.verdicts[0]

    @property
    def ours(self) -> BitsRow | None:
        return self.row(OURS)

    @property
    def base(self) -> BitsRow | None:
        return self.row(BASE)

    def row(self, name: str) -> BitsRow | None:
        return next((row for row in self.bits if row.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        return encode(self)


def read_scorecard(folder: Path) -> Scorecard | None:
    """Return the scorecard in a folder; None if it is missing, damaged, or of another version."""
    try:
        data = json.loads((folder / DATA).read_bytes())
        card = decode(Scorecard, data, unknown="ignore")
    except (OSError, ValueError, RecursionError, ConfigError):
        return None
    return card if card.verdicts else None
