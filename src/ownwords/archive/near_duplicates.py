"""Find and verify exact and near-duplicate posts, with passages to show.

Candidates come from an inverted index over the sketches, which avoids comparing all pairs; only
candidates are read again in full. Two posts are near-duplicates if at least `share` of the distinct
5-word shingles of the shorter occur in the longer. A shingle in very many posts (a newsletter's
footer) makes no candidates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ownwords.archive.features import Features, sketch_size
from ownwords.archive.report import Duplicate
from ownwords.core.text import SHINGLE, Hashes, WordHashes, hash_words, shingles

MIN_SHINGLES = 8  # shorter texts are only matched as exact copies

_COMMON_POSTS = 20  # a hash in more posts than this, and in
_COMMON_SHARE = 0.05  # more than this share of them, is boilerplate
_COMMON_LEAST = 8  # minimum of that limit for every hash
_NEIGHBOURS = 16  # each post with a hash is paired with this many following ones
_INDEX_LIMIT = 4_000_000  # hashes in the index; above this a coarser sketch level is used
_LENIENT = 0.5  # factor on `share` for candidates, as sketches are samples
_SETTLED = 3  # verified pairs after which a post is no longer compared within its group
_AT_ONCE = 2_000_000  # pairs counted
_CACHE = 32  # shingled texts cached

_PASSAGES = 4
_WIDTH = 24  # words of a passage
_FAR = 200  # words; a longer gap between matches is another text, not a difference

_Counts = npt.NDArray[np.int64]


class _ShingledText:
    """A text with its words and shingles, for comparison."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: WordHashes = hash_words(text)
        self.shingles: Hashes = shingles(self.words.hashes)
        self.distinct: Hashes = np.unique(self.shingles)


def find_near_duplicates(
    features: Mapping[str, Features], text_of: Callable[[str], str], share: float
) -> list[Duplicate]:
    """The pairs that share at least `share`, the most similar first.

    `text_of` returns a document's shared text (own words and quotes) by id. Exact copies are each
    paired only with the first; a large group of near-duplicates is connected by some of its pairs,
    not all.
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
                Duplicate(a, b, exact=False, share=round(similarity, 4), passages=passages)
            )
    return sorted(pairs, key=lambda p: (not p.exact, -p.share, p.id, p.other_id))


def duplicate_groups(pairs: Iterable[Duplicate]) -> list[frozenset[str]]:
    """The connected groups of documents, sorted by their first id."""
    joined = _UnionFind()
    for pair in pairs:
        joined.join(pair.id, pair.other_id)
    return joined.all()


class _UnionFind:
    """Union-find with path compression; the smallest id is the root."""

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
    """(original, copy) pairs of exact copies, and the ids of the distinct texts."""
    first: dict[bytes, str] = {}
    copies: list[tuple[str, str]] = []
    for id_ in sorted(features):
        document = features[id_]
        if not document.own_words and not len(document.sketch):
            continue  # no own or quoted words
        if (original := first.setdefault(document.exact, id_)) != id_:
            copies.append((original, id_))
    return copies, sorted(first.values())


def _copy(original: str, copy: str, text_of: Callable[[str], str]) -> Duplicate:
    texts = [_ShingledText(text_of(id_)) for id_ in (original, copy)]
    beginnings = [_excerpt(text, 0, _WIDTH) for text in texts]
    return Duplicate(
        original, copy, exact=True, share=1.0, passages=[(beginnings[0], beginnings[1])]
    )


def _candidates(posts: Sequence[Features], share: float) -> list[tuple[int, int]]:
    """Pairs of indices into `posts` whose sketches share enough."""
    if len(posts) < 2:
        return []
    limit = _index_level(posts)
    cut = [post.sketch[: sketch_size(post.sketch, limit)] for post in posts]
    hashes, owner, post_counts = _index(cut)
    levels = np.array([max(post.level, limit) for post in posts])
    common = post_counts > _held_by_many(hashes, levels)
    boilerplate = hashes[common]  # sorted, with repetitions
    if len(boilerplate):
        cut = [sketch[~_contains(boilerplate, sketch)] for sketch in cut]
    # Sketch sizes, shape (levels, posts).
    left = np.array(
        [[sketch_size(sketch, at) for sketch in cut] for at in range(int(levels.max()) + 1)]
    )
    shared = (post_counts > 1) & ~common
    pairs_found: list[tuple[int, int]] = []
    for pairs, counts in _count_pairs(
        hashes[shared], owner[shared], post_counts[shared], len(posts)
    ):
        a, b = np.divmod(pairs, len(posts))
        level = np.maximum(levels[a], levels[b])
        enough = counts >= share * np.minimum(left[level, a], left[level, b])
        pairs_found += zip(a[enough].tolist(), b[enough].tolist(), strict=True)
    return sorted(pairs_found)


def _index_level(posts: Sequence[Features]) -> int:
    """The finest level at which the index stays within its limit."""
    level = 0
    while sum(sketch_size(post.sketch, level) for post in posts) > _INDEX_LIMIT:
        level += 1
    return level


def _index(cut: Sequence[Hashes]) -> tuple[Hashes, _Counts, _Counts]:
    """The sorted hashes, the post that owns each (ascending among equals), the owners' number."""
    hashes = np.concatenate(cut)
    owner = np.repeat(np.arange(len(cut)), [len(sketch) for sketch in cut])
    order = np.argsort(hashes, kind="stable")
    hashes, owner = hashes[order], owner[order]
    begins = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))[: len(hashes)]
    sizes = np.diff(begins, append=len(hashes))
    return hashes, owner, np.repeat(sizes, sizes)


def _held_by_many(hashes: Hashes, levels: _Counts) -> npt.NDArray[np.float64]:
    """For each sorted hash, the number of posts above which it counts as boilerplate.

    A hash in the upper half of its level's range occurs only in sketches of that level or a finer
    one, so its limit is lower.
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
    hashes: Hashes, owner: _Counts, post_counts: _Counts, posts: int
) -> Iterator[tuple[_Counts, _Counts]]:
    """Yield the pairs of owners of a common hash, as a * posts + b, and how many hashes they share.

    Counts in several parts, by owner a, if there are too many pairs for one.
    """
    # Each owner of a hash is paired with the owners after it.
    parts = 1 + int(np.minimum(post_counts, _NEIGHBOURS).sum()) // _AT_ONCE
    for part in range(parts):
        keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        mine = owner % parts == part
        for apart in range(1, _NEIGHBOURS + 1):
            same = np.flatnonzero(mine[:-apart] & (hashes[apart:] == hashes[:-apart]))
            pairs, times = np.unique(owner[same] * posts + owner[same + apart], return_counts=True)
            keys.append(pairs)
            counts.append(times)
        every, positions = np.unique(np.concatenate(keys), return_inverse=True)
        yield every, np.bincount(positions, np.concatenate(counts), len(every)).astype(np.int64)


def _contains(sorted_hashes: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """A mask of the `wanted` hashes that are in `sorted_hashes`, which must not be empty."""
    place = np.minimum(np.searchsorted(sorted_hashes, wanted), len(sorted_hashes) - 1)
    is_member: npt.NDArray[np.bool_] = sorted_hashes[place] == wanted
    return is_member


def _compare(left: _ShingledText, right: _ShingledText) -> float:
    """The share of the distinct shingles of the shorter text that occur in the longer."""
    few, many = sorted((left.distinct, right.distinct), key=len)
    if len(few) < MIN_SHINGLES:
        return 0.0
    return int(_contains(many, few).sum()) / len(few)


def _side_by_side(left: _ShingledText, right: _ShingledText) -> list[tuple[str, str]]:
    """Pairs of passages: up to two where the texts differ, then their longest matches."""
    distinct, first = np.unique(right.shingles, return_index=True)
    place = np.minimum(np.searchsorted(distinct, left.shingles), len(distinct) - 1)
    left_at = np.flatnonzero(distinct[place] == left.shingles)
    right_at = first[place[left_at]]
    # The texts differ between neighbouring matches if either advances by more than one word.
    steps, jumps = np.diff(left_at), np.diff(right_at)
    parts = np.flatnonzero(
        ((steps > 1) | (jumps > 1)) & (jumps > 0) & (jumps < _FAR) & (steps < _FAR)
    )
    if len(parts) > 2:
        parts = parts[[0, len(parts) // 2]]
    passages = [_at(left, right, int(left_at[i]), int(right_at[i])) for i in parts]
    if not passages and left_at[-1] + SHINGLE == len(left.words.starts):
        # The left text ends with the last match: show how the right one continues.
        back = min(SHINGLE, int(left_at[-1]), int(right_at[-1]))
        passages.append(_at(left, right, int(left_at[-1]) - back, int(right_at[-1]) - back))
    begins = np.flatnonzero(np.concatenate(([True], (steps != 1) | (jumps != 1))))
    lengths = np.diff(begins, append=len(left_at))
    for i in np.argsort(-lengths, kind="stable")[: _PASSAGES - len(passages)].tolist():
        start, width = int(begins[i]), min(int(lengths[i]) + SHINGLE - 1, _WIDTH)
        passages.append(_at(left, right, int(left_at[start]), int(right_at[start]), width))
    return list(dict.fromkeys(passages))


def _at(
    left: _ShingledText, right: _ShingledText, left_at: int, right_at: int, width: int = _WIDTH
) -> tuple[str, str]:
    return _excerpt(left, left_at, width), _excerpt(right, right_at, width)


def _excerpt(text: _ShingledText, first: int, width: int) -> str:
    """`width` words from word `first` on one line, with "…" where the text continues."""
    starts, ends = text.words.starts, text.words.ends
    last = min(first + width, len(starts)) - 1
    if last < first:
        return ""
    passage = " ".join(text.text[starts[first] : ends[last]].split())
    return f"{'… ' if first else ''}{passage}{' …' if last + 1 < len(starts) else ''}"
