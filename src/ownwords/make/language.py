"""Whether the base in the box has read the language that some texts are in: it knows English."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from ownwords.base import catalogue
from ownwords.evaluation.lexicon import Lexicon, is_in_the_language
from ownwords.make.scoring import REFERENCE
from ownwords.training.shards import TrainingText

_LOOKED_AT = 50  # texts: more would only say the same


def is_new_to(base: Path | None, texts: Iterable[TrainingText]) -> bool:
    """Whether this is the base in the box, and the texts are in another language than English."""
    if base is None or catalogue.called(base) != catalogue.BOXED:
        return False
    some = [one.text for one in islice(texts, _LOOKED_AT)]
    return not is_in_the_language(some, Lexicon.load(REFERENCE).frequent)
