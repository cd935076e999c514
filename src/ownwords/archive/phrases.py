"""Favourite phrases: runs of three to seven words that an author repeats.

A phrase lies within a clause, its words separated by single spaces, and occurs in at least three
posts. It has a word that is not among the archive's most frequent, and no digit; it does not end in
one of the very commonest words, nor lie inside a longer phrase that is about as frequent. A
paragraph of at least five words, or a clause of nine, that is repeated word for word counts once:
a signature or a standard opening.

A sample bounds memory: from an archive of more than two million own words that many are read, in
whole posts chosen by a hash of their ids, and the counts refer to the sample.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from ownwords.archive.report import Phrase, PostSummary
from ownwords.core.text import Hashes, WordHashes, hash_words, shingles

SAMPLE = 2_000_000  # words
LENGTHS = (7, 6, 5, 4, 3)
MIN_POSTS = 3
OVERALL = 20
PER_YEAR = 3

_FREQUENT = 120  # number of most frequent words, which are not telling by themselves
_GLUE = 14  # number of commonest words in which no phrase may end
# Minimum words of a clause and a paragraph that count once if repeated.
_STANDING, _STANDING_PARAGRAPH = 9, 5
_AS_FREQUENT = 0.75
_RICH = 2  # telling words required in a year's phrase, as a year has few posts
_TIMES_MORE = 2.0  # minimum ratio of the phrase's share of posts in the year to other years
_SPELLINGS = 100  # occurrences read to find a phrase's spelling
_LOOKED_AT = 500  # best candidates considered
_COUNTED_BITS = 21  # of a hash, by which n-grams are counted before they are sorted
_KEY = b"ownwords phrases"

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]
_Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _WordSample:
    """The words of all sampled posts, concatenated."""

    posts: Sequence[PostSummary]
    texts: Sequence[str]  # per post
    owners: npt.NDArray[np.int32]  # per word: the index of its post
    starts: npt.NDArray[np.int32]  # per word: where it begins in the post's text, and
    ends: npt.NDArray[np.int32]  # where it ends
    clauses: npt.NDArray[np.int32]  # per word; -1 in a repeated clause, which is counted only once
    ranks: npt.NDArray[np.int32]  # per word; 0 is the most frequent
    counts: _Numbers  # of each rank


@dataclass(frozen=True, slots=True)
class _Ngrams:
    """Candidate phrases of one length: word ranks, counts, scores and occurrences."""

    words: npt.NDArray[np.int32]  # shape (candidates, length)
    posts: _Numbers
    counts: _Numbers
    scores: _Scores
    places: npt.NDArray[np.int32]  # word indices of all occurrences, grouped by candidate
    is_first: _Mask  # per occurrence: the first in its post
    begins: _Numbers  # index in `places` of each candidate's first occurrence
    good: _Mask  # may be shown
    rich: _Mask  # has at least two telling words


def favourite_phrases(chosen: Sequence[PostSummary], text_of: Callable[[str], str]) -> list[Phrase]:
    """The best phrases over all years, then the most distinctive of each year.

    `chosen` comes from `sample_posts`; `text_of` returns a post's own words by id. Fewer than three
    posts give no phrases.
    """
    if len(chosen) < MIN_POSTS:
        return []
    sample = _read(chosen, text_of)
    lengths: list[_Ngrams] = []
    for length in LENGTHS:
        lengths.append(_count_ngrams(sample, length, lengths[-1] if lengths else None))
    best = _best(lengths, [ngrams.scores for ngrams in lengths], OVERALL, sample)
    phrases = [
        Phrase(text, int(ngrams.counts[i]), int(ngrams.posts[i])) for ngrams, i, text in best
    ]
    return [*phrases, *_by_year(lengths, sample)]


def sample_posts(posts: Iterable[PostSummary]) -> list[PostSummary]:
    """The posts with own words sorted by id, or a sample of them with at most `SAMPLE` words."""
    posts = [post for post in posts if post.own_words]
    if sum(post.own_words for post in posts) > SAMPLE:
        posts.sort(key=lambda post: blake2b(post.id.encode("utf-8", "replace"), key=_KEY).digest())
        chosen, left = [], SAMPLE
        for post in posts:
            if post.own_words <= left:
                chosen.append(post)
                left -= post.own_words
        posts = chosen
    return sorted(posts, key=lambda post: post.id)


def _read(posts: Sequence[PostSummary], text_of: Callable[[str], str]) -> _WordSample:
    seen_paragraphs: set[int] = set()
    texts = ["\n\n".join(_once(text_of(post.id), seen_paragraphs)) for post in posts]
    hashes, starts, ends, breaks, sizes = _words(texts)
    clauses = _clauses(hashes, breaks)
    _, ranks, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    del hashes
    order = np.argsort(-counts, kind="stable")
    rank_of = np.empty(len(order), np.int32)
    rank_of[order] = np.arange(len(order), dtype=np.int32)
    return _WordSample(
        posts,
        texts,
        np.repeat(np.arange(len(texts), dtype=np.int32), sizes),
        starts,
        ends,
        clauses,
        rank_of[ranks],
        counts[order],
    )


def _once(text: str, seen_paragraphs: set[int]) -> Iterator[str]:
    """Yield the paragraphs that have not occurred before."""
    for paragraph in text.split("\n\n"):
        words = paragraph.split()
        if len(words) >= _STANDING_PARAGRAPH:
            key = hash(" ".join(words).casefold())
            if key in seen_paragraphs:
                continue
            seen_paragraphs.add(key)
        yield paragraph


def _words(
    texts: Sequence[str],
) -> tuple[Hashes, npt.NDArray[np.int32], npt.NDArray[np.int32], _Mask, list[int]]:
    """The hashes, starts and ends of all words, whether each begins a clause, and their numbers."""
    hashes, starts, ends, breaks = [], [], [], []
    for text in texts:
        words = hash_words(text)
        hashes.append(words.hashes)
        starts.append(words.starts.astype(np.int32))
        ends.append(words.ends.astype(np.int32))
        breaks.append(_breaks(text, words))
    return (
        np.concatenate(hashes),
        np.concatenate(starts),
        np.concatenate(ends),
        np.concatenate(breaks),
        [len(part) for part in hashes],
    )


def _breaks(text: str, words: WordHashes) -> _Mask:
    """A mask of the words that begin a clause: those not preceded by just a space or newline."""
    breaks = np.ones(len(words.starts), bool)
    if len(breaks):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        spaced = np.isin(codes[words.ends[:-1]], (0x20, 0x0A, 0xA0))
        breaks[1:] = (words.starts[1:] - words.ends[:-1] != 1) | ~spaced
    return breaks


def _clauses(hashes: Hashes, breaks: _Mask) -> npt.NDArray[np.int32]:
    """The clause number of each word; -1 in a clause repeated word for word."""
    if not len(hashes):
        return np.zeros(0, np.int32)
    begins = np.flatnonzero(breaks)
    lengths = np.diff(begins, append=len(hashes))
    place = np.arange(len(hashes), dtype=np.uint64) - np.repeat(begins, lengths).astype(np.uint64)
    keys = np.add.reduceat(hashes * (2 * place + np.uint64(1)), begins)
    again = lengths >= _STANDING
    again[np.unique(keys, return_index=True)[1]] = False
    numbers = np.where(again, -1, np.arange(len(begins))).astype(np.int32)
    return np.repeat(numbers, lengths)


def _count_ngrams(sample: _WordSample, length: int, longer: _Ngrams | None) -> _Ngrams:
    """Count the n-grams of `length` words."""
    n = max(0, len(sample.ranks) - length + 1)
    inside = sample.clauses[:n] == sample.clauses[length - 1 :][:n]
    places = np.flatnonzero(inside & (sample.clauses[:n] >= 0)).astype(np.int32)
    keys = shingles(sample.ranks.astype(np.uint64), length)[places]
    # Most occur once. Counting them by a part of their hashes spares sorting these.
    parts = (keys >> np.uint64(64 - _COUNTED_BITS)).astype(np.intp)
    may_be_frequent = np.bincount(parts)[parts] >= MIN_POSTS
    keys, places = keys[may_be_frequent], places[may_be_frequent]
    del parts, may_be_frequent
    order = np.argsort(keys, kind="stable").astype(np.int32)
    keys, places = keys[order], places[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = keys[1:] != keys[:-1]
    is_first = is_new.copy()
    is_first[1:] |= sample.owners[places[1:]] != sample.owners[places[:-1]]
    begins = np.flatnonzero(is_new)
    counts, posts = np.diff(begins, append=len(keys)), _sums(is_first, begins)
    enough = posts >= MIN_POSTS
    kept = np.repeat(enough, counts)
    places, is_first = places[kept], is_first[kept]
    counts, posts = counts[enough], posts[enough]
    begins = np.cumsum(counts) - counts
    words = sample.ranks[places[begins][:, None] + np.arange(length)]
    # Pointwise mutual information of the words, in nats.
    logs = np.log(sample.counts / len(sample.ranks))
    together = np.log(counts / len(sample.ranks)) - logs[words].sum(axis=1)
    # Occurrences outside this phrase: a word frequent only through the phrase is telling.
    elsewhere = sample.counts[words] - counts[:, None]
    telling = elsewhere < _count_at(sample, _FREQUENT)
    good = telling.any(axis=1) & (elsewhere[:, -1] < _count_at(sample, _GLUE))
    if longer is not None and len(posts):
        # A candidate inside a longer good one that is about as frequent is not shown.
        candidate_at = np.full(n + 1, -1)
        candidate_at[places] = np.repeat(np.arange(len(posts)), counts)
        most = np.zeros(len(posts), np.int64)
        for shift in (0, 1):
            within = candidate_at[longer.places[longer.begins[longer.good]] + shift]
            np.maximum.at(most, within[within >= 0], longer.posts[longer.good][within >= 0])
        good &= most < _AS_FREQUENT * posts
    return _Ngrams(
        words,
        posts,
        counts,
        np.sqrt(posts) * together,
        places,
        is_first,
        begins,
        good,
        telling.sum(axis=1) >= _RICH,
    )


def _sums(values: npt.NDArray[np.generic], begins: _Numbers) -> _Numbers:
    """The sum of each group of values."""
    if not len(begins):
        return np.zeros(0, np.int64)
    return np.add.reduceat(values.astype(np.int64), begins)


def _count_at(sample: _WordSample, rank: int) -> int:
    """The count of the word at `rank`, or at a smaller rank in a small archive."""
    return int(sample.counts[min(rank, len(sample.counts) // 4)]) if len(sample.counts) else 0


def _spelling(sample: _WordSample, ngrams: _Ngrams, i: int) -> str:
    """A candidate's most frequent spelling; empty if it has a digit."""
    first, length = int(ngrams.begins[i]), ngrams.words.shape[1]
    written: Counter[str] = Counter()
    for at in ngrams.places[first : first + min(int(ngrams.counts[i]), _SPELLINGS)].tolist():
        text = sample.texts[sample.owners[at]]
        written[" ".join(text[sample.starts[at] : sample.ends[at + length - 1]].split())] += 1
    best = max(written, key=lambda word: (written[word], word.islower(), word))
    return "" if any(char.isdigit() for char in best) else best


def _best(
    lengths: Sequence[_Ngrams], scores: Sequence[_Scores], most: int, sample: _WordSample
) -> Iterator[tuple[_Ngrams, int, str]]:
    """Yield the best candidates that do not overlap, as (n-grams, candidate, text)."""
    ranked = sorted(
        (-float(by[i]), t, i)
        for t, (ngrams, by) in enumerate(zip(lengths, scores, strict=True))
        for i in np.flatnonzero(ngrams.good & (by > 0)).tolist()
    )
    taken: set[tuple[int, ...]] = set()
    for _, t, i in ranked[:_LOOKED_AT]:
        words = lengths[t].words[i].tolist()
        runs = {tuple(words[k : k + 3]) for k in range(len(words) - 2)}
        if runs & taken or not (text := _spelling(sample, lengths[t], i)):
            continue
        taken |= runs
        yield lengths[t], i, text
        most -= 1
        if not most:
            return


def _by_year(lengths: Sequence[_Ngrams], sample: _WordSample) -> Iterator[Phrase]:
    """Yield the phrases that are in a far larger share of a year's posts than of other years'."""
    year_of = np.array([int(post.day[:4] or 0) for post in sample.posts])
    years = sorted(set(year_of.tolist()) - {0})
    if len(years) < 2:
        return
    years_at = [year_of[sample.owners[ngrams.places]] for ngrams in lengths]
    for year in years:
        is_of_year = year_of == year
        posts_of_year = int(is_of_year.sum())
        posts_of_others = len(year_of) - posts_of_year
        scores = []
        for ngrams, year_at in zip(lengths, years_at, strict=True):
            posts = _sums((year_at == year) & ngrams.is_first, ngrams.begins)
            others = (ngrams.posts - posts + 0.5) / (posts_of_others + 0.5)
            times = posts / posts_of_year / others
            telling = (posts >= MIN_POSTS) & (times >= _TIMES_MORE) & ngrams.rich
            scores.append(np.where(telling, ngrams.scores * np.log(np.maximum(times, 1)), 0))
        for ngrams, i, text in _best(lengths, scores, PER_YEAR, sample):
            first = int(ngrams.begins[i])
            owners = sample.owners[ngrams.places[first : first + int(ngrams.counts[i])]]
            owners = owners[is_of_year[owners]]
            yield Phrase(text, len(owners), len(set(owners.tolist())), year)
