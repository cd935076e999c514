import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ownwords.archive.document import Segment
from ownwords.archive.store import Archive, DamagedArchiveError
from ownwords.ask.answer import answer
from ownwords.ask.index import SearchIndex, StoredVectors, folded, quantized
from ownwords.ask.search import ArchiveSearcher
from ownwords.core.errors import CorpusError
from ownwords.core.progress import Event, Progress
from small_archives import Entry, put

HATS = Entry("On Hats", ("A hat is a roof for one.", "It blew off."), "2019-04-28")
KETTLE = Entry("The Kettle", ("It boils. " + "Steam rises slowly. " * 150,), "2020-05-01")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.sqlite"


@pytest.fixture
def index(path: Path) -> Iterator[SearchIndex]:
    put(path, {"hats": HATS, "kettle": KETTLE})
    with SearchIndex(path) as opened:
        opened.refresh()
        yield opened


def documents_with(index: SearchIndex, words: str, *, check: bool = True) -> list[str]:
    """The documents that contain the words; first checks the index against the chunks."""
    with index.reading() as db:
        if check:
            db.execute("INSERT INTO chunk_search(chunk_search, rank) VALUES ('integrity-check', 1)")
        rows = db.execute(
            "SELECT DISTINCT c.document FROM chunk_search s JOIN chunks c ON c.id = s.rowid"
            " WHERE chunk_search MATCH ? ORDER BY 1",
            (words,),
        )
        return [row[0] for row in rows]


def test_the_index_ignores_accents_and_endings(
    path: Path,
) -> None:
    entry = Entry(
        "Barometers", (Segment("heading", "Glass", "2"), "The café was closing."), "2019-04-28"
    )
    put(path, {"a": entry})
    with SearchIndex(path) as index:
        index.refresh()
        for words in ("barometer", "heading:glasses", "cafe", "close", "date:april", "date:2019"):
            assert documents_with(index, words) == ["a"], words


def test_only_changed_posts_are_reindexed(path: Path, index: SearchIndex) -> None:
    before = {
        document: index.chunks(document) for document in {post.document for post in index.posts()}
    }
    assert index.refresh() == 0
    changed = Entry("On Hats", ("A hat is a lid.",), "2019-04-28")
    put(path, {"hats": changed, "kettle": KETTLE})
    assert index.refresh() == 1
    assert index.chunks("kettle") == before["kettle"]
    assert not set(index.chunks("hats")) & set(before["hats"])
    assert (documents_with(index, "roof"), documents_with(index, "lid")) == ([], ["hats"])


def test_removed_posts_leave_the_search_without_a_refresh(path: Path, index: SearchIndex) -> None:
    index.put_vectors(
        "v", entries(index.without_vectors(""), np.ones((index.size(), 2), np.float32))
    )
    generation = index.generation()
    with Archive(path) as archive, archive.transaction():
        archive.remove(["hats"])
    assert documents_with(index, "hat OR roof") == []
    assert {post.document for post in index.posts()} == {"kettle"}
    assert index.generation() != generation
    with index.reading() as db:
        assert db.execute("SELECT count(*) FROM vectors").fetchone() == (index.size(),)
        (remaining,) = db.execute("SELECT count(*) FROM chunks WHERE text LIKE '%roof%'").fetchone()
    assert remaining == 0


def test_a_decision_of_the_author_reindexes_its_post(path: Path, index: SearchIndex) -> None:
    def whose() -> set[str]:
        return {item.whose for item in index.passages([(i, 0.0) for i in index.chunks("hats")])}

    assert whose() == {"own"}
    for flags, expected in ((("unlike",), "other"), ((), "other"), (("duplicate",), "own")):
        left_out = replace(HATS, decision="leave out", flags=flags)
        put(path, {"hats": left_out, "kettle": KETTLE})
        index.refresh()
        assert whose() == {expected}, flags
    assert index.refresh() == 0


def test_an_unchanged_state_is_not_scanned_again(path: Path, index: SearchIndex) -> None:
    with Archive(path) as archive, archive.transaction():
        archive.set_meta("state", "one")
    assert index.refresh() == 0  # noted
    generation = index.generation()
    put(path, {"hats": replace(HATS, title="Caps"), "kettle": KETTLE})
    assert index.refresh() == 0  # nothing of `look` changes a post without changing its state
    with Archive(path) as archive, archive.transaction():
        archive.set_meta("state", "two")
    assert index.refresh() == 1
    assert index.generation() != generation
    assert documents_with(index, "title:caps") == ["hats"]


def test_a_failed_refresh_keeps_the_old_index(
    path: Path, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(path, {"hats": Entry("On Caps", ("A cap.",)), "kettle": KETTLE})
    generation = index.generation()

    def fail(event: Event) -> None:
        if event.kind == "done":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.refresh(Progress(fail))
    assert index.generation() == generation
    assert documents_with(index, "cap") == []
    assert index.refresh() == 1
    assert documents_with(index, "cap") == ["hats"]


def test_search_tables_of_another_version_are_rebuilt(path: Path, index: SearchIndex) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE meta SET value = 'old' WHERE key = 'ask_version'")
        db.execute("DROP TRIGGER chunk_removed")
        db.commit()
    assert index.refresh() == 2
    assert documents_with(index, "hat") == ["hats"]


def test_an_archive_of_another_version_is_rebuilt_with_its_search_tables(
    path: Path, index: SearchIndex
) -> None:
    index.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(CorpusError, match="another version"):
        SearchIndex(path)
    with Archive(path, rebuild=True) as archive:
        assert archive.keys() == {}
    put(path, {"hats": HATS})
    with SearchIndex(path) as reopened:
        assert reopened.refresh() == 1
        assert documents_with(reopened, "roof") == ["hats"]


def entries(
    ids: Sequence[int], rows: npt.NDArray[np.float32]
) -> list[tuple[int, npt.NDArray[np.float32]]]:
    """One window a chunk."""
    return [(id_, row[None]) for id_, row in zip(ids, rows, strict=True)]


def test_vectors_are_stored_by_embedder_and_deleted_with_their_chunks(
    path: Path, index: SearchIndex
) -> None:
    ids = index.without_vectors("")
    rows = np.arange(1, 2 * len(ids) + 1, dtype=np.float32).reshape(-1, 2)
    index.put_vectors("a", entries(ids, rows))
    index.put_vectors("b", [(ids[0], np.zeros((2, 3), np.float32))])
    stored = index.vectors("a")
    assert stored.passages.tolist() == ids
    assert np.allclose(stored.codes * stored.scales[:, None], rows, rtol=2e-2)
    assert index.vectors("a") is stored  # from memory
    assert index.vectors("b").passages.tolist() == [ids[0]]
    assert index.vectors("b").codes.shape == (2, 3)
    assert len(index.vectors("none").passages) == 0 and index.without_vectors("none") == ids
    assert index.without_vectors("b") == ids[1:]
    index.put_vectors("a", entries([ids[0], 999], np.array([[7, 7], [8, 8]], np.float32)))
    stored = index.vectors("a")
    assert stored.passages.tolist() == ids
    assert np.allclose(stored.codes[0] * stored.scales[0], [7, 7])
    put(path, {"kettle": KETTLE}, removed=["hats"])
    index.refresh()
    assert set(index.vectors("a").passages.tolist()) == set(index.chunks("kettle"))


def test_a_passage_names_its_source(path: Path) -> None:
    linked = Entry(
        "Hats\U000e0041",
        (Segment("heading", "Wind", "2"), "It blew."),
        "2019-04-28",
        url=" https://b.example/hats ",
    )
    sly = Entry("", ("x",), url="java\tscript:alert(1)")
    put(path, {"a": linked, "b": sly, "c": Entry("", ("y",), url="/hats/")})
    with SearchIndex(path) as index:
        index.refresh()
        passages = index.passages(
            [(i, 2.5) for i in reversed(index.without_vectors(""))] + [(999, 1.0)], {"text": {1}}
        )
    assert [item.document for item in passages] == ["c", "b", "a"]
    assert [item.url for item in passages] == ["/hats/", "", "https://b.example/hats"]
    last = passages[-1]
    shown = (last.title, last.date, last.heading, last.text)
    assert shown == ("Hats", "2019-04-28", "Wind", "It blew.")
    assert (last.whose, last.score, last.found_by) == ("own", 2.5, ("text",))


def test_titles_match_regardless_of_case_accents_and_punctuation(
    index: SearchIndex,
) -> None:
    assert folded("On  Running—after one’s HAT!") == folded("on running after one's hat")
    assert folded("Ísafjörður") == "isafjorður"
    assert folded("¿¡!?") == "¿¡!?"
    assert folded("") == ""
    assert index.documents_titled([folded("“ON HATS”"), "nothing"]) == ["hats"]


def test_without_an_archive_the_answer_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no archive") as raised:
        SearchIndex(tmp_path / "archive.sqlite")
    assert "ownwords look" in raised.value.hint
    assert not (tmp_path / "archive.sqlite").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE documents SET date = '2018-01-28T21:50:00+0 :00'",
        "UPDATE documents SET date = x'ff2018'",
        "UPDATE segments SET text = CAST(x'ff41' AS TEXT)",
        "UPDATE segments SET text = NULL",
    ],
)
def test_damage_raises_only_the_archive_error(path: Path, damage: str) -> None:
    put(path, {"hats": HATS, "kettle": KETTLE})
    with closing(sqlite3.connect(path)) as db, suppress(sqlite3.IntegrityError):
        db.execute(damage)
        db.commit()
    with suppress(DamagedArchiveError), SearchIndex(path) as index:
        index.refresh()
        answer("When did I first write about the kettle?", ArchiveSearcher(index))
        assert damage.endswith("NULL")  # which the table does not take


@pytest.mark.parametrize("width", [1, 100, 384])
def test_the_cosine_of_a_passage_is_its_best_window(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(3000, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    passages = np.sort(rng.integers(5, 900, len(rows)))
    query = rows[17]
    ids, firsts = np.unique(passages, return_index=True)
    stored = StoredVectors(ids, ids, firsts, *quantized(rows))
    of_windows = stored.of_windows(query)
    cosines = stored.cosines(of_windows)
    first, end = firsts[1], firsts[2] if len(firsts) > 2 else len(rows)
    number, cosine = stored.window(int(ids[1]), of_windows)
    assert number == int(of_windows[first:end].argmax()) and cosine == float(cosines[1])
    assert stored.window(int(ids[-1]) + 1, of_windows)[0] == 0
    exact = rows @ query
    best = [exact[passages == id_].max() for id_ in ids]
    assert np.abs(cosines - best).max() < 0.01


def test_a_query_of_another_length_is_never_compared() -> None:
    each = np.arange(3)
    stored = StoredVectors(each, each, each, *quantized(np.ones((3, 8), np.float32)))
    for length in (7, 9):
        with pytest.raises(ValueError, match=rf"\({length},\) for vectors of 8"):
            stored.of_windows(np.ones(length, np.float32))
