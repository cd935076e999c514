"""The decision about each post: flags, defaults, the cap, and the author's choice."""

import random
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.report import Duplicate, PostSummary, UnlikePost
from ownwords.archive.selection import Choices, Decision, select_posts
from ownwords.archive.settings import ProvenanceConfig
from ownwords.core.errors import ConfigError
from ownwords.core.validation import decode

CONFIG = ProvenanceConfig()


def post(id_: str, own: int, log: int = 0, day: date | None = None) -> PostSummary:
    iso = day.isoformat() if day else ""
    return PostSummary(id_, f"Title {id_}", "", iso, "post", own + log, own, log_words=log)


def posts(n: int = 30, words: int = 100) -> list[PostSummary]:
    return [post(f"{i:02}", words) for i in range(n)]


def near(first: str, second: str, share: float = 0.9) -> Duplicate:
    return Duplicate(first, second, exact=share == 1, share=share)


def one_of(
    id_: str,
    facts: list[PostSummary],
    pairs: list[Duplicate] | None = None,
    far: dict[str, float] | None = None,
    choice: Decision | None = None,
) -> PostSummary:
    outliers = [UnlikePost(name, distance) for name, distance in (far or {}).items()]
    choices = {id_: choice} if choice else {}
    return select_posts(facts, pairs or [], outliers, CONFIG, choices)[id_]


def test_an_ordinary_post_is_kept_without_flags() -> None:
    assert one_of("03", posts()) == replace(post("03", 100), share=1 / 30, training_words=100)


def test_a_foreign_looking_half_of_the_archive_is_excluded() -> None:
    decision = one_of("x", [*posts(), post("x", 3_000)], far={"x": 5.9})
    assert (decision.flags, decision.decision) == (["dominant", "unlike"], "leave out")
    assert decision.training_words == 0
    assert "50% of all the prose" in decision.reason
    assert "unlike your other posts" in decision.reason


def test_a_dominant_post_in_the_author_s_voice_is_capped() -> None:
    decision = one_of("x", [*posts(), post("x", 3_000)])
    assert (decision.flags, decision.decision) == (["dominant"], "cap")
    assert decision.training_words == 333
    assert (
        "in full it would be 50% of the training text, but no post may be more than 10%"
        in decision.reason
    )


def test_a_small_unlike_post_is_kept_and_flagged() -> None:
    decision = one_of("03", posts(), far={"03": 3.3})
    assert (decision.flags, decision.decision, decision.training_words) == (["unlike"], "keep", 100)
    assert "3.3" in decision.reason


def test_far_longer_than_the_median_is_dominant_sooner() -> None:
    assert one_of("x", [*posts(), post("x", 600)]).flags == ["dominant"]
    longer = [post(f"{i}", 100 + 60 * i) for i in range(6)]
    assert all(not one_of(p.id, longer).flags for p in longer)


def test_a_dump_keeps_its_prose_only() -> None:
    decision = one_of("x", [*posts(), post("x", 20, log=900)])
    assert (decision.flags, decision.decision, decision.training_words) == (["dump"], "keep", 20)
    assert "machine output is never trained on: 900 of its 920 words" in decision.reason


def test_of_copies_the_earliest_is_kept() -> None:
    facts = [
        *posts(),
        post("b", 100, day=date(2020, 1, 1)),
        post("a", 110, day=date(2021, 1, 1)),
        post("c", 111),
    ]
    pairs = [near("a", "b"), near("b", "c", 1.0)]
    assert one_of("b", facts, pairs).decision == "keep"
    assert one_of("b", facts, pairs).flags == ["duplicate"]
    assert one_of("a", facts, pairs).decision == "leave out"
    assert "90% shared with “Title b”" in one_of("a", facts, pairs).reason
    assert "the same text as “Title b”" in one_of("c", facts, pairs).reason


def test_a_long_post_containing_an_earlier_note_is_kept() -> None:
    facts = [*posts(), post("note", 20, day=date(2019, 1, 1)), post("long", 200)]
    pairs = [near("long", "note", 1.0)]
    assert one_of("long", facts, pairs).decision == "keep"
    assert one_of("note", facts, pairs).decision == "leave out"


def test_an_excluded_post_does_not_exclude_its_copies() -> None:
    facts = [*posts(), post("x", 5_000), post("part", 100)]
    pairs = [near("part", "x", 1.0)]
    assert one_of("part", facts, pairs, {"x": 6.0}).decision == "keep"
    choices: Choices = {"x": "leave out"}
    assert select_posts(facts, pairs, [], CONFIG, choices)["part"].decision == "keep"


def test_the_author_s_choice_overrides_the_defaults() -> None:
    facts = [*posts(), post("x", 3_000)]
    included = one_of("x", facts, far={"x": 5.9}, choice="keep")
    assert (included.decision, included.training_words) == ("keep", 3_000)
    capped = one_of("x", facts, far={"x": 5.9}, choice="cap")
    assert (capped.decision, capped.training_words) == ("cap", 333)
    excluded = one_of("03", facts, choice="leave out")
    assert (excluded.decision, excluded.training_words) == ("leave out", 0)
    both = [near("01", "02", 1.0)]
    assert one_of("02", facts, both, choice="keep").decision == "keep"


def test_a_capped_post_is_not_said_to_be_kept() -> None:
    decision = one_of("x", [*posts(9), post("y", 3_000), post("x", 400)], far={"x": 3.3})
    assert decision.decision == "cap"
    assert "(3.3 standard deviations from the norm); in full it would be 26% of" in decision.reason


WORDS = st.lists(st.integers(0, 400), max_size=40)


@given(WORDS, st.randoms(use_true_random=False))
def test_no_post_exceeds_the_cap_and_order_does_not_matter(
    words: list[int], rng: random.Random
) -> None:
    facts = [post(f"{i:02}", n) for i, n in enumerate(words)]
    decisions = select_posts(facts, [], [], CONFIG, {})
    shuffled = list(facts)
    rng.shuffle(shuffled)
    assert select_posts(shuffled, [], [], CONFIG, {}) == decisions
    word_counts = [each.training_words for each in decisions.values() if each.training_words]
    cap = min(1.0, max(CONFIG.max_post_share, 2 / max(1, len(word_counts))))
    assert all(n <= cap * sum(word_counts) * (1 + 1e-6) for n in word_counts)
    for decision in decisions.values():
        own_words = facts[int(decision.id)].own_words
        assert (
            decision.training_words == own_words
            if decision.decision == "keep"
            else decision.training_words < own_words
        )


def test_of_copies_only_the_author_s_choice_is_kept() -> None:
    first, second = (post(id_, 100, day=date(2019 + n, 1, 1)) for n, id_ in enumerate("ab"))
    facts = [*posts(), first, second]
    decisions = select_posts(facts, [near("a", "b", 1.0)], [], CONFIG, {"b": "keep"})
    assert (decisions["b"].decision, decisions["a"].decision) == ("keep", "leave out")
    assert "“Title b”, which is kept" in decisions["a"].reason
    both: Choices = {"a": "keep", "b": "keep"}
    decisions = select_posts(facts, [near("a", "b", 1.0)], [], CONFIG, both)
    assert (decisions["b"].decision, decisions["a"].decision) == ("keep", "keep")


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_post_share", 0.0), ("near_duplicate", -1.0), ("dominant_share", float("inf"))],
)
def test_meaningless_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        decode(ProvenanceConfig, {name: value})
