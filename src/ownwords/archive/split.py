"""Training, validation and test split of whole posts, near-duplicates together.

A post keeps its side for life: a model that has learned from it must not be measured on it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, get_args

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
    words: int  # training words
    train_only: bool = False  # capped or dominant, and so not representative for testing


@dataclass(frozen=True, slots=True)
class PostSplit:
    """The side of each document by id, and a note if nothing could be held out.

    `kept` are the sides to give to the next split: also those of copies without training words, and
    of posts that are gone.
    """

    sides: dict[str, Side]
    kept: dict[str, Side]
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
    used: tuple[str, ...]  # with training words
    words: int
    key: bytes
    train_only: bool
    kept: Side | None


def split_posts(
    documents: Iterable[SplitInput],
    duplicates: Iterable[frozenset[str]],
    config: SplitConfig,
    kept: Mapping[str, Side] | None = None,
) -> PostSplit:
    """Assign each document a side; groups of near-duplicates stay on one side.

    Those in `kept` stay where they are, and new ones fill up what is to be held out, in the order
    of a keyed hash of their ids. Only a side without any post takes some from training.
    """
    every = _group(list(documents), duplicates, kept or {})
    groups = [group for group in every if group.words]
    sides = {group: group.kept for group in every if group.kept}
    note = ""
    if len(groups) < MIN_GROUPS:
        posts = {0: "no posts", 1: "one post"}.get(len(groups), f"{len(groups)} posts")
        note = (
            f"Nothing is held out for testing: that takes {MIN_GROUPS} posts to train on, and "
            f"there {'are' if len(groups) != 1 else 'is'} {posts}."
        )
    elif missing := _hold_out(groups, sides, config):
        note = (
            f"Nothing could be held out for {' and '.join(missing)}: too few posts are short"
            " enough."
        )
    for group in groups:
        sides.setdefault(group, "train")
    return PostSplit(
        {
            id_: "train" if len(groups) < MIN_GROUPS else sides[group]
            for group in groups
            for id_ in group.used
        },
        {**(kept or {}), **{id_: side for group, side in sides.items() for id_ in group.ids}},
        note,
    )


def _hold_out(
    groups: Sequence[_SplitGroup], sides: dict[_SplitGroup, Side], config: SplitConfig
) -> list[Side]:
    """Fill up the sides that are held out; return those that stay empty."""
    total = sum(group.words for group in groups)
    quotas: dict[Side, float] = {
        "test": config.test * total,
        "validation": config.validation * total,
    }

    def words(side: Side) -> int:
        return sum(group.words for group in groups if sides.get(group) == side)

    for side, quota in quotas.items():
        filled = words(side)
        taken = {None} if filled else {None, "train"}
        free = sorted(
            (group for group in groups if not group.train_only and sides.get(group) in taken),
            key=lambda group: (group in sides, group.key),
        )
        available = (1 - MIN_TRAIN_SHARE) * total - words("test") - words("validation")
        reserved = max(0, quotas["validation"] - words("validation")) if side == "test" else 0
        if filled < quota:
            sides.update(dict.fromkeys(_fill(free, quota, available - reserved, filled), side))
    return [side for side, quota in quotas.items() if quota and not words(side)]


def _group(
    documents: Sequence[SplitInput],
    duplicates: Iterable[frozenset[str]],
    kept: Mapping[str, Side],
) -> list[_SplitGroup]:
    single = {document.id: document for document in documents}
    grouped = [[single.pop(id_) for id_ in sorted(ids) if id_ in single] for ids in duplicates]
    members = [group for group in grouped if group] + [[document] for document in single.values()]
    groups = []
    for group in members:
        before = {kept.get(document.id) for document in group}
        # Of copies on different sides one was learned from, or has served to choose a model.
        side = next((side for side in get_args(Side) if side in before), None)
        groups.append(
            _SplitGroup(
                tuple(document.id for document in group),
                tuple(document.id for document in group if document.words),
                sum(document.words for document in group),
                min(_hash(document.id) for document in group),
                any(document.train_only for document in group),
                side,
            )
        )
    return groups


def _hash(id_: str) -> bytes:
    return blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=16, key=_KEY).digest()


def _fill(
    free: Sequence[_SplitGroup], quota: float, limit: float, filled: int
) -> list[_SplitGroup]:
    """Take groups in order until the quota is met, skipping those that would exceed it."""
    chosen: list[_SplitGroup] = []
    words = filled
    for group in free:
        if words + group.words <= min(_MAX_OVERSHOOT * quota, filled + limit):
            chosen.append(group)
            words += group.words
            if words >= quota:
                break
    if not words:
        # None fits: take the shortest, if that leaves enough to train on.
        shortest = min(free, key=lambda group: (group.words, group.key), default=None)
        chosen = [shortest] if shortest and shortest.words <= limit else []
    return chosen
