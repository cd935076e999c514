"""How the server's archive counts the vectors that are made in the background."""

from pathlib import Path

import pytest

from ownwords.ask.encoder import embed_missing
from ownwords.ask.index import SearchIndex
from ownwords.serve.archive_access import ArchivePool
from sentence_folders import folder_in
from small_archives import Entry, put


def test_the_passages_that_have_a_vector_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "archive.sqlite"
    put(path, {"a": Entry("One", ("The rain fell.",)), "b": Entry("Two", ("My kettle broke.",))})
    # The vectors of the server's own thread would come at any moment.
    monkeypatch.setattr("ownwords.serve.archive_access.BackgroundVectors", lambda *_: None)
    (tmp_path / "model").mkdir()
    pool = ArchivePool(path, str(folder_in(tmp_path / "model")))
    try:
        assert pool.vector_counts() is None
        searcher = pool.searcher()
        assert pool.vector_counts() == (0, 2)
        assert searcher.embedder is not None
        with SearchIndex(path) as index:
            embed_missing(index, searcher.embedder)
        assert pool.vector_counts() == (2, 2)
    finally:
        pool.close()
    words = ArchivePool(path, "none")
    try:
        words.searcher()
        assert words.vector_counts() is None
    finally:
        words.close()
