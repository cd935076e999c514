"""Detects texts in a language that the built-in base was not trained on."""

from collections.abc import Iterable
from pathlib import Path

from ownwords.base import catalogue
from ownwords.evaluation.lexicon import Lexicon, is_in_the_language
from ownwords.make.scoring import REFERENCE
from ownwords.training.corpus import TrainingText

_SAMPLED_TEXTS = 50


def is_new_to(base: Path | None, texts: Iterable[TrainingText]) -> bool:
    """Whether the base is the built-in English model and the texts are not in English."""
    if base is None or catalogue.called(base) != catalogue.BOXED:
        return False
    every = [text.text for text in texts]
    # Spread over all: who writes in two languages may have begun with one.
    sample = every[:: -(-len(every) // _SAMPLED_TEXTS) or 1]
    return not is_in_the_language(sample, Lexicon.load(REFERENCE).frequent)
