"""Checks whether a draft is more like the author's posts than like other prose, and why.

Two measures are used (`evaluation.style`): the pairs of words in the author's posts against those
of other people today, and a regression trained on sentences by language models. What is usual
for the author is learned from the posts; the first measure is cross-validated, so that a draft is
compared with posts that the measure has not read. Whether a sentence is marked depends on nothing
else in the draft; the verdict is about the whole.
"""

import io
import re
import zipfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
from ownwords.evaluation.manner import (
    Habit,
    ReferenceManner,
    TextCounts,
    count_text,
    habits_of,
    rates,
)
from ownwords.evaluation.style import (
    LANGUAGES_OF_OTHERS,
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
    log_odds,
    probability,
    reference_file,
)
from ownwords.evaluation.verbatim import runs_of, shared_passages
from ownwords.language.words import (
    Lexicon,
    content_words,
    is_in_the_language,
    language_of,
    stop_words,
    words_in,
)
from ownwords.view import blocks as b
from ownwords.view.format import count, day, plain

if TYPE_CHECKING:
    from ownwords.archive.corpus import TrainingText
    from ownwords.ask.search import ArchiveSearcher

_LEARNED_FILE, _LEARNED_FORMAT = "style.npz", "4"
_MIN_PASSAGES = 12  # of about 80 words in the posts
_MIN_WORDS = 8  # of a sentence that is judged; shorter ones show too little
_MIN_DRAFT = LENGTHS[-1] // 2  # pairs, about 40 words, for a verdict on a whole draft
_MAX_SENTENCES = 5000  # of the author's, to learn what is usual
# A text longer than the first share of all texts is cut into parts of the second, so that an
# archive of one novel also has parts that the measure has not read.
_LONG_SHARE, _PART_SHARE = 1 / 8, 1 / 32
_MIN_PART = 500  # characters
_FEW = 0.1  # of the author's own passages
_SHARES = tuple(n / 100 for n in range(31))  # of the author's sentences that may be marked
_LIKE, _UNLIKE = 0.8, 0.1  # thresholds of the verdict; measured: docs/log.md
_CLOSE = 0.6  # probability from which it is too close to tell whether a language model wrote it
_LONG = 0.9  # share of the author's sentences that are shorter than one that is called long
_MAX_REASONS = 3
_TOO_OFTEN = 5  # times as often as in the author's sentences, to be a reason
_MAX_COUNTS = 6  # of what the draft has more or less often
_UNUSUAL = 1.6  # standard deviations, of a count
_MIN_REPEATED = 8  # words in a row
_MAX_EXAMPLES = 20  # of the author's own sentences
_NEAR, _MIN_COMMON = 3, 3  # passages searched for a sentence like a marked one; words of both
_FREQUENT = 400
_USUAL = 0.5  # share of other people who use a word, so that it is no term of a subject
_MIN_EXPECTED = 3  # times that others would have written something in as many words
_MAX_QUOTED = 300  # characters of a sentence
_NO_REASON = "as a whole, it combines words as a language model does rather than as you do"
_NO_REASON_BY_OTHERS = "as a whole, it combines words as others do rather than as you do"
_ONE_LANGUAGE = {
    "en": "Only your English posts are compared; those in other languages are left out.",
    "de": "Only your German posts are compared; those in other languages are left out.",
    "fr": "Only your French posts are compared; those in other languages are left out.",
    "es": "Only your Spanish posts are compared; those in other languages are left out.",
}
_TOO_SHORT = "The draft is too short for a verdict: about 40 words of prose are needed."
_OTHER_LANGUAGE = "The draft is not in the language of your posts, so it cannot be judged."
_TITLE = re.compile(
    r"\A\s*\S.*[^\s.!?…:;,”\"\'’)][ \t]*\n(?=[ \t]*\n)"
)  # a first line without an end


@dataclass(frozen=True, slots=True)
class CheckedSentence:
    """A sentence, `text[start:end]` of the draft."""

    text: str
    start: int
    end: int
    yours: float  # the probability that it is the author's
    is_marked: bool  # about one in ten of the author's own sentences would be
    because: tuple[str, ...] = ()  # of a marked one
    # Words that language models like, whatever the subject, and the author never uses.
    new_words: tuple[str, ...] = ()
    example: str = ""  # the closest sentence of the author's posts


@dataclass(frozen=True, slots=True)
class WrittenBefore:
    """Words of the draft that are also in a post."""

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
    is_long_enough: bool  # for a verdict, and in the language of the posts
    yours: float
    above: float  # share of the author's own passages that score lower
    # The probability that a language model wrote it rather than the author, and the share of the
    # author's own passages judged so; None if the posts themselves read like a language model's.
    machine: float | None
    own_machine: float
    own: Range
    others: Range
    sentences: tuple[CheckedSentence, ...]  # long enough to be judged, without headings
    written_before: tuple[WrittenBefore, ...]
    counts: tuple[str, ...] = ()  # what the draft has more or less often than the posts
    language: str = "en"  # code of the posts' language
    # How many posts there are besides in other languages; the draft is not compared with them.
    other_posts: int = 0

    @property
    def is_machine(self) -> bool:
        """Whether the verdict is that a language model wrote it."""
        return (self.machine or 0) >= MACHINE


@dataclass(frozen=True, slots=True)
class LearnedFigures:
    """What is learned from the posts, except arrays."""

    key: str  # of what it was learned from
    own: Normal
    others: Normal
    machines: MachineJudge
    thresholds: tuple[float, ...]  # of a sentence that is marked, for each of `_SHARES`
    abbreviations: frozenset[str]
    vocabulary: tuple[str, ...]
    words: int  # of the author
    never: frozenset[str]  # words that language models like and the author never uses
    rates: tuple[tuple[float, float], ...]  # of each measure of the manner, with its error
    habits: dict[str, object]
    posts: tuple[str, ...]  # their ids
    language: str = "en"
    other_posts: int = 0  # in other languages, of which nothing was learned


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
    a row of a post. `closest` returns the closest sentences of the posts, or "".
    """

    def __init__(
        self,
        figures: LearnedFigures,
        arrays: LearnedArrays,
        posts: "Callable[[], Mapping[str, TrainingText]]",
        closest: Callable[[Sequence[str]], list[str]] = lambda texts: [""] * len(texts),
    ) -> None:
        self._learned, self._arrays, self._posts = figures, arrays, cache(posts)
        self._closest = closest
        code = figures.language
        self._vocabulary = StyleVocabulary(figures.vocabulary, code)
        size = self._vocabulary.size
        self._model = StyleModel(
            BigramModel(arrays.own_pairs, arrays.own_counts, size),
            BigramModel(arrays.others_pairs, arrays.others_counts, size),
        )
        self._prose = MachineProse.load(size) if code == "en" else None
        self.habits = Habits.from_dict(figures.habits)
        self._middle, self._long = map(self.habits.words_of_sentences, (0.5, _LONG))
        rate, error = np.array(figures.rates).T
        self._manner = habits_of(rate, error, ReferenceManner.load(code))

    @classmethod
    def learn(
        cls,
        posts: "Sequence[TrainingText]",
        others: ReferenceAuthors,
        texts: Sequence[tuple[str, bool]] = (),
        key: str = "",
    ) -> "AuthorStyle":
        """Learn from posts.

        `texts` are all texts of the author, each with whether it is left out; default: the posts.
        """
        every, code = posts, others.vocabulary.code
        foreign = {post.id for post in posts if language_of([post.text]) != code}
        posts = [post for post in posts if post.id not in foreign] or posts
        whole = [post.head_and_body[1] for post in posts]
        if not is_in_the_language(whole, others.vocabulary.words[:_FREQUENT]):
            raise OwnwordsError(
                "drafts can be checked only in English, German, French and Spanish: ownwords has no"
                " other authors to compare with in the language of these posts"
            )
        parts = _parts(whole)
        pairs = [others.vocabulary.pairs(text) for text in parts]
        length, size = LENGTHS[-1], others.vocabulary.size
        if sum(map(len, pairs)) < _MIN_PASSAGES * length:
            raise CorpusError(
                f"{sum(post.words for post in posts):,} of your own words are too few to"
                " compare a draft with; about 1,000 are needed",
                hint="add posts, and read the blog again: ownwords look PATH",
            )
        known = CrossValidated(pairs, others.passages, others.source_of, size, length)
        own, away = ([row for fold in side for row in fold] for side in (known.own, known.others))
        model = StyleModel.of(pairs, others.passages, size)
        texts = texts or [(post.text, False) for post in posts]
        runs = [runs_of(post.text, _MIN_REPEATED) >> np.uint64(32) for post in posts]
        hashes = np.concatenate(runs).astype(np.uint32)
        order = np.argsort(hashes, kind="stable")
        counted = [count_text(text, code) for text in whole]
        total = sum(each.words.total() for each in counted)
        abbreviations = abbreviations_of(whole)
        fold_of = zip(parts, folds([len(part) for part in pairs]), strict=True)
        read, number = list[tuple[list[_Sentence], StyleModel]](), 0
        for text, fold in sorted(fold_of, key=lambda each: digest(each[0])):  # from all times
            if number < _MAX_SENTENCES:
                found = list(_sentences_of(text, others.vocabulary, abbreviations))
                read.append((found, known.models[fold]))
                number += len(found)
        prose, judge = None, MachineJudge.none()
        if code == "en":
            prose = MachineProse.load(size)
            weights = [[prose.of(each.pairs) for each in found] for found, _ in read]
            judge = MachineJudge.learn(weights, prose.unseen)
        own_texts = [text for text, is_left_out in texts if not is_left_out]
        figures = LearnedFigures(
            key=key,
            own=Normal.of(own),
            others=Normal.of(away),
            machines=judge,
            thresholds=(),
            abbreviations=abbreviations,
            vocabulary=others.vocabulary.words,
            words=total,
            never=_never_used(Lexicon.of(text for text, _ in texts), total, code),
            rates=tuple(zip(*(each.tolist() for each in rates(counted)), strict=True)),
            habits=Habits(own_texts, code).to_dict(),
            posts=tuple(post.id for post in posts),
            language=code,
            other_posts=len(every) - len(posts),
        )
        arrays = LearnedArrays(
            own_pairs=model.own.pairs,
            own_counts=model.own.counts,
            others_pairs=model.others.pairs,
            others_counts=model.others.counts,
            own_scores=np.array([row.mean() for row in own]),
            others_scores=np.array([row.mean() for row in away]),
            runs=hashes[order],
            runs_post=np.repeat(np.arange(len(runs)), [len(each) for each in runs]).astype(
                np.uint32
            )[order],
        )
        usual_sentences = [
            _sentence_odds(figures, prose, each, model)
            for found, model in read
            for each in found
            if each.words >= _MIN_WORDS
        ]
        thresholds = np.quantile(usual_sentences or [0.0], _SHARES).tolist()
        by_id = {post.id: post for post in posts}
        return cls(replace(figures, thresholds=tuple(thresholds)), arrays, lambda: by_id)

    @classmethod
    def of(cls, archive: Archive) -> "AuthorStyle":
        """Learn from all posts of an archive, against the reference authors of the package.

        What was learned is kept beside the archive, until posts or the reference change.
        """
        kinds = ("voices", "manner")
        files = [reference_file(kind, code) for code in LANGUAGES_OF_OTHERS for kind in kinds]
        counted = ((REFERENCE / name).read_bytes() for name in (MACHINES_FILE, *files))
        kept = KeptFile.of(archive, _LEARNED_FILE, _LEARNED_FORMAT, *counted)
        path = archive.path

        def posts() -> "dict[str, TrainingText]":
            with Archive(path) as opened:
                return _posts_of(opened)

        if not (stored := _unpacked(kept)):
            texts, read = list(archive.own_texts()), [*_posts_of(archive).values()]
            others = ReferenceAuthors.of([post.text for post in read])
            style = cls.learn(read, others, texts, kept.key)
            stored = style._learned, style._arrays
            kept.write(_packed(*stored))
        closest = partial(_closest_sentences, path, stored[0].language)
        style = cls(*stored, posts, closest)
        style.habits.choices_made = MarksFile.beside(path)
        return style

    def check(self, draft: str) -> Check:
        prose, headings = prose_of(draft)
        title = _TITLE.match(prose)
        letters = list(prose)
        for start, end in [*headings, *([title.span()] if title else [])]:
            letters[start:end] = re.sub(r"\S", " ", prose[start:end])
        text = unwrapped("".join(letters))
        weights = self._model.weights(self._vocabulary.pairs(text))
        if not len(weights):
            raise OwnwordsError(
                "the draft has no prose to check", hint="give a text file, or pipe a text in"
            )
        read = list(_sentences_of(text, self._vocabulary, self._learned.abbreviations))
        problem = "" if len(weights) >= _MIN_DRAFT else _TOO_SHORT
        if not problem and language_of([text]) != self._learned.language:
            problem, read = _OTHER_LANGUAGE, []
        judge, machine = self._learned.machines, None
        if read and self._prose and judge.can_tell:
            as_machine = np.concatenate([self._prose.of(each.pairs) for each in read])
            machine = probability(judge.odds(as_machine))
        checked = list(self._checked(draft, text, read))
        marked = [n for n, each in enumerate(checked) if each.is_marked][:_MAX_EXAMPLES]
        closest = self._closest([checked[n].text for n in marked]) if marked else ()
        for n, example in zip(marked, closest, strict=True):
            checked[n] = replace(checked[n], example=example)
        own, others = self._arrays.own_scores, self._arrays.others_scores
        yours, above = self.yours(weights), float((own < weights.mean()).mean())
        return Check(
            sentence=problem or verdict(yours, above, machine),
            is_long_enough=not problem,
            yours=yours,
            above=above,
            machine=machine,
            own_machine=judge.mistaken,
            own=self._range(own),
            others=self._range(others),
            sentences=tuple(checked),
            written_before=self._written_before(text),
            counts=tuple(self._counts(self._count(text))) if not problem else (),
            language=self._learned.language,
            other_posts=self._learned.other_posts,
        )

    def _count(self, text: str) -> TextCounts:
        return count_text(text, self._learned.language)

    def _checked(
        self, draft: str, text: str, read: "Sequence[_Sentence]"
    ) -> Iterator[CheckedSentence]:
        """Yield the long sentences; whether one is marked depends on itself alone."""
        forms = [edit for edit in self.habits.forms(text) if any(map(str.isalpha, edit.before))]
        forms.sort(key=lambda edit: edit.start)
        places = [edit.start for edit in forms]
        choices = self.habits.choices_made()
        threshold = float(np.interp(choices.marked, _SHARES, self._learned.thresholds))
        for each in read:
            if each.words < _MIN_WORDS:
                continue
            start, end = each.start, each.end
            sentence = text[start:end]
            odds = _sentence_odds(self._learned, self._prose, each, self._model)
            found = CheckedSentence(
                draft[start:end], start, end, probability(odds), is_marked=False
            )
            is_kept = choices.hides(UNLIKE) or choices.keeps(sentence)
            if odds < threshold and not is_kept:
                better = forms[bisect_left(places, start) : bisect_left(places, end)]
                new = self._new_words(sentence, choices.allowed)
                because = dict.fromkeys(self._because(sentence, better, new))
                found = replace(
                    found,
                    is_marked=True,
                    because=tuple(because)[:_MAX_REASONS]
                    or (_NO_REASON if self._prose else _NO_REASON_BY_OTHERS,),
                    new_words=new,
                )
            yield found

    def yours(self, weights: Vector) -> float:
        """Return the probability that some pairs are the author's rather than another person's."""
        own, others = self._learned.own, self._learned.others
        return probability(log_odds(own, others, float(weights.mean()), len(weights)))

    def _range(self, scores: Vector) -> Range:
        low, middle, high = (
            self.yours(np.full(LENGTHS[-1], score))
            for score in np.quantile(scores, (0.1, 0.5, 0.9))
        )
        return Range(middle, low, high)

    def _because(self, sentence: str, forms: Sequence[Edit], new: Sequence[str]) -> Iterator[str]:
        """Yield the reasons why a sentence is unlike the author's, the plainest first."""
        for edit in forms:
            if " " in edit.before and len(edit.after) < 2:  # a stock phrase that needs no other
                yield f"you never write “{edit.before.rpartition(' ')[0]}”"
            else:
                yield f"you write “{edit.after}” rather than “{edit.before}”: {edit.because}"
        for word in new:
            yield f"you never write “{word}”, which language models like"
        if (words := len(sentence.split())) > self._long:
            yield (
                f"it has {words} words; nine in ten of your sentences have at most"
                f" {self._long:.0f}, and half have at most {self._middle:.0f}"
            )
        counts = self._count(sentence)
        rare = [
            habit
            for habit, number, total in zip(self._manner, counts.counts, counts.totals, strict=True)
            if number > _TOO_OFTEN * habit.own * total
            and habit.is_marked
            and habit.group not in ("lengths", "ends")
            and not (forms and habit.per == "contractions")
            and 2 * habit.own < (habit.middle if habit.machines is None else habit.machines)
        ]
        yield from map(_in_words, sorted(rare, key=lambda each: -each.distance))
        yield from self._telling(sentence)

    def _new_words(self, sentence: str, allowed: frozenset[str]) -> tuple[str, ...]:
        """Return the words that language models like and the author has never written."""
        never, words = self._learned.never - allowed, (word[0] for word in words_in(sentence))
        return tuple(dict.fromkeys(word for word in words if plain_form(word) in never))

    def _telling(self, sentence: str) -> Iterator[str]:
        """Yield pairs of words that others use more often, the most machine-like first."""
        tokens = list(self._vocabulary.tokens(sentence))
        pairs, shown = self._vocabulary.pairs_of(tokens), self._vocabulary.shown
        own, others = self._model.own, self._model.others
        weights = self._prose.of(pairs) if self._prose else -self._model.weights(pairs)
        for n in np.argsort(-weights).tolist():
            before, after = shown(tokens[n - 1].number), shown(tokens[n].number)
            number = own.count(pairs[n])
            expected = others.count(pairs[n]) * own.total / others.total
            is_telling = n and weights[n] > 0 and expected > max(_MIN_EXPECTED, 2 * number)
            if is_telling and before and after:
                yield (
                    f"“{before} {after}”: {count(number, 'time')} in your posts, about"
                    f" {expected:,.0f} times in as many words by others"
                )

    def _counts(self, draft: TextCounts) -> Iterator[str]:
        """Yield what the draft has more or less often than the posts, the most unusual first."""
        found = list[tuple[float, str]]()
        for habit, number, total in zip(self._manner, draft.counts, draft.totals, strict=True):
            if habit.group == "ends" or habit.per in ("texts", "paragraphs") or not total:
                continue
            expected = habit.own * total
            unusual = abs(number - expected) / (expected + 1) ** 0.5
            line = f"{habit.label}: {number:.0f}; in as much of your own text about {expected:.0f}"
            if habit.is_length:
                lengths = self.habits.spread_of_sentences() / total**0.5
                unusual = abs(number / total - habit.own) / max(lengths, 1e-6)
                line = (
                    f"{habit.label}: {number / total:.0f} on average; {habit.own:.0f} in your posts"
                )
            if unusual > _UNUSUAL:
                found.append((unusual, line))
        yield from (line for _, line in sorted(found, reverse=True)[:_MAX_COUNTS])

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
    """Return what was learned as the bytes of a file: arrays, one of which holds JSON."""
    file = io.BytesIO()
    named = {each.name: getattr(arrays, each.name) for each in fields(LearnedArrays)}
    np.savez(file, figures=np.frombuffer(msgspec.json.encode(figures), np.uint8), **named)
    return file.getvalue()


def _unpacked(kept: KeptFile) -> tuple[LearnedFigures, LearnedArrays] | None:
    """Return what was learned; None if it must be learned again."""
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
    """Return the texts; a text that is much of the archive is cut into parts, between words."""
    total = sum(map(len, texts))
    part = re.compile(rf".{{{max(_MIN_PART, int(total * _PART_SHARE))},}}?\s|.+", re.DOTALL)
    return [
        each
        for text in texts
        for each in (part.findall(text) if len(text) > total * _LONG_SHARE else [text])
    ]


class _Sentence(NamedTuple):
    """The place of a sentence in a text, its words, and its pairs of tokens."""

    start: int
    end: int
    words: int
    pairs: Pairs


def _sentences_of(
    text: str, vocabulary: StyleVocabulary, abbreviations: frozenset[str]
) -> Iterator[_Sentence]:
    """Yield the sentences of a text, each as if it began a paragraph."""
    for start, end in sentences(text, abbreviations):
        pairs = vocabulary.pairs(text[start:end])
        if len(pairs):
            yield _Sentence(start, end, len(text[start:end].split()), pairs)


def _sentence_odds(
    learned: LearnedFigures, prose: MachineProse | None, sentence: _Sentence, model: StyleModel
) -> float:
    """Return the log odds that a sentence is the author's, not a person's or a machine's."""
    pairs = sentence.pairs
    odds = log_odds(learned.own, learned.others, model.score(pairs), len(pairs))
    if prose and learned.machines.can_tell:
        odds -= learned.machines.odds(prose.of(pairs))
    return odds


def _never_used(own: Lexicon, total: int, code: str) -> frozenset[str]:
    """Return the words that language models like, whatever the subject, and the author never."""
    manner = ReferenceManner.load(code)
    are_liked = manner.by_machines > 2 * manner.by_people
    is_expected = manner.by_machines * total / 1e6 >= _MIN_EXPECTED
    usual = np.flatnonzero(are_liked & is_expected & (manner.spread >= _USUAL)).tolist()
    return frozenset(word for n in usual if not own.knows(word := manner.words[n]))


def _closest_sentences(path: Path, code: str, texts: Sequence[str]) -> list[str]:
    """Return for each sentence the closest one of the posts; "" if none is about the same."""
    from ownwords.ask.index import SearchIndex  # noqa: PLC0415 - for marked sentences alone
    from ownwords.ask.search import ArchiveSearcher  # noqa: PLC0415

    with SearchIndex(path) as index:
        index.refresh()
        searcher = ArchiveSearcher(index, None)
        return [_closest_sentence(searcher, " ".join(text.split()), code) for text in texts]


def _closest_sentence(searcher: "ArchiveSearcher", sentence: str, code: str) -> str:
    from ownwords.ask.passages import best_sentence  # noqa: PLC0415

    def content(text: str) -> set[str]:
        words = content_words(text)
        return {stem for stem in words if words[stem].lower() not in stop_words()[code]}

    wanted = content(sentence)
    for passage in searcher.find(sentence, _NEAR).passages:
        place = best_sentence(sentence, passage.text)
        if passage.whose == "own" and place:
            found = " ".join(passage.text[slice(*place)].split())
            if found != sentence and len(content(found) & wanted) >= _MIN_COMMON:
                return found
    return ""


def _in_words(habit: Habit) -> str:
    of = {"sentences": "of sentences", "contractions": "of cases"}.get(habit.per, "per 1,000 words")
    own, others = habit.said(habit.own), habit.said(habit.middle)
    if habit.machines is None:
        return f"{habit.label}: you {own} {of}, others {others}"
    return (
        f"{habit.label}: you {own} {of}, others {others}, language models"
        f" {habit.said(habit.machines)}"
    )


def verdict(yours: float, above: float, machine: float | None) -> str:
    """Return in words what a draft is more like, or that it is too close to tell."""
    if (machine or 0) >= MACHINE:
        return "It is more like a language model’s prose than like your posts."
    if (machine or 0) >= _CLOSE:
        return "It is too close to tell: it could be yours, or a language model’s."
    if yours < _UNLIKE:
        return "It is more like what other people write than like your posts."
    if yours < _LIKE:
        return "It is too close to tell: it could be yours, or another person’s."
    if above < _FEW:
        return (
            "It is only partly like your posts: nearly all of your own passages are more like them."
        )
    return "It is more like your posts than like what other people write."


# ---- the check as blocks for the terminal and the page


def check_view(check: Check) -> list[b.Block]:
    """Return the verdict, its scale, the sentences unlike the author's, and repeated words."""
    marked = [sentence for sentence in check.sentences if sentence.is_marked]
    found: list[b.Block] = [b.Paragraph(line=check.sentence, style="statement")]
    if check.other_posts:
        found.append(b.Paragraph(line=_ONE_LANGUAGE[check.language], style="quiet"))
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
    judged = count(len(check.sentences), "sentence")
    heading = f"None of {judged} is unlike yours"
    if marked:
        heading = f"{len(marked)} of {judged} are unlike yours"
    elif not check.sentences:
        heading = "No sentence is long enough to be judged"
    if check.sentence != _OTHER_LANGUAGE:
        found.append(b.Heading(text=heading))
    if marked:
        usual = (
            "Each sentence of eight words or more is judged by itself; about one in ten of your own"
            " would be marked, too."
        )
        items = []
        for sentence in marked:
            lines: list[b.Line] = list(sentence.because)
            if sentence.example:
                lines.append(["You wrote: ", _quoted(sentence.example)])
            items.append(b.Item(title=_quoted(sentence.text), lines=lines))
        found += [b.Paragraph(line=usual, style="quiet"), b.Items(rows=items, style="notes")]
    if check.counts:
        found += [b.Heading(text="Counted in the whole draft"), _lines(check.counts)]
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
    if check.language != "en":
        line = (
            "Prose by language models can be recognised in English only: the verdict is about other"
            " people alone."
        )
        return [b.Paragraph(line=line)]
    if check.machine is None:
        line = (
            "Your posts read like a language model’s prose, so a language model’s draft"
            " cannot be told from yours."
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


def _lines(lines: Sequence[str]) -> b.Items:
    return b.Items(rows=[b.Item(title=line) for line in lines], style="notes")


def _quoted(text: str) -> b.Span:
    return b.Span(plain(text, _MAX_QUOTED), "quote")
