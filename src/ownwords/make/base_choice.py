"""Chooses the base that `ownwords make` starts from, and another if it cannot be trained."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from ownwords.archive.corpus import Corpus, TrainingText
from ownwords.base import catalogue
from ownwords.base.expected_bits import BaseChoice, ExpectedBits, TuningTask, choose_base
from ownwords.base.trimming import REFERENCE
from ownwords.core import hardware
from ownwords.core.progress import duration
from ownwords.evaluation.lexicon import Lexicon, is_in_the_language
from ownwords.make.make_request import MakeRequest
from ownwords.make.stage_cache import StageCache

_STAGE = "base"
_SAMPLED_TEXTS = 50


def choose(request: MakeRequest, texts: Corpus, cache: StageCache) -> BaseChoice | None:
    """The best installed base, or what was chosen before for the same; None if none is measured."""
    depends_on = _inputs(request, texts)
    choice = cache.get(_STAGE, depends_on, BaseChoice)
    if choice is None:
        task = TuningTask(
            seconds=request.minutes * 60,
            text_bytes=texts.train.bytes,
            is_english=not is_new_language(request.base, texts.train),
            flops_per_s=ExpectedBits.load().flops_per_s(request.device),
            memory_bytes=hardware.read_memory().available_bytes or math.inf,
        )
        choice = choose_base(task, catalogue.entries())
        if choice:
            cache.put(_STAGE, depends_on, choice, 0.0)
    return choice


def can_use_built_in(request: MakeRequest, texts: Corpus) -> bool:
    """Whether the base was chosen here, and the built-in one has read the language."""
    if request.base is None or not request.chooses_base or not catalogue.has_shipped():
        return False
    built_in = catalogue.shipped()
    return request.base != built_in and not is_new_language(built_in, texts.train)


def choose_built_in(request: MakeRequest, texts: Corpus, cache: StageCache) -> BaseChoice:
    """Choose the built-in base instead of the request's; the same command then does so, too."""
    name = cast(Path, request.base).name
    sentences = (
        f"This machine's speed and free memory do not allow to train {name} in"
        f" {duration(request.minutes * 60)}: {catalogue.SHIPPED_TITLE} takes its place.",
        f"With more minutes: `--base {name}`.",
    )
    choice = BaseChoice(catalogue.SHIPPED, str(catalogue.shipped()), sentences)
    cache.put(_STAGE, _inputs(request, texts), choice, 0.0)
    return choice


def is_new_language(base: Path | None, texts: Iterable[TrainingText]) -> bool:
    """Whether the base is the built-in English model and the texts are not in English."""
    if base is None or catalogue.called(base) != catalogue.SHIPPED_TITLE:
        return False
    every = [text.text for text in texts]
    # Spread over all: who writes in two languages may have begun with one.
    sample = every[:: -(-len(every) // _SAMPLED_TEXTS) or 1]
    return not is_in_the_language(sample, Lexicon.load(REFERENCE).frequent)


def _inputs(request: MakeRequest, texts: Corpus) -> dict[str, str]:
    """What the choice depends on."""
    return {
        "texts": texts.key,
        "minutes": f"{request.minutes:g}",
        "bases": " ".join(f"{entry.name} {entry.bytes}" for entry in catalogue.entries()),
    }
