"""Reciprocal rank fusion against sums made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.ask.rank_fusion import reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.integers(0, 30), max_size=12, unique=True), max_size=4)


def test_places_add_up() -> None:
    fused = reciprocal_rank_fusion([[7, 8, 9], [9, 7]])
    assert [id_ for id_, _ in fused] == [7, 9, 8]
    assert dict(fused) == pytest.approx({7: 1 / 61 + 1 / 62, 9: 1 / 63 + 1 / 61, 8: 1 / 62})


def test_two_second_places_beat_one_first() -> None:
    assert next(iter(reciprocal_rank_fusion([[1, 2], [3, 2]])))[0] == 2
    # With a small k the top of a list is worth more than agreement.
    assert next(iter(reciprocal_rank_fusion([[1, 2], [3, 4, 2]], k=0)))[0] == 1


def test_equal_sums_keep_the_order_of_appearance() -> None:
    assert [id_ for id_, _ in reciprocal_rank_fusion([[5, 6], [6, 5]])] == [5, 6]
    assert [id_ for id_, _ in reciprocal_rank_fusion([[4], [3]])] == [4, 3]


def test_an_id_counts_once_a_ranking() -> None:
    assert reciprocal_rank_fusion([[1, 1, 2]]) == reciprocal_rank_fusion([[1, 2]])


def test_nothing_comes_of_nothing() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []


@given(RANKINGS)
def test_every_id_comes_once_and_the_best_first(rankings: list[list[int]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    assert sorted(id_ for id_, _ in fused) == sorted({id_ for one in rankings for id_ in one})
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)


@given(RANKINGS, st.integers(0, 30))
def test_another_first_place_never_hurts(rankings: list[list[int]], id_: int) -> None:
    before = [one for one, _ in reciprocal_rank_fusion(rankings)]
    after = [one for one, _ in reciprocal_rank_fusion([*rankings, [id_]])]
    if id_ in before:
        assert after.index(id_) <= before.index(id_)
