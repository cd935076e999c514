"""Two versions of one source, such as this week's export of a blog and last week's."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ownwords.archive.features import Features, sketch_size
from ownwords.archive.report import SourceVersion

_MIN_SIMILAR = 0.5  # of the shingles of the shorter of two versions of a post


@dataclass(slots=True)
class KnownPost:
    """What a post is recognised by; one whose content is known by its key needs no features."""

    id: str  # after the first colon, what its source calls it
    key: str
    title: str
    day: str
    url: str
    features: Features | None


def compare(
    of: str, old: Sequence[KnownPost], path: str, new: Sequence[KnownPost]
) -> SourceVersion:
    """How the posts at a path compare with those of a source."""
    pairs = pair_posts(old, new)
    before, now = ({post.id: _content(post) for post in posts} for posts in (old, new))
    same = sum(
        any(a and a == b for a, b in zip(before[former], now[id_], strict=True))
        for former, id_ in pairs.items()
    )
    return SourceVersion(
        path=path,
        of=of,
        new=len(new) - len(pairs),
        changed=len(pairs) - same,
        same=same,
        gone=len(old) - len(pairs),
    )


def pair_posts(old: Sequence[KnownPost], new: Sequence[KnownPost]) -> dict[str, str]:
    """The new id of each old post that is among the new ones, by its old id.

    A post with the same content is the same post. One of the same name, address or title is its new
    version if half of the text is shared; or without that, if most of the posts are found.
    """
    pairs: dict[str, str] = {}

    def pair(names: Callable[[KnownPost], Iterable[Hashable]], min_similarity: float = 0.0) -> None:
        found = set(pairs.values())
        free: dict[Hashable, list[KnownPost]] = defaultdict(list)
        for post in new:
            for name in names(post) if post.id not in found else ():
                free[name].append(post)
        for former in old:
            if former.id in pairs:
                continue
            for post in (each for name in names(former) for each in free.get(name, ())):
                if post.id not in found and _similarity(former, post) >= min_similarity:
                    pairs[former.id] = post.id
                    found.add(post.id)
                    break

    pair(lambda post: [post.key])
    pair(lambda post: [post.features.exact] if post.features else [])
    pair(_names, _MIN_SIMILAR)
    if 2 * len(pairs) > min(len(old), len(new)):
        pair(_names)
    return pairs


def _content(post: KnownPost) -> tuple[str, bytes]:
    return post.key, post.features.exact if post.features else b""


def _names(post: KnownPost) -> list[Hashable]:
    names: list[Hashable] = [("id", post.id.partition(":")[2])]
    names += [("url", post.url)] if post.url else []
    names += [("title", post.title.casefold(), post.day)] if post.title and post.day else []
    return names


def _similarity(post: KnownPost, other: KnownPost) -> float:
    """The share of the shingles of the shorter text that the other one has, as sampled."""
    if post.features is None or other.features is None:
        return 0.0
    level = max(post.features.level, other.features.level)
    first, second = (
        each.sketch[: sketch_size(each.sketch, level)] for each in (post.features, other.features)
    )
    shared = int(np.isin(first, second, assume_unique=True).sum())
    return shared / max(1, min(len(first), len(second)))
