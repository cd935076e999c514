"""Checks whether a draft is more like the author's posts than like other prose, and why.

The measure is that of the scorecard (`evaluation.style`): the pairs of words in the author's posts
against those of other people today. The scores of the author's own posts are cross-validated, so
that a draft is compared with posts that the measure has not read. A second measure, which has read
what language models make of people's paragraphs, compares the draft with a language model's prose;
what is usual for the author is learned from the posts.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ownwords.archive.corpus import TrainingText, load_corpus
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.text import abbreviations_of, sentences, unwrapped
from ownwords.drafts.prose import prose_of
from ownwords.drafts.rewriting import Edit, Habits
from ownwords.evaluation.style import (
    LENGTHS,
    UNIT,
    CrossValidated,
    MachineProse,
    Normal,
    Pairs,
    ReferenceAuthors,
    StyleModel,
    Vector,
    cut,
    folds,
)
from ownwords.evaluation.verbatim import shared_passages
from ownwords.language.words import Lexicon, begins_sentence, folded, is_in_the_language, words_in
from ownwords.view import blocks as b
from ownwords.view.format import count, day, plain

_MIN_PASSAGES = 12  # of about 80 words in the posts
_MIN_WORDS = 8  # of a sentence that is judged; shorter ones show too little
_MIN_DRAFT = LENGTHS[-1] // 2  # pairs, about 40 words, for a verdict on a whole draft
_MAX_SENTENCES = 5000  # of the author's, to learn what is usual
# A text longer than the first share of all texts is cut into parts of the second, so that an
# archive of one novel also has parts that the measure has not read.
_LONG_SHARE, _PART_SHARE = 1 / 8, 1 / 32
_MIN_PART = 500  # characters
# A word that the measure masks counts by how often the author and other people write it; this is
# added to both frequencies, so that few occurrences count little.
_SMOOTHING = 1e-5
_MARKED = 0.1  # share of the author's own sentences that would be marked
_LIKE, _UNLIKE = 0.8, 0.2  # thresholds of the verdict
_LONG = 0.99  # share of the author's sentences that are shorter than one that is called long
_MAX_NEW = 3  # new words that are listed
_MIN_REPEATED = 8  # words in a row
_FREQUENT = 400
_MAX_QUOTED = 300  # characters of a sentence
_MACHINE = 0.8  # probability from which a draft is called a language model's
_MIN_APART = 0.75  # of the means of both, in spreads; else the posts read like a machine's
_MIN_SPREAD = 0.5  # of the author's scores: posts that repeat each other do not vary
_NO_REASON = "other people put words together in this way more often than you"
_TOO_SHORT = "The draft is too short for a verdict: about 40 words of prose are needed."
_TITLE = re.compile(
    r"\A\s*\S.*[^\s.!?…:;,”\"’')][ \t]*\n(?=[ \t]*\n)"
)  # a first line without an end


@dataclass(frozen=True, slots=True)
class CheckedSentence:
    """A sentence, `text[start:end]` of the draft."""

    text: str
    start: int
    end: int
    yours: float  # the probability that it is the author's rather than another person's
    is_marked: bool  # one in ten of the author's own sentences are as unusual
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenBefore:
    """Words of the draft that a post has, too."""

    text: str
    post: str  # its id
    title: str
    url: str
    day: str


@dataclass(frozen=True, slots=True)
class Range:
    """The scores of passages of one kind: the median, and the middle 80%."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Check:
    """The result of checking a draft."""

    sentence: str  # the verdict
    is_long_enough: bool  # for a verdict
    yours: float
    above: float  # share of the author's own passages that score lower
    # The probability that it is a language model's rather than the author's, and the share of the
    # author's own passages that would be called so; None if the posts themselves read like one's.
    machine: float | None
    own_machine: float
    own: Range
    others: Range
    sentences: tuple[CheckedSentence, ...]  # long enough to be judged, without headings
    written_before: tuple[WrittenBefore, ...]


class AuthorStyle:
    """The author's usual style, learned once from the posts, for any number of drafts.

    `texts` are all texts of the author, each with whether it is left out; by default the posts.
    """

    def __init__(
        self,
        posts: Sequence[TrainingText],
        others: ReferenceAuthors,
        texts: Sequence[tuple[str, bool]] = (),
    ) -> None:
        whole = [post.head_and_body[1] for post in posts]
        if not is_in_the_language(whole, others.vocabulary.words[:_FREQUENT]):
            raise OwnwordsError(
                "drafts can be checked in English only: there are no other authors in the language"
                " of these posts to compare with"
            )
        self._posts, self._vocabulary = posts, others.vocabulary
        self._abbreviations = abbreviations_of(whole)
        parts = _parts(whole)
        pairs = [others.vocabulary.pairs(text) for text in parts]
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
        self._machines = MachineProse.load(size)
        units, post_of = cut(pairs, UNIT)
        scores = np.array([self._machines.score(unit) for unit in units])
        spread = max(float(scores.std()), _MIN_SPREAD)
        # The share of the variance that is between posts: a longer draft does not reduce it.
        between = float(np.clip(1 - _variance_within(scores, post_of) / spread**2, 0.1, 0.9))
        self._usual, self._machine = (
            Normal(mean, between * spread**2, (1 - between) * spread**2 * UNIT)
            for mean, spread in ((float(scores.mean()), spread), self._machines.unseen)
        )
        judged_own = [_likelihood(self._machine, self._usual, each, UNIT) for each in scores]
        self._mistaken = float(np.mean(np.array(judged_own) >= _MACHINE))
        apart = self._machine.mean - self._usual.mean
        self._tells_machines = apart > _MIN_APART * self._machines.unseen[1]
        texts = texts or [(post.text, False) for post in posts]
        self._habits = Habits(text for text, is_left_out in texts if not is_left_out)
        self._words, self._topics = Lexicon.of(text for text, _ in texts), others.topics
        self._counts = Counter(word for text in parts for word in _folded_words(text))
        self._total = self._counts.total()
        self._unmasked = frozenset(others.vocabulary.words)
        usual: list[float] = []
        fold_of = zip(parts, folds([len(part) for part in pairs]), strict=True)
        for text, fold in sorted(fold_of, key=lambda each: digest(each[0])):  # from all times
            if len(usual) < _MAX_SENTENCES:
                judged = self._judge(text, known.models[fold], is_post=True)
                usual += [yours for _, _, yours in judged]
        self._threshold = float(np.quantile(usual, _MARKED)) if usual else 0.0
        self._long = self._habits.words_of_sentences(_LONG)

    @classmethod
    def of(cls, archive: Archive) -> "AuthorStyle":
        """Learn from all posts of an archive, against the reference authors of the package."""
        corpus = load_corpus(archive)
        posts = [*corpus.train, *corpus.validation, *corpus.test]
        return cls(posts, ReferenceAuthors.load(), list(archive.own_texts()))

    def check(self, draft: str) -> Check:
        prose, headings = prose_of(draft)
        title = _TITLE.match(prose)
        letters = list(prose)
        for start, end in [*headings, *([title.span()] if title else [])]:
            letters[start:end] = re.sub(r"\S", " ", prose[start:end])
        text = unwrapped("".join(letters))
        pairs = self._vocabulary.pairs(text)
        weights = self._model.weights(pairs)
        if not len(weights):
            raise OwnwordsError(
                "the draft has no prose to check", hint="give a text file, or pipe a text in"
            )
        forms = [edit for edit in self._habits.forms(text) if any(map(str.isalpha, edit.before))]
        forms.sort(key=lambda edit: edit.start)
        places = [edit.start for edit in forms]
        checked = []
        for start, end, yours in self._judge(text, self._model):
            better = forms[bisect_left(places, start) : bisect_left(places, end)]
            because = tuple(dict.fromkeys(self._because(text[start:end], better)))
            is_marked = yours < self._threshold
            checked.append(CheckedSentence(draft[start:end], start, end, yours, is_marked, because))
        own, others = self._passages
        yours, above = self.yours(weights), float((own < weights.mean()).mean())
        machine, is_long_enough = self.machine(pairs), len(weights) >= _MIN_DRAFT
        return Check(
            sentence=_verdict(yours, above, machine) if is_long_enough else _TOO_SHORT,
            is_long_enough=is_long_enough,
            yours=yours,
            above=above,
            machine=machine,
            own_machine=self._mistaken,
            own=self._range(own),
            others=self._range(others),
            sentences=tuple(checked),
            written_before=self._written_before(text),
        )

    def _judge(
        self, text: str, model: StyleModel, *, is_post: bool = False
    ) -> Iterator[tuple[int, int, float]]:
        """Yield the span of each long sentence, and how likely it is the author's.

        Of a post, which the author's counts include, the own words do not count.
        """
        tokens = list(self._vocabulary.tokens(text))
        starts = np.array([token.start for token in tokens])
        weights = model.weights(self._vocabulary.pairs_of(tokens))
        here = Counter(_folded_words(text) if is_post else ())
        total = max(1, self._total - here.total())
        for start, end in sentences(text, self._abbreviations):
            pairs = slice(*np.searchsorted(starts, (start, end)))
            words = _folded_words(text[start:end])
            if len(words) < _MIN_WORDS:
                continue
            topic = sum(
                math.log(
                    ((self._counts[word] - here[word]) / total + _SMOOTHING)
                    / (self._topics.get(word, 0) / 1e6 + _SMOOTHING)
                )
                for word in words
                if word not in self._unmasked
            )
            yield start, end, self.yours(weights[pairs], topic)

    def yours(self, weights: Vector, more: float = 0.0) -> float:
        """Return the probability that some pairs are the author's rather than another person's.

        `more` are log odds from other evidence.
        """
        pairs = len(weights)
        if not pairs:
            return 0.5
        return _likelihood(self._own, self._others, float(weights.mean()), pairs, more)

    def machine(self, pairs: Pairs) -> float | None:
        """Return the probability that some pairs are a language model's rather than the author's.

        The passages of a longer text are judged one by one and averaged. None if the author's own
        posts read like a language model's.
        """
        if not self._tells_machines:
            return None
        parts = np.array_split(pairs, max(1, len(pairs) // UNIT))
        score = float(np.mean([self._machines.score(part) for part in parts]))
        return _likelihood(self._machine, self._usual, score, len(pairs))

    def _range(self, scores: Vector) -> Range:
        low, middle, high = (
            self.yours(np.full(LENGTHS[-1], score))
            for score in np.quantile(scores, (0.1, 0.5, 0.9))
        )
        return Range(middle, low, high)

    def _because(self, sentence: str, forms: Sequence[Edit]) -> Iterator[str]:
        """Yield the reasons why a sentence is unlike the author's."""
        for edit in forms:
            if " " in edit.before and len(edit.after) < 2:  # a stock phrase that needs no other
                yield f"you never write “{edit.before.rpartition(' ')[0]}”"
            else:
                yield f"you write “{edit.after}” rather than “{edit.before}”"
        if len(sentence.split()) > self._long:
            yield "99 of 100 of your sentences are shorter"
        new = {
            folded(word[0]): word[0].strip("_")
            for word in words_in(sentence)
            if not self._words.knows(word[0])
            and (begins_sentence(word) or not word[0][0].isupper())
        }
        if new:
            words = ", ".join(f"“{word}”" for word in list(new.values())[:_MAX_NEW])
            yield f"you have not written {words} before"

    def _written_before(self, text: str) -> tuple[WrittenBefore, ...]:
        posts = {post.id: post for post in self._posts}
        texts = [(post.id, post.text) for post in self._posts]
        return tuple(
            WrittenBefore(text[each.start : each.end], post.id, post.title, post.url, post.day)
            for each in shared_passages(text, texts, _MIN_REPEATED)
            if (post := posts[each.document])
        )


def _likelihood(kind: Normal, other: Normal, score: float, pairs: int, more: float = 0.0) -> float:
    """Return the probability that a text is of one kind rather than another, each half of all.

    By linear discriminant analysis, which assumes that both kinds vary alike. `more` are log odds
    from other evidence.
    """
    variance = (kind.variance(pairs) + other.variance(pairs)) / 2
    odds = (kind.mean - other.mean) * (score - (kind.mean + other.mean) / 2) / variance + more
    return 1 / (1 + float(np.exp(-np.clip(odds, -50, 50))))


def _variance_within(scores: Vector, post_of: Sequence[int]) -> float:
    """Return the mean variance of the scores of each post that has several."""
    counts = np.bincount(post_of)
    means = np.bincount(post_of, scores) / np.maximum(counts, 1)
    squares = np.bincount(post_of, (scores - means[post_of]) ** 2)
    several = counts > 1
    return float((squares[several] / counts[several]).mean()) if several.any() else 0.0


def _parts(texts: Sequence[str]) -> list[str]:
    """Return the texts; one that is much of the archive is cut into parts, between words."""
    total = sum(map(len, texts))
    part = re.compile(rf".{{{max(_MIN_PART, int(total * _PART_SHARE))},}}?\s|.+", re.DOTALL)
    return [
        each
        for text in texts
        for each in (part.findall(text) if len(text) > total * _LONG_SHARE else [text])
    ]


def _folded_words(text: str) -> list[str]:
    return [word for found in words_in(text) if (word := folded(found[0]))]


def _verdict(yours: float, above: float, machine: float | None) -> str:
    if machine is not None and machine >= _MACHINE:
        return "It is more like a language model’s prose than like your posts."
    if yours < _UNLIKE:
        return "It is more like what other people write than like your posts."
    if yours < _LIKE:
        return "It could be yours, or another person’s."
    if above < _MARKED:
        return "It is partly like your posts: nearly all of your own passages are more like them."
    return "It is more like your posts than like what other people write."


# ---- the check as blocks for the terminal and the page


def check_view(check: Check) -> list[b.Block]:
    """Return the verdict, its scale, the sentences unlike the author's, and repeated words."""
    marked = [sentence for sentence in check.sentences if sentence.is_marked]
    found: list[b.Block] = [b.Paragraph(line=check.sentence, style="statement")]
    if check.is_long_enough:
        rows = [
            b.Gauge("This draft", check.yours, f"{check.yours:.0%}", is_ours=True),
            _gauge("Passages of yours", check.own),
            _gauge("Other people today", check.others),
        ]
        found += [
            b.Paragraph(line=f"{check.above:.0%} of the passages of your own posts score lower."),
            b.Gauges(title="Yours rather than another person’s", rows=rows, scale_end=1.0),
            *_machine_blocks(check),
        ]
    sentences = count(len(check.sentences), "sentence")
    heading = f"None of {sentences} is unlike yours"
    if marked:
        heading = f"{len(marked)} of {sentences} are unlike yours"
    elif not check.sentences:
        heading = "No sentence is long enough to be judged"
    found.append(b.Heading(text=heading))
    if marked:
        usual = (
            "Sentences of eight words or more are judged; about one in ten of your own would be"
            " marked, too."
        )
        items = [
            b.Item(title=_quoted(each.text), lines=list(each.because) or [_NO_REASON])
            for each in marked
        ]
        found += [
            b.Paragraph(line=usual, style="quiet"),
            b.Items(rows=items, style="notes"),
        ]
    if check.written_before:
        items = []
        for each in check.written_before:
            post = b.Span(
                plain(each.title, 90) or "(untitled)", url=each.url, page=b.post_page(each.post)
            )
            parts: list[str | b.Span] = [post, f", {day(each.day)}" if each.day else ""]
            items.append(b.Item(title=_quoted(each.text), lines=[parts]))
        found += [b.Heading(text="You wrote this before"), b.Items(rows=items, style="notes")]
    return found


def _machine_blocks(check: Check) -> list[b.Block]:
    if check.machine is None:
        line = (
            "Your posts read like a language model’s prose, so a draft of one cannot be recognised."
        )
        return [b.Paragraph(line=line)]
    row = b.Gauge("This draft", check.machine, f"{check.machine:.0%}", is_ours=True)
    return [
        b.Gauges(title="A language model’s rather than yours", rows=[row], scale_end=1.0),
        b.Paragraph(
            line=f"{check.own_machine:.0%} of the passages of your own posts would be taken for a"
            " language model’s.",
            style="quiet",
        ),
    ]


def _gauge(label: str, of: Range) -> b.Gauge:
    span = f"most from {of.low:.0%} to {of.high:.0%}"
    return b.Gauge(label, of.middle, f"{of.middle:.0%}", of.low, of.high, span)


def _quoted(text: str) -> b.Line:
    return b.Span(plain(text, _MAX_QUOTED), "quote")
