"""The token that would continue a loop is found, and no other."""

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ownwords.inference.loops import LoopDetector


def banned(ids: Sequence[int]) -> set[int]:
    detector = LoopDetector()
    for token in ids:
        detector.add(token)
    return set(detector.banned)


@pytest.mark.parametrize(("period", "repeated"), [(1, 8), (3, 8), (12, 24), (16, 32), (100, 32)])
def test_a_loop_ends_sooner_the_shorter_it_is(period: int, repeated: int) -> None:
    ids = [*range(900, 905), *range(period)] + [i % period for i in range(repeated)]
    assert not banned(ids[:-1])
    assert banned(ids) == {repeated % period}


@given(st.lists(st.integers(0, 2), max_size=60))
def test_it_is_what_a_search_of_the_whole_text_finds(ids: list[int]) -> None:
    expected = set()
    for distance in range(1, len(ids)):
        run = 0
        while run + distance < len(ids) and ids[-1 - run] == ids[-1 - run - distance]:
            run += 1
        if run >= min(32, max(8, 2 * distance)):
            expected.add(ids[-distance])
    assert banned(ids) == expected
