"""Training, validation and test: by whole post, near-duplicates together, the same every time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from typing import Literal

from ownwords.archive import report
from ownwords.core.errors import ConfigError

Side = Literal["train", "validation", "test"]
Name = Literal["random", "by date"]

MIN_TRAIN_SHARE = 0.6  # of the training words
MIN_GROUPS = 5  # with fewer, everything is for training

_KEY = b"ownwords split 1"
_OVER = 1.25  # a side may hold so much more than its share, for posts come whole


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """How much is held out, as shares of the training words."""

    # For choosing when to stop and which settings are best.
    validation: float = 0.1
    # For the one honest figure at the end.
    test: float = 0.1

    def __post_init__(self) -> None:
        held_out = self.validation + self.test
        if not (self.validation >= 0 and self.test >= 0 and held_out <= 1 - MIN_TRAIN_SHARE):
            raise ConfigError(
                f"validation is {self.validation} and test {self.test} of the text",
                hint=f"set neither below 0, and together at most {1 - MIN_TRAIN_SHARE:.1f}",
            )


@dataclass(frozen=True, slots=True)
class SplitInput:
    """A document to be put on a side: one that is left out, or has no training words, is none."""

    id: str
    exact: bytes  # of its features
    words: int  # training words
    day: date | None = None
    train_only: bool = False  # capped or dominant: as a test it would say little of the others


@dataclass(frozen=True, slots=True)
class PostSplit:
    """Which document is on which side, and a sentence where nothing could be held out."""

    name: Name
    sides: dict[str, Side]
    note: str = ""

    def figures(self, parts: Iterable[SplitInput]) -> report.SplitCounts:
        """Posts and words on each side."""
        posts: Counter[str] = Counter()
        words: Counter[str] = Counter()
        for part in parts:
            if part.id in self.sides:
                posts[self.sides[part.id]] += 1
                words[self.sides[part.id]] += part.words
        order: tuple[Side, ...] = ("train", "validation", "test")
        return report.SplitCounts(
            self.name, {side: posts[side] for side in order}, {side: words[side] for side in order}
        )


@dataclass(frozen=True, slots=True)
class _SplitGroup:
    ids: tuple[str, ...]
    words: int
    key: bytes
    day: date | None
    train_only: bool


def split_posts(
    parts: Iterable[SplitInput], groups: Iterable[frozenset[str]], config: SplitConfig, name: Name
) -> PostSplit:
    """The parts on three sides; `groups` of near-duplicates stay on one.

    `random` orders them by a keyed hash of id and content, so that a new post moves none but those
    at the edge of a side. `by date` takes the latest for the test and those before for validation;
    what has no date is for training.
    """
    together = _together([part for part in parts if part.words > 0], groups)
    sides: dict[str, Side] = {id_: "train" for group in together for id_ in group.ids}
    if len(together) < MIN_GROUPS:
        held = "nothing is" if together else "there is nothing to be"
        return PostSplit(
            name,
            sides,
            f"With {_posts(len(together))} to learn from {held} held out for testing: that takes "
            f"{MIN_GROUPS}.",
        )
    free = [group for group in together if not group.train_only]
    if name == "by date":
        dated = [(group.day, group.key, group) for group in free if group.day]
        free = [group for *_, group in sorted(dated, key=lambda one: one[:2], reverse=True)]
    else:
        free.sort(key=lambda group: group.key)
    total = sum(group.words for group in together)
    quotas: dict[Side, float] = {
        "test": config.test * total,
        "validation": config.validation * total,
    }
    room = (1 - MIN_TRAIN_SHARE) * total
    for side, quota in quotas.items():
        later = quotas["validation"] if side == "test" else 0
        taken = _take(free, quota, room - later) if quota else []
        room -= sum(group.words for group in taken)
        held_out = [id_ for group in taken for id_ in group.ids]
        sides.update(dict.fromkeys(held_out, side))
        free = [group for group in free if sides[group.ids[0]] == "train"]
    missing = [side for side, quota in quotas.items() if quota and side not in sides.values()]
    return PostSplit(name, sides, _missing(missing, name) if missing else "")


def _together(parts: Sequence[SplitInput], groups: Iterable[frozenset[str]]) -> list[_SplitGroup]:
    known = {part.id: part for part in parts}
    grouped: list[list[SplitInput]] = []
    alone = dict(known)
    for group in groups:
        members = [alone.pop(id_) for id_ in sorted(group) if id_ in alone]
        if members:
            grouped.append(members)
    grouped += [[part] for part in alone.values()]
    return [_group(members) for members in grouped]


def _group(members: Sequence[SplitInput]) -> _SplitGroup:
    days = [part.day for part in members if part.day]
    return _SplitGroup(
        tuple(part.id for part in members),
        sum(part.words for part in members),
        min(_key(part) for part in members),
        # The earliest: what had been said before is no test of what came after.
        min(days) if len(days) == len(members) else None,
        any(part.train_only for part in members),
    )


def _key(part: SplitInput) -> bytes:
    data = part.id.encode("utf-8", "surrogatepass") + b"\0" + part.exact
    return blake2b(data, digest_size=16, key=_KEY).digest()


def _take(free: Sequence[_SplitGroup], quota: float, most: float) -> list[_SplitGroup]:
    """Groups in order until the quota is met; one too long for the rest of it is passed over."""
    taken: list[_SplitGroup] = []
    words = 0
    for group in free:
        if words + group.words <= min(_OVER * quota, most):
            taken.append(group)
            words += group.words
            if words >= quota:
                break
    if not taken:
        # None is short enough: the shortest, if that leaves enough to learn from.
        shortest = min(free, key=lambda group: (group.words, group.key), default=None)
        taken = [shortest] if shortest and shortest.words <= most else []
    return taken


def _posts(n: int) -> str:
    return {0: "no posts", 1: "one post"}.get(n, f"{n} posts")


def _missing(sides: Sequence[str], name: Name) -> str:
    for_what = f"be held out for {' and '.join(sides)}"
    if name == "by date":
        return f"By date nothing could {for_what}: too few posts are dated and short enough."
    return f"Nothing could {for_what}: too few posts are short enough."
