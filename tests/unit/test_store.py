import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ownwords.archive.document import Document, Link, Reading, Segment, Skipped
from ownwords.archive.store import Archive
from ownwords.core.errors import WorkspaceError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.sqlite"


@pytest.fixture
def archive(path: Path) -> Iterator[Archive]:
    with Archive(path) as opened:
        yield opened


def put(
    archive: Archive, document_id: str, *texts: str, title: str = "Hats", key: str = "k"
) -> None:
    segments = tuple(Segment("prose", text) for text in texts)
    document = Document(
        document_id, title, segments, date=datetime(2020, 1, 2, tzinfo=UTC), tags=("a", "ż")
    )
    archive.put(document, "k", Reading(segments, (Link("/x", "x"),), {"script": 2}), b"features")


def found(path: Path, words: str) -> list[str]:
    """The documents that a search finds; checks first that the index agrees with the texts."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO search(search, rank) VALUES ('integrity-check', 1)")
        rows = database.execute(
            "SELECT DISTINCT s.document FROM search JOIN segments s ON s.id = search.rowid"
            " WHERE search MATCH ? ORDER BY 1",
            (words,),
        )
        return [row[0] for row in rows]


def test_what_is_put_comes_back(archive: Archive) -> None:
    with archive.transaction():
        put(archive, "blog:1", "One ż.", "Two.")
    (document,) = archive.documents()
    assert document.title == "Hats"
    assert document.text() == "One ż.\n\nTwo."
    assert document.date == datetime(2020, 1, 2, tzinfo=UTC)
    assert document.tags == ("a", "ż")
    assert archive.text("blog:1", frozenset({"quote"})) == ""
    assert archive.keys() == {"blog:1": "k"}
    assert archive.dropped() == {"script": 2}
    assert [link for _, _, link in archive.links()] == [Link("/x", "x")]
    assert list(archive.features()) == [("blog:1", b"features")]


def test_a_search_finds_titles_and_texts_without_accents_and_endings(
    archive: Archive, path: Path
) -> None:
    with archive.transaction():
        put(archive, "a", "The café was closing.", "Rain.", title="Barometers")
        put(archive, "b", "It closed.", title="Kettles")
    assert found(path, "cafe") == ["a"]
    assert found(path, "close") == ["a", "b"]
    assert found(path, "title: barometer") == ["a"]


def test_an_older_version_leaves_nothing_behind(archive: Archive, path: Path) -> None:
    with archive.transaction():
        put(archive, "a", "Old brass.", "More old.", title="First")
        put(archive, "b", "Something else.")
    with archive.transaction():
        put(archive, "a", "New steel.", title="Second")
    assert found(path, "brass OR old OR title:first") == []
    assert found(path, "steel") == ["a"]
    with archive.transaction():
        archive.remove(["a", "not there"])
    assert found(path, "steel") == []
    assert archive.keys() == {"b": "k"}
    assert len(archive.links()) == 1


def test_a_transaction_that_fails_changes_nothing(archive: Archive, path: Path) -> None:
    with archive.transaction():
        put(archive, "a", "Before.")
    with pytest.raises(ZeroDivisionError), archive.transaction():
        put(archive, "a", "After.")
        archive.set_rejected([Skipped("post", "a draft")])
        raise ZeroDivisionError
    assert found(path, "before") == ["a"]
    assert found(path, "after") == []


def test_links_know_where_they_lead(archive: Archive, path: Path) -> None:
    with archive.transaction():
        put(archive, "a", "One.")
        archive.set_links([("internal", "b", row) for row, _, _ in archive.links()])
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT state, target FROM links").fetchall() == [("internal", "b")]


def test_an_archive_of_another_version_is_made_anew(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE documents (old TEXT)")
        database.execute("PRAGMA user_version = 999")
        database.commit()
    with Archive(path) as archive:
        assert archive.keys() == {}


def test_a_file_that_is_no_database_is_said(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to look at" * 50)
    with pytest.raises(WorkspaceError, match="is damaged"):
        Archive(path)
