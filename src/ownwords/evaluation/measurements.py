"""Raw measurements of a model, as they are cached before the scorecard is built."""

from dataclasses import dataclass

from ownwords.evaluation.intervals import Estimate


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """The prompt of a sample: empty, or the beginning of a held-out post."""

    prompt: str
    seed: int
    post: str = ""  # its id


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The samples that a model writes."""

    prompts: tuple[SamplePrompt, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class SampledTexts:
    """The texts of a prompt set, in its order, and whether a copy guard was in force."""

    texts: tuple[str, ...]
    has_guard: bool


@dataclass(frozen=True, slots=True)
class Extraction:
    """Shares of passages that the model continues word for word from the words before them.

    `held_out` is the rate by chance, on posts the model was not trained on.
    """

    words: int  # given, and as many to be continued
    training: Estimate
    held_out: Estimate


@dataclass(frozen=True, slots=True)
class CopiedRun:
    """A passage of whole words and the id of the post that contains it; empty if there is none."""

    text: str
    words: int
    post: str


@dataclass(frozen=True, slots=True)
class CopyMeasurements:
    """Passages that samples and real held-out posts copy from training posts."""

    written: CopiedRun
    real: CopiedRun
