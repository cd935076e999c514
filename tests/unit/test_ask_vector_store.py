"""Cosines of stored vectors against NumPy's."""

import numpy as np
import pytest

from ownwords.ask.index import StoredVectors, quantized


@pytest.mark.parametrize("width", [1, 10, 64, 100, 384])
def test_the_cosine_of_a_passage_is_its_best_window(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(3000, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    passages = np.sort(rng.integers(5, 900, len(rows)))
    query = rows[17]
    stored = StoredVectors(passages, *quantized(rows))
    ids, cosines = stored.cosines(query)
    assert ids.tolist() == sorted(set(passages.tolist()))
    exact = rows @ query
    best = [exact[passages == id_].max() for id_ in ids]
    assert np.abs(cosines - best).max() < 0.01
    windows = stored.of_windows(query, int(ids[3]))
    assert np.abs(np.array(windows) - exact[passages == ids[3]]).max() < 0.01
    assert stored.of_windows(query, 4) == []


def test_a_query_of_another_length_is_never_compared() -> None:
    stored = StoredVectors(np.arange(3), *quantized(np.ones((3, 8), np.float32)))
    for length in (7, 9):
        with pytest.raises(ValueError, match=rf"\({length},\) for vectors of 8"):
            stored.cosines(np.ones(length, np.float32))


def test_without_vectors_cosines_are_empty() -> None:
    empty = StoredVectors(np.empty(0, np.int64), np.empty((0, 3), np.int8), np.empty(0, np.float32))
    assert [len(block) for block in empty.cosines(np.ones(3, np.float32))] == [0, 0]
