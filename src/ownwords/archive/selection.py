"""Select the posts that a model is trained on, how many words of each, and which are held out.

A decision concerns training only: every post stays in the archive and can be searched and cited.
The author's own choice overrides every default. Whole posts are held out, near-duplicates together,
and a post never changes its side, because a model must not be measured on what it has learned.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Literal, get_args

from ownwords.archive.near_duplicates import duplicate_groups
from ownwords.archive.report import Duplicate, PostSummary, UnlikePost
from ownwords.archive.report_view import flags as flags_in_words
from ownwords.archive.settings import MIN_TRAIN_SHARE, ProvenanceConfig, SplitConfig
from ownwords.core.config import as_toml
from ownwords.core.errors import ConfigError
from ownwords.core.validation import decode
from ownwords.view.format import count, plain, quoted

Flag = Literal["dominant", "unlike", "language", "dump", "duplicate"]
Decision = Literal["keep", "cap", "leave out"]
Choices = Mapping[str, Decision]  # the author's own decisions, by the ids of the posts

# A post longer than `_TIMES_MEDIAN` medians is dominant from this part of the usual limit on.
_LOWER_DOMINANT_SHARE = 0.6
_TIMES_MEDIAN = 4
_MIN_COPY_LENGTH = 0.8  # of the longest copy's length: the earliest copy at least this long is kept
_CHOSEN: dict[Decision, str] = {
    "keep": "you chose to keep it",
    "cap": "you chose to use part of it",
    "leave out": "you chose to leave it out",
}


def select_posts(
    posts: Iterable[PostSummary],
    pairs: Sequence[Duplicate],
    outliers: Iterable[UnlikePost],
    config: ProvenanceConfig,
    choices: Choices,
) -> dict[str, PostSummary]:
    """Return the posts by id with their shares, flags, decisions, reasons and training words.

    Neither earlier decisions nor the order of the arguments matter.
    """
    by_id = {
        post.id: replace(post, decision="keep", reason="", training_words=post.own_words)
        for post in sorted(posts, key=lambda post: post.id)
    }
    distances = {outlier.id: outlier.distance for outlier in outliers}
    _flag(by_id, pairs, distances, config)
    for id_, post in by_id.items():
        if id_ in choices:
            post.decision, post.reason = choices[id_], _CHOSEN[choices[id_]]
        else:
            post.decision, post.reason = _default(post, distances.get(id_, 0.0))
    _leave_out_copies(by_id, pairs, choices.keys())
    for post in by_id.values():
        if post.decision == "leave out":
            post.training_words = 0
    _apply_cap(by_id, choices, config)
    return by_id


def main_language(posts: Iterable[PostSummary]) -> str:
    """Return the language of more than half of the author's words; empty if there is none.

    Words of unknown language are ignored.
    """
    words: Counter[str] = Counter()
    for post in posts:
        words[post.language] += post.own_words
    total = words.total() - words.pop("", 0)
    language, most = max(words.items(), key=lambda item: item[1], default=("", 0))
    return language if most > total / 2 else ""


def _flag(
    by_id: Mapping[str, PostSummary],
    pairs: Sequence[Duplicate],
    distances: Mapping[str, float],
    config: ProvenanceConfig,
) -> None:
    total = sum(post.own_words for post in by_id.values()) or 1
    for post in by_id.values():
        post.share = post.own_words / total
    duplicates = {id_ for pair in pairs for id_ in (pair.id, pair.other_id)}
    ordered = sorted(post.share for post in by_id.values())
    median = ordered[len(ordered) // 2] if ordered else 0.0
    # With few posts, equal shares are already large: require at least twice an equal share.
    limit = max(config.dominant_share, 2 / max(1, len(by_id)))
    language = main_language(by_id.values())
    for id_, post in by_id.items():
        dominant = post.share > limit or (
            post.share > _LOWER_DOMINANT_SHARE * limit and post.share > _TIMES_MEDIAN * median
        )
        tests: tuple[tuple[Flag, bool], ...] = (
            ("dominant", dominant),
            ("unlike", id_ in distances),
            ("language", language != "" and post.language not in ("", language)),
            ("dump", 2 * post.log_words > post.words),
            ("duplicate", id_ in duplicates),
        )
        post.flags = [flag for flag, raised in tests if raised]


def _default(post: PostSummary, distance: float) -> tuple[Decision, str]:
    """Return the default decision about a post by itself, with its reason."""
    unlike = f"it reads unlike your other posts ({distance:.1f} standard deviations from the norm)"
    if "language" in post.flags:
        unlike = f"it is in {post.language}, unlike most of your posts"
    own, logs = post.own_words, post.log_words
    if "dominant" in post.flags and "unlike" in post.flags:
        reason = f"{post.share:.0%} of all the prose, and {unlike}; keep it if you wrote it"
        return "leave out", reason
    if not own:
        return "keep", "it contains no words of your own"
    if "dump" in post.flags:
        stay = "your own word stays" if own == 1 else f"your own {own:,} words stay"
        words = count(post.words, "word")
        return "keep", f"machine output is never trained on: {logs:,} of its {words}; {stay}"
    if "language" in post.flags:
        return "keep", unlike
    if "unlike" in post.flags:
        return "keep", f"{unlike}; kept, because only you know who wrote it"
    return "keep", ""


def _leave_out_copies(
    by_id: Mapping[str, PostSummary], pairs: Sequence[Duplicate], decided: Set[str]
) -> None:
    """Leave out all copies but the best of each group, except those that the author chose."""
    inside = {id_ for id_, post in by_id.items() if post.decision != "leave out"}
    for group in duplicate_groups(p for p in pairs if p.id in inside and p.other_id in inside):
        chosen = group & decided
        best = _best_copy(by_id, group, chosen)
        pair_with = {p.other_id: p for p in pairs if p.id == best}
        pair_with |= {p.id: p for p in pairs if p.other_id == best}
        title = quoted(by_id[best].title, 90)
        for id_ in group - {best} - chosen:
            what = f"shares text with a group of posts of which {title} is kept"
            if pair := pair_with.get(id_):
                what = f"{pair.share:.0%} shared with {title}, which is kept"
                if pair.exact:
                    what = f"the same text as {title}, which is kept"
            by_id[id_].decision, by_id[id_].reason = "leave out", what


def _best_copy(by_id: Mapping[str, PostSummary], group: Set[str], chosen: Set[str]) -> str:
    """Return the copy to keep: one the author chose, or else the earliest of about the longest.

    A short early note must not replace a long post that includes it.
    """
    longest = max(by_id[id_].own_words for id_ in group)

    def order(id_: str) -> tuple[bool, bool, str, int, str]:
        post = by_id[id_]
        return (id_ not in chosen, not post.day, post.day, -post.own_words, id_)

    candidates = (id_ for id_ in group if by_id[id_].own_words >= _MIN_COPY_LENGTH * longest)
    return min(candidates, key=order)


def _apply_cap(
    by_id: Mapping[str, PostSummary], choices: Choices, config: ProvenanceConfig
) -> None:
    """Cap the posts that would be too large a share of the training text."""
    used = [post for post in by_id.values() if post.training_words]
    # A post that the author chose to keep is not capped.
    free = [post for post in used if choices.get(post.id) != "keep"]
    even = 2 / len(used) if used else 1.0
    cap = min(1.0, max(config.max_post_share, even))
    words = [post.training_words for post in free]
    uncapped = sum(post.training_words for post in used) - sum(words)
    limit = cap_limit(words, cap, uncapped)
    # All words but those of one capped post.
    others = uncapped + sum(min(each, limit) for each in words) - limit
    rule = f"no post may be more than {cap:.0%}"
    if even > config.max_post_share:
        rule += f" (twice an even share of {len(used)} posts)"
    for post in free:
        if post.training_words > limit:
            reason = (
                f"in full it would be {post.training_words / (others + post.training_words):.0%}"
                f" of the training text, but {rule},"
                f" so training uses {limit:,} of its {count(post.training_words, 'word')}"
            )
            other = post.reason.partition("; kept")[0]  # it is not kept in full
            post.reason = f"{other}; {reason}" if other else reason
            post.decision, post.training_words = "cap", limit


def cap_limit(words: Iterable[int], cap: float, uncapped: int = 0) -> int:
    """Return the word limit per post at which no post exceeds the share `cap` of all words.

    `uncapped` words that are never cut are added to the total. If no cut is needed, returns the
    longest post's length.
    """
    longest_first = sorted(words, reverse=True)
    share = Fraction(cap).limit_denominator(10**6)
    rest = sum(longest_first) + uncapped
    for cut, longest in enumerate([*longest_first, 0]):
        # With the `cut` longest posts cut to L: L = cap * (cut * L + rest).
        limit = share * rest / (1 - share * cut) if share * cut < 1 else Fraction(rest)
        if longest <= limit:
            return int(limit) if cut else longest
        rest -= longest
    return 0


# ---- split: training, validation and test posts


Side = Literal["train", "validation", "test"]

MIN_GROUPS = 5  # with fewer groups, everything is for training

_KEY = b"ownwords split 1"
_MAX_OVERSHOOT = 1.25  # a side may exceed its quota by this factor, as posts are not divided


@dataclass(frozen=True, slots=True)
class PostSplit:
    """The side of each document by id, and a note if nothing could be held out.

    `for_next` are the sides to pass to the next split: they include those of copies without
    training words, and of posts that are gone.
    """

    sides: dict[str, Side]
    for_next: dict[str, Side]
    note: str = ""


@dataclass(eq=False, slots=True)
class _SplitGroup:
    """A post and its near-duplicates, which stay on one side."""

    posts: list[PostSummary]
    side: Side | None
    words: int
    key: bytes
    train_only: bool


def split_posts(
    posts: Iterable[PostSummary],
    duplicates: Iterable[frozenset[str]],
    config: SplitConfig,
    kept: Mapping[str, Side] | None = None,
) -> PostSplit:
    """Assign each post with training words a side; groups of near-duplicates stay on one side.

    Those in `kept` stay on their sides; new ones fill up the held-out sides, in the order of a
    keyed hash of their ids. A held-out side takes posts from training only if it has none.
    """
    every = _group(posts, duplicates, kept or {})
    groups = [group for group in every if group.words]
    note = ""
    if len(groups) < MIN_GROUPS:
        number = count(len(groups), "post") if groups else "no posts"
        note = (
            f"Nothing is held out for testing: you have {number} to train on, and at least"
            f" {MIN_GROUPS} are needed."
        )
    elif missing := _hold_out(groups, config):
        note = f"Nothing is held out for {' and '.join(missing)}: too few posts are short enough."
    sides: dict[str, Side] = {}
    keeps = dict(kept or {})
    for group in every:
        if side := group.side or ("train" if group.words else None):
            keeps |= dict.fromkeys((post.id for post in group.posts), side)
            used = (post.id for post in group.posts if post.training_words)
            sides |= dict.fromkeys(used, "train" if len(groups) < MIN_GROUPS else side)
    return PostSplit(sides, keeps, note)


def _hold_out(groups: Sequence[_SplitGroup], config: SplitConfig) -> list[Side]:
    """Fill up the sides that are held out; return those that stay empty."""
    total = sum(group.words for group in groups)
    quotas: dict[Side, float] = {
        "test": config.test * total,
        "validation": config.validation * total,
    }

    def words(side: Side) -> int:
        return sum(group.words for group in groups if group.side == side)

    for side, quota in quotas.items():
        filled = words(side)
        if filled >= quota:
            continue
        takes = {None} if filled else {None, "train"}
        free = sorted(
            (group for group in groups if not group.train_only and group.side in takes),
            key=lambda group: (group.side is not None, group.key),
        )
        room = (1 - MIN_TRAIN_SHARE) * total - words("test") - words("validation")
        if side == "test":
            room -= max(0, quotas["validation"] - words("validation"))
        limit = min(_MAX_OVERSHOOT * quota, filled + room)
        for group in free:
            if filled < quota and filled + group.words <= limit:
                group.side = side
                filled += group.words
        # If none fits, the shortest is taken if that leaves enough to train on.
        shortest = min(free, key=lambda group: (group.words, group.key), default=None)
        if not filled and shortest and shortest.words <= room:
            shortest.side = side
    return [side for side, quota in quotas.items() if quota and not words(side)]


def _group(
    posts: Iterable[PostSummary],
    duplicates: Iterable[frozenset[str]],
    kept: Mapping[str, Side],
) -> list[_SplitGroup]:
    single = {post.id: post for post in posts}
    grouped = [[single.pop(id_) for id_ in sorted(ids) if id_ in single] for ids in duplicates]
    members = [*grouped, *([post] for post in single.values())]
    return [
        _SplitGroup(
            group,
            # If copies are on different sides, take the first of train, validation and test: a
            # model may have been trained or chosen with one of them.
            next((side for side in get_args(Side) if side in map(kept.get, ids)), None),
            sum(post.training_words for post in group),
            min(map(_hash, ids)),
            # A capped or dominant post is not representative for testing.
            any(post.decision == "cap" or "dominant" in post.flags for post in group),
        )
        for group in members
        if (ids := [post.id for post in group])
    ]


def _hash(id_: str) -> bytes:
    return blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=16, key=_KEY).digest()


# ---- choices.toml: the author's editable decisions


_HEAD = Path(__file__).with_name("choices.toml")  # the comment at the top of the file


@dataclass(frozen=True)
class _Entry:
    id: str
    decision: Decision
    proposed: str = ""
    title: str = ""
    why: str = ""
    words: int = 0
    training_words: int = 0


@dataclass(frozen=True)
class _ChoicesFile:
    post: list[_Entry] = field(default_factory=list)


def read_bytes(path: Path) -> bytes:
    """Return the file's content; b"" if there is none. Raises ConfigError if it is unreadable."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="make the file readable, or move it away: a new one is then written",
        ) from error


def read_choices(path: Path) -> dict[str, Decision]:
    """Read the author's own decisions, without unchanged defaults."""
    return parse_choices(read_bytes(path), path)


def parse_choices(data: bytes, path: Path) -> dict[str, Decision]:
    """Parse the author's own decisions; raises ConfigError."""
    try:
        # Notepad writes a byte order mark.
        document = tomllib.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="correct that line, or delete the file"
        ) from error
    # Unknown content is refused, because rewriting the file would silently lose it.
    posts = decode(_ChoicesFile, document, source=str(path)).post
    for id_, times in Counter(post.id for post in posts).items():
        if times > 1:
            raise ConfigError(f"{path}: there are two entries for {id_!r}", hint="delete one")
    return {post.id: post.decision for post in posts if post.decision != post.proposed}


def write_choices(posts: Sequence[PostSummary], choices: Choices) -> str:
    """Return the text of choices.toml: the posts that stand out or have an author's choice."""
    parts, present = [_HEAD.read_text("utf-8")], {post.id for post in posts}
    for post in posts:
        is_chosen = post.id in choices
        if not is_chosen and post.decision == "keep" and not post.flags:
            continue
        # `proposed` lets `parse_choices` tell a changed decision from an unchanged default.
        entry = {"id": post.id, "title": plain(post.title, 160), "decision": post.decision}
        entry |= {} if is_chosen else {"proposed": post.decision}
        entry["why"] = plain(post.reason) or flags_in_words(post)
        parts.append(_table(entry | {"words": post.words, "training_words": post.training_words}))
    # Keep choices about missing posts, since a post may come back.
    parts += [
        _table({"id": id_, "decision": decision, "why": "not in the archive at present"})
        for id_, decision in choices.items()
        if id_ not in present
    ]
    return "\n".join(parts)


def _table(entry: Mapping[str, object]) -> str:
    return "[[post]]\n" + "".join(f"{key} = {as_toml(value)}\n" for key, value in entry.items())
