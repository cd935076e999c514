"""`archive.sqlite`: documents, segments and links in one file; what is searched, `ask` adds."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ownwords.archive.document import Document, Link, ParsedBody, Segment, SegmentKind, SkippedItem
from ownwords.core.errors import WorkspaceError

# Raised whenever the tables change; an archive of another version is made anew, since all of it
# comes from the author's own files.
VERSION = 2
# Of this one only an index is left over that nothing reads any more.
_WITH_SEGMENTS_INDEXED = 1
_EVER = {"documents"}  # tables of ours, whatever the version

_SCHEMA = """
CREATE TABLE documents (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL,
    status TEXT NOT NULL, title TEXT NOT NULL, date TEXT, url TEXT NOT NULL, author TEXT NOT NULL,
    tags TEXT NOT NULL, summary TEXT NOT NULL, dropped TEXT NOT NULL, features BLOB NOT NULL
);
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, document TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
    position INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE INDEX segments_of ON segments(document, position);
CREATE INDEX segments_by_kind ON segments(kind) WHERE kind = 'log';
CREATE TABLE links (
    document TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
    position INTEGER NOT NULL, href TEXT NOT NULL, text TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT '', target TEXT NOT NULL DEFAULT ''
);
CREATE INDEX links_of ON links(document, position);
CREATE TABLE rejected (
    what TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, title TEXT NOT NULL,
    ref TEXT NOT NULL
);
CREATE TABLE selection (
    document TEXT PRIMARY KEY REFERENCES documents(id) ON DELETE CASCADE,
    decision TEXT NOT NULL, reason TEXT NOT NULL, training_words INTEGER NOT NULL,
    split TEXT NOT NULL, split_by_date TEXT NOT NULL
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class Archive:
    """An open archive. Changes become visible, all at once, when `transaction` ends well."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with translate_sqlite_errors(path):
            self._db = sqlite3.connect(path, isolation_level=None)
            try:
                self._db.execute("PRAGMA foreign_keys = ON")
                self._db.execute("PRAGMA temp_store = MEMORY")
                self._db.execute("PRAGMA cache_size = -65536")  # KiB; spares rewriting index pages
                self._refuse_others()
                if self._version() == _WITH_SEGMENTS_INDEXED:
                    self._drop_their_index()
                if self._version() != VERSION:
                    self._start_anew()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes made inside, or none of them, even after a crash."""
        with translate_sqlite_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has already rolled it back
                    self._db.execute("ROLLBACK")
                raise

    def keys(self) -> dict[str, str]:
        """The content key of every document."""
        return dict(self._db.execute("SELECT id, key FROM documents"))

    def put(self, document: Document, key: str, reading: ParsedBody, features: bytes) -> None:
        """Store a document, in place of an older one of the same id."""
        known = self._db.execute("SELECT 1 FROM documents WHERE id = ?", (document.id,))
        if known.fetchone():
            self.remove([document.id])
        self._db.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                document.id,
                key,
                document.source,
                document.kind,
                document.status,
                document.title,
                document.date.isoformat() if document.date else None,
                document.url,
                document.author,
                json.dumps(document.tags, ensure_ascii=False),
                document.summary,
                json.dumps(reading.dropped),
                features,
            ),
        )
        first = self._db.execute("SELECT coalesce(max(id), 0) + 1 FROM segments").fetchone()[0]
        rows = list(enumerate(document.segments))
        self._db.executemany(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)",
            ((first + i, document.id, i, s.kind, s.text, s.detail) for i, s in rows),
        )
        self._db.executemany(
            "INSERT INTO links(document, position, href, text) VALUES (?, ?, ?, ?)",
            ((document.id, i, link.href, link.text) for i, link in enumerate(reading.links)),
        )

    def remove(self, ids: Iterable[str]) -> None:
        """Take documents out, with everything that belongs to them."""
        for document_id in ids:
            self._db.execute("DELETE FROM documents WHERE id = ?", (document_id,))

    def documents(self, ids: Iterable[str] | None = None) -> Iterator[Document]:
        """All documents, or those of these ids, one at a time, in order of date and id."""
        if ids is None:
            rows = self._db.execute("SELECT * FROM documents ORDER BY coalesce(date, '9999'), id")
        else:
            rows = self._db.execute(
                "SELECT * FROM documents WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
                (json.dumps(list(ids)),),
            )
        for head in _heads(rows):
            yield replace(head, segments=self._segments(head.id))

    def heads(self) -> Iterator[Document]:
        """All documents without their segments, in order of id."""
        yield from _heads(self._db.execute("SELECT * FROM documents ORDER BY id"))

    def tags(self) -> dict[str, tuple[str, ...]]:
        """The tags of all documents by id; to read no more takes a tenth of the time."""
        rows = self._db.execute("SELECT id, tags FROM documents ORDER BY id")
        return {id_: tuple(json.loads(tags)) for id_, tags in rows}

    def text(self, document_id: str, kinds: frozenset[SegmentKind]) -> str:
        """The text of one document, of its segments of these kinds."""
        head = Document(document_id, "", self._segments(document_id))
        return head.text(kinds)

    def _segments(self, document_id: str) -> tuple[Segment, ...]:
        rows = self._db.execute(
            "SELECT kind, text, detail FROM segments WHERE document = ? ORDER BY position",
            (document_id,),
        )
        return tuple(Segment(*row) for row in rows)

    def features(self) -> Iterator[tuple[str, bytes]]:
        """The stored features of every document."""
        yield from self._db.execute("SELECT id, features FROM documents ORDER BY id")

    def dropped(self) -> dict[str, int]:
        """What was taken out of the bodies, by reason, over all documents."""
        rows = self._db.execute(
            "SELECT j.key, sum(j.value) FROM documents, json_each(dropped) j GROUP BY j.key"
        )
        return dict(rows)

    def segments_of_kind(self, kind: str) -> Iterator[tuple[str, str]]:
        """(document id, text) of the segments of one kind."""
        yield from self._db.execute(
            "SELECT document, text FROM segments WHERE kind = ? ORDER BY document, position",
            (kind,),
        )

    def links(self) -> list[tuple[int, str, Link]]:
        """(row, document id, link) of every link."""
        rows = self._db.execute("SELECT rowid, document, href, text FROM links ORDER BY rowid")
        return [(row, document, Link(href, text)) for row, document, href, text in rows]

    def internal_links(self) -> list[tuple[str, str, str]]:
        """(document, the words it stands on, document it leads to) of every link within."""
        rows = self._db.execute(
            "SELECT document, text, target FROM links WHERE state = 'internal' ORDER BY rowid"
        )
        return [(document, text, target) for document, text, target in rows]

    def set_links(self, states: Iterable[tuple[str, str, int]]) -> None:
        """Note where links lead: (state, target document, row)."""
        self._db.executemany("UPDATE links SET state = ?, target = ? WHERE rowid = ?", states)

    def set_rejected(self, skipped: Iterable[SkippedItem]) -> None:
        """Note what was not taken in, in place of what was noted before."""
        self._db.execute("DELETE FROM rejected")
        self._db.executemany(
            "INSERT INTO rejected VALUES (?, ?, ?, ?, ?)",
            ((s.what, s.reason, s.count, s.title, s.ref) for s in skipped),
        )

    def set_selection(self, rows: Iterable[tuple[str, str, str, int, str, str]]) -> None:
        """What becomes of each document: (id, decision, reason, training words, split, by date)."""
        self._db.execute("DELETE FROM selection")
        self._db.executemany("INSERT INTO selection VALUES (?, ?, ?, ?, ?, ?)", rows)

    def selection(self) -> dict[str, tuple[str, int, str, str]]:
        """By document: decision, training words, split, split by date."""
        rows = self._db.execute(
            "SELECT document, decision, training_words, split, split_by_date FROM selection"
        )
        return {row[0]: row[1:] for row in rows}

    def get_meta(self, key: str) -> str:
        """A stored value, empty if there is none."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    def set_meta(self, key: str, value: str) -> None:
        """Store a value under a key."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _refuse_others(self) -> None:
        names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
        if names and not names >= _EVER:
            raise WorkspaceError(
                f"{self.path} is the database of another program",
                hint="give another folder to --workspace",
            )

    def _version(self) -> int:
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        return version

    def _drop_their_index(self) -> None:
        with self.transaction():
            self._db.execute("DROP TABLE IF EXISTS search")
            self._db.execute("DROP VIEW IF EXISTS searchable")
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _start_anew(self) -> None:
        with self.transaction():
            # Triggers and virtual tables first: these take tables of their own with them.
            for kind in ("trigger", "virtual table", "view", "table"):
                for name in self._named(kind):
                    self._db.execute(f'DROP {kind.removeprefix("virtual ")} "{name}"')
            for statement in _SCHEMA.split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    def _named(self, kind: str) -> list[str]:
        made = "CREATE VIRTUAL%" if kind.startswith("virtual") else "%"
        rows = self._db.execute(
            "SELECT name FROM sqlite_master WHERE type = ? AND sql LIKE ?"
            " AND name NOT GLOB 'sqlite_*'",
            (kind.removeprefix("virtual "), made),
        )
        return [row[0] for row in rows]


def is_current(path: Path) -> bool:
    """Whether `Archive` takes this file as it is; one of another version it makes anew."""
    with path.open("rb") as file:
        header = file.read(64)
    # Bytes 60 to 63 of a database are its user_version.
    return int.from_bytes(header[60:]) in (VERSION, _WITH_SEGMENTS_INDEXED)


@contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite refuses into a sentence about the archive at `path`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            raise WorkspaceError(
                f"the disk is full or failing: {path} could not be written ({text})",
                hint="make room, then run the same command again; nothing was lost",
            ) from error
        if "not a database" in text or "malformed" in text:
            raise WorkspaceError(
                f"{path} is damaged ({text})",
                hint="delete that file and run the same command again: it is made from your"
                " own files, which are untouched",
            ) from error
        if "locked" in text or "readonly" in text or "unable to open" in text:
            raise WorkspaceError(
                f"{path} cannot be written: {text}",
                hint="close the program that uses it, or give another folder to --workspace",
            ) from error
        raise


def _heads(rows: sqlite3.Cursor) -> Iterator[Document]:
    columns = [column[0] for column in rows.description]
    for values in rows:
        row = dict(zip(columns, values, strict=True))
        yield Document(
            id=row["id"],
            title=row["title"],
            segments=(),
            source=row["source"],
            kind=row["kind"],
            status=row["status"],
            date=datetime.fromisoformat(row["date"]) if row["date"] else None,
            url=row["url"],
            author=row["author"],
            tags=tuple(json.loads(row["tags"])),
            summary=row["summary"],
        )
