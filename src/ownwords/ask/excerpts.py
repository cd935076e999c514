"""Chooses what to show of a passage: the sentences, list items and code that answer a question."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ownwords.ask.passage import RetrievedPassage
from ownwords.ask.sentence_matching import Span, query_stems, stems
from ownwords.ask.sentence_model import SentenceModel
from ownwords.ask.windows import is_code, units

if TYPE_CHECKING:
    from ownwords.ask.embedders import Embedder

# What answers often stands after what the question names: a unit gains this share of the score of
# the one before it, and code all of it.
_BEFORE_SHARE = 0.3
_MOST_EMBEDDED = 24  # units of a passage


def best_units(
    question: str, text: str, limit: int = 2, cosines: Sequence[float] = ()
) -> list[Span]:
    """The units of a text that match a question best, in order; none if none matches.

    Each word is weighted by 1 / the number of units that contain it. `cosines` are those of the
    first units to the question, where there is an embedder.
    """
    asked = query_stems(question)
    spans = units(text)
    words = [asked & set(stems(text[begin:end])) for begin, end in spans]
    in_units = Counter(word for each in words for word in each)
    own = [sum(1 / in_units[word] for word in each) for each in words]
    most = max(own, default=0) or 1.0
    scores: list[float] = []
    for at, (begin, end) in enumerate(spans):
        before = own[at - 1] if at else 0.0
        gained = before * (1.0 if is_code(text[begin:end]) else _BEFORE_SHARE)
        scores.append((own[at] + gained) / most + (cosines[at] if at < len(cosines) else 0.0))
    matched = [at for at in range(len(spans)) if words[at] or at < len(cosines)]
    order = sorted(matched, key=lambda at: -scores[at])
    chosen: list[int] = []
    covered: set[str] = set()
    for at in order:
        # Each further unit must contain a word not yet covered, or be the code after the first.
        is_next = bool(chosen) and at == chosen[0] + 1 and is_code(text[slice(*spans[at])])
        if len(chosen) < limit and (not chosen or is_next or not words[at] <= covered):
            chosen.append(at)
            covered |= words[at]
    return [spans[at] for at in sorted(chosen)]


def matching_units(
    question: str, passages: Sequence[RetrievedPassage], embedder: "Embedder | None", limit: int = 2
) -> dict[int, list[Span]]:
    """`best_units` of each passage by its id, by words and, with an embedder, by vectors."""
    if not isinstance(embedder, SentenceModel):  # each sentence sent elsewhere would take too long
        return {each.id: best_units(question, each.text, limit) for each in passages}
    spans = [units(each.text)[:_MOST_EMBEDDED] for each in passages]
    texts = [
        each.text[begin:end]
        for each, some in zip(passages, spans, strict=True)
        for begin, end in some
    ]
    cosines = (embedder.embed_passages(texts) @ embedder.embed_question(question)).tolist()
    ends = np.cumsum([len(some) for some in spans]).tolist()
    return {
        each.id: best_units(question, each.text, limit, cosines[end - len(some) : end])
        for each, some, end in zip(passages, spans, ends, strict=True)
    }
