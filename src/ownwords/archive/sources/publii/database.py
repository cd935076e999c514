"""Open Publii's database without touching it: make a private copy and check it before reading.

Reading in place would hold a lock for as long as the posts are being read, and Publii could not
save meanwhile. The copy is made in one read transaction, so it holds no unfinished write.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ownwords.core.errors import SourceError

MAGIC = b"SQLite format 3\0"
PATIENCE_S = 2.0
COLUMNS = {
    "posts": ("id", "title", "authors", "slug", "text", "created_at", "status"),
    "posts_additional_data": ("post_id", "key", "value"),
    "posts_tags": ("tag_id", "post_id"),
    "tags": ("id", "name", "slug"),
    "authors": ("id", "name", "username"),
}
# SQLite's message about a damaged schema quotes its bytes, which Python may fail to decode.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_HEADER_BYTES = 100
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
# Codes for a database whose unfinished write would have to be completed or rolled back first.
_HALF_WRITTEN = {sqlite3.SQLITE_READONLY}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


def copy_database(path: Path, folder: Path) -> tuple[Path, str]:
    """Copy the database into `folder`; returns the copy and a note for the author ("" for none).

    Nothing is written at or beside `path`. Raises SourceError where it is locked, half-written or
    damaged.
    """
    path = path.resolve()
    copy = folder / "db.sqlite"
    note = _wait_for_lock_folder(path)
    try:
        for _ in range(3):
            before = path.stat()
            check_header(path, path)
            if _is_wal(path):
                _copy_with_wal(path, copy)
            else:
                _back_up(path, copy)
            after = path.stat()
            # On Linux Publii takes no system lock, so compare the file's time and size instead.
            if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
                return copy, note
    except DATABASE_ERRORS as error:
        raise describe_error(path, error) from error
    raise SourceError(
        f"{path} changed each time it was read: another program is writing it",
        hint="close Publii, then try again",
    )


def check_header(path: Path, shown: Path) -> None:
    """Raise SourceError if the file is not a SQLite database or is shorter than its header says."""
    with path.open("rb") as opened:
        header = opened.read(_HEADER_BYTES)
        size = os.fstat(opened.fileno()).st_size
    if not header:
        raise SourceError(f"{shown} is empty (0 bytes)", hint="restore it from a Publii backup")
    if not header.startswith(MAGIC[: len(header)]):
        raise SourceError(
            f"{shown} is not a SQLite database (its first bytes are {header[:16]!r})",
            hint="give the folder of a Publii site, or a backup that Publii made",
        )
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    # The header's page count is valid only if the last change wrote it (SQLite's file format).
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 1
    if size < max(_HEADER_BYTES, pages * page_size):
        raise SourceError(
            f"{shown} is cut off: it should hold {max(_HEADER_BYTES, pages * page_size):,} bytes,"
            f" but has {size:,}",
            hint="copy it again, or restore it from a Publii backup",
        )


@contextmanager
def open_copy(copy: Path, shown: Path) -> Iterator[sqlite3.Connection]:
    """Open the private copy after checking its integrity and tables; texts come back as bytes."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            # Otherwise the cursor raises on texts that are not valid UTF-8.
            connection.text_factory = bytes
            _check_tables(connection, shown)
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != b"ok":
                what = verdict.decode("utf-8", errors="replace").strip().splitlines()[-1]
                raise _damaged(shown, what)
            connection.execute("CREATE INDEX of_post ON posts_additional_data (post_id, key)")
            connection.execute("CREATE INDEX tags_of_post ON posts_tags (post_id, tag_id)")
            yield connection
    except DATABASE_ERRORS as error:
        raise describe_error(shown, error) from error


def describe_error(shown: Path, error: sqlite3.Error | UnicodeDecodeError) -> SourceError:
    """Turn a SQLite error into a SourceError that says what is wrong and what to do."""
    if isinstance(error, UnicodeDecodeError):
        return _damaged(shown, "its list of tables is garbled")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _LOCKED:
        return SourceError(
            f"{shown} is locked: another program is writing it (waited {PATIENCE_S:.0f} s)",
            hint="close Publii, then try again",
        )
    if code in _HALF_WRITTEN or _journal_of(shown).exists():
        return SourceError(
            f"{shown} is half-written: {_journal_of(shown).name} lies beside it, from a program"
            " that is writing or was stopped while it did",
            hint="open the site in Publii once, which mends it, close Publii, then try again",
        )
    if code in _DAMAGED:
        return _damaged(shown, str(error))
    return SourceError(f"{shown} cannot be read as a database: {error}")


def _damaged(shown: Path, what: str) -> SourceError:
    return SourceError(
        f"{shown} is a damaged database ({what}); none of it is used, since posts may be missing",
        hint="restore it from a Publii backup",
    )


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def _is_wal(path: Path) -> bool:
    with path.open("rb") as opened:
        return opened.read(20)[18:20] == b"\2\2"


def _copy_with_wal(path: Path, copy: Path) -> None:
    """Copy a database in WAL mode as files: opening it in place would create files beside it."""
    shutil.copyfile(path, copy)
    log = path.with_name(path.name + "-wal")
    if log.exists():
        shutil.copyfile(log, copy.with_name(copy.name + "-wal"))


def _back_up(path: Path, copy: Path) -> None:
    copy.unlink(missing_ok=True)
    with (
        closing(
            sqlite3.connect(
                f"{path.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S, isolation_level=None
            )
        ) as original,
        closing(sqlite3.connect(copy, isolation_level=None)) as target,
    ):
        original.execute("BEGIN")
        # Take the lock here, where the timeout applies; backup() would wait forever.
        original.execute("SELECT count(*) FROM sqlite_master").fetchone()
        target.execute("PRAGMA synchronous = OFF")
        original.backup(target)


def _wait_for_lock_folder(path: Path) -> str:
    """Wait for Publii's lock folder (Linux) to go; returns a note if it stays, as after a crash."""
    lock = path.with_name(path.name + ".lock")
    give_up = time.monotonic() + PATIENCE_S
    while lock.is_dir():
        if time.monotonic() >= give_up:
            return (
                f"Publii's lock ({lock.name}) lies beside the database, as it does after a crash;"
                " the file did not change while it was read, so it was read all the same."
            )
        time.sleep(0.05)
    return ""


def _check_tables(connection: sqlite3.Connection, shown: Path) -> None:
    rows_of_tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table'"
    ).fetchall()
    tables = {name.decode("utf-8", errors="replace") for (name,) in rows_of_tables}
    missing = [table for table in COLUMNS if table not in tables]
    if missing:
        table_list = ", ".join(sorted(tables)[:8]) or "none at all"
        raise SourceError(
            f"{shown} is a SQLite database, but not Publii's: it lacks the tables"
            f" {', '.join(missing)} (its tables: {table_list})",
            hint="give the folder of a Publii site: the one that holds input/db.sqlite",
        )
    for table, columns in COLUMNS.items():
        rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
        there = {row[1].decode("utf-8", errors="replace") for row in rows}
        lacking = [column for column in columns if column not in there]
        if lacking:
            raise SourceError(
                f"{shown}: its table {table} lacks the columns {', '.join(lacking)},"
                " so it is not a database of Publii's",
                hint="open the site in a current Publii once, which brings it up to date",
            )
