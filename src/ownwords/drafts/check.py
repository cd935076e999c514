"""Check a draft: how much each sentence sounds like the author, and why; without any model.

The measure is that of the scorecard (`evaluation.style`): the pairs of words of the author's posts
against those of others today. What the author's own posts score is found by cross-validation, so
that figures of a draft compare with those of posts that the measure has not read.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ownwords.archive.corpus import Corpus, TrainingText
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.sentences import abbreviations_of, sentences, unwrapped
from ownwords.drafts.edits import Edit, Habits
from ownwords.evaluation.reference_data import (
    Lexicon,
    ReferenceAuthors,
    begins_sentence,
    folded,
    is_in_the_language,
    words_in,
)
from ownwords.evaluation.style import (
    LENGTHS,
    CrossValidated,
    Normal,
    StyleModel,
    Token,
    Vector,
    folds,
)
from ownwords.evaluation.verbatim import shared_passages

_MIN_PASSAGES = 12  # of about 80 words in the posts
_MIN_WORDS, _ENOUGH = 8, 2000  # of a sentence, and such sentences, to say what is usual
# A word that the measure masks tells by how often the author writes it and how often others do;
# this is added to both, so that few occurrences say little.
_SMOOTHING = 1e-5
_MARKED = 0.1  # share of the author's own sentences that would be marked
_LIKE, _UNLIKE = 0.8, 0.2  # from and up to which the verdict is one or the other
_TELLING = -0.8  # weight of a pair that is worth naming
_REASONS = 3  # pairs, and words, that are named
_SAID_BEFORE = 8  # words in a row
_FREQUENT = 400
# Of a draft in Markdown: front matter, fenced code, rules, quoted lines, marks and addresses.
_NOT_PROSE = re.compile(
    r"\A---\n.*?^---$|^ {0,3}(```|~~~).*?^ {0,3}\1|^ {0,3}>.*?$|^#+ |^---+$|(?<=\])\([^()\s]*\)"
    r"|https?://[^\s)>]+",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class CheckedSentence:
    """A sentence, `text[start:end]` of the draft."""

    text: str
    start: int
    end: int
    yours: float  # the probability that it is the author's rather than another's
    is_marked: bool  # fewer than one in ten of the author's sentences are as unusual
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenBefore:
    """Words of the draft that stand in a post."""

    text: str
    post: str  # its id
    title: str
    url: str
    day: str


@dataclass(frozen=True, slots=True)
class Range:
    """Where passages of one kind lie: the middle one, and the middle eight of ten."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Check:
    """What was found about a draft."""

    sentence: str  # the verdict
    yours: float
    above: float  # share of the author's own passages that score lower
    own: Range
    others: Range
    sentences: tuple[CheckedSentence, ...]
    written_before: tuple[WrittenBefore, ...]


class _Judged(NamedTuple):
    """A sentence: its place, its pairs, how many words, and how much it is his."""

    start: int
    end: int
    pairs: slice
    words: int
    yours: float


class AuthorStyle:
    """What is usual for an author, learned from the posts once, for any number of drafts."""

    def __init__(self, posts: Sequence[TrainingText], others: ReferenceAuthors) -> None:
        texts = [post.text for post in posts]
        if not is_in_the_language(texts, others.vocabulary.words[:_FREQUENT]):
            raise OwnwordsError(
                "drafts can be checked in English only: there are no other authors in the language"
                " of these posts to compare with"
            )
        self._posts, self._vocabulary = posts, others.vocabulary
        pairs = [others.vocabulary.pairs(text) for text in texts]
        length, size = LENGTHS[-1], others.vocabulary.size
        if sum(map(len, pairs)) < _MIN_PASSAGES * length:
            raise CorpusError(
                f"{sum(post.words for post in posts):,} words of yours are too few to compare a"
                " draft with; about 1,000 are needed",
                hint="add posts, and read the blog again: ownwords look PATH",
            )
        known = CrossValidated(pairs, others.passages, others.source_of, size, length)
        own, away = ([row for fold in side for row in fold] for side in (known.own, known.others))
        self._model = StyleModel(pairs, others.passages, size)
        self._own, self._others = Normal.of(own), Normal.of(away)
        self._passages = tuple(np.array([row.mean() for row in side]) for side in (own, away))
        self._abbreviations, self._habits = abbreviations_of(texts), Habits(texts)
        self._counts = Counter(word for text in texts for word in _folded_words(text))
        self._total = self._counts.total()
        self._words, self._topics = Lexicon(frozenset(self._counts)), others.topics
        self._unmasked = frozenset(others.vocabulary.words)
        usual: list[float] = []
        for text, fold in zip(texts, folds([len(post) for post in pairs]), strict=True):
            if len(usual) < _ENOUGH:
                judged = self._judge(text, known.models[fold], is_post=True)
                usual += [each.yours for each in judged if each.words >= _MIN_WORDS]
        self._threshold = float(np.quantile(usual, _MARKED)) if usual else 0.0
        lengths = [
            end - start for text in texts for start, end in sentences(text, self._abbreviations)
        ]
        self._long = float(np.quantile(lengths, 0.99))

    @classmethod
    def of(cls, corpus: Corpus) -> "AuthorStyle":
        """Learn from all posts of an archive, beside the authors that the package knows."""
        posts = [*corpus.train, *corpus.validation, *corpus.test]
        return cls(posts, ReferenceAuthors.load())

    def check(self, draft: str) -> Check:
        text = unwrapped(_NOT_PROSE.sub(lambda each: re.sub(r"\S", " ", each[0]), draft))
        tokens = list(self._vocabulary.tokens(text))
        if not tokens:
            raise OwnwordsError("the draft is empty", hint="give a text file, or pipe a text in")
        weights = self._model.weights(self._vocabulary.pairs(text))
        forms = [edit for edit in self._habits.forms(text) if any(map(str.isalpha, edit.before))]
        checked = []
        for each in self._judge(text, self._model):
            better = [edit for edit in forms if each.start <= edit.start < each.end]
            because = tuple(self._because(text, each, better, weights, tokens))
            is_marked = each.yours < self._threshold
            part = draft[each.start : each.end]
            checked.append(
                CheckedSentence(part, each.start, each.end, each.yours, is_marked, because)
            )
        own, others = self._passages
        yours, above = self.yours(weights), float((own < weights.mean()).mean())
        return Check(
            sentence=_verdict(yours, above),
            yours=yours,
            above=above,
            own=self._range(own),
            others=self._range(others),
            sentences=tuple(checked),
            written_before=self._written_before(text),
        )

    def _judge(self, text: str, model: StyleModel, *, is_post: bool = False) -> Iterator["_Judged"]:
        """The sentences of a draft, or of a post, whose words are then not counted as known."""
        starts = np.array([token.start for token in self._vocabulary.tokens(text)])
        weights = model.weights(self._vocabulary.pairs(text))
        here = Counter(_folded_words(text) if is_post else ())
        total = max(1, self._total - here.total())
        for start, end in sentences(text, self._abbreviations):
            pairs = slice(*np.searchsorted(starts, (start, end)))
            words = _folded_words(text[start:end])
            topic = sum(
                math.log(
                    ((self._counts[word] - here[word]) / total + _SMOOTHING)
                    / (self._topics.get(word, 0) / 1e6 + _SMOOTHING)
                )
                for word in words
                if word not in self._unmasked
            )
            yield _Judged(start, end, pairs, len(words), self.yours(weights[pairs], topic))

    def yours(self, weights: Vector, more: float = 0.0) -> float:
        """The probability that some pairs are the author's, if half of all texts are.

        By linear discriminant analysis: both kinds of texts are taken to vary alike. `more` are log
        odds by something else.
        """
        pairs = len(weights)
        if not pairs:
            return 0.5
        own, others = self._own, self._others
        from_middle = float(weights.mean()) - (own.mean + others.mean) / 2
        variance = (own.variance(pairs) + others.variance(pairs)) / 2
        odds = (own.mean - others.mean) * from_middle / variance + more
        return 1 / (1 + float(np.exp(-np.clip(odds, -50, 50))))

    def _range(self, scores: Vector) -> Range:
        low, middle, high = (
            self.yours(np.full(LENGTHS[-1], score))
            for score in np.quantile(scores, (0.1, 0.5, 0.9))
        )
        return Range(middle, low, high)

    def _because(
        self,
        text: str,
        sentence: "_Judged",
        forms: Sequence[Edit],
        weights: Vector,
        tokens: Sequence[Token],
    ) -> Iterator[str]:
        for edit in forms:
            yield f"you write “{edit.after}” rather than “{edit.before}”"
        if sentence.end - sentence.start > self._long:
            yield "99 of 100 of your sentences are shorter"
        first = sentence.pairs.start
        order = first + np.argsort(weights[sentence.pairs])
        rare = [n for n in order if n > first and weights[n] < _TELLING][:_REASONS]
        if rare:
            pairs = ", ".join(f"“{text[tokens[n - 1].start : tokens[n].end]}”" for n in rare)
            yield f"others write {pairs.replace(chr(10), ' ')} more often than you"
        new = [
            word[0]
            for word in words_in(text[sentence.start : sentence.end])
            if not self._words.knows(word[0])
            and (begins_sentence(word) or not word[0][0].isupper())
        ]
        if new:
            words = ", ".join(f"“{word}”" for word in dict.fromkeys(new[:_REASONS]))
            yield f"you have not written {words} before"

    def _written_before(self, text: str) -> tuple[WrittenBefore, ...]:
        posts = {post.id: post for post in self._posts}
        shared = shared_passages(text, [(post.id, post.text) for post in self._posts], _SAID_BEFORE)
        return tuple(
            WrittenBefore(text[each.start : each.end], post.id, post.title, post.url, post.day)
            for each in shared
            for post in [posts[each.document]]
        )


def _folded_words(text: str) -> list[str]:
    return [word for found in words_in(text) if (word := folded(found[0]))]


def _verdict(yours: float, above: float) -> str:
    if yours < _UNLIKE:
        return "It does not sound like you."
    if yours < _LIKE:
        return "It could be yours, or somebody else’s."
    if above < _MARKED:
        return "It sounds like you in part: nearly all of your own passages do so more clearly."
    return "It sounds like you."
