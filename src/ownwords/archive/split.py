"""Reproducible training, validation and test split of whole posts, near-duplicates together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from ownwords.archive.report import SplitCounts
from ownwords.archive.settings import MIN_TRAIN_SHARE, SplitConfig

Side = Literal["train", "validation", "test"]

MIN_GROUPS = 5  # with fewer groups, everything is for training

_KEY = b"ownwords split 1"
_MAX_OVERSHOOT = 1.25  # a side may exceed its quota by this factor, as posts are not divided


@dataclass(frozen=True, slots=True)
class SplitInput:
    """A document to split; without training words it is on no side."""

    id: str
    exact: bytes  # digest of the text
    words: int  # training words
    train_only: bool = False  # capped or dominant, and so not representative for testing


@dataclass(frozen=True, slots=True)
class PostSplit:
    """The side of each document by id, and a note if nothing could be held out."""

    sides: dict[str, Side]
    note: str = ""

    def counts(self, documents: Iterable[SplitInput]) -> SplitCounts:
        """The number of posts and words on each side."""
        posts: Counter[str] = Counter()
        words: Counter[str] = Counter()
        for document in documents:
            if side := self.sides.get(document.id):
                posts[side] += 1
                words[side] += document.words
        order: tuple[Side, ...] = ("train", "validation", "test")
        return SplitCounts(
            {side: posts[side] for side in order}, {side: words[side] for side in order}
        )


@dataclass(frozen=True, slots=True)
class _SplitGroup:
    ids: tuple[str, ...]
    words: int
    key: bytes
    train_only: bool


def split_posts(
    documents: Iterable[SplitInput], duplicates: Iterable[frozenset[str]], config: SplitConfig
) -> PostSplit:
    """Assign each document a side; groups of near-duplicates stay on one side.

    Groups are ordered by a keyed hash of id and content, so a new post moves only posts near the
    boundary of a side.
    """
    groups = _group([doc for doc in documents if doc.words > 0], duplicates)
    sides: dict[str, Side] = {id_: "train" for group in groups for id_ in group.ids}
    if len(groups) < MIN_GROUPS:
        posts = {0: "no posts", 1: "one post"}.get(len(groups), f"{len(groups)} posts")
        return PostSplit(
            sides,
            f"Nothing is held out for testing: that takes {MIN_GROUPS} posts to train on, and "
            f"there {'are' if len(groups) != 1 else 'is'} {posts}.",
        )
    free = sorted((group for group in groups if not group.train_only), key=lambda g: g.key)
    total = sum(group.words for group in groups)
    quotas: dict[Side, float] = {
        "test": config.test * total,
        "validation": config.validation * total,
    }
    available = (1 - MIN_TRAIN_SHARE) * total
    for side, quota in quotas.items():
        reserved = quotas["validation"] if side == "test" else 0
        chosen = _fill(free, quota, available - reserved) if quota else []
        available -= sum(group.words for group in chosen)
        sides.update(dict.fromkeys([id_ for group in chosen for id_ in group.ids], side))
        free = [group for group in free if sides[group.ids[0]] == "train"]
    missing = [side for side, quota in quotas.items() if quota and side not in sides.values()]
    if not missing:
        return PostSplit(sides)
    return PostSplit(
        sides,
        f"Nothing could be held out for {' and '.join(missing)}: too few posts are short enough.",
    )


def _group(
    documents: Sequence[SplitInput], duplicates: Iterable[frozenset[str]]
) -> list[_SplitGroup]:
    single = {document.id: document for document in documents}
    grouped = [[single.pop(id_) for id_ in sorted(ids) if id_ in single] for ids in duplicates]
    members = [group for group in grouped if group] + [[document] for document in single.values()]
    return [
        _SplitGroup(
            tuple(document.id for document in group),
            sum(document.words for document in group),
            min(map(_hash, group)),
            any(document.train_only for document in group),
        )
        for group in members
    ]


def _hash(document: SplitInput) -> bytes:
    data = document.id.encode("utf-8", "surrogatepass") + b"\0" + document.exact
    return blake2b(data, digest_size=16, key=_KEY).digest()


def _fill(free: Sequence[_SplitGroup], quota: float, limit: float) -> list[_SplitGroup]:
    """Take groups in order until the quota is met, skipping those that would exceed it."""
    chosen: list[_SplitGroup] = []
    words = 0
    for group in free:
        if words + group.words <= min(_MAX_OVERSHOOT * quota, limit):
            chosen.append(group)
            words += group.words
            if words >= quota:
                break
    if not chosen:
        # None fits: take the shortest, if that leaves enough to train on.
        shortest = min(free, key=lambda group: (group.words, group.key), default=None)
        chosen = [shortest] if shortest and shortest.words <= limit else []
    return chosen
