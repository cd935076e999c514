"""The search index of an archive: its chunks, their words and vectors, in the archive's file.

A chunk has a vector for each window of it (`passages.windows`). They are stored as bytes with one
scale each: a fourth of the space, and cosines that differ by less than 0.005.
"""

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.store import (
    VERSION,
    Archive,
    another_version,
    file_version,
    translate_sqlite_errors,
)
from ownwords.ask.passages import (
    CHUNKS_VERSION,
    Passage,
    Whose,
    apart,
    chunks_of,
    count_words,
)
from ownwords.ask.query import visible
from ownwords.core.errors import CorpusError, OwnwordsError, WorkspaceError
from ownwords.core.progress import Progress
from ownwords.native.bindings import load_library

TOKENIZER = "porter unicode61 remove_diacritics 2"

# Increased whenever the tables below change; they are then rebuilt.
_VERSION = f"4.{CHUNKS_VERSION}"

# Random, because a counter would restart in a rebuilt archive and repeat old values.
_ANOTHER_GENERATION = "INSERT OR REPLACE INTO meta VALUES ('ask_generation', hex(randomblob(8)))"

_TRIGGERS = ("chunk_added", "chunk_removed", "document_removed")
_TABLES = ("vectors", "chunk_search", "chunk_texts", "chunks", "indexed")

# The `sought_` columns hold the searchable form where it differs from the text shown. Triggers keep
# the index consistent when `look` deletes a document and, by cascade, its chunks.
_SCHEMA = (
    """CREATE TABLE indexed (
        document TEXT PRIMARY KEY REFERENCES documents(id) ON DELETE CASCADE,
        key TEXT NOT NULL, whose TEXT NOT NULL, folded_title TEXT NOT NULL, words INTEGER NOT NULL
    )""",
    "CREATE INDEX indexed_by_title ON indexed(folded_title)",
    """CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        document TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
        heading TEXT NOT NULL, text TEXT NOT NULL, whose TEXT NOT NULL,
        sought_title TEXT NOT NULL, sought_heading TEXT, sought_date TEXT NOT NULL, sought_text TEXT
    )""",
    "CREATE INDEX chunks_of ON chunks(document)",
    """CREATE VIEW chunk_texts AS
        SELECT id, sought_title AS title, coalesce(sought_heading, heading) AS heading,
        sought_date AS date, coalesce(sought_text, text) AS text FROM chunks""",
    f"""CREATE VIRTUAL TABLE chunk_search USING fts5(
        title, heading, date, text, content='chunk_texts', content_rowid='id',
        tokenize='{TOKENIZER}'
    )""",
    """CREATE TRIGGER chunk_added AFTER INSERT ON chunks BEGIN
        INSERT INTO chunk_search(rowid, title, heading, date, text) VALUES (new.id,
        new.sought_title, coalesce(new.sought_heading, new.heading), new.sought_date,
        coalesce(new.sought_text, new.text)); END""",
    """CREATE TRIGGER chunk_removed AFTER DELETE ON chunks BEGIN
        INSERT INTO chunk_search(chunk_search, rowid, title, heading, date, text) VALUES ('delete',
        old.id, old.sought_title, coalesce(old.sought_heading, old.heading), old.sought_date,
        coalesce(old.sought_text, old.text)); END""",
    f"""CREATE TRIGGER document_removed AFTER DELETE ON indexed BEGIN {_ANOTHER_GENERATION}; END""",
    """CREATE TABLE vectors (
        chunk INTEGER NOT NULL REFERENCES chunks(id) ON DELETE CASCADE, name TEXT NOT NULL,
        codes BLOB NOT NULL, scales BLOB NOT NULL, PRIMARY KEY (chunk, name)
    ) WITHOUT ROWID""",
)


Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Ids = npt.NDArray[np.int64]

_LARGEST = 127
_POST_SHARE = 0.4
_ROWS_AT_ONCE = 2048  # converted to floats while they are in the cache


@dataclass(frozen=True)
class StoredVectors:
    """The vectors of one embedder: a row of codes with its scale for each window of a passage."""

    passages: Ids
    codes: Codes
    scales: Floats
    posts: Ids  # a number for the post of each passage

    @cached_property
    def firsts(self) -> Ids:
        """The first row of each passage; its rows are adjacent."""
        return np.flatnonzero(np.diff(self.passages, prepend=self.passages[0] - 1))

    def __len__(self) -> int:
        return len(self.passages)

    def of_windows(self, query: Floats, passage: int) -> list[float]:
        """The cosines of the windows of one passage, in order; none if it has no vector."""
        rows = slice(*np.searchsorted(self.passages, [passage, passage + 1]).tolist())
        cosines: list[float] = (self.codes[rows] @ query * self.scales[rows]).tolist()
        return cosines

    def cosines(self, query: Floats) -> tuple[Ids, Floats]:
        """The passages with a vector, in order, and the best cosine of their windows."""
        if not len(self):
            return self.passages, self.scales
        scores = _dot_codes(self.codes, self.scales, np.ascontiguousarray(query, np.float32))
        return self.passages[self.firsts], np.maximum.reduceat(scores, self.firsts)

    def closeness(self, cosines: Floats) -> Floats:
        """The passages' cosines in standard deviations from the mean, with those of their posts.

        A post is about what all of its passages are about: with .4 of their mean, 71 instead of 67
        of 112 questions in other words find their post first, and 99 instead of 97 in five.
        """
        deviations = (cosines - cosines.mean()) / (cosines.std() or 1.0)
        means = np.bincount(self.posts, deviations) / np.maximum(np.bincount(self.posts), 1)
        close: Floats = (deviations + _POST_SHARE * means[self.posts]).astype(np.float32)
        return close


def _dot_codes(codes: Codes, scales: Floats, query: Floats) -> Floats:
    if query.shape != codes.shape[1:]:  # the library would read past the end of one of them
        raise ValueError(f"a query of shape {query.shape} for vectors of {codes.shape[1]}")
    scores = np.empty(len(codes), np.float32)
    if (library := load_library()) is not None:
        library.dot_codes(
            *(array.ctypes.data for array in (codes, scales, query)),
            *codes.shape,
            scores.ctypes.data,
        )
        return scores
    for start in range(0, len(codes), _ROWS_AT_ONCE):
        end = start + _ROWS_AT_ONCE
        np.matmul(codes[start:end].astype(np.float32), query, out=scores[start:end])
    return scores * scales


def quantized(rows: Floats) -> tuple[Codes, Floats]:
    """Rows as codes from -127 to 127, and the scale of each."""
    scales = np.abs(rows).max(axis=1, initial=0) / _LARGEST
    codes = np.rint(rows / np.maximum(scales, np.finfo(np.float32).tiny)[:, None])
    return codes.astype(np.int8), scales.astype(np.float32)


# fmt: off
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)
# fmt: on

_WAIT_S = 30.0  # to wait for a process that writes the archive; `look` at 1 GB takes this long
_CACHE_KIB = 16384
_CACHE_WHILE_BUILDING_KIB = 65536  # keeps index pages in memory instead of rewriting them
# Merge the whole index, which makes searches faster, if at least this share of it is new.
_MERGE_FROM = 0.3
# Only web addresses and paths; an address like "javascript:" is dropped.
_LINK = re.compile(r"(?:https?://|(?![a-z][a-z0-9+.-]*:|//|\\))[^\x00-\x1f\x7f]*", re.IGNORECASE)

# A post that was left out is somebody else's, unless it is only a copy of another post.
_WANTED = """
    WITH flags AS (
        SELECT json_extract(p.value, '$.id') AS id, json_extract(p.value, '$.flags') AS flags
        FROM meta, json_each(meta.value, '$.posts') p
        WHERE meta.key = 'report' AND json_extract(p.value, '$.decision') = 'leave out'
    ), wanted AS (
        SELECT d.id AS id, d.key AS key,
            CASE WHEN s.decision IS 'leave out' AND f.flags IS NOT '["duplicate"]'
            THEN 'leave out' ELSE 'keep' END AS decision
        FROM documents d LEFT JOIN selection s ON s.document = d.id LEFT JOIN flags f ON f.id = d.id
    )
"""


@dataclass(frozen=True, slots=True)
class IndexedPost:
    """A post for counting; `words` are the author's own, without quotes, code and logs."""

    document: str
    title: str
    day: str  # ISO, empty if unknown
    kind: str
    whose: Whose
    words: int


class SearchIndex:
    """The search index; thread-safe, with a connection for each thread.

    Raises CorpusError if there is no archive yet, WorkspaceError if it is damaged or locked for too
    long by another process.
    """

    def __init__(self, archive: Path) -> None:
        self.path = archive
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self._vectors: tuple[tuple[str, str], StoredVectors] | None = None
        if not archive.is_file():
            raise _nothing_read(archive)
        with self.reading() as db:
            names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        if "documents" not in names:
            self.close()
            raise _nothing_read(archive)
        if file_version(archive) != VERSION:
            self.close()
            raise another_version(archive)

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for db in self._connections:
                db.close()
            self._connections.clear()
            self._vectors = None
            self._local = threading.local()

    def __enter__(self) -> "SearchIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield this thread's connection; translates SQLite's errors into OwnwordsErrors."""
        with translate_sqlite_errors(self.path):
            db = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = self._connect()
            yield db

    # ---- updating

    def refresh(self, progress: Progress | None = None) -> int:
        """Update the chunks in one transaction; returns how many documents were indexed.

        Only documents that changed, or whose decision changed, are indexed again. If nothing has
        changed, nothing is written, so the archive may be on a read-only disk.
        """
        with self.reading() as db:
            # `look` writes the key of the archive's content; without one, documents are compared.
            state = self._meta("state")
            is_current = self._meta("ask_version") == _VERSION
            if is_current and (state == self._meta("ask_state") if state else not self._changed()):
                return 0
            db.execute(f"PRAGMA cache_size = -{_CACHE_WHILE_BUILDING_KIB}")
            try:
                with _read_only_explained(self.path), self._writing():
                    if self._meta("ask_version") != _VERSION:
                        self._recreate_tables(db)
                    changed = self._changed()  # again: another process may have updated it
                    self._index_documents(db, changed, progress or Progress())
                    self._set_meta("ask_state", self._meta("state"))
            finally:
                db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            return len(changed)

    def _recreate_tables(self, db: sqlite3.Connection) -> None:
        """Replace the tables by empty ones."""
        kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
        for name in (*_TRIGGERS, *_TABLES):
            if name in kinds:
                db.execute(f"DROP {kinds[name]} {name}")
        for statement in _SCHEMA:
            db.execute(statement)
        self._set_meta("ask_version", _VERSION)

    def _meta(self, key: str) -> str:
        with self.reading() as db:
            return Archive.over(self.path, db).get_meta(key)

    def _set_meta(self, key: str, value: str) -> None:
        with self.reading() as db:
            Archive.over(self.path, db).set_meta(key, value)

    def _changed(self) -> list[tuple[str, str, str]]:
        """The documents to index again: id, key and decision."""
        return self.rows(
            f"{_WANTED} SELECT w.id, w.key, w.decision FROM wanted w"  # noqa: S608
            " LEFT JOIN indexed i ON i.document = w.id"
            " WHERE i.key IS NOT w.key || ' ' || w.decision ORDER BY w.id"
        )

    def _index_documents(
        self, db: sqlite3.Connection, changed: Sequence[tuple[str, str, str]], progress: Progress
    ) -> None:
        archive = Archive.over(self.path, db)
        with progress.stage("Preparing the search", len(changed), "posts") as stage:
            for document_id, key, decision in changed:
                (document,) = archive.documents([document_id])
                is_left_out = decision == "leave out"
                db.execute("DELETE FROM chunks WHERE document = ?", (document_id,))
                title, day = apart(visible(document.title)), _searchable_date(document.date)
                for heading, text, whose in chunks_of(document, is_left_out=is_left_out):
                    sought = (
                        apart(part) if apart(part) != part else None for part in (heading, text)
                    )
                    db.execute(
                        "INSERT INTO chunks(document, heading, text, whose, sought_heading,"
                        " sought_text, sought_title, sought_date) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (document_id, heading, text, whose, *sought, title, day),
                    )
                db.execute(
                    "INSERT OR REPLACE INTO indexed VALUES (?, ?, ?, ?, ?)",
                    (
                        document_id,
                        f"{key} {decision}",
                        "other" if is_left_out else "own",
                        folded(document.title),
                        sum(count_words(s.text) for s in document.segments if s.kind in OWN_KINDS),
                    ),
                )
                stage.advance()
        (all_,) = db.execute("SELECT count(*) FROM indexed").fetchone()
        if len(changed) > _MERGE_FROM * all_:
            with progress.stage("Tidying the search"):
                db.execute("INSERT INTO chunk_search(chunk_search) VALUES ('optimize')")

    # ---- reading

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """The rows of a query."""
        with self.reading() as db:
            return db.execute(sql, parameters).fetchall()

    def generation(self) -> str:
        """A string that changes whenever the index changes, to invalidate caches."""
        return self._meta("ask_generation")

    def ids(self) -> list[int]:
        """The ids of all chunks, in order."""
        return [row[0] for row in self.rows("SELECT id FROM chunks ORDER BY id")]

    def size(self) -> int:
        """The number of chunks."""
        return int(self.rows("SELECT count(*) FROM chunks")[0][0])

    def documents_titled(self, titles: Iterable[str]) -> list[str]:
        """The documents with one of these folded titles, oldest first."""
        rows = self.rows(
            "SELECT i.document FROM indexed i JOIN documents d ON d.id = i.document"
            " WHERE i.folded_title IN (SELECT value FROM json_each(?))"
            " ORDER BY coalesce(d.date, '9999'), d.id",
            json.dumps(list(titles)),
        )
        return [row[0] for row in rows]

    def has(self, match: str) -> bool:
        """Whether a chunk matches an FTS5 query."""
        sql = "SELECT 1 FROM chunk_search WHERE chunk_search MATCH ? LIMIT 1"
        return bool(self.rows(sql, match))

    def chunks_with(self, match: str) -> list[int]:
        """The chunks that match an FTS5 query."""
        rows = self.rows("SELECT rowid FROM chunk_search WHERE chunk_search MATCH ?", match)
        return [row[0] for row in rows]

    def documents_with(self, match: str, most: int) -> list[str]:
        """The documents with chunks that match an FTS5 query, at most so many."""
        rows = self.rows(
            "SELECT DISTINCT c.document FROM chunk_search f JOIN chunks c ON c.id = f.rowid"
            " WHERE chunk_search MATCH ? LIMIT ?",
            match,
            most,
        )
        return [row[0] for row in rows]

    def passages(
        self,
        ranking: Sequence[tuple[int, float]],
        found_by: dict[int, tuple[str, ...]] | None = None,
    ) -> list[Passage]:
        """The passages with these ids and scores, in order; deleted chunks are left out."""
        rows = self.rows(
            "SELECT id, document, heading, text, whose FROM chunks"
            " WHERE id IN (SELECT value FROM json_each(?))",
            json.dumps([id_ for id_, _ in ranking]),
        )
        with self.reading() as db:
            headers = Archive.over(self.path, db).headers({row[1] for row in rows})
            posts = {post.id: post for post in headers}
        chunks = {row[0]: row for row in rows}
        by = found_by or {}
        return [
            _passage(chunks[id_], posts[chunks[id_][1]], score, by.get(id_, ()))
            for id_, score in ranking
            if id_ in chunks
        ]

    def chunks(self, document: str) -> list[int]:
        """The ids of a document's chunks, in order."""
        rows = self.rows("SELECT id FROM chunks WHERE document = ? ORDER BY id", document)
        return [row[0] for row in rows]

    def posts(self) -> list[IndexedPost]:
        """All posts and pages, oldest first, those without a date last."""
        rows = self.rows(
            "SELECT d.id, d.title, coalesce(substr(d.date, 1, 10), ''), d.kind, i.whose, i.words"
            " FROM documents d JOIN indexed i ON i.document = d.id"
            " ORDER BY coalesce(d.date, '9999'), d.id"
        )
        return [IndexedPost(*row) for row in rows]

    # ---- vectors

    def put_vectors(self, name: str, entries: Sequence[tuple[int, Floats]]) -> None:
        """Store an embedder's vectors of chunks, a row a window, unless a chunk was deleted."""
        with self._writing() as db:
            for id_, rows in entries:
                codes, scales = quantized(rows)
                db.execute(
                    "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ? FROM chunks WHERE id = ?",
                    (name, codes.tobytes(), scales.astype("<f4").tobytes(), id_),
                )

    def vectors(self, name: str) -> StoredVectors:
        """The vectors of this embedder, cached in memory until the index changes."""
        with self._lock:
            key = name, self.generation()
            if self._vectors is None or self._vectors[0] != key:
                rows = self.rows(
                    "SELECT v.chunk, v.codes, v.scales, c.document FROM vectors v"
                    " JOIN chunks c ON c.id = v.chunk WHERE v.name = ? ORDER BY v.chunk",
                    name,
                )
                ids = [row[0] for row in rows for _ in range(len(row[2]) // 4)]
                codes = np.frombuffer(b"".join(row[1] for row in rows), np.int8)
                scales = np.frombuffer(b"".join(row[2] for row in rows), "<f4")
                codes = codes.reshape(len(ids), len(codes) // max(1, len(ids)))
                numbers = {document: n for n, document in enumerate({row[3] for row in rows})}
                posts = np.array([numbers[row[3]] for row in rows], np.int64)
                self._vectors = key, StoredVectors(np.array(ids, np.int64), codes, scales, posts)
            return self._vectors[1]

    def without_vectors(self, name: str) -> list[int]:
        """The ids of the chunks that have no vector of this embedder yet, in order."""
        rows = self.rows(
            "SELECT id FROM chunks WHERE id NOT IN (SELECT chunk FROM vectors WHERE name = ?)"
            " ORDER BY id",
            name,
        )
        return [row[0] for row in rows]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction, which is rolled back if the block raises."""
        with self.reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute(_ANOTHER_GENERATION)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite itself rolls back if the disk is full
                    db.execute("ROLLBACK")
                raise

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: never create the file, and open it read-only if it cannot be written.
        db = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_WAIT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        except BaseException:
            db.close()
            raise
        self._connections.append(db)
        return db


def folded(title: str) -> str:
    """A title without case, accents and punctuation, unless it consists of nothing else."""
    plain = unicodedata.normalize("NFKD", visible(title).casefold())
    bare = "".join(c for c in plain if not unicodedata.combining(c))
    words = re.findall(r"[^\W_]+", bare)
    return " ".join(words) if words else "".join(title.casefold().split())


@contextmanager
def _read_only_explained(archive: Path) -> Iterator[None]:
    """Turn errors about a read-only archive into one that says how to build the index."""
    try:
        yield
    except WorkspaceError as error:
        if not any(words in error.message for words in ("readonly", "unable to open")):
            raise
        raise WorkspaceError(
            f"{archive} is read-only, and the search has to be prepared in it first",
            hint="run ownwords ask once where the folder can be written; then it may be read-only",
        ) from error


def _nothing_read(archive: Path) -> OwnwordsError:
    return CorpusError(
        f"{archive.parent} has no archive",
        hint="read your posts first: ownwords look PATH, or ownwords make PATH",
    )


def _searchable_date(date: datetime | None) -> str:
    """A date as searchable words, for "2019-04-28" and "April 2019"."""
    if date is None:
        return ""
    return f"{date.date().isoformat()} {MONTHS[date.month - 1]}"


def _passage(
    row: tuple[int, str, str, str, Whose], post: Document, score: float, found_by: tuple[str, ...]
) -> Passage:
    id_, _, heading, text, whose = row
    return Passage(
        id=id_,
        document=post.id,
        title=visible(post.title),
        date=post.date.date().isoformat() if post.date else None,
        url=post.url.strip() if _LINK.fullmatch(post.url.strip()) else "",
        heading=heading,
        text=text,
        whose=whose,
        score=score,
        found_by=found_by,
    )
