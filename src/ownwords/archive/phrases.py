"""Favourite phrases: the turns of three to seven words that an author keeps coming back to.

A phrase stands within a clause, its words parted by single spaces, in three posts or more. It
holds a word that is not among the archive's most frequent, and no digit; it does not end in one
of the very commonest words, and does not stand inside a longer phrase that is about as frequent.
A paragraph of five words or more, or a clause of nine (of six, where it stands in every third post)
that comes back word for word counts once: a signature, a standing opening.

Memory is bounded by a sample: of an archive of more than two million own words so many are read,
in whole posts chosen by a hash of their ids, and the counts are of that sample. The posts in
which the chosen phrases stand are read once more, to show each phrase as it is most often
written.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import Hashes, WordHashes, hash_words, shingles
from ownwords.archive.report import Phrase

SAMPLE = 2_000_000  # words
LENGTHS = (7, 6, 5, 4, 3)
MIN_POSTS = 3
OVERALL = 20
PER_YEAR = 3

_FREQUENT = 120  # words that say nothing by themselves: the archive's most frequent
_GLUE = 14  # of which no phrase ends in one of the very first
# Words of what counts once if repeated; a shorter clause may be a phrase itself.
_STANDING, _STANDING_PARAGRAPH = 9, 5
# A shorter clause too, if it stands in so many of the posts: nobody's favourite is in every third.
_SHORT_STANDING, _SHARE_STANDING = 6, 1 / 3
_AS_FREQUENT = 0.75
_RICH = 2  # such words in a year's phrase, which is drawn from few posts
_TIMES_MORE = 2.0  # a year's phrase stands in so many times the share of posts of other years
_SHOWN_IN = 8  # posts read to see how a phrase is written
_LOOKED_AT = 500  # candidates, the best first
_CACHE = 64
_KEY = b"ownwords phrases"

_Numbers = npt.NDArray[np.int64]
_Scores = npt.NDArray[np.float64]


class PhraseSource(NamedTuple):
    """A post whose own words are counted; `year` 0 where it has no date."""

    id: str
    year: int
    words: int


@dataclass(frozen=True, slots=True)
class _WordSample:
    """The words of all sampled posts in a row: which word, in which clause, of which post."""

    posts: Sequence[PhraseSource]
    ranks: npt.NDArray[np.int32]  # 0 the most frequent word
    counts: _Numbers  # of each rank
    vocabulary: Hashes  # of each rank
    clauses: npt.NDArray[np.int32]  # -1: repeated, counted where it stood first
    owners: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Ngrams:
    """Candidates of one length: as ranks of words, where they stand, and how often."""

    words: npt.NDArray[np.int32]  # one row a candidate
    posts: _Numbers
    counts: _Numbers
    scores: _Scores
    places: _Numbers  # of all occurrences, candidate by candidate
    begins: _Numbers  # where each candidate's occurrences begin among the places
    good: npt.NDArray[np.bool_]
    rich: npt.NDArray[np.bool_]  # holds two words or more that say something


def favourite_phrases(
    chosen: Sequence[PhraseSource], text_of: Callable[[str], str]
) -> list[Phrase]:
    """The best phrases over all years, then the most telling of each; none for under three posts.

    `chosen` are of `sample_posts`; `text_of` gives a post's own words by its id.
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
    """All posts, or so many as the sample holds; in order of their ids."""
    ordered = sorted(post for post in posts if post.words)
    if sum(post.words for post in ordered) <= SAMPLE:
        return ordered
    ordered.sort(
        key=lambda one: blake2b(one.id.encode("utf-8", "surrogatepass"), key=_KEY).digest()
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
    """The paragraphs that did not stand anywhere before."""
    for paragraph in text.split("\n\n"):
        words = paragraph.split()
        if len(words) >= _STANDING_PARAGRAPH:
            key = hash(" ".join(words).casefold())
            if key in seen_paragraphs:
                continue
            seen_paragraphs.add(key)
        yield paragraph


def _breaks(text: str, words: WordHashes) -> npt.NDArray[np.bool_]:
    """At which words a clause begins: where more than a space or line end stands before."""
    breaks = np.ones(len(words.starts), bool)
    if len(breaks):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        between = codes[np.minimum(words.ends[:-1], len(codes) - 1)]
        spaced = (between == 0x20) | (between == 0x0A) | (between == 0xA0)
        breaks[1:] = (words.starts[1:] - words.ends[:-1] != 1) | ~spaced
    return breaks


def _clauses(hashes: Hashes, breaks: npt.NDArray[np.bool_], posts: int) -> npt.NDArray[np.int32]:
    """The number of the clause each word stands in; -1 in one repeated word for word."""
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
    """The candidates of a length; good are those that may be shown."""
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
    # How much more often the words stand together than chance would have it, in nats.
    logs = np.log(sample.counts / len(sample.ranks))
    together = np.log(counts / len(sample.ranks)) - logs[words].sum(axis=1)
    # A word that is frequent by this phrase alone says something all the same.
    elsewhere = sample.counts[words] - counts[:, None]
    telling = elsewhere < _count_at(sample, _FREQUENT)
    good, rich = telling.any(axis=1), telling.sum(axis=1) >= _RICH
    good &= elsewhere[:, -1] < _count_at(sample, _GLUE)
    good &= ~_swallowed(places, begins, posts, longer, n)
    return _Ngrams(words, posts, counts, np.sqrt(posts) * together, places, begins, good, rich)


def _count_at(sample: _WordSample, rank: int) -> int:
    """How often the word of a rank stands there; in a small archive a smaller rank is taken."""
    return int(sample.counts[min(rank, len(sample.counts) // 4)]) if len(sample.counts) else 0


def _swallowed(
    places: _Numbers, begins: _Numbers, posts: _Numbers, longer: _Ngrams | None, n: int
) -> npt.NDArray[np.bool_]:
    """Which candidates stand inside a longer one that is good and about as frequent."""
    most = np.zeros(len(posts), np.int64)
    if longer is not None and len(longer.posts) and len(posts):
        at = np.full(n, -1, np.int64)
        at[places] = np.repeat(np.arange(len(posts)), np.diff(begins, append=len(places)))
        for shift in (0, 1):
            within = at[longer.places[longer.begins[longer.good]] + shift]
            np.maximum.at(most, within[within >= 0], longer.posts[longer.good][within >= 0])
    return most >= _AS_FREQUENT * posts


class _PhraseTexts:
    """Phrases as they are written in the posts."""

    def __init__(self, sample: _WordSample, text_of: Callable[[str], str]) -> None:
        self._sample = sample
        self._read = lru_cache(_CACHE)(lambda id_: (text := text_of(id_), hash_words(text)))

    def text(self, turns: _Ngrams, i: int) -> str:
        """The candidate as most often written; empty if it holds a digit."""
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
    """(which length, which candidate, its text) of the best that do not overlap one another."""
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
    """The phrases that stand in far more of a year's posts than of the other years'."""
    year_of = np.array([post.year for post in sample.posts])
    years = sorted({post.year for post in sample.posts} - {0})
    if len(years) < 2:
        return
    for year in years:
        here = int((year_of == year).sum())
        others = len(year_of) - here
        in_year = [_in_year(ngrams, sample.owners, year_of == year) for ngrams in turns]
        scores = []
        for ngrams, (posts, _) in zip(turns, in_year, strict=True):
            times = (posts / here) / ((ngrams.posts - posts + 0.5) / (others + 0.5))
            telling = (posts >= MIN_POSTS) & (times >= _TIMES_MORE) & ngrams.rich
            scores.append(np.where(telling, ngrams.scores * np.log(np.maximum(times, 1)), 0))
        for t, i, text in _best(turns, scores, PER_YEAR, shown):
            posts, counts = in_year[t]
            yield Phrase(text, int(counts[i]), int(posts[i]), year)


def _in_year(
    turns: _Ngrams, owners: npt.NDArray[np.int32], chosen: npt.NDArray[np.bool_]
) -> tuple[_Numbers, _Numbers]:
    """In how many of the chosen posts each candidate stands, and how often in them."""
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
