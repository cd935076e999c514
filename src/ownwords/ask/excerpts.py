"""Chooses what to show of a passage: the sentences, list items and code that answer a question."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from ownwords.ask.sentence_matching import Span, query_stems, stems
from ownwords.ask.windows import is_code, units, window_spans

SHOWN = 480  # characters of a passage, about five lines
_MARKED = 2  # units of a passage
# What answers often stands after what the question names: a unit gains this share of the words'
# score of the one before it, and code all of it.
_BEFORE_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class PassageExcerpt:
    """What to show of a passage: the `span` of adjacent units, about `SHOWN` characters.

    `matching` are the spans of the units that match the question best, best first; they may stand
    outside of `span`.
    """

    span: Span
    matching: tuple[Span, ...]


def excerpt_of(question: str, text: str, cosines: Sequence[float] = ()) -> PassageExcerpt:
    """What to show of a passage, by words and by the `cosines` of its windows, if there are any."""
    spans = units(text)
    if not spans:
        return PassageExcerpt((0, 0), ())
    asked = query_stems(question)
    words = [asked & set(stems(text[begin:end])) for begin, end in spans]
    in_units = Counter(word for each in words for word in each)
    own = [sum(1 / in_units[word] for word in sorted(each)) for each in words]
    most = max(own) or 1.0
    nearness = _of_units(text, spans, cosines)
    scores: list[float] = []
    for at, (begin, end) in enumerate(spans):
        before = own[at - 1] if at else 0.0
        gained = before * (1.0 if is_code(text[begin:end]) else _BEFORE_SHARE)
        scores.append((own[at] + gained) / most + nearness[at])
    matched = [at for at in range(len(spans)) if words[at] or nearness[at]]
    chosen: list[int] = []
    covered: set[str] = set()
    for at in sorted(matched, key=lambda at: -scores[at]):
        # Each further unit must contain a word not yet covered, or be the code after the first.
        is_next = bool(chosen) and at == chosen[0] + 1 and is_code(text[slice(*spans[at])])
        if len(chosen) < _MARKED and (not chosen or is_next or not words[at] <= covered):
            chosen.append(at)
            covered |= words[at]
    return PassageExcerpt(_best_run(text, spans, scores), tuple(spans[at] for at in chosen))


def _of_units(text: str, spans: Sequence[Span], cosines: Sequence[float]) -> list[float]:
    """The cosine of the window that each unit begins in; 0 without cosines."""
    windows = window_spans(text)
    if len(windows) != len(cosines):  # none, or of another text
        return [0.0] * len(spans)
    ends = [end for _, end in windows]
    return [cosines[min(bisect_right(ends, begin), len(ends) - 1)] for begin, _ in spans]


def _best_run(text: str, spans: Sequence[Span], scores: Iterable[float]) -> Span:
    """The adjacent units that fit into `SHOWN` with the highest sum of score * sqrt(length).

    The root keeps a few short units from outweighing a long one, and the reverse. Of 29 passages
    with a known answer, 480 characters from the best unit on contain it in 24, these in all
    (docs/log.md).
    """
    lengths = [
        min(end - begin, SHOWN // 2) if is_code(text[begin:end]) else end - begin
        for begin, end in spans
    ]
    values = [max(0.0, score) * sqrt(size) for score, size in zip(scores, lengths, strict=True)]
    best, best_value = (0, 0), -1.0
    for first in range(len(spans)):
        size = value = 0.0
        for last in range(first, len(spans)):
            size += lengths[last]
            if size > SHOWN and last > first:
                break
            value += values[last]
            if value > best_value:
                best, best_value = (first, last), value
    return spans[best[0]][0], spans[best[1]][1]
