import io
import json
import os
import random
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from exports import publii as export
from items import documents
from ownwords.archive.document import RawDocument, SiteInfo, SkippedItem, SourceNote
from ownwords.archive.look import look
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


def test_each_editor_is_recognised(site: Path) -> None:
    posts = documents_of(site)
    markups = [posts[f"post/{n}"].markup for n in (1, 2, 3, 4)]
    assert markups == ["html", "markdown", "blocks", "html"]
    assert isinstance(json.loads(posts["post/3"].body), list)


def test_damaged_blocks_are_skipped_with_a_reason(database: Path) -> None:
    change(database, 'UPDATE posts SET text = \'[{"type": "publii-par\' WHERE id = 3')
    (skipped,) = [
        item
        for item in look([database], workspace=database.parents[2] / "w").excluded
        if "blocks" in item.reason
    ]
    assert skipped.ref == "post/3"
    assert skipped.title == "On <blocks> & other things"
    change(database, "UPDATE posts SET text = '' WHERE id = 3")
    assert documents_of(database)["post/3"].body == ""


def test_addresses_tags_and_authors(site: Path) -> None:
    posts = documents_of(site)
    assert posts["post/1"].tags == ("Hats", "Zażółć")
    assert [posts[f"post/{n}"].author for n in (1, 2)] == ["Ann Author", "Ann Author, Bob Brother"]
    assert posts["post/1"].url == "https://hats.example.org/blog/on-hats/"
    assert posts["page/9"].url == "https://hats.example.org/about/"
    assert posts["page/10"].url == "https://hats.example.org/about/tools/"
    assert posts["post/4"].url == "https://elsewhere.example.com/zazolc"


def test_without_clean_addresses_pages_have_no_ancestors(site: Path) -> None:
    config = json.loads(json.dumps(export.SETTINGS))
    config["domain"] = "hats.example.org"
    config["advanced"]["urls"]["cleanUrls"] = False
    (site / "input/config/site.config.json").write_text(json.dumps(config), encoding="utf-8")
    posts = documents_of(site)
    assert posts["post/1"].url == "https://hats.example.org/blog/on-hats.html"
    assert posts["page/10"].url == "https://hats.example.org/tools.html"


@pytest.mark.parametrize(
    ("flags", "kind", "status"),
    [
        ("published", "post", "published"),
        ("published,hidden,excluded_homepage,trashed", "post", "trashed"),
        ("published,hidden", "post", "hidden"),
        ("draft,hidden", "post", "draft"),
        ("published,is-page", "page", "published"),
        ("is-page", "page", "draft"),
        ("published,something-new", "post", "published"),
        ("", "post", "draft"),
    ],
)
def test_status_is_a_list_of_flags(database: Path, flags: str, kind: str, status: str) -> None:
    change(database, f"UPDATE posts SET status = '{flags}' WHERE id = 1")
    post = documents_of(database)[f"{kind}/1"]
    assert (post.kind, post.status) == (kind, status)


def test_a_site_without_settings_is_read_with_a_notice(site: Path) -> None:
    for content in ("{broken", None):
        file = site / "input/config/site.config.json"
        file.unlink() if content is None else file.write_text(content, encoding="utf-8")
        items = list(publii.read(site))
        assert items[0] == SiteInfo("hats")
        assert any(isinstance(item, SourceNote) and "addresses" in item.text for item in items)
        assert documents_of(site)["post/1"].url == ""


def pack(site: Path, path: Path, prefix: str) -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(site, prefix)
    return path


@pytest.mark.parametrize("prefix", [".", "backups/hats"])
@pytest.mark.parametrize("name", ["backup.tar", "backup.tgz", "backup.tar.gz"])
def test_backups(site: Path, tmp_path: Path, name: str, prefix: str) -> None:
    backup = tmp_path / name
    with tarfile.open(backup, "w" if name.endswith("tar") else "w:gz") as archive:
        archive.add(site, prefix)
    assert publii.detect(backup) == "a backup of a Publii site"
    assert documents_of(backup) == documents_of(site)


def test_broken_and_foreign_backups(site: Path, tmp_path: Path) -> None:
    backup = pack(site, tmp_path / "backup.tar", "hats")
    data = backup.read_bytes()
    for length in (0, 100, 600, len(data) // 2):
        backup.write_bytes(data[:length])
        assert publii.detect(backup)
        with pytest.raises(SourceError, match=r"backup\.tar"):
            list(publii.read(backup))
    with tarfile.open(backup, "w") as archive:
        archive.addfile(tarfile.TarInfo("other.txt"), io.BytesIO())
    assert publii.detect(backup) is None
    with pytest.raises(SourceError, match=r"holds no input/db\.sqlite"):
        list(publii.read(backup))
    with tarfile.open(backup, "w") as archive:
        archive.add(site, "one")
        archive.add(site, "two")
    with pytest.raises(SourceError, match="several Publii sites"):
        list(publii.read(backup))


def test_detect(site: Path, tmp_path: Path) -> None:
    assert publii.detect(site)
    assert publii.detect(site / "input")
    assert publii.detect(site / "input" / "db.sqlite")
    shutil.copy(site / "input" / "db.sqlite", tmp_path / "anything")
    assert publii.detect(tmp_path / "anything")
    (site / "input" / "db.sqlite").unlink()
    assert publii.detect(site) is None
    assert publii.detect(tmp_path / "missing.sqlite") is None
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.sqlite")
        assert publii.detect(tmp_path / "pipe.sqlite") is None


# ---- a database in any state: locked, half-written, truncated, damaged, foreign


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no such table"),
        (b"Dear diary, ...", "not a database"),
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


def test_damage_gives_all_posts_or_an_error(database: Path) -> None:
    data, posts = database.read_bytes(), len(documents_of(database))
    dice = random.Random(7)
    for _ in range(25):
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


def test_a_database_that_changes_meanwhile_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_: os.utime(database, (0, 10)))
    with pytest.raises(SourceError, match="another program is writing"):
        list(publii.read(database))


def test_a_write_ahead_log_is_read_along(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE posts SET title = 'Newest' WHERE id = 1")
        before = sorted(file.name for file in database.parent.iterdir())
        assert documents_of(database)["post/1"].title == "Newest"
        assert sorted(file.name for file in database.parent.iterdir()) == before
    assert documents_of(database)["post/1"].title == "Newest"


def test_blocks_are_recognised_without_an_editor_note(database: Path) -> None:
    change(database, "UPDATE posts_additional_data SET value = '{}'")
    assert documents_of(database)["post/3"].markup == "blocks"
    change(database, "UPDATE posts SET text = '[1] says the note' WHERE id = 3")
    assert documents_of(database)["post/3"].markup == "html"
