"""Checks whether a draft is more like the author's posts than like other prose, and why.

The measure is that of the scorecard (`evaluation.style`): the pairs of words in the author's posts
against those of other people today. The scores of the author's own posts are cross-validated, so
that a draft is compared with posts that the measure has not read. A second measure, which has read
what language models make of people's paragraphs, compares the draft with a language model's prose;
what is usual for the author is learned from the posts.
"""

import io
import math
import re
import zipfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from ownwords.archive.store import Archive, KeptFile
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.text import abbreviations_of, sentences, unwrapped
from ownwords.drafts.mark_choices import UNLIKE, MarksFile, plain_form
from ownwords.drafts.prose import prose_of
from ownwords.drafts.rewriting import Edit, Habits
from ownwords.evaluation.style import (
    AUTHORS_FILE,
    LENGTHS,
    MACHINE,
    MACHINES_FILE,
    REFERENCE,
    BigramModel,
    CrossValidated,
    MachineJudge,
    MachineProse,
    Normal,
    Pairs,
    ReferenceAuthors,
    StyleModel,
    StyleVocabulary,
    Vector,
    folds,
    likelihood,
)
from ownwords.evaluation.verbatim import runs_of, shared_passages
from ownwords.language.words import (
    Lexicon,
    begins_sentence,
    folded,
    is_in_the_language,
    words_in,
)
from ownwords.view import blocks as b
from ownwords.view.format import count, day, plain

if TYPE_CHECKING:
    from ownwords.archive.corpus import TrainingText

_LEARNED_FILE, _LEARNED_FORMAT = "style.npz", "2"
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
_FEW = 0.1  # of the author's own passages
_SHARES = tuple(n / 100 for n in range(31))  # of their sentences, that may be marked
_LIKE, _UNLIKE = 0.8, 0.2  # thresholds of the verdict
_LONG = 0.99  # share of the author's sentences that are shorter than one that is called long
_MAX_NEW = 3  # new words that are listed
_MAX_TELLING = 4  # pairs of words
_MIN_REPEATED = 8  # words in a row
_FREQUENT = 400
_MAX_QUOTED = 300  # characters of a sentence
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
    # One in ten of the author's own sentences are as unusual; or it is one of those that make the
    # draft read like a language model's.
    is_marked: bool
    because: tuple[str, ...]
    new_words: tuple[str, ...] = ()


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

    @property
    def is_machine(self) -> bool:
        """Whether it is called a language model's."""
        return _is_machine(self.machine)


@dataclass(frozen=True, slots=True)
class LearnedFigures:
    """What is learned from the posts and is no array."""

    key: str  # of what it was learned from
    own: Normal
    others: Normal
    usual: Normal  # of `MachineJudge`, as the next two
    machine: Normal
    mistaken: float  # share of the author's passages that would be called a machine's
    thresholds: tuple[float, ...]  # of a sentence that is marked, for each of `_SHARES`
    abbreviations: frozenset[str]
    vocabulary: tuple[str, ...]
    topics: dict[str, int]
    counts: dict[str, int]  # of the author's words
    words: frozenset[str]  # in all texts, also those that are left out
    habits: dict[str, object]
    posts: tuple[str, ...]  # their ids


@dataclass(frozen=True, slots=True, eq=False)
class LearnedArrays:
    """What is learned from the posts as arrays."""

    own_pairs: Pairs
    own_counts: npt.NDArray[np.int64]
    others_pairs: Pairs
    others_counts: npt.NDArray[np.int64]
    own_scores: Vector  # of passages that the measure has not read
    others_scores: Vector
    runs: npt.NDArray[np.uint32]  # hashes of words in a row in the posts, sorted
    runs_post: npt.NDArray[np.uint32]  # the post of each


class AuthorStyle:
    """The author's usual style, learned once from the posts, for any number of drafts.

    `posts` returns the posts by their ids; it is called once, for the first draft that has words in
    a row of a post.
    """

    def __init__(
        self,
        figures: LearnedFigures,
        arrays: LearnedArrays,
        posts: "Callable[[], Mapping[str, TrainingText]]",
    ) -> None:
        self._learned, self._arrays, self._posts = figures, arrays, cache(posts)
        self._vocabulary = StyleVocabulary(figures.vocabulary)
        size = self._vocabulary.size
        self._model = StyleModel(
            BigramModel(arrays.own_pairs, arrays.own_counts, size),
            BigramModel(arrays.others_pairs, arrays.others_counts, size),
        )
        prose = MachineProse.load(size)
        self._machines = MachineJudge(prose, figures.usual, figures.machine, figures.mistaken)
        self.habits = Habits.from_dict(figures.habits)
        self._long = self.habits.words_of_sentences(_LONG)
        self._words = Lexicon(figures.words)
        self._total = sum(figures.counts.values())
        self._unmasked = frozenset(figures.vocabulary)

    @classmethod
    def learn(
        cls,
        posts: "Sequence[TrainingText]",
        others: ReferenceAuthors,
        texts: Sequence[tuple[str, bool]] = (),
        key: str = "",
    ) -> "AuthorStyle":
        """Learn from posts.

        `texts` are all texts of the author, each with whether it is left out; by default the posts.
        """
        whole = [post.head_and_body[1] for post in posts]
        if not is_in_the_language(whole, others.vocabulary.words[:_FREQUENT]):
            raise OwnwordsError(
                "drafts can be checked in English only: there are no other authors in the language"
                " of these posts to compare with"
            )
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
        model = StyleModel.of(pairs, others.passages, size)
        machines = MachineJudge.learn(pairs, MachineProse.load(size))
        texts = texts or [(post.text, False) for post in posts]
        runs = [runs_of(post.text, _MIN_REPEATED) >> np.uint64(32) for post in posts]
        every = np.concatenate(runs).astype(np.uint32)
        order = np.argsort(every, kind="stable")
        figures = LearnedFigures(
            key=key,
            own=Normal.of(own),
            others=Normal.of(away),
            usual=machines.usual,
            machine=machines.machine,
            mistaken=machines.mistaken,
            thresholds=(),
            abbreviations=abbreviations_of(whole),
            vocabulary=others.vocabulary.words,
            topics=dict(others.topics),
            counts=Counter(word for text in parts for word in _folded_words(text)),
            words=Lexicon.of(text for text, _ in texts).words,
            habits=Habits(text for text, is_left_out in texts if not is_left_out).to_dict(),
            posts=tuple(post.id for post in posts),
        )
        arrays = LearnedArrays(
            own_pairs=model.own.pairs,
            own_counts=model.own.counts,
            others_pairs=model.others.pairs,
            others_counts=model.others.counts,
            own_scores=np.array([row.mean() for row in own]),
            others_scores=np.array([row.mean() for row in away]),
            runs=every[order],
            runs_post=np.repeat(np.arange(len(runs)), [len(each) for each in runs]).astype(
                np.uint32
            )[order],
        )
        by_id = {post.id: post for post in posts}
        style = cls(figures, arrays, lambda: by_id)
        usual_sentences: list[float] = []
        fold_of = zip(parts, folds([len(part) for part in pairs]), strict=True)
        for text, fold in sorted(fold_of, key=lambda each: digest(each[0])):  # from all times
            if len(usual_sentences) < _MAX_SENTENCES:
                judged = style._judge(text, known.models[fold], is_post=True)
                usual_sentences += [yours for *_, yours in judged]
        thresholds = np.quantile(usual_sentences or [0.0], _SHARES).tolist()
        return cls(replace(figures, thresholds=tuple(thresholds)), arrays, style._posts)

    @classmethod
    def of(cls, archive: Archive) -> "AuthorStyle":
        """Learn from all posts of an archive, against the reference authors of the package.

        What was learned is kept beside the archive, until posts or the reference change.
        """
        counted = ((REFERENCE / name).read_bytes() for name in (AUTHORS_FILE, MACHINES_FILE))
        kept = KeptFile.of(archive, _LEARNED_FILE, _LEARNED_FORMAT, *counted)

        def posts() -> "dict[str, TrainingText]":
            with Archive(archive.path) as opened:
                return _posts_of(opened)

        if stored := _unpacked(kept):
            style = cls(*stored, posts)
        else:
            texts, read = list(archive.own_texts()), [*_posts_of(archive).values()]
            style = cls.learn(read, ReferenceAuthors.load(), texts, kept.key)
            kept.write(_packed(style._learned, style._arrays))
        style.habits.choices_made = MarksFile.beside(archive.path)
        return style

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
        forms = [edit for edit in self.habits.forms(text) if any(map(str.isalpha, edit.before))]
        forms.sort(key=lambda edit: edit.start)
        places = [edit.start for edit in forms]
        choices = self.habits.choices_made()
        threshold = float(np.interp(choices.marked, _SHARES, self._learned.thresholds))
        judged = list(self._judge(text, self._model, choices.allowed))
        machine, is_long_enough = self._machines.probability(pairs), len(weights) >= _MIN_DRAFT
        telling = [False] * len(judged)
        if is_long_enough and _is_machine(machine):
            telling = self._most_like_a_machine(pairs, [part for _, _, part, _ in judged])
        checked = []
        for (start, end, _, yours), is_telling in zip(judged, telling, strict=True):
            better = forms[bisect_left(places, start) : bisect_left(places, end)]
            sentence = text[start:end]
            new = self._new_words(sentence, choices.allowed)
            because = dict.fromkeys(self._because(sentence, better, new))
            if is_telling:
                because |= {"without it, the draft would read less like a language model’s": None}
            is_marked = (is_telling or yours < threshold) and not (
                choices.hides(UNLIKE) or choices.keeps(sentence)
            )
            checked.append(
                CheckedSentence(draft[start:end], start, end, yours, is_marked, tuple(because), new)
            )
        own, others = self._arrays.own_scores, self._arrays.others_scores
        yours, above = self.yours(weights), float((own < weights.mean()).mean())
        return Check(
            sentence=_verdict(yours, above, machine) if is_long_enough else _TOO_SHORT,
            is_long_enough=is_long_enough,
            yours=yours,
            above=above,
            machine=machine,
            own_machine=self._learned.mistaken,
            own=self._range(own),
            others=self._range(others),
            sentences=tuple(checked),
            written_before=self._written_before(text),
        )

    def _judge(
        self,
        text: str,
        model: StyleModel,
        allowed: frozenset[str] = frozenset(),
        *,
        is_post: bool = False,
    ) -> Iterator[tuple[int, int, slice, float]]:
        """Yield the span of each long sentence, that of its pairs, how likely it is the author's.

        Of a post, which the author's counts include, the own words do not count; nor do words
        that the author allows.
        """
        tokens = list(self._vocabulary.tokens(text))
        starts = np.array([token.start for token in tokens])
        weights = model.weights(self._vocabulary.pairs_of(tokens))
        here = Counter(_folded_words(text) if is_post else ())
        total = max(1, self._total - here.total())
        for start, end in sentences(text, self._learned.abbreviations):
            pairs = slice(*np.searchsorted(starts, (start, end)))
            words = _folded_words(text[start:end])
            if len(words) < _MIN_WORDS:
                continue
            topic = sum(
                math.log(
                    ((self._learned.counts.get(word, 0) - here[word]) / total + _SMOOTHING)
                    / (self._learned.topics.get(word, 0) / 1e6 + _SMOOTHING)
                )
                for word in words
                if word not in self._unmasked and word not in allowed
            )
            yield start, end, pairs, self.yours(weights[pairs], topic)

    def _most_like_a_machine(self, pairs: Pairs, parts: Sequence[slice]) -> list[bool]:
        """Tell which third of the sentences make a draft read like a language model's the most."""
        whole = self._machines.score(pairs)
        gains = [whole - self._machines.score(np.delete(pairs, part)) for part in parts]
        least = sorted(gains, reverse=True)[: max(1, len(gains) // 3)][-1:]
        return [gain > 0 and gain >= least[0] for gain in gains]

    def yours(self, weights: Vector, more: float = 0.0) -> float:
        """Return the probability that some pairs are the author's rather than another person's.

        `more` are log odds from other evidence.
        """
        pairs = len(weights)
        if not pairs:
            return 0.5
        own, others = self._learned.own, self._learned.others
        return likelihood(own, others, float(weights.mean()), pairs, more)

    def _range(self, scores: Vector) -> Range:
        low, middle, high = (
            self.yours(np.full(LENGTHS[-1], score))
            for score in np.quantile(scores, (0.1, 0.5, 0.9))
        )
        return Range(middle, low, high)

    def _because(self, sentence: str, forms: Sequence[Edit], new: Sequence[str]) -> Iterator[str]:
        """Yield the reasons why a sentence is unlike the author's."""
        for edit in forms:
            if " " in edit.before and len(edit.after) < 2:  # a stock phrase that needs no other
                yield f"you never write “{edit.before.rpartition(' ')[0]}”"
            else:
                yield f"you write “{edit.after}” rather than “{edit.before}”"
        if len(sentence.split()) > self._long:
            yield "99 of 100 of your sentences are shorter"
        if new:
            words = ", ".join(f"“{word}”" for word in new)
            yield f"you have not written {words} before"

    def _new_words(self, sentence: str, allowed: frozenset[str]) -> tuple[str, ...]:
        """Return the first words of a sentence that the author has never written."""
        new = {
            folded(word[0]): word[0].strip("_")
            for word in words_in(sentence)
            if not self._words.knows(word[0])
            and (begins_sentence(word) or not word[0][0].isupper())
            and plain_form(word[0]) not in allowed
        }
        return tuple(list(new.values())[:_MAX_NEW])

    def telling_pairs(self, sentence: str) -> list[str]:
        """Return the words of a sentence that others put together more than the author does."""
        tokens = list(self._vocabulary.tokens(sentence))
        weights = self._model.weights(self._vocabulary.pairs_of(tokens))
        found = [n for n in np.argsort(weights)[:_MAX_TELLING].tolist() if n and weights[n] < 0]
        return [sentence[tokens[n - 1].start : tokens[n].end] for n in found]

    def _written_before(self, text: str) -> tuple[WrittenBefore, ...]:
        runs = (runs_of(text, _MIN_REPEATED) >> np.uint64(32)).astype(np.uint32)
        first, last = (np.searchsorted(self._arrays.runs, runs, side=s) for s in ("left", "right"))
        numbers = {
            int(self._arrays.runs_post[at])
            for start, end in zip(first, last, strict=True)
            for at in range(start, end)
        }
        if not numbers:
            return ()
        posts = self._posts()
        ids = [self._learned.posts[number] for number in sorted(numbers)]
        texts = [(id_, posts[id_].text) for id_ in ids if id_ in posts]  # not deleted since
        return tuple(
            WrittenBefore(text[each.start : each.end], post.id, post.title, post.url, post.day)
            for each in shared_passages(text, texts, _MIN_REPEATED)
            if (post := posts[each.document])
        )


def _posts_of(archive: Archive) -> "dict[str, TrainingText]":
    from ownwords.archive.corpus import load_corpus  # noqa: PLC0415 - takes a moment

    corpus = load_corpus(archive)
    return {post.id: post for post in (*corpus.train, *corpus.validation, *corpus.test)}


def _packed(figures: LearnedFigures, arrays: LearnedArrays) -> bytes:
    """Return what was learned as a file: arrays, and the figures in JSON as one of them."""
    file = io.BytesIO()
    named = {each.name: getattr(arrays, each.name) for each in fields(LearnedArrays)}
    np.savez(file, figures=np.frombuffer(msgspec.json.encode(figures), np.uint8), **named)
    return file.getvalue()


def _unpacked(kept: KeptFile) -> tuple[LearnedFigures, LearnedArrays] | None:
    """Return what was learned; None if it must be learned anew."""
    try:
        with np.load(io.BytesIO(kept.read()), allow_pickle=False) as stored:
            figures = msgspec.json.decode(stored["figures"].tobytes(), type=LearnedFigures)
            if figures.key != kept.key:
                return None
            named = {each.name: stored[each.name] for each in fields(LearnedArrays)}
            return figures, LearnedArrays(**named)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, msgspec.DecodeError):
        return None  # there is none, or it is damaged


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


def _is_machine(probability: float | None) -> bool:
    return probability is not None and probability >= MACHINE


def _verdict(yours: float, above: float, machine: float | None) -> str:
    if _is_machine(machine):
        return "It is more like a language model’s prose than like your posts."
    if yours < _UNLIKE:
        return "It is more like what other people write than like your posts."
    if yours < _LIKE:
        return "It could be yours, or another person’s."
    if above < _FEW:
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
