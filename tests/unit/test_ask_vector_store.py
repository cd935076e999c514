"""Cosines of stored vectors against NumPy's."""

import numpy as np
import pytest

from ownwords.ask.vector_store import StoredVectors, quantized


@pytest.mark.parametrize("width", [1, 10, 64, 100, 384])
def test_the_cosine_of_a_passage_is_its_best_window(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(3000, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    passages = np.sort(rng.integers(5, 900, len(rows)))
    query = rows[17]
    ids, cosines = StoredVectors(passages, *quantized(rows)).cosines(query)
    assert ids.tolist() == sorted(set(passages.tolist()))
    exact = rows @ query
    best = [exact[passages == id_].max() for id_ in ids]
    assert np.abs(cosines - best).max() < 0.01


def test_without_vectors_cosines_are_empty() -> None:
    empty = StoredVectors(np.empty(0, np.int64), np.empty((0, 0), np.int8), np.empty(0, np.float32))
    assert [len(block) for block in empty.cosines(np.ones(3, np.float32))] == [0, 0]
