"""Counts an author's stylistic habits, and compares them with other people and language models.

The section `voice` of the language's file lists what is counted, by group; this module adds the
lengths of sentences and paragraphs. Each rate is a count per word, sentence, paragraph or post.
`base/manner.py` at the root of the repository computes the rates of the others.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.core.text import sentences
from ownwords.evaluation.style import REFERENCE, reference_file
from ownwords.language.words import language, unpacked

Floats = npt.NDArray[np.float64]

_FREQUENT, _MIN_FREQUENT = 400, 0.35  # words, and their minimum share of a text in the language
_SHORT, _LONG = 6, 30  # words of a sentence
_CERTAIN = 2.0  # standard errors of a difference that is not due to chance
_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
# A paragraph that ends like one, and neither a heading nor a list.
_PROSE = re.compile(r"(?![*+#>|-]\s|\d+[.)]\s).*[.!?…:;,][\"'”»)\]*_]*\Z", re.DOTALL)
_FIRST = re.compile(r"[\s\"“‘'(*_]*([^\W\d_]+(?:'[^\W\d_]+)*)")
_CONTRACTED = re.compile(
    r"(?i:\w+n't|i'm|\w+'(?:re|ve|ll)|(?:it|that|there|here|what|he|she|let)'s)"
)
_FULL = re.compile(
    r"\b(?i:cannot|(?:do|does|did|is|are|was|were|have|has|had|could|would|should|will) not|I am"
    r"|(?:it|that|there) is|(?:we|you|they) are|(?:I|we|you|they) (?:will|have))(?= [a-z])"
)


class Measure(NamedTuple):
    """Something to count, and the denominator of its rate."""

    group: str
    label: str
    per: str  # "words", "sentences", "paragraphs", "texts" or "contractions"


class TextCounts(NamedTuple):
    """The counts of a text: of each measure, of its denominator, and of its words."""

    counts: Floats
    totals: Floats
    words: Counter[str]
    sentences: list[int]  # words of each
    paragraphs: list[int]


@cache
def measures(code: str = "en") -> tuple[Measure, ...]:
    """Return everything that is counted in a language, in order."""
    i = language(code)["first_person"]["label"]
    lengths = [
        Measure("lengths", "Words in a sentence", "sentences"),
        Measure("lengths", f"Sentences of up to {_SHORT} words", "sentences"),
        Measure("lengths", f"Sentences of more than {_LONG} words", "sentences"),
        Measure("lengths", "Words in a paragraph", "paragraphs"),
        Measure("lengths", "Paragraphs of one sentence", "paragraphs"),
        Measure("person", "Contractions, where there is a choice", "contractions"),
        Measure("ends", f"The first sentence has {i}", "texts"),
        Measure("ends", "The first sentence is a question", "texts"),
        Measure("ends", "Words in the first sentence", "texts"),
        Measure("ends", "The first paragraph is one sentence", "texts"),
        Measure("ends", f"The last sentence has {i}", "texts"),
        Measure("ends", "The last sentence asks or exclaims", "texts"),
        Measure("ends", "Words in the last sentence", "texts"),
        Measure("ends", "The last paragraph is one sentence", "texts"),
    ]
    listed = [
        Measure(group, label, "sentences" if group == "openings" else "words")
        for group, entries in language(code)["voice"].items()
        for label in entries
    ]
    return (*lengths, *listed)


@cache
def _listed(code: str) -> list[tuple[str, frozenset[str], re.Pattern[str] | None]]:
    """Return the group, the words and the regex of each measure in the language's file."""
    return [
        (group, frozenset(each.split()), re.compile(each) if group in ("marks", "asides") else None)
        for group, entries in language(code)["voice"].items()
        for each in entries.values()
    ]


def count_text(text: str, code: str = "en") -> TextCounts:
    """Count the prose paragraphs of a text in a language; blank lines separate paragraphs."""
    first_person = language(code)["first_person"]["words"]
    parts = map(str.strip, text.replace("’", "'").split("\n\n"))
    paragraphs = [part for part in parts if _PROSE.match(part)]
    text = "\n\n".join(paragraphs)
    words = Counter(map(str.lower, _TOKEN.findall(text)))
    lengths, per_paragraph, openings = list[int](), list[int](), Counter[str]()
    alone, ends = list[bool](), list[str]()
    for paragraph in paragraphs:
        spans = sentences(paragraph)
        sizes = [len(paragraph[start:end].split()) for start, end in spans]
        lengths += sizes
        per_paragraph.append(sum(sizes))
        alone.append(len(spans) == 1)
        ends += (paragraph[slice(*spans[0])], paragraph[slice(*spans[-1])])
        for start, _ in spans:
            if opening := _FIRST.match(paragraph, start):
                openings[opening[1].lower()] += 1
    contracted = full = 0
    if code == "en":
        contracted = sum(
            n for word, n in words.items() if "'" in word and _CONTRACTED.fullmatch(word)
        )
        full = len(_FULL.findall(text))
    number = {
        "words": words.total(),
        "sentences": len(lengths),
        "paragraphs": len(per_paragraph),
        "contractions": contracted + full,
        "texts": bool(paragraphs),
    }
    first, last = (ends[0], ends[-1]) if ends else ("", "")
    counts: list[float] = [
        sum(lengths),
        sum(size <= _SHORT for size in lengths),
        sum(size > _LONG for size in lengths),
        sum(per_paragraph),
        sum(alone),
        contracted,
        bool(re.search(first_person, first)),
        first.endswith("?"),
        len(first.split()),
        bool(alone and alone[0]),
        bool(re.search(first_person, last)),
        last.endswith(("?", "!")),
        len(last.split()),
        bool(alone and alone[-1]),
    ]
    for group, these, pattern in _listed(code):
        if pattern:
            counts.append(len(pattern.findall(text)))
        else:
            among = openings if group == "openings" else words
            counts.append(sum(among[word] for word in these))
    totals = [number[each.per] for each in measures(code)]
    return TextCounts(np.array(counts), np.array(totals, float), words, lengths, per_paragraph)


def rates(texts: Sequence[TextCounts]) -> tuple[Floats, Floats]:
    """Return the rate of each measure in all texts together, and its standard error.

    The error is that of a ratio over texts that differ, but at least that of chance alone.
    """
    counts, totals = (np.array([text[i] for text in texts]).reshape(len(texts), -1) for i in (0, 1))
    total = np.maximum(totals.sum(axis=0), 1)
    rate = counts.sum(axis=0) / total
    squares = ((counts - rate * totals) ** 2).sum(axis=0) * len(texts) / max(1, len(texts) - 1)
    error = np.sqrt(np.maximum(squares, counts.sum(axis=0) + 1)) / total
    return rate, error


@dataclass(frozen=True, eq=False)
class ReferenceManner:
    """The rates of others, and the frequencies of words with people and with language models."""

    labels: tuple[str, ...]
    people: Floats  # [source, measure]
    machines: Floats  # [measure], NaN if it was not counted
    words: tuple[str, ...]
    spread: Floats  # share of the people who use each word
    by_people: Floats
    by_machines: Floats

    code: str = "en"

    @classmethod
    @cache
    def load(cls, code: str = "en", folder: Path = REFERENCE) -> "ReferenceManner":
        packed = io.BytesIO(unpacked(folder / reference_file("manner", code)))
        with np.load(packed, allow_pickle=False) as stored:
            labels, words = (
                tuple(stored[name].tobytes().decode().split("\n")) for name in ("labels", "words")
            )
            names = ("people", "machines", "spread", "by_people", "by_machines")
            arrays = [stored[name].astype(float) for name in names]
            people, machines, spread, by_people, by_machines = arrays
            return cls(labels, people, machines, words, spread, by_people, by_machines, code)

    @cached_property
    def frequent(self) -> tuple[str, ...]:
        """The words that people use most, which identify the language of a text."""
        order = np.argsort(-self.by_people, kind="stable")[:_FREQUENT]
        return tuple(self.words[n] for n in order)

    def is_in_the_language(self, text: TextCounts) -> bool:
        """Whether enough of the text's words are frequent ones in this language."""
        known = sum(text.words[word] for word in self.frequent)
        return known >= _MIN_FREQUENT * text.words.total()


@dataclass(frozen=True, slots=True)
class Habit:
    """A rate of the author, compared with others."""

    group: str
    label: str
    per: str
    own: float
    error: float  # standard
    others: tuple[float, ...]  # one rate per reference author, in ascending order
    machines: float | None

    @property
    def middle(self) -> float:
        return float(np.median(self.others))

    @property
    def is_marked(self) -> bool:
        """Whether it is outside the middle half of others or unlike machines, beyond chance."""
        known = [self.middle] if self.machines is None else [self.middle, self.machines]
        if {self.said(each) for each in known} == {self.said(self.own)}:
            return False
        low, high = np.quantile(self.others, (0.25, 0.75))
        margin = _CERTAIN * self.error
        if self.own + margin < low or self.own - margin > high:
            return self.own >= 5 * self.error or self.middle >= 5 * self.error
        if self.machines is None or abs(self.own - self.machines) < margin:
            return False
        return max(self.own, self.machines) > 2 * min(self.own, self.machines) + margin

    @property
    def distance(self) -> float:
        """How far it is from others and from machines, as the logarithm of a factor."""
        others = (self.middle, *([] if self.machines is None else [self.machines]))
        least = 0.1 * max(self.own, *others) + 1e-6
        return max(abs(float(np.log((self.own + least) / (each + least)))) for each in others)

    def __str__(self) -> str:
        machines = "" if self.machines is None else f", language models {self.said(self.machines)}"
        return f"{self.label}: {self.said(self.own)}; others {self.said(self.middle)}{machines}"

    @property
    def quantiles(self) -> list[float]:
        """The 10th, 25th, 50th, 75th and 90th percentile of the others' rates."""
        found: list[float] = np.quantile(self.others, (0.1, 0.25, 0.5, 0.75, 0.9)).tolist()
        return found

    @property
    def is_length(self) -> bool:
        return self.group in ("lengths", "ends") and self.label.startswith("Words in ")

    def said(self, rate: float) -> str:
        """Format a rate as "12%", as a number per 1,000 words, or as a length."""
        if self.is_length:
            return f"{rate:.0f}"
        if self.per != "words":
            return f"{rate:.0%}" if rate >= 0.02 or not rate else f"{rate:.1%}"
        return f"{1000 * rate:.0f}" if rate >= 0.01 else f"{1000 * rate:.1f}"


def habits_of(rate: Floats, error: Floats, reference: ReferenceManner) -> tuple[Habit, ...]:
    """Return the author's rate and error for each measure, with the rates of others."""
    found = list[Habit]()
    for n, measure in enumerate(measures(reference.code)):
        at = reference.labels.index(measure.label)
        others = tuple(np.sort(reference.people[:, at]).tolist())
        machines = float(reference.machines[at])
        known = None if np.isnan(machines) else machines
        found.append(Habit(*measure, float(rate[n]), float(error[n]), others, known))
    return tuple(found)


def lengths_of(texts: Iterable[TextCounts]) -> tuple[Floats, Floats]:
    """Return the number of words in each sentence, and in each paragraph."""
    texts = list(texts)
    return (
        np.array([n for text in texts for n in text.sentences] or [0], float),
        np.array([n for text in texts for n in text.paragraphs] or [0], float),
    )
