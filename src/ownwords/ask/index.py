"""The search index of an archive: its chunks, their words and vectors, in the archive's file.

A chunk has a vector for each of its windows (`passages.windows`). Vectors are stored as bytes with
one scale each: a fourth of the space, with cosines that differ by less than 0.005.
"""

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.archive.store import (
    VERSION,
    Archive,
    another_version,
    file_version,
    translate_sqlite_errors,
)
from ownwords.ask.passages import Passage, Whose, apart, chunks_of
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.progress import Progress
from ownwords.language.words import months, visible
from ownwords.native.bindings import load_library

# Increased whenever the tables below or the chunks change; they are then rebuilt.
_VERSION = "5"

# Random, because a counter would restart in a rebuilt archive and repeat old values.
_ANOTHER_GENERATION = "INSERT OR REPLACE INTO meta VALUES ('ask_generation', hex(randomblob(8)))"

_SCHEMA = {
    name: statement
    for statement in Path(__file__).with_name("schema.sql").read_text("utf-8").split("\n\n")
    for name in re.findall(r"^CREATE (?:VIRTUAL )?(?:TABLE|INDEX|TRIGGER) (\w+)", statement)
}
# A post that was left out is somebody else's, unless it is only a copy of another post.
_CHANGED = """
    WITH flags AS (
        SELECT json_extract(p.value, '$.id') AS id, json_extract(p.value, '$.flags') AS flags
        FROM meta, json_each(meta.value, '$.posts') p
        WHERE meta.key = 'report' AND json_extract(p.value, '$.decision') = 'leave out'
    ), wanted AS (
        SELECT d.id AS id, d.key || CASE WHEN s.decision IS 'leave out'
            AND f.flags IS NOT '["duplicate"]' THEN ' other' ELSE ' own' END AS key
        FROM documents d LEFT JOIN selection s ON s.document = d.id LEFT JOIN flags f ON f.id = d.id
    )
    SELECT w.id, w.key FROM wanted w LEFT JOIN indexed i ON i.document = w.id
    WHERE i.key IS NOT w.key ORDER BY w.id
"""

_WAIT_S = 30.0  # for a process that writes the archive; `look` takes this long for 1 GB
# Only web addresses and paths; an address like "javascript:" is dropped.
_LINK = re.compile(r"(?:https?://|(?![a-z][a-z0-9+.-]*:|//|\\))[^\x00-\x1f\x7f]*", re.IGNORECASE)

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Ids = npt.NDArray[np.int64]

_LARGEST = 127
_POST_SHARE = 0.4


@dataclass(frozen=True)
class StoredVectors:
    """The vectors of one encoder: a row of codes with its scale for each window of a passage."""

    passages: Ids  # the passages with vectors, in order
    posts: Ids  # a number for the post of each
    firsts: Ids  # its first row; its rows are adjacent
    codes: Codes
    scales: Floats

    def of_windows(self, query: Floats) -> Floats:
        """Return the cosine of each window."""
        return _dot_codes(self.codes, self.scales, query)

    def cosines(self, of_windows: Floats) -> Floats:
        """Return the best cosine of the windows of each passage."""
        return np.maximum.reduceat(of_windows, self.firsts) if len(self.passages) else self.scales

    def window(self, passage: int, of_windows: Floats) -> tuple[int, float]:
        """Return the index and cosine of a passage's closest window; 0 if it has no vectors."""
        place = int(np.searchsorted(self.passages, passage))
        if place == len(self.passages) or self.passages[place] != passage:
            return 0, float(of_windows.mean())
        first, *ends = self.firsts[place : place + 2].tolist()
        own = of_windows[first : ends[0] if ends else None]
        return int(own.argmax()), float(own.max())

    def closeness(self, cosines: Floats) -> Floats:
        """Return the z-scores of the cosines, plus 0.4 times the mean z-score of their posts.

        All passages of a post together show what it is about. Measured: docs/log.md.
        """
        deviations = (cosines - cosines.mean()) / (cosines.std() or 1.0)
        means = np.bincount(self.posts, deviations) / np.maximum(np.bincount(self.posts), 1)
        close: Floats = (deviations + _POST_SHARE * means[self.posts]).astype(np.float32)
        return close


def _dot_codes(codes: Codes, scales: Floats, query: Floats) -> Floats:
    if query.shape != codes.shape[1:]:  # the library would read past the end of an array
        raise ValueError(f"a query of shape {query.shape} for vectors of {codes.shape[1]}")
    if (library := load_library()) is None:
        dots: Floats = codes @ query * scales
        return dots
    scores = np.empty(len(codes), np.float32)
    query = np.ascontiguousarray(query, np.float32)
    arrays = (array.ctypes.data for array in (codes, scales, query))
    library.dot_codes(*arrays, *codes.shape, scores.ctypes.data)
    return scores


def quantized(rows: Floats) -> tuple[Codes, Floats]:
    """Return rows as codes from -127 to 127, and the scale of each."""
    scales = np.abs(rows).max(axis=1, initial=0) / _LARGEST
    codes = np.rint(rows / np.maximum(scales, np.finfo(np.float32).tiny)[:, None])
    return codes.astype(np.int8), scales.astype(np.float32)


class IndexedPost(NamedTuple):
    """What questions of when and how many need of a post."""

    document: str
    title: str
    day: str  # ISO, empty if unknown
    kind: str
    whose: Whose


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
        if "documents" not in names or file_version(archive) != VERSION:
            self.close()
            raise another_version(archive) if "documents" in names else _nothing_read(archive)

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
                # mode=rw: never create the file, and open it read-only if it cannot be written.
                db = self._local.db = sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode=rw",
                    uri=True,
                    timeout=_WAIT_S,
                    isolation_level=None,
                    check_same_thread=False,
                )
                self._connections.append(db)
                db.execute("PRAGMA foreign_keys = ON")
                db.execute("PRAGMA cache_size = -65536")  # KiB
            yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction, which is rolled back if the block raises."""
        with self.reading() as db, Archive.over(self.path, db).transaction():
            yield db
            db.execute(_ANOTHER_GENERATION)

    # ---- updating

    def refresh(self, progress: Progress | None = None) -> int:
        """Update the chunks in one transaction; returns how many documents were indexed.

        Only documents that changed, or whose decision changed, are indexed again. If nothing has
        changed, nothing is written, so the archive may be on a read-only disk.
        """
        with self.reading() as db:
            archive = Archive.over(self.path, db)
            # `look` writes the key of the archive's content; without one, documents are compared.
            state = archive.get_meta("state")
            is_current = archive.get_meta("ask_version") == _VERSION
            seen = archive.get_meta("ask_state")
            if is_current and (state == seen if state else not self.rows(_CHANGED)):
                return 0
            with self._writing():
                if archive.get_meta("ask_version") != _VERSION:
                    kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
                    for name in reversed(_SCHEMA):
                        if name in kinds:
                            db.execute(f"DROP {kinds[name]} {name}")
                    for statement in _SCHEMA.values():
                        db.execute(statement)
                    archive.set_meta("ask_version", _VERSION)
                changed = self.rows(_CHANGED)  # again: another process may have updated it
                with (progress or Progress()).stage(
                    "Preparing the search", len(changed), "posts"
                ) as stage:
                    for document, key in changed:
                        _index(db, archive, document, key)
                        stage.advance()
                if not is_current:  # searches are faster in a merged index
                    db.execute("INSERT INTO chunk_search(chunk_search) VALUES ('optimize')")
                archive.set_meta("ask_state", archive.get_meta("state"))
            return len(changed)

    # ---- reading

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        with self.reading() as db:
            return db.execute(sql, parameters).fetchall()

    def column(self, sql: str, *parameters: object) -> list[Any]:
        """Return the first value of each row of a query."""
        return [row[0] for row in self.rows(sql, *parameters)]

    def generation(self) -> str:
        """Return a string that changes whenever the index changes, to invalidate caches."""
        with self.reading() as db:
            return Archive.over(self.path, db).get_meta("ask_generation")

    def size(self) -> int:
        return int(self.column("SELECT count(*) FROM chunks")[0])

    def documents_titled(self, titles: Iterable[str]) -> list[str]:
        """Return the documents with one of these folded titles, oldest first."""
        return self.column(
            "SELECT i.document FROM indexed i JOIN documents d ON d.id = i.document"
            " WHERE i.folded_title IN (SELECT value FROM json_each(?))"
            " ORDER BY coalesce(d.date, '9999'), d.id",
            json.dumps(list(titles)),
        )

    def chunks_with(self, match: str) -> list[int]:
        """Return the chunks that match an FTS5 query."""
        return self.column("SELECT rowid FROM chunk_search WHERE chunk_search MATCH ?", match)

    def chunks(self, document: str) -> list[int]:
        """Return the ids of a document's chunks, in order."""
        return self.column("SELECT id FROM chunks WHERE document = ? ORDER BY id", document)

    def passages(
        self,
        ranking: Sequence[tuple[int, float]],
        found_by: Mapping[str, Container[int]] | None = None,
    ) -> list[Passage]:
        """Return the passages with these ids and scores, in order, without deleted chunks.

        `found_by` holds the ids that each way of searching found.
        """
        rows = self.rows(
            "SELECT id, document, heading, text, whose FROM chunks"
            " WHERE id IN (SELECT value FROM json_each(?))",
            json.dumps([id_ for id_, _ in ranking]),
        )
        with self.reading() as db:
            headers = Archive.over(self.path, db).headers({row[1] for row in rows})
            posts = {post.id: post for post in headers}
        chunks = {row[0]: row[1:] for row in rows}
        passages = []
        for id_, score in ranking:
            if id_ in chunks and chunks[id_][0] in posts:
                document, heading, text, whose = chunks[id_]
                post = posts[document]
                by = tuple(name for name, ids in (found_by or {}).items() if id_ in ids)
                date = post.date.date().isoformat() if post.date else None
                title, url = visible(post.title), post.url.strip()
                url = url if _LINK.fullmatch(url) else ""
                parts = (url, heading, text, whose, score, by)
                passages.append(Passage(id_, document, title, date, *parts))
        return passages

    def posts(self) -> list[IndexedPost]:
        """Return all posts and pages, oldest first, those without a date last."""
        rows = self.rows(
            "SELECT d.id, d.title, coalesce(substr(d.date, 1, 10), ''), d.kind, i.whose"
            " FROM documents d JOIN indexed i ON i.document = d.id"
            " ORDER BY coalesce(d.date, '9999'), d.id"
        )
        return [IndexedPost(*row) for row in rows]

    # ---- vectors

    def put_vectors(self, name: str, entries: Sequence[tuple[int, Floats]]) -> None:
        """Store an encoder's vectors of chunks, one row per window, unless a chunk was deleted."""
        with self._writing() as db:
            for id_, rows in entries:
                codes, scales = quantized(rows)
                db.execute(
                    "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ? FROM chunks WHERE id = ?",
                    (name, codes.tobytes(), scales.astype("<f4").tobytes(), id_),
                )

    def remove_former_vectors(self, name: str) -> None:
        """Delete the vectors of all encoders but this one."""
        if self.rows("SELECT 1 FROM vectors WHERE name != ? LIMIT 1", name):
            with self._writing() as db:
                db.execute("DELETE FROM vectors WHERE name != ?", (name,))

    def vectors(self, name: str) -> StoredVectors:
        """Return the vectors of this encoder, cached in memory until the index changes."""
        with self._lock:
            key = name, self.generation()
            if self._vectors is None or self._vectors[0] != key:
                rows = self.rows(
                    "SELECT v.chunk, v.codes, v.scales, c.document FROM vectors v"
                    " JOIN chunks c ON c.id = v.chunk WHERE v.name = ? ORDER BY v.chunk",
                    name,
                )
                codes = np.frombuffer(b"".join(row[1] for row in rows), np.int8)
                scales = np.frombuffer(b"".join(row[2] for row in rows), "<f4")
                numbers = {document: n for n, document in enumerate({row[3] for row in rows})}
                ends = np.cumsum([0, *(len(row[2]) // 4 for row in rows)])
                self._vectors = (
                    key,
                    StoredVectors(
                        np.array([row[0] for row in rows], np.int64),
                        np.array([numbers[row[3]] for row in rows], np.int64),
                        ends[:-1],
                        codes.reshape(len(scales), len(codes) // max(1, len(scales))),
                        scales,
                    ),
                )
            return self._vectors[1]

    def without_vectors(self, name: str) -> list[int]:
        """Return the ids of the chunks without a vector of this encoder, in order."""
        return self.column(
            "SELECT id FROM chunks WHERE id NOT IN (SELECT chunk FROM vectors WHERE name = ?)"
            " ORDER BY id",
            name,
        )


def _index(db: sqlite3.Connection, archive: Archive, id_: str, key: str) -> None:
    """Replace the chunks of a document."""
    (document,) = archive.documents([id_])
    whose = key.rpartition(" ")[2]
    db.execute("DELETE FROM chunks WHERE document = ?", (id_,))
    date = document.date  # found as "2019-04-28" and as "April 2019"
    day = f"{date.date().isoformat()} {months()[date.month - 1]}" if date else ""
    for chunk in chunks_of(document, is_left_out=whose == "other"):
        sql = "INSERT INTO chunks(document, heading, text, whose) VALUES (?, ?, ?, ?)"
        rowid = db.execute(sql, (id_, *chunk)).lastrowid
        parts = (apart(visible(document.title)), apart(chunk.heading), day, apart(chunk.text))
        sql = "INSERT INTO chunk_search(rowid, title, heading, date, text) VALUES (?, ?, ?, ?, ?)"
        db.execute(sql, (rowid, *parts))
    state = (id_, key, whose, folded(document.title))
    db.execute("INSERT OR REPLACE INTO indexed VALUES (?, ?, ?, ?)", state)


def folded(title: str) -> str:
    """Return a title without case, accents and punctuation, unless nothing else is in it."""
    plain = unicodedata.normalize("NFKD", visible(title).casefold())
    bare = "".join(c for c in plain if not unicodedata.combining(c))
    words = re.findall(r"[^\W_]+", bare)
    return " ".join(words) if words else "".join(title.casefold().split())


def _nothing_read(archive: Path) -> OwnwordsError:
    return CorpusError(
        f"{archive.parent} has no archive",
        hint="read your posts first: ownwords look PATH, or ownwords make PATH",
    )
