"""A Publii database in any state: locked, half-written, truncated, damaged, foreign."""

import os
import random
import shutil
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exports import publii as export
from items import documents
from ownwords.archive.document import RawDocument, SkippedItem
from ownwords.archive.sources import publii
from ownwords.core.errors import SourceError


def documents_of(path: Path) -> dict[str, RawDocument]:
    return documents(publii.read(path))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return export.write(tmp_path)


@pytest.fixture
def database(site: Path) -> Path:
    return site / "input" / "db.sqlite"


def change(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def pack(site: Path, path: Path, prefix: str) -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(site, prefix)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lacks the tables"),
        (b"SQLite", "not a database"),
        (b"Dear diary, ...", "not a database"),
        (b"SQLite format 3\0", "database"),
        (b"SQLite format 3\0" + bytes(2000), "database"),
    ],
)
def test_files_that_are_not_a_database_are_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "db.sqlite"
    path.write_bytes(content)
    assert publii.detect(path)
    with pytest.raises(SourceError, match=message):
        list(publii.read(path))


def test_databases_of_others(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    change(path, "CREATE TABLE notes (text)", "CREATE TABLE tags (id, name)")
    assert publii.detect(path)
    with pytest.raises(SourceError, match=r"lacks the tables posts, .*\(its tables: notes, tags\)"):
        list(publii.read(path))


def test_missing_columns(database: Path) -> None:
    change(database, "ALTER TABLE posts DROP COLUMN status")
    with pytest.raises(SourceError, match="posts lacks the columns status"):
        list(publii.read(database))


def test_a_view_is_not_read_as_a_table(database: Path) -> None:
    change(database, "ALTER TABLE posts RENAME TO old", "CREATE VIEW posts AS SELECT * FROM old")
    with pytest.raises(SourceError, match="lacks the tables posts"):
        list(publii.read(database))


def test_a_file_cut_off_anywhere_is_refused(database: Path) -> None:
    data = database.read_bytes()
    dice = random.Random(7)
    for length in [*(dice.randrange(len(data)) for _ in range(50)), len(data) - 1]:
        database.write_bytes(data[:length])
        with pytest.raises(SourceError):
            list(publii.read(database))


def test_a_file_cut_off_is_refused_though_its_page_count_is_unknown(database: Path) -> None:
    data = database.read_bytes()
    for length in range(4096, len(data), 4096):
        # A header last written by a program that kept no page count.
        database.write_bytes(data[:92] + bytes(4) + data[96:length])
        with pytest.raises(SourceError):
            list(publii.read(database))


def test_damage_gives_all_posts_or_an_error(database: Path) -> None:
    data, posts = database.read_bytes(), len(documents_of(database))
    dice = random.Random(7)
    for _ in range(60):
        damaged = bytearray(data)
        start = dice.randrange(len(data) - 64)
        damaged[start : start + 64] = dice.randbytes(64)
        database.write_bytes(damaged)
        try:
            items = list(publii.read(database))
        except SourceError:
            continue
        handed = [item for item in items if isinstance(item, RawDocument | SkippedItem)]
        assert len(handed) == posts


def test_a_garbled_schema(database: Path) -> None:
    content = database.read_bytes()
    assert content.count(b"CREATE TABLE 'posts' (") == 1
    database.write_bytes(
        content.replace(b"CREATE TABLE 'posts' (", b"CREATE TABLE '\xff\xd0sts' \xa3")
    )
    with pytest.raises(SourceError, match="damaged"):
        list(publii.read(database))


def test_a_locked_database_is_read_as_it_was(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("DELETE FROM posts")
        assert len(documents_of(database)) == 11


def test_an_open_transaction_is_neither_read_nor_blocked(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None, timeout=0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM posts WHERE id < 5")
        reading = publii.read(database)
        next(reading)
        connection.execute("COMMIT")
        remaining = [item for item in reading if isinstance(item, RawDocument)]
    assert len(remaining) == 11
    assert len(documents_of(database)) == 7


def test_a_hot_journal(database: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.mkdir()
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("UPDATE posts SET text = text || hex(zeroblob(50000))")
        for file in database.parent.glob("db.sqlite*"):
            shutil.copy(file, torn)
        writer.execute("ROLLBACK")
    before = {file.name: file.read_bytes() for file in torn.iterdir()}
    assert len(before["db.sqlite-journal"]) > 512
    # The unfinished write is undone in the copy, and the files stay as they are.
    assert len(documents_of(torn)) == 11
    assert {file.name: file.read_bytes() for file in torn.iterdir()} == before
    site = tmp_path / "hats"
    shutil.copy(torn / "db.sqlite", database)
    shutil.copy(torn / "db.sqlite-journal", database.parent)
    backup = pack(site, tmp_path / "backup.tar", "hats")
    assert len(documents_of(backup)) == 11


def test_a_write_ahead_log_is_read_along(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE posts SET title = 'Newest' WHERE id = 1")
        before = sorted(file.name for file in database.parent.iterdir())
        assert documents_of(database)["post/1"].title == "Newest"
        assert sorted(file.name for file in database.parent.iterdir()) == before
    assert documents_of(database)["post/1"].title == "Newest"


def test_a_file_that_keeps_changing(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(10, 20))

    def copyfile(path: Path, copy: Path) -> None:
        copy.write_bytes(path.read_bytes())
        os.utime(path, (0, next(moments)))

    monkeypatch.setattr(publii.shutil, "copyfile", copyfile)
    with pytest.raises(SourceError, match="changed each time"):
        list(publii.read(database))


def test_no_file_is_written_next_to_the_database(site: Path) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        files = [file for file in site.rglob("*") if file.is_file()]
        return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}

    before = state()
    list(publii.read(site))
    assert state() == before


def test_file_names_with_url_characters(tmp_path: Path) -> None:
    folder = tmp_path / "50% off? #1 żółć"
    folder.mkdir()
    assert len(documents_of(export.write(folder))) == 11


def test_no_permission(database: Path) -> None:
    database.chmod(0)
    if os.access(database, os.R_OK):
        pytest.skip("this user may read every file")
    try:
        assert publii.detect(database)
        with pytest.raises(SourceError, match="cannot be read: Permission denied"):
            list(publii.read(database))
    finally:
        database.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_a_reader_that_stops_early_releases_everything(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    reading = publii.read(site)
    next(reading)
    assert list(private.iterdir())
    del reading
    assert not list(private.iterdir())


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.binary(max_size=3000) | st.binary(max_size=3000).map(publii.MAGIC.__add__),
    name=st.sampled_from(["db.sqlite", "x.tar", "x.zip", "x"]),
)
def test_any_bytes_give_items_or_a_sentence(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    publii.detect(path)
    with pytest.raises(SourceError):
        list(publii.read(path))
