"""What is measured on a model itself: loaded when the first figure is asked for, and only then."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ownwords.core.errors import OwnwordsError
from ownwords.evaluation import bits_per_byte
from ownwords.evaluation.bits_per_byte import AdaptConfig
from ownwords.evaluation.measurements import (
    CopiedRun,
    CopyMeasurements,
    ExtractionResult,
    NewShare,
    PromptSet,
    SampledTexts,
)
from ownwords.evaluation.memorisation import extraction, novelty, words
from ownwords.evaluation.scores import Score
from ownwords.evaluation.verbatim import longest_run
from ownwords.inference.model import Model
from ownwords.models import bundle
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.tokenizer import Tokenizer

# Stands between texts that are searched together; in none of them.
_BORDER = "\x00"
# A passage does not begin or end with what only parts words.
_BETWEEN = " \n\t.,;:!?…—–-"


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Documents as ids, laid end to end, in memory."""

    ids: npt.NDArray[np.int64]
    offsets_D1: npt.NDArray[np.int64]  # noqa: N815
    bytes_D: npt.NDArray[np.int64]  # noqa: N815
    names: tuple[str, ...]


class ModelMetrics:
    """A model directory that is being judged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def model(self) -> CausalLM:
        return self._loaded[0]

    @property
    def tokenizer(self) -> Tokenizer:
        return self._loaded[1]

    def score(self, texts: Sequence[str], names: Sequence[str]) -> Score:
        """The static figure, as `bits_per_byte.score` has it."""
        return self._sound(bits_per_byte.score(self.model, self.tokenizer, texts, names=names))

    def adapting(self, texts: Sequence[str], names: Sequence[str], rate: float) -> Score:
        """The adaptive figure of `score_adapting`; nothing is carried to the next post."""
        # As of the compressors beside it: what one post taught would make the next one easier.
        config = AdaptConfig(rate=rate, carry=False)
        return self._sound(
            bits_per_byte.score_adapting(self.model, self.tokenizer, texts, config, names=names)
        )

    def extracted(
        self, training: Sequence[str], held_out: Sequence[str], samples: int
    ) -> ExtractionResult:
        """How many passages it goes on with word for word, of each kind."""
        learned, unseen = self._encoded(training), self._encoded(held_out)
        found = extraction(self.model, learned, unseen, samples=samples)
        passage = found.prefix + found.length

        def independent(documents: _Encoded) -> int:
            # Passages that overlap are no witnesses of their own.
            room = int((np.diff(documents.offsets_D1) // passage).sum())
            return min(samples, room)

        return ExtractionResult(
            prefix=found.prefix,
            length=found.length,
            training=found.training,
            training_passages=independent(learned),
            held_out=found.held_out,
            held_out_passages=independent(unseen),
        )

    def written(self, asked: PromptSet, *, guarded: bool) -> SampledTexts:
        """What it writes on from each beginning, as `ownwords write` would have it."""
        writer = self._writer
        texts: dict[tuple[str, int], str] = {}
        for prompt, seeds in asked.by_prompt():
            found = writer.write_several(
                prompt, seeds=seeds, max_tokens=asked.tokens, quote=not guarded
            )
            texts |= {(prompt, seed): text for seed, text in zip(seeds, found, strict=True)}
        return SampledTexts(
            tuple(texts[one.prompt, one.seed] for one in asked.beginnings),
            writer.guard is not None,
        )

    @cached_property
    def _loaded(self) -> tuple[CausalLM, Tokenizer]:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = bundle.load(self.folder, device=device)
        tokenizer = tokenizers.from_files(found.tokenizer_files)
        found.check_tokenizer(tokenizer)
        return found.model.float(), tokenizer

    @cached_property
    def _writer(self) -> Model:
        return Model.load(self.folder)

    def _encoded(self, texts: Sequence[str]) -> _Encoded:
        rows = bits_per_byte.encode(self.tokenizer, texts)
        lengths = [len(row) for row in rows]
        return _Encoded(
            ids=np.concatenate([*rows, np.zeros(0, np.int64)]),
            offsets_D1=np.cumsum([0, *lengths]),
            bytes_D=np.array([len(text.encode()) for text in texts], np.int64),
            names=tuple(str(i) for i in range(len(texts))),
        )

    def _sound(self, score: Score) -> Score:
        if not np.isfinite(score.nats):
            raise OwnwordsError(
                f"{self.folder} gives probabilities that are no numbers: its weights are damaged",
                hint="copy the model's folder again, or train it again",
            )
        return score


def copies(
    written: Sequence[str], held_out: Sequence[str], training: Sequence[str], ids: Sequence[str]
) -> CopyMeasurements:
    """What stands in posts learned from, of texts written and of real held-out posts."""
    documents = dict(zip(ids, training, strict=True))

    def longest(texts: Sequence[str]) -> CopiedRun:
        joined = _BORDER.join(texts)
        found = longest_run(joined, training, ids)
        if not found.text:
            return CopiedRun("", 0, "")
        passage = whole_words(found.text, joined, documents[found.document])
        return CopiedRun(passage, len(words(passage)), found.document)

    figures = novelty(written, held_out, training)
    return CopyMeasurements(
        written=longest(written),
        real=longest(held_out),
        novelty=tuple(NewShare(one.n, one.generated, one.held_out) for one in figures),
        words=sum(len(words(text)) for text in written),
    )


def whole_words(passage: str, *texts: str) -> str:
    """A passage of these texts without the parts of words that it begins and ends with."""
    begins, ends = 0, len(passage)
    for text in texts:
        at = text.index(passage)
        if at and _in_word(text[at - 1]):
            begins = max(begins, _run_of(passage))
        after = at + len(passage)
        if after < len(text) and _in_word(text[after]):
            ends = min(ends, len(passage) - _run_of(passage[::-1]))
    return passage[begins:ends].strip(_BETWEEN)


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "_'’"


def _run_of(text: str) -> int:
    """How many letters of a word a text begins with."""
    return next((i for i, letter in enumerate(text) if not _in_word(letter)), len(text))
