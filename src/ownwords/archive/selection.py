"""Whose words are these, and what becomes of each post: to ask, and never to delete.

A decision says only what a model is trained on. Every post stays in the archive, can be searched
and cited, and the author's own choice stands above every default here.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from math import inf
from typing import Literal

from ownwords.archive.features import Features
from ownwords.archive.near_duplicates import DuplicatePair, duplicate_groups
from ownwords.archive.report.formatting import count, quoted
from ownwords.archive.style_outliers import StyleOutlier

Flag = Literal["dominant", "unlike", "dump", "duplicate"]
Decision = Literal["keep", "cap", "leave out"]
DecidedBy = Literal["default", "you"]

_LESS_DOMINANT = 0.6  # of the dominant share, is dominant too for a post this many times the median
_TIMES_MEDIAN = 4
_CHOSEN: dict[Decision, str] = {
    "keep": "you chose to keep it",
    "cap": "you chose to cap it",
    "leave out": "you chose to leave it out",
}
_AS_LONG = 0.8  # a copy may be so much shorter than the longest and still be the one to keep


@dataclass(frozen=True, slots=True)
class ProvenanceConfig:
    """What an author may set about whose words are learned from."""

    # No post may be more than this share of the words a model is trained on.
    max_post_share: float = 0.10
    # Two posts are near-duplicates if so much of the shorter stands in the longer (5-word runs).
    near_duplicate: float = 0.5
    # A post reads unlike the others from this robust z of Burrows' Delta on.
    unlike_distance: float = 2.5
    # A post with more than this share of all own words dominates the archive.
    dominant_share: float = 0.25

    def __post_init__(self) -> None:
        for name in ("max_post_share", "near_duplicate", "dominant_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} should be over 0 and at most 1: {getattr(self, name)}")
        if not 0 < self.unlike_distance < inf:
            raise ValueError(f"unlike_distance should be over 0 and finite: {self.unlike_distance}")


@dataclass(frozen=True, slots=True)
class PostFacts:
    """What is to be known of a document here."""

    id: str
    title: str
    features: Features
    day: date | None = None


@dataclass(frozen=True, slots=True)
class AuthorChoice:
    """What is to become of a post; `by` you, it stands above every default."""

    id: str
    decision: Decision
    by: DecidedBy = "you"


@dataclass(frozen=True, slots=True)
class PostDecision:
    """What becomes of a post, why, and how many of its words may be trained on (its first ones)."""

    id: str
    flags: tuple[Flag, ...]
    decision: Decision
    reason: str  # empty for a post that is simply kept
    training_words: int
    by: DecidedBy = "default"


def select_posts(
    posts: Iterable[PostFacts],
    pairs: Sequence[DuplicatePair],
    outliers: Iterable[StyleOutlier],
    config: ProvenanceConfig,
    choices: Iterable[AuthorChoice] = (),
) -> dict[str, PostDecision]:
    """A verdict on every post, by id; the same whatever the order things come in."""
    known = {post.id: post for post in sorted(posts, key=lambda post: post.id)}
    chosen = {one.id: one.decision for one in choices if one.by == "you"}
    shares = _shares(known)
    far = {one.id: one.distance for one in outliers}
    flags = _flags(known, shares, pairs, far, config)
    made: dict[str, PostDecision] = {}
    for id_, post in known.items():
        reason, left_out = _default_decision(post, shares[id_], flags[id_], far.get(id_, 0.0))
        words = post.features.own_words
        made[id_] = PostDecision(
            id_, flags[id_], "leave out" if left_out else "keep", reason, words
        )
        if id_ in chosen:
            made[id_] = replace(
                made[id_], decision=chosen[id_], reason=_CHOSEN[chosen[id_]], by="you"
            )
    for id_, reason in _copies(known, made, pairs).items():
        made[id_] = replace(made[id_], decision="leave out", reason=reason)
    return _apply_cap(made, shares, config)


def effective_posts(words: Iterable[int]) -> float:
    """How many posts of equal length would be as varied: the inverse Simpson index."""
    counts = [n for n in words if n > 0]
    return sum(counts) ** 2 / sum(n * n for n in counts) if counts else 0.0


def _shares(known: Mapping[str, PostFacts]) -> dict[str, float]:
    total = sum(post.features.own_words for post in known.values())
    return {id_: post.features.own_words / total if total else 0.0 for id_, post in known.items()}


def _flags(
    known: Mapping[str, PostFacts],
    shares: Mapping[str, float],
    pairs: Sequence[DuplicatePair],
    far: Mapping[str, float],
    config: ProvenanceConfig,
) -> dict[str, tuple[Flag, ...]]:
    copied = {id_ for pair in pairs for id_ in (pair.id, pair.other_id)}
    ordered = sorted(shares.values())
    median = ordered[len(ordered) // 2] if ordered else 0.0
    # Of three posts each may have a third of the words: twice an even share is asked at least.
    much = max(config.dominant_share, 2 / max(1, len(known)))
    flags: dict[str, tuple[Flag, ...]] = {}
    for id_, post in known.items():
        share, of = shares[id_], post.features
        dominant = share > much or (
            share > _LESS_DOMINANT * much and share > _TIMES_MEDIAN * median
        )
        tests: tuple[tuple[Flag, bool], ...] = (
            ("dominant", dominant),
            ("unlike", id_ in far),
            ("dump", 2 * of.words.get("log", 0) > of.all_words),
            ("duplicate", id_ in copied),
        )
        flags[id_] = tuple(flag for flag, raised in tests if raised)
    return flags


def _default_decision(
    post: PostFacts, share: float, flags: tuple[Flag, ...], distance: float
) -> tuple[str, bool]:
    """What is to be said of a post without looking at the others, and whether it is left out."""
    if "dominant" in flags and "unlike" in flags:
        return (
            f"{share:.0%} of all the prose, and it reads unlike your other posts ({distance:.1f} "
            "times the usual spread away from them): if these are your words, choose to keep it",
            True,
        )
    if not post.features.own_words:
        return "no words of your own in it", False
    if "dump" in flags:
        logs = post.features.words.get("log", 0)
        return (
            f"{logs:,} of its {count(post.features.all_words, 'word')} "
            f"{'is a log' if logs == 1 else 'are logs'}, which are never trained on; "
            f"{_own_stay(post.features.own_words)}",
            False,
        )
    if "unlike" in flags:
        return (
            f"reads unlike your other posts ({distance:.1f} times the usual spread away from "
            "them); kept, as only you know whose words they are",
            False,
        )
    return "", False


def _own_stay(words: int) -> str:
    return "your one word in it stays" if words == 1 else f"your own {words:,} words in it stay"


def _copies(
    known: Mapping[str, PostFacts], made: Mapping[str, PostDecision], pairs: Sequence[DuplicatePair]
) -> dict[str, str]:
    """Of each group of copies still in, all but the one kept, with the reason."""
    inside = {id_ for id_, one in made.items() if one.decision != "leave out"}
    reasons: dict[str, str] = {}
    for group in duplicate_groups(p for p in pairs if p.id in inside and p.other_id in inside):
        kept = _best_copy(known, group, {id_ for id_ in group if made[id_].by == "you"})
        share = {p.other_id: p for p in pairs if p.id == kept}
        share |= {p.id: p for p in pairs if p.other_id == kept}
        for id_ in sorted(group - {kept}):
            if made[id_].by == "you":
                continue
            title = quoted(known[kept].title, 90)
            if id_ in share and share[id_].exact:
                reasons[id_] = f"the same text as {title}, which is kept"
            elif id_ in share:
                reasons[id_] = f"{share[id_].share:.0%} shared with {title}, which is kept"
            else:
                reasons[id_] = f"shares text with others of a group of which {title} is kept"
    return reasons


def _best_copy(known: Mapping[str, PostFacts], group: Set[str], chosen: Set[str]) -> str:
    """The earliest dated of those about as long as the longest; undated ones come last.

    What the author chose comes before all of these.

    A short note that a long post took up later must not push out the long post, hence the length.
    """
    length = {id_: known[id_].features.own_words for id_ in group}
    longest = max(length.values())

    def order(id_: str) -> tuple[bool, bool, date, int, str]:
        day = known[id_].day
        return (id_ not in chosen, day is None, day or date.max, -length[id_], id_)

    return min((id_ for id_ in group if length[id_] >= _AS_LONG * longest), key=order)


def _apply_cap(
    made: Mapping[str, PostDecision], shares: Mapping[str, float], config: ProvenanceConfig
) -> dict[str, PostDecision]:
    words = {
        id_: one.training_words
        for id_, one in made.items()
        if one.decision != "leave out" and one.training_words
    }
    # Who chose to keep a post keeps all of it.
    whole = {id_ for id_ in words if made[id_].by == "you" and made[id_].decision == "keep"}
    even = 2 / len(words) if words else 1.0
    cap = min(1.0, max(config.max_post_share, even))
    limit = cap_limit(
        [n for id_, n in words.items() if id_ not in whole], cap, sum(words[i] for i in whole)
    )
    why = f"at most {cap:.0%} of the training text is taken from one post"
    if even > config.max_post_share:
        why += f" (twice an even share, as there are only {len(words)} to learn from)"
    result: dict[str, PostDecision] = {}
    for id_, one in made.items():
        if one.decision == "leave out":
            result[id_] = replace(one, training_words=0)
        elif id_ in whole or one.training_words <= limit:
            result[id_] = one
        else:
            said = (
                f"{shares[id_]:.0%} of all the prose: {why}, so {limit:,} of its "
                f"{count(one.training_words, 'word')}"
            )
            reason = f"{one.reason}; {said}" if one.reason else said
            result[id_] = replace(one, decision="cap", reason=reason, training_words=limit)
    return result


def cap_limit(words: Iterable[int], cap: float, others: int = 0) -> int:
    """The most words to take of one post so that none is more than `cap` of all that is taken.

    `others` words are taken besides, without a limit. Where nothing need be cut, the longest post.
    """
    longest_first = sorted(words, reverse=True)
    share = Fraction(cap).limit_denominator(10**6)
    rest = sum(longest_first) + others
    for cut, longest in enumerate([*longest_first, 0]):
        # With the longest ones cut to L: L = cap * (cut * L + rest).
        limit = share * rest / (1 - share * cut) if share * cut < 1 else Fraction(rest)
        if longest <= limit:
            return int(limit) if cut else longest
        rest -= longest
    return 0
