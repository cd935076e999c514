"""Figures as they are measured and kept, before they are put together for readers."""

from dataclasses import dataclass

from ownwords.evaluation.baselines import Baseline


@dataclass(frozen=True, slots=True)
class Baselines:
    """What makes do without a neural network."""

    rows: tuple[Baseline, ...]


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """How a text is to begin: with nothing, or as a held-out post does."""

    prompt: str
    seed: int
    post: str = ""  # its id


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The texts a model is to write."""

    beginnings: tuple[SamplePrompt, ...]
    tokens: int

    @property
    def key(self) -> str:
        return repr(self)

    def by_prompt(self) -> list[tuple[str, list[int]]]:
        """Each prompt with its seeds, those of one prompt being written together."""
        seeds: dict[str, list[int]] = {}
        for one in self.beginnings:
            seeds.setdefault(one.prompt, []).append(one.seed)
        return list(seeds.items())


@dataclass(frozen=True, slots=True)
class SampledTexts:
    """Texts a model wrote, in the order in which they were asked for; had it a copy guard?"""

    texts: tuple[str, ...]
    has_guard: bool


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """Shares of passages gone on with word for word, and how many independent ones were tried."""

    prefix: int
    length: int
    training: float
    training_passages: int
    held_out: float
    held_out_passages: int


@dataclass(frozen=True, slots=True)
class CopiedRun:
    """A passage in whole words, and the id of the post it stands in; empty where there is none."""

    text: str
    words: int
    post: str


@dataclass(frozen=True, slots=True)
class NewShare:
    """Of runs of `n` words, the share that no post learned from holds."""

    n: int
    written: float
    real: float


@dataclass(frozen=True, slots=True)
class CopyMeasurements:
    """What of the texts written, and of real held-out posts, stands in posts learned from."""

    written: CopiedRun
    real: CopiedRun
    novelty: tuple[NewShare, ...]
    words: int  # written
