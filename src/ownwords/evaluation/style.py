"""LambdaG: how much more likely an author is than others to follow one word with another.

Words that depend on the topic are masked, which leaves grammar: function words, punctuation, and
the ending of any other word. Two bigram models with interpolated Kneser-Ney smoothing, one of the
author and one of many others, give each pair of tokens a weight, the logarithm of the ratio of its
probabilities. The mean weight of a passage ranks its authors (Nini et al. 2025, arXiv 2403.08462).

The others are the reference authors, whose statistics `base/reference.py` at the root of the
repository computes; no text of theirs is stored.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.language.words import language, language_of, unpacked

REFERENCE = Path(__file__).parent / "reference"
LANGUAGES_OF_OTHERS = ("en", "de", "fr", "es")  # in which others' writing was counted
MACHINES_FILE = "machines.npz.xz"  # of English

Pairs = npt.NDArray[np.uint32]  # each combines the ids of a token and of the one before it
Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_MARKS = tuple("¶0.,;:!?()\"—-'…/&%")
_PRINTED = frozenset(_MARKS) - set("¶0\"'")
# The lookbehind keeps a long run of spaces from being tried again from every space in it.
_TOKENS = r"(?<!\s)\s*\n\s*|\d+(?:[.,:]\d+)*|{}[^\W\d_]+(?:['’][^\W\d_]+)?|\.\.+|--+|[^\w\s]"
_SAME = {"“": '"', "”": '"', "’": "'", "‘": "'", "–": "—", "`": "'", "*": "'"}
_ENDS_SENTENCE = frozenset("¶.!?:")
_DISCOUNT = 0.75  # of Kneser-Ney


class Token(NamedTuple):
    """A word or mark of a text: its number in the vocabulary and its place."""

    number: int
    start: int
    end: int


class StyleVocabulary:
    """The words that do not depend on the topic, and the classes of all other tokens.

    The section `style` of the language's file has the endings that stand for other words, marks
    besides the common ones, short forms that are words of their own (l’, qu’), and the endings of
    nouns if these have capitals, so that they are no names.
    """

    def __init__(self, words: Sequence[str], code: str = "en") -> None:
        self.words, self.code = tuple(words), code
        rules = language(code).get("style", {})
        self._endings = rules.get("endings", "").split()
        self._nouns = rules.get("nouns", "").split()
        self._own_marks = frozenset(rules.get("marks", ""))
        self._token = re.compile(_TOKENS.format(rules.get("short_forms", "")))
        self._classes = (*_MARKS, "#", "Name", "NAME", "~", *(f"~{each}" for each in self._endings))
        self._classes += (*(f"Noun~{each}" for each in self._nouns), *sorted(self._own_marks))
        self._numbers = {word: n for n, word in enumerate((*self.words, *self._classes))}

    @property
    def size(self) -> int:
        return len(self._numbers)

    def shown(self, number: int) -> str:
        """Return a word or a mark, or "…ing" for an ending; "" for other classes."""
        if number < len(self.words):
            return self.words[number]
        name = self._classes[number - len(self.words)]
        if ending := name.partition("~")[2]:
            return f"…{ending}"
        return name if name in _PRINTED | self._own_marks else ""

    def tokens(self, text: str) -> Iterator[Token]:
        """The tokens of a text, in order."""
        starts = True
        for match in self._token.finditer(text.rstrip()):
            token = self._masked(match[0], starts=starts)
            yield Token(self._numbers[token], match.start(), match.end())
            starts = token in _ENDS_SENTENCE or (starts and token in self._own_marks)

    def pairs(self, text: str) -> Pairs:
        """Return each token of a text with the previous one; a paragraph end precedes the first."""
        return self.pairs_of(self.tokens(text))

    def pairs_of(self, tokens: Iterable[Token]) -> Pairs:
        numbers = np.array([self._numbers["¶"], *(token.number for token in tokens)], np.uint32)
        pairs: Pairs = numbers[:-1] * np.uint32(self.size) + numbers[1:]
        return pairs

    def _masked(self, token: str, *, starts: bool) -> str:
        if token.isspace():
            return "¶"
        if token[0].isdigit():
            return "0"
        if not token[0].isalpha():
            mark = "…" if token[:2] == ".." else "—" if token[:2] == "--" else token
            if mark in self._own_marks:
                return mark
            mark = _SAME.get(mark, mark)
            return mark if mark in _MARKS else "#"
        word = token.lower().replace("’", "'")
        if word in self._numbers:
            return word
        if token[0].isupper() and not starts:
            if token.isupper() and len(token) > 1:
                return "NAME"
            ending = _ending(word, self._nouns)
            return f"Noun~{ending}" if ending else "Name"
        return f"~{_ending(word, self._endings)}"


def _ending(word: str, endings: Iterable[str]) -> str:
    return next((e for e in endings if word.endswith(e) and len(word) > len(e) + 2), "")


class BigramModel:
    """Interpolated Kneser-Ney smoothing over sorted pairs and their counts."""

    def __init__(self, pairs: Pairs, counts: Indices, size: int) -> None:
        self._size = np.uint32(size)
        self.pairs, self.counts, self.total = pairs, counts, int(counts.sum())
        before, after = np.divmod(pairs, self._size)
        self._discounted = counts - _DISCOUNT
        self._totals = np.bincount(before, counts, size)
        followers = np.bincount(before, minlength=size)
        # The probability of a token after an unseen one depends on how many tokens it follows.
        kinds = np.bincount(after, minlength=size)
        spread = _DISCOUNT * np.count_nonzero(kinds) / size
        seen = max(1, len(pairs))
        self._after = (np.maximum(kinds - _DISCOUNT, 0) + max(spread, 1 / size)) / seen
        self._rest = np.where(
            self._totals > 0, _DISCOUNT * followers / np.maximum(self._totals, 1), 1.0
        )

    @classmethod
    def of(cls, texts: Iterable[Pairs], size: int) -> "BigramModel":
        """Count the pairs of some texts."""
        # The empty array is for the case of no texts, which would fail.
        found = np.concatenate([*texts, np.array([], np.uint32)])
        return cls(*np.unique(found, return_counts=True), size)

    def count(self, pair: np.uint32) -> int:
        """Return how often a pair occurs."""
        first, last = np.searchsorted(self.pairs, (pair, pair + np.uint32(1)))
        return int(self.counts[first:last].sum())

    def log_probabilities(self, pairs: Pairs) -> Vector:
        """Return the log probability of each pair's token after the previous one."""
        before, after = np.divmod(pairs, self._size)
        at = np.minimum(np.searchsorted(self.pairs, pairs), max(0, len(self.pairs) - 1))
        seen = np.zeros(len(pairs))
        if len(self.pairs):
            is_seen = self.pairs[at] == pairs
            seen[is_seen] = self._discounted[at[is_seen]] / self._totals[before[is_seen]]
        logs: Vector = np.log(seen + self._rest[before] * self._after[after])
        return logs


class StyleModel:
    """The weight of each pair of tokens: above 0 is typical of the author, below 0 of others."""

    def __init__(self, own: BigramModel, others: BigramModel) -> None:
        self.own, self.others = own, others

    @classmethod
    def of(cls, own: Sequence[Pairs], others: Sequence[Pairs], size: int) -> "StyleModel":
        """Learn from the author's texts and from passages of others."""
        return cls(BigramModel.of(own, size), BigramModel.of(others, size))

    def weights(self, pairs: Pairs) -> Vector:
        return self.own.log_probabilities(pairs) - self.others.log_probabilities(pairs)

    def score(self, pairs: Pairs) -> float:
        """Return the mean weight of a passage."""
        return float(self.weights(pairs).mean()) if len(pairs) else 0.0


UNIT = 95  # pairs: about 80 words
LENGTHS = (3 * UNIT, UNIT)  # of passages: about 250 words (more reliable) and 80 words
FOLDS = 4  # of the cross-validation


def about_words(pairs: int) -> int:
    """Convert a number of pairs to about as many words, rounded to the nearest 10."""
    return 10 * round(0.0865 * pairs)


def cut(texts: Sequence[Pairs], length: int) -> tuple[list[Pairs], list[int]]:
    """Return passages of `length` pairs of the joined texts, and the text in which each begins.

    Pairs that do not fill a passage are left out.
    """
    stream = np.concatenate([*texts, np.array([], np.uint32)])
    starts = np.arange(0, len(stream) - length + 1, length)
    ends = np.cumsum([len(text) for text in texts])
    sources = np.searchsorted(ends, starts, side="right")
    return [stream[start : start + length] for start in starts], sources.tolist()


def folds(sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the fold of each text; folds have about the same size."""
    fold = np.zeros(len(sizes), np.int64)
    fold[np.argsort([-size for size in sizes], kind="stable")] = np.arange(len(sizes)) % FOLDS
    return fold


@dataclass(frozen=True, slots=True)
class Normal:
    """The distribution of the scores of passages of any length.

    The variance is that between passages plus that of a single pair over the number of pairs.
    """

    mean: float
    between: float
    within: float

    @classmethod
    def of(cls, passages: Sequence[Vector]) -> "Normal":
        """Estimate the distribution from the weights of passages of similar lengths."""
        means = np.array([weights.mean() for weights in passages])
        within = float(np.mean([weights.var() for weights in passages]))
        by_chance = within * float(np.mean([1 / len(weights) for weights in passages]))
        between = float(means.var()) - by_chance
        return cls(float(means.mean()), max(between, 1e-4), within)

    def variance(self, pairs: int) -> float:
        """Return the variance of the scores of passages of `pairs` pairs."""
        return self.between + self.within / max(1, pairs)


class CrossValidated:
    """Passages of an author and of others, each scored by a model fitted without its source.

    The posts and the others' sources are divided into folds; each fold is scored by a model that
    was fitted on the other folds.
    """

    def __init__(
        self,
        posts: Sequence[Pairs],
        others: Sequence[Pairs],  # passages of whole units
        others_sources: Sequence[int],
        size: int,
        length: int,
    ) -> None:
        fold = folds([len(post) for post in posts])
        names, sizes = np.unique(others_sources, return_counts=True)
        fold_of = dict(zip(names.tolist(), folds(sizes.tolist()).tolist(), strict=True))
        others_fold = [fold_of[source] for source in others_sources]
        self.models: list[StyleModel] = []
        self.own: list[list[Vector]] = []  # by fold: weights of each passage
        self.others: list[list[Vector]] = []
        self.others_sources: list[list[int]] = []
        for k in range(FOLDS):
            mine = [post for post, of in zip(posts, fold, strict=True) if of != k]
            theirs = [passage for passage, of in zip(others, others_fold, strict=True) if of != k]
            model = StyleModel.of(mine, theirs, size)
            unseen, _ = cut([post for post, of in zip(posts, fold, strict=True) if of == k], length)
            away = [n for n, of in enumerate(others_fold) if of == k]
            passages = [
                (part, others_sources[n])
                for n in away
                for part in np.split(others[n], len(others[n]) // length)
            ]
            self.models.append(model)
            self.own.append([model.weights(passage) for passage in unseen])
            self.others.append([model.weights(passage) for passage, _ in passages])
            self.others_sources.append([source for _, source in passages])


# --- language models ------------------------------------------------------------------------------

_LENGTHS, _PER_LENGTH = 13, 4  # classes of sentences by length, and tokens of each
MACHINE = 0.8  # minimum probability at which a text is attributed to a language model
MACHINE_ODDS = float(np.log(MACHINE / (1 - MACHINE)))
# If the means are closer than this, in standard deviations, the posts read like a machine's.
_MIN_APART = 0.75
_MIN_PASSAGES = 8  # to estimate how much an author varies


def sentence_features(pairs: Pairs, size: int) -> Pairs:
    """Return the features of a sentence: its pairs, its tokens, and its length class."""
    tokens = np.uint32(size) * np.uint32(size) + pairs % np.uint32(size)
    length = min(len(pairs) // _PER_LENGTH, _LENGTHS - 1)
    return np.concatenate([pairs, tokens, [np.uint32(size * size + size + length)]])


@dataclass(frozen=True, slots=True, eq=False)
class MachineProse:
    """Distinguishes sentences by large language models from sentences by people.

    A logistic regression on `sentence_features`, each divided by the square root of the sentence's
    length. `base/machine_prose.py` fitted it to paragraphs by people and to the rewrites of these
    by language models in twelve manners.
    """

    features: Pairs  # sorted
    weights: Vector
    size: int  # of the vocabulary
    unseen: "Normal"  # scores of language models' paragraphs outside the training set

    @classmethod
    def load(cls, size: int, folder: Path = REFERENCE) -> "MachineProse":
        packed = io.BytesIO(unpacked(folder / MACHINES_FILE))
        with np.load(packed, allow_pickle=False) as stored:
            features = np.cumsum(stored["steps"], dtype=np.uint32)
            unseen = Normal(*stored["unseen"].tolist())
            return cls(features, stored["weights"].astype(float), size, unseen)

    def of(self, pairs: Pairs) -> Vector:
        """Return the weight of each token of a sentence; its length counts with the first."""
        kinds = sentence_features(pairs, self.size)
        at = np.minimum(np.searchsorted(self.features, kinds), len(self.features) - 1)
        found = np.where(self.features[at] == kinds, self.weights[at], 0.0)
        weights: Vector = found[: len(pairs)] + found[len(pairs) : -1]
        weights[:1] += found[-1]
        return weights

    def score(self, pairs: Pairs) -> float:
        """Return the log odds of one sentence, up to a constant."""
        return float(self.of(pairs).sum() / max(1, len(pairs)) ** 0.5)


@dataclass(frozen=True, slots=True)
class MachineJudge:
    """Distinguishes a language model's prose from the author's, given the author's usual scores."""

    usual: Normal  # mean weights of the author's passages
    machine: Normal
    mistaken: float = 0.0  # share of the author's passages mistaken for a language model's

    @classmethod
    def learn(cls, posts: Sequence[Sequence[Vector]], machine: Normal) -> "MachineJudge":
        """Learn from the weights of the sentences of each post."""
        passages = [passage for post in posts for passage in _passages(post)]
        if len(passages) < _MIN_PASSAGES:
            return cls(machine, machine)
        judge = cls(Normal.of(passages), machine)
        called = [judge.odds(each) > MACHINE_ODDS for each in passages]
        return replace(judge, mistaken=float(np.mean(called)))

    @classmethod
    def none(cls) -> "MachineJudge":
        """Return a judge that can tell nothing, for languages without machines' prose."""
        return cls(Normal(0.0, 1.0, 1.0), Normal(0.0, 1.0, 1.0))

    @property
    def can_tell(self) -> bool:
        """Whether the author's own posts can be told from a language model's prose."""
        apart = self.machine.mean - self.usual.mean
        return bool(apart > _MIN_APART * self.machine.variance(UNIT) ** 0.5)

    def odds(self, weights: Vector) -> float:
        """Return the log odds that a text is a language model's rather than the author's."""
        return log_odds(self.machine, self.usual, float(weights.mean()), len(weights))


def _passages(sentences: Sequence[Vector]) -> Iterator[Vector]:
    """Yield the weights of whole sentences, joined until there are `UNIT` weights."""
    joined: list[Vector] = []
    for weights in sentences:
        joined.append(weights)
        if sum(map(len, joined)) >= UNIT:
            yield np.concatenate(joined)
            joined = []


def log_odds(kind: Normal, other: Normal, score: float, pairs: int) -> float:
    """Return the log odds that a text is of one kind rather than another, with equal priors.

    Linear discriminant analysis assumes that both kinds have the same variance.
    """
    variance = (kind.variance(pairs) + other.variance(pairs)) / 2
    return float((kind.mean - other.mean) * (score - (kind.mean + other.mean) / 2) / variance)


def probability(odds: float) -> float:
    """Convert log odds to a probability."""
    return 1 / (1 + float(np.exp(-np.clip(odds, -50, 50))))


# --- other authors --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceAuthors:
    """Passages by others in one language, as sorted pairs of tokens."""

    vocabulary: StyleVocabulary
    sources: tuple[str, ...]
    passages: tuple[Pairs, ...]  # of `LENGTHS[0]` pairs, in sorted units
    source_of: tuple[int, ...]  # by passage

    @classmethod
    def of(cls, texts: Sequence[str]) -> "ReferenceAuthors":
        """Read the reference authors of the texts' language; English if it has none."""
        return cls.load(code=judged_language(texts))

    @classmethod
    def load(cls, folder: Path = REFERENCE, code: str = "en") -> "ReferenceAuthors":
        """Read the reference authors of a language from the folder they were saved in."""
        packed = io.BytesIO(unpacked(folder / reference_file("voices", code)))
        with np.load(packed, allow_pickle=False) as stored:
            pairs = np.cumsum(stored["steps"], axis=1, dtype=np.uint32)
            return cls(
                StyleVocabulary(_as_words(stored["vocabulary"]), code),
                _as_words(stored["sources"]),
                tuple(pairs.reshape(-1, LENGTHS[0])),
                tuple(stored["source_of"].tolist()),
            )


def judged_language(texts: Iterable[str]) -> str:
    """Return the language of most of the texts if others' is known in it, otherwise English."""
    code = language_of(texts)
    return code if code in LANGUAGES_OF_OTHERS else "en"


def reference_file(kind: str, code: str) -> str:
    """Return the name of the file with one kind of counts of others in a language."""
    return f"{kind}.npz.xz" if code == "en" else f"{kind}.{code}.npz.xz"


def _as_words(stored: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(stored.tobytes().decode().split("\n"))
