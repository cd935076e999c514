"""Find and verify exact and near-duplicate posts.

Candidates come from an inverted index over the sketches, which avoids comparing all pairs; only
candidates are read in full. Two posts are near-duplicates if at least `share` of the distinct
5-word shingles of the shorter occur in the longer. A shingle in very many posts (a newsletter's
footer) is not used to find candidates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import numpy as np

from ownwords.archive.features import Features, sketch_size
from ownwords.archive.report import Duplicate
from ownwords.core.text import Hashes, distinct, hash_words, shingles

MIN_SHINGLES = 8  # shorter texts are only matched as exact copies

_COMMON_POSTS = 20  # a hash in more posts than this, and in
_COMMON_SHARE = 0.05  # more than this share of them, is boilerplate
_COMMON_LEAST = 8  # minimum of that limit for every hash
_NEXT_POSTS = 16  # each post with a hash is paired with this many following ones
_LENIENT = 0.5  # factor on `share` for candidates, as sketches are samples
_SETTLED = 3  # verified pairs after which a post is no longer compared within its group
_CACHE = 32  # shingled texts cached


def find_near_duplicates(
    features: Mapping[str, Features], text_of: Callable[[str], str], share: float
) -> list[Duplicate]:
    """Return the pairs that share at least `share`, the most similar first.

    `text_of` returns a document's shared text (own words and quotes) by id. Each exact copy is
    paired only with the first; a large group of near-duplicates is connected by some of its pairs.
    """
    shingles_of = lru_cache(_CACHE)(lambda id_: distinct(shingles(hash_words(text_of(id_)).hashes)))
    first: dict[bytes, str] = {}
    pairs: list[Duplicate] = []
    for id_ in sorted(features):
        post = features[id_]
        if not post.own_words and not len(post.sketch):
            continue  # no own or quoted words
        if (original := first.setdefault(post.exact, id_)) != id_:
            pairs.append(Duplicate(original, id_, exact=True, share=1.0))
    ids = sorted(id_ for id_ in first.values() if len(features[id_].sketch))
    group_of: dict[str, set[str]] = {}
    settled: Counter[str] = Counter()
    for a, b in _candidates({id_: features[id_] for id_ in ids}, share * _LENIENT):
        if b in group_of.get(a, ()) and max(settled[a], settled[b]) >= _SETTLED:
            continue
        similarity = _compare(shingles_of(a), shingles_of(b))
        if similarity >= share:
            _join(group_of, a, b)
            settled.update((a, b))
            pairs.append(Duplicate(a, b, exact=False, share=round(similarity, 4)))
    return sorted(pairs, key=lambda p: (not p.exact, -p.share, p.id, p.other_id))


def duplicate_groups(pairs: Iterable[Duplicate]) -> list[frozenset[str]]:
    """Return the connected groups of documents, sorted by their first id."""
    group_of: dict[str, set[str]] = {}
    for pair in pairs:
        _join(group_of, pair.id, pair.other_id)
    return sorted({frozenset(group) for group in group_of.values()}, key=min)


def _join(group_of: dict[str, set[str]], a: str, b: str) -> None:
    """Merge the groups of `a` and `b`; `group_of` holds each member's group."""
    small, large = sorted((group_of.get(id_, {id_}) for id_ in (a, b)), key=len)
    large |= small
    group_of |= dict.fromkeys((*small, a, b), large)


def _candidates(posts: Mapping[str, Features], share: float) -> list[tuple[str, str]]:
    if not posts:
        return []
    ids, features = list(posts), list(posts.values())
    sizes = [len(post.sketch) for post in features]
    hashes = np.concatenate([post.sketch for post in features])
    owners = np.repeat(np.arange(len(ids), dtype=np.int32), sizes)
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))  # of equal hashes
    holders = np.diff(first, append=len(hashes))
    # A large hash occurs only in the sketches of fine levels, so its limit is lower.
    levels = np.array([post.level for post in features])
    often = np.flatnonzero(holders > _COMMON_LEAST)
    place = 64 - np.log2(hashes[first[often]].astype(float) + 1)
    can_hold = np.searchsorted(np.sort(levels), place, side="right")
    many = max(_COMMON_POSTS, _COMMON_SHARE * len(ids)) * can_hold / len(ids)
    is_common = np.zeros(len(holders), bool)
    is_common[often] = holders[often] > many
    is_common = np.repeat(is_common, holders)
    is_rare = np.empty(len(order), bool)
    is_rare[order] = ~is_common
    rare = np.split(is_rare, np.cumsum(sizes)[:-1])
    sketches = [post.sketch[mine] for post, mine in zip(features, rare, strict=True)]
    left = np.array([[sketch_size(s, at) for s in sketches] for at in range(levels.max() + 1)])
    shared = np.repeat(holders > 1, holders) & ~is_common
    hashes, owners = hashes[shared], owners[shared]
    found = []
    for apart in range(1, _NEXT_POSTS + 1):
        same = np.flatnonzero(hashes[apart:] == hashes[:-apart])
        keys = owners[same].astype(np.int64) * len(ids) + owners[same + apart]
        found.append(np.unique(keys, return_counts=True))
    pairs, positions = np.unique(np.concatenate([keys for keys, _ in found]), return_inverse=True)
    times = np.bincount(positions, np.concatenate([counts for _, counts in found]), len(pairs))
    a, b = np.divmod(pairs, len(ids))
    level = np.maximum(levels[a], levels[b])
    enough = times >= share * np.minimum(left[level, a], left[level, b])
    return [(ids[i], ids[j]) for i, j in zip(a[enough].tolist(), b[enough].tolist(), strict=True)]


def _compare(left: Hashes, right: Hashes) -> float:
    """Return the share of the distinct shingles of the shorter text that are in the longer."""
    few, many = sorted((left, right), key=len)
    if len(few) < MIN_SHINGLES:
        return 0.0
    return int(np.isin(few, many, assume_unique=True).sum()) / len(few)
