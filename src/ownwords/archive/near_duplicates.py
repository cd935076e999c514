"""Posts that are the same text twice, and posts that share most of one: found, verified, shown.

Candidates come from an inverted index over the sketches, so that nothing is compared with
everything; only candidates are read again in full. Two posts are near-duplicates where at least
`share` of the distinct 5-word shingles of the shorter stand in the longer. A shingle that very
many posts hold (a newsletter's footer) makes no candidates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import (
    SHINGLE,
    Features,
    Hashes,
    WordHashes,
    hash_words,
    shingles,
    sketch_size,
)

MIN_SHINGLES = 8  # of the shorter text; below, only an exact copy is told

_COMMON_POSTS = 20  # a hash held by more posts than this, and by
_COMMON_SHARE = 0.05  # more than this share of them, is boilerplate
_COMMON_LEAST = 8  # as many as may hold any hash
_NEIGHBOURS = 16  # of the posts that hold a hash, each is paired with so many that follow it
_INDEX_LIMIT = 4_000_000  # hashes in the index; beyond, a coarser sketch is used
_LENIENT = 0.5  # a candidate may seem so much less alike than asked: sketches are samples
_SETTLED = 3  # verified pairs after which a post is not compared within its group again
_AT_ONCE = 2_000_000  # pairs counted
_CACHE = 32  # texts taken apart at a time

_PASSAGES = 4
_WIDTH = 24  # words of a passage
_FAR = 200  # words; a part left out that is longer is no difference, but another text

_Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """Two documents that share text, `id` before `other_id` in order.

    `share` of the shorter one's shingles stand in the longer. `passages` are side by side,
    (of `id`, of `other_id`): first where they differ, then where they agree.
    """

    id: str
    other_id: str
    exact: bool
    share: float
    passages: tuple[tuple[str, str], ...] = ()


class _ShingledText:
    """A text taken apart for comparison."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: WordHashes = hash_words(text)
        self.shingles: Hashes = shingles(self.words.hashes)
        self.distinct: Hashes = np.unique(self.shingles)


def find_near_duplicates(
    features: Mapping[str, Features], text_of: Callable[[str], str], share: float
) -> list[DuplicatePair]:
    """The pairs that share at least `share`, most alike first.

    `text_of` gives a document's shared text (own words and quotes) by its id. Of many exact copies
    each is paired with the first alone; a group of many near-duplicates is linked through, without
    naming every pair in it.
    """
    exact, firsts = _exact(features)
    pairs = [_copy(first, other, text_of) for first, other in exact]
    ids = [id_ for id_ in firsts if len(features[id_].sketch)]
    read = lru_cache(_CACHE)(lambda id_: _ShingledText(text_of(id_)))
    group = _UnionFind()
    settled: Counter[str] = Counter()
    for i, other in _candidates([features[id_] for id_ in ids], share * _LENIENT):
        a, b = ids[i], ids[other]
        if group.same(a, b) and max(settled[a], settled[b]) >= _SETTLED:
            continue
        similarity = _compare(read(a), read(b))
        if similarity >= share:
            group.join(a, b)
            settled.update((a, b))
            passages = _side_by_side(read(a), read(b))
            pairs.append(
                DuplicatePair(a, b, exact=False, share=round(similarity, 4), passages=passages)
            )
    return sorted(pairs, key=lambda p: (not p.exact, -p.share, p.id, p.other_id))


def duplicate_groups(pairs: Iterable[DuplicatePair]) -> list[frozenset[str]]:
    """The documents that hang together through pairs, each group once, in order of its first id."""
    joined = _UnionFind()
    for pair in pairs:
        joined.join(pair.id, pair.other_id)
    return joined.all()


class _UnionFind:
    """Union-find."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def _root(self, id_: str) -> str:
        root = id_
        while (above := self._parent.setdefault(root, root)) != root:
            root = above
        while self._parent[id_] != root:
            self._parent[id_], id_ = root, self._parent[id_]
        return root

    def same(self, a: str, b: str) -> bool:
        return self._root(a) == self._root(b)

    def join(self, a: str, b: str) -> None:
        first, second = sorted((self._root(a), self._root(b)))
        self._parent[second] = first

    def all(self) -> list[frozenset[str]]:
        members: dict[str, set[str]] = {}
        for id_ in sorted(self._parent):
            members.setdefault(self._root(id_), set()).add(id_)
        return [frozenset(group) for group in members.values()]


def _exact(features: Mapping[str, Features]) -> tuple[list[tuple[str, str]], list[str]]:
    """Exact copies paired with the first of each, and the ids with one of each text."""
    first: dict[bytes, str] = {}
    copies: list[tuple[str, str]] = []
    for id_ in sorted(features):
        document = features[id_]
        if document.style_words == 0 and not len(document.sketch):
            continue  # nothing but what a machine wrote, or nothing at all
        if (original := first.setdefault(document.exact, id_)) != id_:
            copies.append((original, id_))
    return copies, sorted(first.values())


def _copy(original: str, copy: str, text_of: Callable[[str], str]) -> DuplicatePair:
    texts = [_ShingledText(text_of(id_)) for id_ in (original, copy)]
    beginnings = [_excerpt(text, 0, _WIDTH) for text in texts]
    return DuplicatePair(
        original, copy, exact=True, share=1.0, passages=((beginnings[0], beginnings[1]),)
    )


def _candidates(posts: Sequence[Features], share: float) -> list[tuple[int, int]]:
    """Pairs of positions whose sketches share enough."""
    if len(posts) < 2:
        return []
    limit = _index_level(posts)
    cut = [one.sketch[: sketch_size(one.sketch, limit)] for one in posts]
    hashes, owner, held = _index(cut)
    levels = np.array([max(one.level, limit) for one in posts])
    common = held > _held_by_many(hashes, levels)
    boilerplate = hashes[common]  # sorted, as the index is; each as often as it is held
    if len(boilerplate):
        cut = [one[~_contains(boilerplate, one)] for one in cut]
    # One row a level, one column a post: how much of its sketch is left at that level.
    left = np.array([[sketch_size(one, at) for one in cut] for at in range(int(levels.max()) + 1)])
    shared = (held > 1) & ~common
    found: list[tuple[int, int]] = []
    for pairs, counts in _count_pairs(hashes[shared], owner[shared], held[shared], len(posts)):
        a, b = np.divmod(pairs, len(posts))
        level = np.maximum(levels[a], levels[b])
        enough = counts >= share * np.minimum(left[level, a], left[level, b])
        found += zip(a[enough].tolist(), b[enough].tolist(), strict=True)
    return sorted(found)


def _index_level(posts: Sequence[Features]) -> int:
    """The finest level at which the index holds no more than it may."""
    level = 0
    while sum(sketch_size(post.sketch, level) for post in posts) > _INDEX_LIMIT:
        level += 1
    return level


def _index(cut: Sequence[Hashes]) -> tuple[Hashes, _Counts, _Counts]:
    """Every hash, ascending; whose it is, ascending among equals; and how many hold it."""
    hashes = np.concatenate(cut)
    owner = np.repeat(np.arange(len(cut)), [len(one) for one in cut])
    order = np.argsort(hashes, kind="stable")
    hashes, owner = hashes[order], owner[order]
    begins = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))[: len(hashes)]
    sizes = np.diff(begins, append=len(hashes))
    return hashes, owner, np.repeat(sizes, sizes)


def _held_by_many(hashes: Hashes, levels: _Counts) -> npt.NDArray[np.float64]:
    """For each sorted hash, how many may hold it before it is taken for boilerplate.

    A hash in the upper half of its level's range can stand only in the sketches of that level or a
    finer one, so that fewer of them make it common.
    """
    many = max(_COMMON_POSTS, _COMMON_SHARE * len(levels))
    limits = np.full(len(hashes), many)
    for level in range(int(levels.max())):
        can_hold = float((levels <= level).mean())
        limits[sketch_size(hashes, level + 1) : sketch_size(hashes, level)] = max(
            _COMMON_LEAST, many * can_hold
        )
    return limits


def _count_pairs(
    hashes: Hashes, owner: _Counts, held: _Counts, posts: int
) -> Iterator[tuple[_Counts, _Counts]]:
    """Pairs a * posts + b of owners of the same hash, and how many hashes they share.

    In several parts, by owner a, where there are too many pairs to be counted at once.
    """
    # The k-th of those that hold a hash is paired with those after it.
    parts = 1 + int(np.minimum(held, _NEIGHBOURS).sum()) // _AT_ONCE
    for part in range(parts):
        keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        mine = owner % parts == part
        for apart in range(1, _NEIGHBOURS + 1):
            same = np.flatnonzero(mine[:-apart] & (hashes[apart:] == hashes[:-apart]))
            pairs, times = np.unique(owner[same] * posts + owner[same + apart], return_counts=True)
            keys.append(pairs)
            counts.append(times)
        every, which = np.unique(np.concatenate(keys), return_inverse=True)
        yield every, np.bincount(which, np.concatenate(counts), len(every)).astype(np.int64)


def _contains(sorted_hashes: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """Which of the wanted are among the sorted (of which there is at least one)."""
    place = np.minimum(np.searchsorted(sorted_hashes, wanted), len(sorted_hashes) - 1)
    is_member: npt.NDArray[np.bool_] = sorted_hashes[place] == wanted
    return is_member


def _compare(left: _ShingledText, right: _ShingledText) -> float:
    """The share of the shorter one's distinct shingles that stand in the longer."""
    few, many = sorted((left.distinct, right.distinct), key=len)
    if len(few) < MIN_SHINGLES:
        return 0.0
    return int(_contains(many, few).sum()) / len(few)


def _side_by_side(left: _ShingledText, right: _ShingledText) -> tuple[tuple[str, str], ...]:
    """A few passages of both: two where they part, then two where they agree at most length."""
    distinct, first = np.unique(right.shingles, return_index=True)
    place = np.minimum(np.searchsorted(distinct, left.shingles), len(distinct) - 1)
    here = np.flatnonzero(distinct[place] == left.shingles)
    there = first[place[here]]
    # Between two neighbouring matches the texts part where either goes on further than one word.
    steps, jumps = np.diff(here), np.diff(there)
    parts = np.flatnonzero(
        ((steps > 1) | (jumps > 1)) & (jumps > 0) & (jumps < _FAR) & (steps < _FAR)
    )
    if len(parts) > 2:
        parts = parts[[0, len(parts) // 2]]
    passages = [_at(left, right, int(here[i]), int(there[i])) for i in parts]
    if not passages and here[-1] + SHINGLE == len(left.words.starts):
        # Nothing parts them on the way: show how the longer one goes on.
        back = min(SHINGLE, int(here[-1]), int(there[-1]))
        passages.append(_at(left, right, int(here[-1]) - back, int(there[-1]) - back))
    begins = np.flatnonzero(np.concatenate(([True], (steps != 1) | (jumps != 1))))
    lengths = np.diff(begins, append=len(here))
    for i in np.argsort(-lengths, kind="stable")[: _PASSAGES - len(passages)].tolist():
        start, width = int(begins[i]), min(int(lengths[i]) + SHINGLE - 1, _WIDTH)
        passages.append(_at(left, right, int(here[start]), int(there[start]), width))
    return tuple(dict.fromkeys(passages))


def _at(
    left: _ShingledText, right: _ShingledText, here: int, there: int, width: int = _WIDTH
) -> tuple[str, str]:
    return _excerpt(left, here, width), _excerpt(right, there, width)


def _excerpt(text: _ShingledText, first: int, width: int) -> str:
    """So many words on one line, with dots where the text goes on."""
    starts, ends = text.words.starts, text.words.ends
    last = min(first + width, len(starts)) - 1
    if last < first:
        return ""
    passage = " ".join(text.text[starts[first] : ends[last]].split())
    return f"{'… ' if first else ''}{passage}{' …' if last + 1 < len(starts) else ''}"
