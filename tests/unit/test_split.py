"""The split: a partition of whole posts, near-duplicates together, deterministic."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.report import PostSummary
from ownwords.archive.selection import MIN_GROUPS, PostSplit, split_posts
from ownwords.archive.settings import MIN_TRAIN_SHARE, SplitConfig
from ownwords.core.errors import ConfigError

CONFIG = SplitConfig()


def part(id_: int | str, words: int = 100, is_capped: bool = False) -> PostSummary:
    id_ = id_ if isinstance(id_, str) else f"{id_:03}"
    decision = "cap" if is_capped else "keep"
    return PostSummary(
        id_, "", "", "", "post", words, words, decision=decision, training_words=words
    )


def parts(n: int) -> list[PostSummary]:
    return [part(i) for i in range(n)]


def counts(division: PostSplit) -> dict[str, int]:
    return dict(Counter(division.sides.values()))


def side(division: PostSplit, name: str) -> set[str]:
    return {id_ for id_, side_name in division.sides.items() if side_name == name}


def test_a_tenth_is_held_out_on_either_side() -> None:
    division = split_posts(parts(100), [], CONFIG)
    assert counts(division) == {"train": 80, "validation": 10, "test": 10}


@pytest.mark.parametrize("n", range(MIN_GROUPS))
def test_with_hardly_any_posts_all_are_for_training_with_a_notice(n: int) -> None:
    division = split_posts(parts(n), [], CONFIG)
    assert set(division.sides.values()) <= {"train"}
    assert len(division.sides) == n
    assert division.note


def test_copies_do_not_make_an_archive_large() -> None:
    pairs = [frozenset({f"{i:03}" for i in range(5)})]
    assert split_posts(parts(8), pairs, CONFIG).note


def test_five_posts_give_one_to_each_held_out_side() -> None:
    division = split_posts(parts(5), [], CONFIG)
    assert (len(side(division, "test")), len(side(division, "validation"))) == (1, 1)
    assert division.note == ""


def test_posts_that_cannot_be_held_out_are_named() -> None:
    inputs = [part(0, 10), *(part(i, 1_000, is_capped=True) for i in range(1, 5))]
    division = split_posts(inputs, [], CONFIG)
    assert side(division, "test") == {"000"}
    assert "validation" in division.note


def test_copies_of_a_capped_post_are_for_training() -> None:
    inputs = [part(i, is_capped=i % 4 == 1) for i in range(40)]
    pairs = [frozenset({f"{i:03}", f"{i + 1:03}"}) for i in range(0, 40, 2)]
    sides = split_posts(inputs, pairs, CONFIG).sides
    assert all({sides[id_] for id_ in pair} == {"train"} for pair in pairs[::2])
    assert set(sides.values()) == {"train", "validation", "test"}


def test_new_posts_move_no_others() -> None:
    """And fill up what is held out."""
    before = split_posts(parts(30), [], CONFIG)
    for more in (32, 40, 100):
        after = split_posts(parts(more), [], CONFIG, before.for_next)
        assert {id_: after.sides[id_] for id_ in before.sides} == before.sides
        held_out = counts(after)
        assert abs(held_out["test"] - more / 10) <= 1 >= abs(held_out["validation"] - more / 10)


def test_a_post_that_comes_back_has_its_side() -> None:
    first = split_posts(parts(40), [], CONFIG)
    gone = split_posts(parts(40)[20:], [], CONFIG, first.for_next)
    assert split_posts(parts(40), [], CONFIG, gone.for_next).sides == first.sides
    few = split_posts(parts(4), [], CONFIG, first.for_next)  # too few to hold out any
    assert set(few.sides.values()) == {"train"}
    assert split_posts(parts(40), [], CONFIG, few.for_next).sides == first.sides


def test_a_copy_of_a_post_is_on_its_side() -> None:
    """Also where the copy replaces it, and where both were on different sides."""
    first = split_posts(parts(40), [], CONFIG)
    for name in ("train", "validation", "test"):
        old = min(side(first, name))
        copies = [frozenset({old, "zz"})]
        replaced = [post if post.id != old else part(old, 0) for post in parts(40)]
        after = split_posts([*replaced, part("zz")], copies, CONFIG, first.for_next)
        assert after.sides["zz"] == name
        assert old not in after.sides
        alone = split_posts([*parts(40), part("zz")], [], CONFIG, after.for_next)
        assert (alone.sides["zz"], alone.sides[old]) == (name, name)
    apart = [frozenset({min(side(first, name)) for name in ("train", "test")})]
    together = split_posts(parts(40), apart, CONFIG, first.for_next)
    assert {together.sides[id_] for id_ in apart[0]} == {"train"}


def test_a_side_without_a_post_takes_some_from_training() -> None:
    few = split_posts(parts(4), [], CONFIG)
    more = split_posts(parts(5), [], CONFIG, few.for_next)
    assert (more.note, len(side(more, "test")), len(side(more, "validation"))) == ("", 1, 1)


def test_with_zero_shares_nothing_is_held_out() -> None:
    division = split_posts(parts(50), [], SplitConfig(validation=0, test=0.2))
    assert len(side(division, "test")) == 10
    assert not side(division, "validation")
    assert division.note == ""


@pytest.mark.parametrize(("validation", "test"), [(-0.1, 0.1), (0.3, 0.2), (0.1, 2.0)])
def test_shares_that_leave_too_little_are_refused(validation: float, test: float) -> None:
    with pytest.raises(ConfigError):
        SplitConfig(validation=validation, test=test)


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.booleans()), max_size=40),
    st.lists(st.sets(st.integers(0, 39), min_size=2, max_size=4), max_size=4),
    st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)),
    st.randoms(use_true_random=False),
)
def test_the_sides_are_a_partition_that_leaves_enough_to_learn_from(
    posts: list[tuple[int, bool]],
    copies: list[set[int]],
    shares: tuple[float, float],
    rng: random.Random,
) -> None:
    inputs = [part(i, words, is_capped) for i, (words, is_capped) in enumerate(posts)]
    apart: list[frozenset[str]] = []
    for numbers in copies:
        group = frozenset(f"{i:03}" for i in numbers)
        if not any(group & links for links in apart):
            apart.append(group)
    config = SplitConfig(*shares)
    division = split_posts(inputs, apart, config)
    assert set(division.sides) == {post.id for post in inputs if post.training_words}
    for group in apart:
        assert len({division.sides[id_] for id_ in group if id_ in division.sides}) <= 1
    words = {post.id: post.training_words for post in inputs}
    learned = sum(words[id_] for id_ in side(division, "train"))
    assert learned >= MIN_TRAIN_SHARE * sum(words.values()) - 1e-6
    assert split_posts(inputs, apart, config, division.for_next).sides == division.sides
    rng.shuffle(inputs)
    assert split_posts(inputs, reversed(apart), config) == division
