"""Any flipped byte of archive.sqlite: one clear error, and `look` repairs the archive."""

import random
from pathlib import Path

import pytest

from ownwords.archive.integrity import DamagedArchiveError
from ownwords.archive.look import look
from ownwords.archive.report import Report
from ownwords.archive.store import Archive
from ownwords.ask.index import SearchIndex
from ownwords.core.errors import OwnwordsError
from ownwords.training.corpus import load_corpus

FLIPS = 200


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


def contents(path: Path) -> list[object]:
    """What the verbs read of an archive."""
    with Archive(path) as archive:
        report = Report.from_json(archive.get_meta("report"))
        corpus = load_corpus(archive)
        texts = [text.text for part in (corpus.train, corpus.test) for text in part]
        documents = list(archive.documents())
        features, selection = list(archive.features()), archive.selection()
    with SearchIndex(path) as index:
        index.refresh()
        passages = index.passages([(id_, 0.0) for id_ in index.ids()])
    return [report, corpus.key, texts, documents, features, selection, passages]


@pytest.mark.parametrize("bits", [0xFF, 0x01])  # text that is no longer UTF-8, and text that is
def test_any_flipped_byte_is_detected_without_a_traceback(
    bits: int, archive_and_bytes: tuple[Path, bytes], tmp_path: Path
) -> None:
    _, data = archive_and_bytes
    path = tmp_path / "archive.sqlite"
    path.write_bytes(data)
    before = contents(path)
    rng = random.Random(bits)
    for offset in rng.sample(range(len(data)), FLIPS):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ bits]) + data[offset + 1 :])
        try:
            after = contents(path)
        except OwnwordsError as error:
            assert str(path) in error.message, offset
            continue
        assert after == before, offset


@pytest.mark.parametrize("word", [b"rained", b"Note 3", b'"posts"', b"leave out", b"train"])
def test_look_repairs_a_damaged_archive(
    word: bytes, archive_and_bytes: tuple[Path, bytes], tmp_path: Path
) -> None:
    notes, data = archive_and_bytes
    path = tmp_path / "w" / "archive.sqlite"
    path.parent.mkdir()
    path.write_bytes(data)
    look([notes], workspace=tmp_path / "w")  # under this workspace's name
    data = path.read_bytes()
    before = contents(path)
    offset = data.find(word)
    if offset < 0:
        pytest.skip("this word stands nowhere in it")
    path.write_bytes(data[:offset] + b"\xff" + data[offset + 1 :])
    with pytest.raises(DamagedArchiveError), Archive(path) as archive:
        archive.verify()
    report = look([notes], workspace=tmp_path / "w")
    assert "has been rebuilt from your files" in report.notes[0]
    assert contents(path)[2:] == before[2:]
    assert (
        not look([notes], workspace=tmp_path / "w").notes[0].startswith("The archive was damaged")
    )


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
