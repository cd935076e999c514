"""The store `archive.sqlite`: documents and segments; `ownwords ask` adds its index.

Each document has a hash of its content, so that no damaged text is read. A damaged archive is never
repaired: `ownwords look` rebuilds it from the author's own files.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ownwords.archive.document import OWN_KINDS, Document, Segment, SegmentKind
from ownwords.core.errors import CorpusError, InUseError, OwnwordsError, WorkspaceError
from ownwords.core.fingerprint import digest
from ownwords.core.workspace import translate_os_errors, write_atomically
from ownwords.language.words import language

if TYPE_CHECKING:
    from ownwords.archive.features import Features
    from ownwords.archive.selection import Side

# Increment when the tables change; `ownwords look` rebuilds an archive of another version.
VERSION = 8
_SCHEMA = Path(__file__).with_name("schema.sql")
_HEADERS = """
    SELECT id, kind, status, title, date, url, author, tags, hash
    FROM documents"""


class DamagedArchiveError(WorkspaceError):
    """The archive file is damaged."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{path} is damaged ({reason})",
            hint="delete that file and run the same `ownwords look` again: it is rebuilt from your"
            " own files, which are untouched",
        )


@contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors to errors that explain the state of the archive at `path`."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.NotSupportedError):
        raise  # a bug in ownwords
    except UnicodeDecodeError as error:  # SQLite's message quotes damaged bytes
        raise DamagedArchiveError(path, "its schema is corrupt") from error
    except sqlite3.DatabaseError as error:
        message = str(error)
        if "full" in message or "disk I/O" in message:
            raise WorkspaceError(
                f"the disk is full or failing: {path} could not be written ({message})",
                hint="free some space and run the command again; the archive is as it was",
            ) from error
        if "locked" in message:
            raise InUseError(
                f"another program is writing to {path}", hint="try again when it has finished"
            ) from error
        if "readonly" in message or "unable to open" in message:
            raise WorkspaceError(
                f"{path} cannot be written: {message}",
                hint="close the program that uses it, or give another folder to --workspace",
            ) from error
        raise DamagedArchiveError(path, message) from error


def _content_hash(header: Sequence[object], segments: Sequence[Sequence[object]]) -> str:
    # With the types, because a flipped bit can turn a text into a blob of the same bytes.
    return digest(
        *(f"{type(value).__name__} {value}" for row in (header, *segments) for value in row)
    )


class Archive:
    """An open archive; its changes become visible together when `transaction` succeeds."""

    def __init__(self, path: Path, *, rebuild: bool = False) -> None:
        """Open an archive, or make an empty one.

        An archive of another version is refused, or with `rebuild` replaced by an empty one.
        """
        self.path = path
        with translate_sqlite_errors(path):
            self._connect()
            try:
                self._prepare(rebuild)
            except BaseException:
                self._db.close()
                raise

    def _connect(self) -> None:
        self._db = sqlite3.connect(self.path, isolation_level=None)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA temp_store = MEMORY")
        self._db.execute("PRAGMA cache_size = -65536")  # 64 MiB, to hold index pages

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def over(cls, path: Path, connection: sqlite3.Connection) -> "Archive":
        """Wrap an open connection to the archive at `path`."""
        archive = cls.__new__(cls)
        archive.path, archive._db = path, connection
        return archive

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all changes made inside or none of them, even after a crash."""
        with translate_sqlite_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite rolls back by itself if the disk is full
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        with translate_sqlite_errors(self.path):
            # Not `yield from`: if the caller stops early, that closes the cursor, which fails
            # once the database is closed.
            for row in self._db.execute(sql, parameters):  # noqa: UP028
                yield row

    # ---- writing

    def put(self, document: Document, key: str, features: bytes) -> None:
        """Store a document with its encoded features, replacing any with the same id."""
        self.remove([document.id])
        header = (
            document.id,
            document.kind,
            document.status,
            document.title,
            document.date.isoformat() if document.date else None,
            document.url,
            document.author,
            json.dumps(document.tags, ensure_ascii=False),
        )
        segments = [(s.kind, s.text, s.detail) for s in document.segments]
        hash_, dropped = _content_hash(header, segments), json.dumps(document.dropped)
        self._db.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*header, key, dropped, hash_, features),
        )
        first = self._db.execute("SELECT coalesce(max(id), 0) + 1 FROM segments").fetchone()[0]
        self._db.executemany(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)",
            ((first + i, document.id, i, *segment) for i, segment in enumerate(segments)),
        )

    def remove(self, ids: Iterable[str]) -> None:
        self._db.executemany("DELETE FROM documents WHERE id = ?", ((id_,) for id_ in ids))

    def set_selection(self, rows: Iterable[tuple[str, str, int, str]]) -> None:
        """Store the selection: (document, decision, training words, split)."""
        self._db.execute("DELETE FROM selection")
        self._db.executemany("INSERT INTO selection VALUES (?, ?, ?, ?)", rows)

    def set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def keep_sides(self, settings: str, sides: Mapping[str, "Side"]) -> None:
        """Store each post's split (train, validation or test) with the split settings.

        Includes posts that no longer exist.
        """
        self.set_meta("split", json.dumps([settings, sides]))

    # ---- reading

    def keys(self) -> dict[str, str]:
        """Return the content keys of all documents by id."""
        return dict(self._rows("SELECT id, key FROM documents"))

    def documents(self, ids: Iterable[str] | None = None) -> Iterator[Document]:
        """Yield all documents sorted by date and id, or those with these ids sorted by id."""
        order = "coalesce(date, '9999'), id" if ids is None else "id"
        for row in self._select(_HEADERS, ids, order):
            segments = self._segments(row[0])
            if _content_hash(row[:-1], segments) != row[-1]:
                raise DamagedArchiveError(self.path, f"the text {row[0]!r} was changed")
            yield self._document(row, segments)

    def own_texts(self) -> Iterator[tuple[str, bool]]:
        """Yield the author's own words in each document, and whether it is left out."""
        selection = self.selection()
        for document in self.documents():
            is_left_out = selection.get(document.id, ("leave out",))[0] == "leave out"
            yield f"{document.title}\n\n{document.text(OWN_KINDS)}", is_left_out

    def headers(self, ids: Iterable[str] | None = None) -> Iterator[Document]:
        """Yield all documents, or those with these ids, without segments, sorted by id."""
        for row in self._select(_HEADERS, ids, "id"):
            yield self._document(row, [])

    def _select(
        self, columns: str, ids: Iterable[str] | None, order: str
    ) -> Iterator[tuple[Any, ...]]:
        wanted = "" if ids is None else " WHERE id IN (SELECT value FROM json_each(?))"
        parameters = () if ids is None else (json.dumps(list(ids)),)
        return self._rows(f"{columns}{wanted} ORDER BY {order}", parameters)

    def _document(self, row: Sequence[Any], segments: Iterable[tuple[Any, str, str]]) -> Document:
        id_, kind, status, title, date, url, author, tags, _ = row
        with self._unreadable_is_damage():
            return Document(
                id=str(id_),
                title=str(title),
                segments=tuple(Segment(*segment) for segment in segments),
                kind=kind,
                status=status,
                date=datetime.fromisoformat(date) if date else None,
                url=str(url),
                author=str(author),
                tags=tuple(json.loads(tags)),
            )

    def tags(self) -> dict[str, tuple[str, ...]]:
        """Return the tags of all documents by id, ten times faster than with the headers."""
        rows = self._rows("SELECT id, tags FROM documents ORDER BY id")
        with self._unreadable_is_damage():
            return {id_: tuple(json.loads(tags)) for id_, tags in rows}

    def text(self, document_id: str, kinds: frozenset[SegmentKind]) -> str:
        """Return the text of a document's segments of these kinds; empty for an unknown id."""
        return "\n\n".join(row[1] for row in self._segments(document_id) if row[0] in kinds)

    def _segments(self, document_id: str) -> list[tuple[SegmentKind, str, str]]:
        columns = "SELECT kind, text, detail FROM segments"
        return list(self._rows(f"{columns} WHERE document = ? ORDER BY position", (document_id,)))

    def features(self, ids: Iterable[str] | None = None) -> Iterator[tuple[str, "Features"]]:
        """Yield the features of all documents, or of those with these ids, sorted by id."""
        from ownwords.archive.features import decode_features  # noqa: PLC0415 - `ask` reads none

        for id_, data in self._select("SELECT id, features FROM documents", ids, "id"):
            with self._unreadable_is_damage():
                features = decode_features(data)
            yield id_, features

    def dropped(self) -> dict[str, int]:
        """Return how much was removed from the bodies of all documents, by reason."""
        totals = "SELECT j.key, sum(j.value) FROM documents, json_each(dropped) j GROUP BY j.key"
        return dict(self._rows(totals))

    def segments_of_kind(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the segments of one kind as (document id, text)."""
        columns = "SELECT document, text FROM segments"
        yield from self._rows(f"{columns} WHERE kind = ? ORDER BY document, position", (kind,))

    def selection(self) -> dict[str, tuple[str, int, str]]:
        """Return the selection by document id: decision, training words, split."""
        rows = list(self._rows("SELECT document, decision, training_words, split FROM selection"))
        with self._unreadable_is_damage():
            selection = msgspec.convert(rows, list[tuple[str, str, int, str]])
        return {row[0]: row[1:] for row in selection}

    def get_meta(self, key: str) -> str:
        """Return the value stored under a key; empty if there is none."""
        row = next(self._rows("SELECT value FROM meta WHERE key = ?", (key,)), None)
        return str(row[0]) if row else ""

    def kept_sides(self, settings: str) -> dict[str, "Side"]:
        """Return the stored sides; none if the split had other settings."""
        with self._unreadable_is_damage():
            of, sides = json.loads(self.get_meta("split") or '["", {}]')
        return sides if of == settings else {}

    def verify(self) -> None:
        """Check the file's structure; raises DamagedArchiveError."""
        for (message,) in self._rows("PRAGMA quick_check(1)"):
            if message != "ok":
                raise DamagedArchiveError(self.path, message)

    # ---- the file

    @contextmanager
    def _unreadable_is_damage(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError) as error:
            raise DamagedArchiveError(self.path, str(error)) from error

    def _prepare(self, rebuild: bool) -> None:
        """Create the tables. With `rebuild`, first delete an archive of another version."""
        names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master")}
        if names and "documents" not in names:
            raise WorkspaceError(
                f"{self.path} is the database of another program",
                hint="give another folder to --workspace",
            )
        if self._db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return
        if names and not rebuild:
            raise another_version(self.path)
        if names:
            self._db.close()
            with translate_os_errors(self.path):
                self.path.unlink()
            self._connect()
        with self.transaction():
            for statement in _SCHEMA.read_text("utf-8").split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {VERSION}")


@dataclass(frozen=True)
class KeptFile:
    """A file beside the archive with what was learned from it, valid until the archive changes.

    Create it before reading the archive, and store its `key` in the file.
    """

    archive: Archive
    name: str
    key: str  # a hash of all that was learned from
    state: str  # of the archive when this was made

    @classmethod
    def of(cls, archive: Archive, name: str, *parts: str | bytes) -> "KeptFile":
        """Return the file for an archive as it is now; `parts` are what else it depends on."""
        state = archive.get_meta("state")
        english = msgspec.json.encode(language("en"))
        return cls(archive, name, digest(state, english, *parts), state)

    def read(self) -> bytes:
        """Return the contents, which may be of another key; b"" if there are none."""
        with suppress(OSError):
            return self._path.read_bytes() if self.state else b""
        return b""

    def write(self, contents: bytes) -> None:
        """Store what was learned, unless the archive has changed since or cannot be written."""
        if self.state and self.state == self.archive.get_meta("state"):
            with suppress(OwnwordsError):
                write_atomically(self._path, contents)

    @property
    def _path(self) -> Path:
        return self.archive.path.with_name(self.name)


def another_version(path: Path) -> CorpusError:
    """Return the error for an archive that another version of ownwords has made."""
    return CorpusError(
        f"{path} was made by another version of ownwords",
        hint="read your posts again: ownwords look PATH",
    )


def file_version(path: Path) -> int:
    """Return the version of the archive in a file."""
    with path.open("rb") as file:
        header = file.read(64)
    # Bytes 60 to 63 of a SQLite file hold its user_version.
    return int.from_bytes(header[60:])
