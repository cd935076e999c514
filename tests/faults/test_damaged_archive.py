"""Flipped bytes of archive.sqlite: no text is read wrongly, and `look` rebuilds the archive."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from ownwords.archive.corpus import load_corpus
from ownwords.archive.document import Document
from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.archive.store import Archive, DamagedArchiveError
from ownwords.ask.index import SearchIndex
from ownwords.core.errors import OwnwordsError

FLIPS = 60


@pytest.fixture(scope="module")
def archive_and_bytes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A folder of notes, and its indexed archive."""
    root = tmp_path_factory.mktemp("damaged")
    notes = root / "notes"
    notes.mkdir()
    for n in range(9):
        text = f"# Note {n}\n\nOn the {n}th day it rained in Łódź, and [note 1](1.md) says why.\n"
        (notes / f"{n}.md").write_text(text * (n + 1), encoding="utf-8")
    look([notes], workspace=root / "w")
    with SearchIndex(root / "w" / "archive.sqlite") as index:
        index.refresh()
    return notes, (root / "w" / "archive.sqlite").read_bytes()


def texts(path: Path) -> list[Document]:
    """The documents, after everything else that the verbs read of an archive."""
    with Archive(path) as archive:
        Report.from_json(archive.get_meta("report"))
        corpus = load_corpus(archive)
        assert [text.text for part in (corpus.train, corpus.test) for text in part]
        assert list(archive.features())
    with SearchIndex(path) as index:
        index.refresh()
        assert index.passages([(id_, 0.0) for id_ in index.without_vectors("")])
    with Archive(path) as archive:
        return list(archive.documents())


@pytest.mark.parametrize("bits", [0xFF, 0x01])  # text that is no longer UTF-8, and text that is
def test_a_flipped_byte_changes_no_text_and_gives_no_traceback(
    bits: int, archive_and_bytes: tuple[Path, bytes], tmp_path: Path
) -> None:
    _, data = archive_and_bytes
    path = tmp_path / "archive.sqlite"
    path.write_bytes(data)
    before = texts(path)
    rng = random.Random(bits)
    for offset in rng.sample(range(len(data)), FLIPS):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ bits]) + data[offset + 1 :])
        with suppress(OwnwordsError):
            assert texts(path) == before, offset


def test_a_changed_text_is_refused(archive_and_bytes: tuple[Path, bytes], tmp_path: Path) -> None:
    _, data = archive_and_bytes
    path = tmp_path / "archive.sqlite"
    path.write_bytes(data.replace(b"it rained", b"it poured"))
    with pytest.raises(DamagedArchiveError), Archive(path) as archive:
        list(archive.documents())


def test_a_file_that_is_not_an_archive_is_replaced(
    archive_and_bytes: tuple[Path, bytes], tmp_path: Path
) -> None:
    notes, _ = archive_and_bytes
    look([notes], workspace=tmp_path / "w")
    path = tmp_path / "w" / "archive.sqlite"
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(DamagedArchiveError, match="is damaged"):
        Archive(path)
    assert "has been rebuilt" in look([notes], workspace=tmp_path / "w").notes[0]
    assert (tmp_path / "w" / "archive.damaged.sqlite").read_bytes() == b"garbage" * 1000
