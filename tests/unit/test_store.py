from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ownwords.archive.document import Document, Segment
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.store import Archive


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
