import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ownwords.archive.document import Document, Segment
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.store import VERSION, Archive, file_version
from ownwords.core.errors import CorpusError, WorkspaceError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.sqlite"


@pytest.fixture
def archive(path: Path) -> Iterator[Archive]:
    with Archive(path) as opened:
        yield opened


def put(archive: Archive, document_id: str, *texts: str, title: str = "Hats") -> None:
    segments = tuple(Segment("prose", text) for text in texts)
    document = Document(
        document_id,
        title,
        segments,
        date=datetime(2020, 1, 2, tzinfo=UTC),
        tags=("a", "ż"),
        dropped={"script": 2},
    )
    archive.put(document, "k", encode_features(extract_features(document)))


def texts(archive: Archive) -> dict[str, str]:
    return {document.id: document.text() for document in archive.documents()}


def test_stored_documents_round_trip(archive: Archive) -> None:
    with archive.transaction():
        put(archive, "blog:1", "One ż.", "Two.")
    (document,) = archive.documents()
    assert document.title == "Hats"
    assert document.text() == "One ż.\n\nTwo."
    assert document.date == datetime(2020, 1, 2, tzinfo=UTC)
    assert document.tags == ("a", "ż")
    assert archive.tags() == {"blog:1": ("a", "ż")}
    assert archive.text("blog:1", frozenset({"quote"})) == ""
    assert archive.keys() == {"blog:1": "k"}
    assert archive.dropped() == {"script": 2}
    ((id_, features),) = archive.features()
    assert (id_, features.own_words) == ("blog:1", 3)


def test_a_replaced_document_leaves_no_rows(archive: Archive) -> None:
    with archive.transaction():
        put(archive, "a", "Old brass.", "More old.", title="First")
        put(archive, "b", "Something else.")
    with archive.transaction():
        put(archive, "a", "New steel.", title="Second")
    assert texts(archive) == {"a": "New steel.", "b": "Something else."}
    with archive.transaction():
        archive.remove(["a", "not there"])
    assert texts(archive) == {"b": "Something else."}
    assert archive.keys() == {"b": "k"}


def test_a_failed_transaction_changes_nothing(archive: Archive) -> None:
    with archive.transaction():
        put(archive, "a", "Before.")
    with pytest.raises(ZeroDivisionError), archive.transaction():
        put(archive, "a", "After.")
        raise ZeroDivisionError
    assert texts(archive) == {"a": "Before."}


def test_an_archive_of_another_version_is_rebuilt(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE documents (old TEXT PRIMARY KEY);
            CREATE VIRTUAL TABLE words USING fts5(text);
            PRAGMA user_version = 999;
            """
        )
    assert file_version(path) == 999
    before = path.read_bytes()
    with pytest.raises(CorpusError, match="another version"):
        Archive(path)
    assert path.read_bytes() == before
    with Archive(path, rebuild=True) as archive:
        assert archive.keys() == {}
    assert file_version(path) == VERSION
    with closing(sqlite3.connect(path)) as database:
        names = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    assert "documents" in names
    assert not {"words", "words_data"} & names


def test_a_file_that_is_not_a_database_is_reported(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to look at" * 50)
    with pytest.raises(WorkspaceError, match="is damaged"):
        Archive(path)
