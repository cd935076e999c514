"""Figures measured on a model itself, which is loaded when the first one is requested."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from ownwords.core.errors import OwnwordsError
from ownwords.evaluation import bits_per_byte
from ownwords.evaluation.measurements import (
    CopiedRun,
    CopyMeasurements,
    Extraction,
    PromptSet,
    SampledTexts,
)
from ownwords.evaluation.memorisation import extraction, words
from ownwords.evaluation.scores import Score
from ownwords.evaluation.verbatim import longest_run
from ownwords.inference.engine_loader import choose_device
from ownwords.inference.model import Model
from ownwords.inference.text_generation import generate_texts
from ownwords.models import bundle, fused
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.tokenizer import Tokenizer

# Separates texts that are joined for one search; occurs in none of them.
_SEPARATOR = "\x00"
# Stripped from both ends of a passage.
_PUNCTUATION = " \n\t.,;:!?…—–-"


class ModelMetrics:
    """Measures one model directory."""

    def __init__(self, folder: Path, device: str = "auto") -> None:
        self.folder, self.device = folder, device

    def score(self, texts: Sequence[str], names: Sequence[str]) -> Score:
        """The static score, as `bits_per_byte.score` defines it."""
        model, tokenizer = self._model_and_tokenizer
        return self._checked(bits_per_byte.score(model, tokenizer, texts, names=names))

    def extraction(
        self, training: Sequence[str], held_out: Sequence[str], samples: int
    ) -> Extraction:
        """Measure the share of passages of each kind that the model continues word for word."""
        model, tokenizer = self._model_and_tokenizer
        return extraction(model, tokenizer, training, held_out, samples=samples)

    def samples(
        self, prompts: PromptSet, *, guarded: bool, on_tokens: Callable[[int], object]
    ) -> SampledTexts:
        """The texts that `ownwords write` would write for these prompts."""
        writer = self._writer
        requests = [
            writer.request(
                sample.prompt, max_tokens=prompts.max_tokens, seed=sample.seed, quote=not guarded
            )
            for sample in prompts.prompts
        ]
        texts = generate_texts(writer.engine, writer.tokenizer, requests, on_tokens=on_tokens)
        return SampledTexts(tuple(texts), writer.guard is not None)

    @cached_property
    def _model_and_tokenizer(self) -> tuple[CausalLM, Tokenizer]:
        device = choose_device(self.device, self.folder)
        loaded = bundle.load(self.folder, device=device)
        tokenizer = tokenizers.Tokenizer(loaded.tokenizer_files)
        loaded.check_tokenizer(tokenizer)
        model = loaded.model
        # In bfloat16 Gemma 3 270M takes .02% more bits than in float32, a third of the time, and
        # 450 MB less (docs/log.md).
        if not fused.is_fast_bf16(next(model.parameters())):
            model.float()
        return model, tokenizer

    @cached_property
    def _writer(self) -> Model:
        return Model.load(self.folder, device=self.device)

    def _checked(self, score: Score) -> Score:
        if not np.isfinite(score.nats):
            raise OwnwordsError(
                f"the probabilities of {self.folder} are not finite: its weights are damaged",
                hint="copy the model's folder again, or train it again",
            )
        return score


def copies(
    written: Sequence[str], held_out: Sequence[str], training: Sequence[str], ids: Sequence[str]
) -> CopyMeasurements:
    """Measure how much generated texts and real held-out posts copy from training posts."""
    documents = dict(zip(ids, training, strict=True))

    def longest(texts: Sequence[str]) -> CopiedRun:
        joined = _SEPARATOR.join(texts)
        match = longest_run(joined, training, ids)
        if not match.text:
            return CopiedRun("", 0, "")
        passage = whole_words(match.text, joined, documents[match.document])
        return CopiedRun(passage, len(words(passage)), match.document)

    return CopyMeasurements(longest(written), longest(held_out))


def whole_words(passage: str, *texts: str) -> str:
    """Strip from a passage of these texts the partial words at its ends."""
    begin, end = 0, len(passage)
    for text in texts:
        at = text.index(passage)
        if at and _in_word(text[at - 1]):
            begin = max(begin, _word_length(passage))
        after = at + len(passage)
        if after < len(text) and _in_word(text[after]):
            end = min(end, len(passage) - _word_length(passage[::-1]))
    return passage[begin:end].strip(_PUNCTUATION)


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "_'’"


def _word_length(text: str) -> int:
    """Return the number of word characters that a text begins with."""
    return next((i for i, letter in enumerate(text) if not _in_word(letter)), len(text))
