"""Favourite phrases: runs of three to seven words that an author repeats.

A phrase lies within a clause, its words separated by single spaces, and occurs in at least three
posts. It has a word that is not among the archive's most frequent, and no digit; it does not end in
one of the very commonest words, nor lie inside a longer phrase that is about as frequent. A
paragraph of at least five words, or a clause of nine (of six, if it is in over a third of the
posts), that is repeated word for word counts once: a signature or a standard opening.

A sample bounds memory: from an archive of more than two million own words that many are read, in
whole posts chosen by a hash of their ids, and the counts refer to the sample. Posts with the chosen
phrases are read once more, to show each phrase in its most frequent spelling.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.archive.report import Phrase
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
# A shorter clause counts once too, if it is in this share of the posts.
_SHORT_STANDING, _SHARE_STANDING = 6, 1 / 3
_AS_FREQUENT = 0.75
_RICH = 2  # telling words required in a year's phrase, as a year has few posts
_TIMES_MORE = 2.0  # minimum ratio of the phrase's share of posts in the year to other years
_SHOWN_IN = 8  # posts read to find a phrase's spelling
_LOOKED_AT = 500  # best candidates considered
_CACHE = 64
_KEY = b"ownwords phrases"

_Numbers = npt.NDArray[np.int64]
_Scores = npt.NDArray[np.float64]


class PhraseSource(NamedTuple):
    """A post to sample and its number of own words; `year` is 0 without a date."""

    id: str
    year: int
    words: int


@dataclass(frozen=True, slots=True)
class _WordSample:
    """The words of all sampled posts, concatenated: each word's rank, clause and post."""

    posts: Sequence[PhraseSource]
    ranks: npt.NDArray[np.int32]  # per word; 0 is the most frequent
    counts: _Numbers  # of each rank
    vocabulary: Hashes  # of each rank
    clauses: npt.NDArray[np.int32]  # per word; -1 in a repeated clause, which is counted only once
    owners: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Ngrams:
    """Candidate phrases of one length: word ranks, counts, scores and occurrences."""

    words: npt.NDArray[np.int32]  # shape (candidates, length)
    posts: _Numbers
    counts: _Numbers
    scores: _Scores
    places: _Numbers  # word indices of all occurrences, grouped by candidate
    begins: _Numbers  # index in `places` of each candidate's first occurrence
    good: npt.NDArray[np.bool_]
    rich: npt.NDArray[np.bool_]  # has at least two telling words


def favourite_phrases(
    chosen: Sequence[PhraseSource], text_of: Callable[[str], str]
) -> list[Phrase]:
    """The best phrases over all years, then the most distinctive of each year.

    `chosen` comes from `sample_posts`; `text_of` returns a post's own words by id. Fewer than three
    posts give no phrases.
    """
    if len(chosen) < MIN_POSTS:
        return []
    sample = _read(chosen, text_of)
    turns: list[_Ngrams] = []
    longer: _Ngrams | None = None
    for length in LENGTHS:
        longer = _count_ngrams(sample, length, longer)
        turns.append(longer)
    shown = _PhraseTexts(sample, text_of)
    phrases = [
        Phrase(text, int(turns[t].counts[i]), int(turns[t].posts[i]))
        for t, i, text in _best(turns, [ngrams.scores for ngrams in turns], OVERALL, shown)
    ]
    phrases.extend(_by_year(turns, sample, shown))
    return phrases


def sample_posts(posts: Iterable[PhraseSource]) -> list[PhraseSource]:
    """The posts sorted by id, or a sample of them with at most `SAMPLE` words."""
    ordered = sorted(post for post in posts if post.words)
    if sum(post.words for post in ordered) <= SAMPLE:
        return ordered
    ordered.sort(
        key=lambda post: blake2b(post.id.encode("utf-8", "surrogatepass"), key=_KEY).digest()
    )
    chosen, left = [], SAMPLE
    for post in ordered:
        if post.words <= left:
            chosen.append(post)
            left -= post.words
    return sorted(chosen)


def _read(posts: Sequence[PhraseSource], text_of: Callable[[str], str]) -> _WordSample:
    seen_paragraphs: set[int] = set()
    hashes: list[Hashes] = []
    breaks: list[npt.NDArray[np.bool_]] = []
    for post in posts:
        text = "\n\n".join(_once(text_of(post.id), seen_paragraphs))
        words = hash_words(text)
        hashes.append(words.hashes)
        breaks.append(_breaks(text, words))
    sizes = [len(post_hashes) for post_hashes in hashes]
    all_hashes, starts = np.concatenate(hashes), np.concatenate(breaks)
    del hashes, breaks
    vocabulary, ranks, counts = np.unique(all_hashes, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    rank_of = np.empty(len(order), np.int32)
    rank_of[order] = np.arange(len(order), dtype=np.int32)
    return _WordSample(
        posts,
        rank_of[ranks],
        counts[order],
        vocabulary[order],
        _clauses(all_hashes, starts, len(posts)),
        np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
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


def _breaks(text: str, words: WordHashes) -> npt.NDArray[np.bool_]:
    """A mask of the words that begin a clause: those not preceded by just a space or newline."""
    breaks = np.ones(len(words.starts), bool)
    if len(breaks):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        between = codes[np.minimum(words.ends[:-1], len(codes) - 1)]
        spaced = (between == 0x20) | (between == 0x0A) | (between == 0xA0)
        breaks[1:] = (words.starts[1:] - words.ends[:-1] != 1) | ~spaced
    return breaks


def _clauses(hashes: Hashes, breaks: npt.NDArray[np.bool_], posts: int) -> npt.NDArray[np.int32]:
    """The clause number of each word; -1 in a clause repeated word for word."""
    if not len(hashes):
        return np.zeros(0, np.int32)
    begins = np.flatnonzero(breaks)
    lengths = np.diff(begins, append=len(hashes))
    place = np.arange(len(hashes), dtype=np.uint64) - np.repeat(begins, lengths).astype(np.uint64)
    keys = np.add.reduceat(hashes * (2 * place + np.uint64(1)), begins)
    _, first, same, times = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    everywhere = (times[same] > _SHARE_STANDING * posts) & (lengths >= _SHORT_STANDING)
    again = (lengths >= _STANDING) | everywhere
    again[first] = False
    numbers = np.where(again, -1, np.arange(len(begins))).astype(np.int32)
    return np.repeat(numbers, lengths)


def _count_ngrams(sample: _WordSample, length: int, longer: _Ngrams | None) -> _Ngrams:
    """Count the n-grams of `length` words; `good` marks those that may be shown."""
    n = max(0, len(sample.ranks) - length + 1)
    inside = sample.clauses[:n] == sample.clauses[length - 1 :][:n]
    places = np.flatnonzero(inside & (sample.clauses[:n] >= 0))
    keys = shingles(sample.ranks.astype(np.uint64), length)[places]
    order = np.argsort(keys, kind="stable")
    keys, places = keys[order], places[order]
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    fresh = new.copy()  # the first occurrence of a candidate in a post
    fresh[1:] |= sample.owners[places[1:]] != sample.owners[places[:-1]]
    begins = np.flatnonzero(new)
    counts = np.diff(begins, append=len(keys))
    posts = np.add.reduceat(fresh.astype(np.int64), begins) if len(begins) else counts
    enough = posts >= MIN_POSTS
    places = places[np.repeat(enough, counts)]
    counts, posts = counts[enough], posts[enough]
    begins = np.cumsum(counts) - counts
    words = sample.ranks[places[begins][:, None] + np.arange(length)]
    # Pointwise mutual information of the words, in nats.
    logs = np.log(sample.counts / len(sample.ranks))
    together = np.log(counts / len(sample.ranks)) - logs[words].sum(axis=1)
    # Occurrences outside this phrase: a word frequent only through the phrase is telling.
    elsewhere = sample.counts[words] - counts[:, None]
    telling = elsewhere < _count_at(sample, _FREQUENT)
    good, rich = telling.any(axis=1), telling.sum(axis=1) >= _RICH
    good &= elsewhere[:, -1] < _count_at(sample, _GLUE)
    good &= ~_swallowed(places, begins, posts, longer, n)
    return _Ngrams(words, posts, counts, np.sqrt(posts) * together, places, begins, good, rich)


def _count_at(sample: _WordSample, rank: int) -> int:
    """The count of the word at `rank`, or at a smaller rank in a small archive."""
    return int(sample.counts[min(rank, len(sample.counts) // 4)]) if len(sample.counts) else 0


def _swallowed(
    places: _Numbers, begins: _Numbers, posts: _Numbers, longer: _Ngrams | None, n: int
) -> npt.NDArray[np.bool_]:
    """A mask of the candidates inside a longer good one that is about as frequent."""
    most = np.zeros(len(posts), np.int64)
    if longer is not None and len(longer.posts) and len(posts):
        at = np.full(n, -1, np.int64)
        at[places] = np.repeat(np.arange(len(posts)), np.diff(begins, append=len(places)))
        for shift in (0, 1):
            within = at[longer.places[longer.begins[longer.good]] + shift]
            np.maximum.at(most, within[within >= 0], longer.posts[longer.good][within >= 0])
    return most >= _AS_FREQUENT * posts


class _PhraseTexts:
    """Finds how phrases are spelled in the posts."""

    def __init__(self, sample: _WordSample, text_of: Callable[[str], str]) -> None:
        self._sample = sample
        self._read = lru_cache(_CACHE)(lambda id_: (text := text_of(id_), hash_words(text)))

    def text(self, turns: _Ngrams, i: int) -> str:
        """A candidate's most frequent spelling; empty if it has a digit."""
        first = int(turns.begins[i])
        places = turns.places[first : first + int(turns.counts[i])]
        wanted = self._sample.vocabulary[turns.words[i]]
        written: Counter[str] = Counter()
        for owner in np.unique(self._sample.owners[places])[:_SHOWN_IN].tolist():
            text, words = self._read(self._sample.posts[owner].id)
            n = len(words.hashes) - len(wanted) + 1
            matches = np.ones(n, bool)
            for k, word in enumerate(wanted):
                matches &= words.hashes[k : k + n] == word
            for at in np.flatnonzero(matches).tolist():
                passage = text[words.starts[at] : words.ends[at + len(wanted) - 1]]
                written[" ".join(passage.split())] += 1
        best = max(written, key=lambda word: (written[word], word.islower(), word))
        return "" if any(char.isdigit() for char in best) else best


def _best(
    turns: Sequence[_Ngrams], scores: Sequence[_Scores], most: int, shown: _PhraseTexts
) -> Iterator[tuple[int, int, str]]:
    """Yield the best candidates that do not overlap, as (index of length, candidate, text)."""
    ranked = sorted(
        (-score, t, i)
        for t, (ngrams, by) in enumerate(zip(turns, scores, strict=True))
        for i, score in zip(
            np.flatnonzero(ngrams.good).tolist(), by[ngrams.good].tolist(), strict=True
        )
        if score > 0
    )
    taken: set[tuple[int, ...]] = set()
    for _, t, i in ranked[:_LOOKED_AT]:
        words = turns[t].words[i].tolist()
        runs = {tuple(words[k : k + 3]) for k in range(len(words) - 2)}
        if runs & taken or not (text := shown.text(turns[t], i)):
            continue
        taken |= runs
        yield t, i, text
        most -= 1
        if not most:
            return


def _by_year(
    turns: Sequence[_Ngrams], sample: _WordSample, shown: _PhraseTexts
) -> Iterator[Phrase]:
    """Yield the phrases that are in a far larger share of a year's posts than of other years'."""
    year_of = np.array([post.year for post in sample.posts])
    years = sorted({post.year for post in sample.posts} - {0})
    if len(years) < 2:
        return
    for year in years:
        posts_of_year = int((year_of == year).sum())
        posts_of_others = len(year_of) - posts_of_year
        in_year = [_in_year(ngrams, sample.owners, year_of == year) for ngrams in turns]
        scores = []
        for ngrams, (posts, _) in zip(turns, in_year, strict=True):
            times = (posts / posts_of_year) / (
                (ngrams.posts - posts + 0.5) / (posts_of_others + 0.5)
            )
            telling = (posts >= MIN_POSTS) & (times >= _TIMES_MORE) & ngrams.rich
            scores.append(np.where(telling, ngrams.scores * np.log(np.maximum(times, 1)), 0))
        for t, i, text in _best(turns, scores, PER_YEAR, shown):
            posts, counts = in_year[t]
            yield Phrase(text, int(counts[i]), int(posts[i]), year)


def _in_year(
    turns: _Ngrams, owners: npt.NDArray[np.int32], chosen: npt.NDArray[np.bool_]
) -> tuple[_Numbers, _Numbers]:
    """Per candidate, the number of chosen posts with it and its occurrences in them."""
    n = len(turns.posts)
    candidate = np.repeat(np.arange(n), turns.counts)
    owner = owners[turns.places]
    new = np.ones(len(owner), bool)
    new[1:] = (owner[1:] != owner[:-1]) | (candidate[1:] != candidate[:-1])
    inside = chosen[owner]
    return (
        np.bincount(candidate[inside & new], minlength=n),
        np.bincount(candidate[inside], minlength=n),
    )
