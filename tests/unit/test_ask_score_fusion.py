"""How word and vector scores are fused into one ranking."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ownwords.ask.index import Floats, Ids
from ownwords.ask.search import fuse, nearest


def vectors(cosines: dict[int, float]) -> tuple[Ids, Floats]:
    ids = sorted(cosines)
    return np.array(ids, np.int64), np.array([cosines[id_] for id_ in ids], np.float32)


COSINES = {1: 0.4, 2: 0.6, 3: 0.5}


def test_if_every_word_is_common_vectors_rank_alone() -> None:
    assert [id_ for id_, _ in fuse([(1, 9.0)], *vectors(COSINES), rarity=0.0)] == [2, 3, 1]


def test_if_every_word_is_rare_words_lead() -> None:
    by_text = [(1, 9.0), (3, 1.0)]
    assert fuse(by_text, *vectors(COSINES), rarity=1.0)[0][0] == 1


def test_the_rule_is_smooth() -> None:
    ranked = [
        [score for id_, score in fuse([(1, 9.0)], *vectors(COSINES), rarity=at / 100) if id_ == 1]
        for at in range(101)
    ]
    steps = np.diff([score for (score,) in ranked])
    assert (steps > 0).all() and steps.max() < 0.02


def test_a_passage_without_a_vector_ranks_with_the_last_of_the_nearest() -> None:
    fused = dict(fuse([(9, 5.0), (1, 4.0)], *vectors(COSINES), rarity=0.0))
    assert np.isclose(fused[9], 0.4)


def test_without_vectors_words_rank_alone() -> None:
    by_text = [(4, 3.0), (2, 1.0)]
    assert fuse(by_text, *vectors({}), rarity=0.1) == by_text
    assert fuse([], *vectors(COSINES), rarity=0.0)[0][0] == 2


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=30), st.integers(0, 12))
def test_nearest_vectors_equal_a_full_sort(cosines: list[float], limit: int) -> None:
    result = nearest(*vectors(dict(enumerate(cosines))), limit)
    assert [score for _, score in result] == sorted(cosines, reverse=True)[:limit]
    assert result == sorted(result, key=lambda entry: (-entry[1], entry[0]))
    assert [cosines[id_] for id_, _ in result] == [score for _, score in result]
