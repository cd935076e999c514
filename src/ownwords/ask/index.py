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
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.store import (
    Archive,
    DamagedArchiveError,
    is_current,
    translate_sqlite_errors,
)
from ownwords.ask.passages import (
    CHUNKS_VERSION,
    Chunk,
    RetrievedPassage,
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
_OURS = ("vectors", "chunk_search", "chunk_texts", "chunks", "indexed")

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
        number INTEGER NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL, words INTEGER NOT NULL,
        whose TEXT NOT NULL, segments TEXT NOT NULL, sought_title TEXT NOT NULL,
        sought_heading TEXT, sought_date TEXT NOT NULL, sought_text TEXT
    )""",
    "CREATE INDEX chunks_of ON chunks(document, number)",
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


def are_current(db: sqlite3.Connection) -> bool:
    """Whether the tables exist in this version."""
    return meta(db, "ask_version") == _VERSION


def state_of(db: sqlite3.Connection) -> str:
    """The key of the archive's content, written by `look`; empty if `look` did not write it."""
    return meta(db, "state")


def is_up_to_date(db: sqlite3.Connection) -> bool:
    """Whether the tables match the archive's content."""
    state = state_of(db)
    return bool(state) and state == meta(db, "ask_state") and are_current(db)


def mark_up_to_date(db: sqlite3.Connection) -> None:
    """Note that the tables match the archive's content."""
    db.execute("INSERT OR REPLACE INTO meta VALUES ('ask_state', ?)", (state_of(db),))


def recreate_tables(db: sqlite3.Connection) -> None:
    """Replace the tables by empty ones."""
    kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
    for trigger in _TRIGGERS:
        db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for name in _OURS:
        if name in kinds:
            db.execute(f"DROP {kinds[name]} {name}")
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('ask_version', ?)", (_VERSION,))


def generation(db: sqlite3.Connection) -> str:
    """A string that changes whenever the tables change."""
    return meta(db, "ask_generation")


def new_generation(db: sqlite3.Connection) -> None:
    """Change `generation`."""
    db.execute(_ANOTHER_GENERATION)


def meta(db: sqlite3.Connection, key: str) -> str:
    """The value of a key in the archive's meta table; empty if there is none."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else ""


Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Ids = npt.NDArray[np.int64]

# The current embedder and the one before, so that switching back costs nothing.
NAMES_KEPT: Final = 2
_NAMES = "ask_embedders"  # key of the names in `meta`, most recent first
_LARGEST = 127
# Of this name and dimension, and whole.
IS_VECTOR: Final = (
    "name = ? AND length(codes) > 0 AND length(scales) % 4 = 0"
    " AND length(codes) * 4 = length(scales) * ?"
)
_ROWS_AT_ONCE = 2048  # converted to floats while they are in the cache


@dataclass(frozen=True)
class StoredVectors:
    """The vectors of one embedder: a row of codes with its scale for each window of a passage."""

    passages: Ids
    codes: Codes
    scales: Floats

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


def _put_vectors(db: sqlite3.Connection, name: str, entries: Iterable[tuple[int, Floats]]) -> None:
    """Store the vectors of each passage, one a row, if it still exists."""
    for id_, rows in entries:
        codes, scales = quantized(rows)
        db.execute(
            "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ? FROM chunks WHERE id = ?",
            (name, codes.tobytes(), scales.astype("<f4").tobytes(), int(id_)),
        )


def _load_vectors(db: sqlite3.Connection, name: str, dimensions: int) -> StoredVectors:
    """The vectors of this name and dimension."""
    ids: list[int] = []
    codes, scales = bytearray(), bytearray()
    cursor = db.execute(
        f"SELECT chunk, codes, scales FROM vectors WHERE {IS_VECTOR} ORDER BY chunk",  # noqa: S608
        (name, dimensions),
    )
    for id_, some_codes, some_scales in cursor:
        ids += [id_] * (len(some_scales) // 4)
        codes += some_codes
        scales += some_scales
    return StoredVectors(
        np.array(ids, np.int64),
        np.frombuffer(codes, np.int8).reshape(len(ids), dimensions),
        np.frombuffer(scales, "<f4"),
    )


def quantized(rows: Floats) -> tuple[Codes, Floats]:
    """Rows as codes from -127 to 127, and the scale of each."""
    scales = np.abs(rows).max(axis=1, initial=0) / _LARGEST
    codes = np.rint(rows / np.maximum(scales, np.finfo(np.float32).tiny)[:, None])
    return codes.astype(np.int8), scales.astype(np.float32)


def _keep_vectors(db: sqlite3.Connection, name: str) -> int:
    """Delete all vectors but those of this name and the one used before; returns how many."""
    before = json.loads(meta(db, _NAMES) or "[]")
    names = {row[0] for row in db.execute("SELECT DISTINCT name FROM vectors")}
    by_age = dict.fromkeys([name, *before, *sorted(names)])
    names_kept = json.dumps(
        [vector_name for vector_name in by_age if vector_name in names][:NAMES_KEPT]
    )
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_NAMES, names_kept))
    gone = db.execute(
        "DELETE FROM vectors WHERE name NOT IN (SELECT value FROM json_each(?))", (names_kept,)
    )
    return gone.rowcount


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
        self._vectors: dict[tuple[str, int], tuple[str, StoredVectors]] = {}
        if not archive.is_file():
            raise _nothing_read(archive)
        with self.reading() as db:
            names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        if "documents" not in names:
            self.close()
            raise _nothing_read(archive)
        if not is_current(archive):
            self.close()
            raise CorpusError(
                f"{archive} was made by another version of ownwords",
                hint="read your posts once more: ownwords look PATH",
            )

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for db in self._connections:
                db.close()
            self._connections.clear()
            self._vectors.clear()
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
            if is_up_to_date(db) or (
                are_current(db) and not self._changed(db) and not state_of(db)
            ):
                return 0
            db.execute(f"PRAGMA cache_size = -{_CACHE_WHILE_BUILDING_KIB}")
            try:
                with _read_only_explained(self.path), self._writing():
                    if not are_current(db):
                        recreate_tables(db)
                    changed = self._changed(db)  # again: another process may have updated it
                    self._index_documents(db, changed, progress or Progress())
                    mark_up_to_date(db)
            finally:
                db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            return len(changed)

    @staticmethod
    def _changed(db: sqlite3.Connection) -> list[tuple[str, str]]:
        """The documents to index again, each with its decision."""
        rows = db.execute(
            f"{_WANTED} SELECT w.id, w.decision FROM wanted w"  # noqa: S608
            " LEFT JOIN indexed i ON i.document = w.id"
            " WHERE i.key IS NOT w.key || ' ' || w.decision ORDER BY w.id"
        )
        return [(row[0], row[1]) for row in rows]

    def _index_documents(
        self, db: sqlite3.Connection, changed: Sequence[tuple[str, str]], progress: Progress
    ) -> None:
        archive = Archive.over(self.path, db)
        with progress.stage("Preparing the search", len(changed), "posts") as stage:
            for document_id, decision in changed:
                (key,) = db.execute(
                    "SELECT key FROM documents WHERE id = ?", (document_id,)
                ).fetchone()
                (document,) = archive.documents([document_id])
                db.execute("DELETE FROM chunks WHERE document = ?", (document_id,))
                chunks = chunks_of(document, decision)
                title, day = apart(visible(document.title)), _searchable_date(document.date)
                db.executemany(
                    "INSERT INTO chunks(document, number, heading, text, words, whose, segments,"
                    " sought_title, sought_heading, sought_date, sought_text)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (_row(chunk, title, day) for chunk in chunks),
                )
                db.execute(
                    "INSERT OR REPLACE INTO indexed VALUES (?, ?, ?, ?, ?)",
                    (
                        document_id,
                        f"{key} {decision}",
                        "other" if decision == "leave out" else "own",
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

    def generation(self) -> str:
        """A string that changes whenever the index changes, to invalidate caches."""
        with self.reading() as db:
            return generation(db)

    def ids(self) -> list[int]:
        """The ids of all chunks, in order."""
        with self.reading() as db:
            return [row[0] for row in db.execute("SELECT id FROM chunks ORDER BY id")]

    def size(self) -> int:
        """The number of chunks."""
        with self.reading() as db:
            return int(db.execute("SELECT count(*) FROM chunks").fetchone()[0])

    def documents(self) -> set[str]:
        """The ids of all indexed documents."""
        with self.reading() as db:
            return {row[0] for row in db.execute("SELECT document FROM indexed")}

    def documents_titled(self, titles: Iterable[str]) -> list[tuple[str, str]]:
        """(folded title, document) of the documents with one of these titles, oldest first."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT i.folded_title, i.document FROM indexed i"
                " JOIN documents d ON d.id = i.document"
                " WHERE i.folded_title IN (SELECT value FROM json_each(?))"
                " ORDER BY coalesce(d.date, '9999'), d.id",
                (json.dumps(list(titles)),),
            )
            return [(row[0], row[1]) for row in rows]

    def passages(
        self,
        ranking: Sequence[tuple[int, float]],
        found_by: dict[int, tuple[str, ...]] | None = None,
    ) -> list[RetrievedPassage]:
        """The passages with these ids and scores, in order; deleted chunks are left out."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT * FROM chunks WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps([id_ for id_, _ in ranking]),),
            ).fetchall()
            archive = Archive.over(self.path, db)
            headers = {one.id: one for one in archive.headers({row[1] for row in rows})}
            known = {row[0]: (headers[row[1]], row[3], row[4], row[6]) for row in rows}
        by = found_by or {}
        return [
            _passage(id_, known[id_], score, by.get(id_, ()))
            for id_, score in ranking
            if id_ in known
        ]

    def chunks(self, document: str) -> list[int]:
        """The ids of a document's chunks, in order."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT id FROM chunks WHERE document = ? ORDER BY number", (document,)
            )
            return [row[0] for row in rows]

    def posts(self) -> list[IndexedPost]:
        """All posts and pages, oldest first, those without a date last."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT d.id, d.title, coalesce(substr(d.date, 1, 10), ''), d.kind, i.whose,"
                " i.words FROM documents d JOIN indexed i ON i.document = d.id"
                " ORDER BY coalesce(d.date, '9999'), d.id"
            )
            posts = [IndexedPost(*row) for row in rows]
            for post in posts:
                try:
                    _ = post.day and date.fromisoformat(post.day)
                except (ValueError, TypeError) as error:
                    reason = f"the post {post.document}: {error}"
                    raise DamagedArchiveError(self.path, reason) from error
            return posts

    # ---- vectors

    def texts(self, ids: Sequence[int]) -> list[tuple[int, str, str, str]]:
        """(id, title, heading, text) of the chunks; deleted ones are left out."""
        passages = self.passages([(id_, 0.0) for id_ in ids])
        return [(x.id, x.title, x.heading, x.text) for x in passages]

    def put_vectors(self, name: str, entries: Sequence[tuple[int, Floats]]) -> None:
        """Store the vectors of chunks, a row a window; those of deleted chunks are dropped."""
        for id_, rows in entries:
            if rows.ndim != 2 or not len(rows):
                raise ValueError(f"vectors of shape {rows.shape} for chunk {id_}")
        with self._writing() as db:
            _put_vectors(db, name, entries)

    def keep_vectors(self, name: str) -> int:
        """Delete the vectors of all but this name and the one used before; returns how many."""
        with self._writing() as db:
            return _keep_vectors(db, name)

    def vectors(self, name: str, dimensions: int) -> StoredVectors:
        """The vectors of this embedder, cached in memory until the index changes."""
        key = name, dimensions
        with self._lock, self.reading() as db:
            now = generation(db)
            cached = self._vectors.get(key)
            if cached is None or cached[0] != now:
                self._vectors[key] = cached = (now, _load_vectors(db, *key))
        return cached[1]

    def without_vectors(self, name: str, dimensions: int) -> list[int]:
        """The ids of the chunks that have no vector of this embedder yet, in order."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT id FROM chunks WHERE id NOT IN"  # noqa: S608
                f" (SELECT chunk FROM vectors WHERE {IS_VECTOR}) ORDER BY id",
                (name, dimensions),
            )
            return [row[0] for row in rows]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction, which is rolled back if the block raises."""
        with self.reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                new_generation(db)
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


def _row(chunk: Chunk, title: str, day: str) -> tuple[object, ...]:
    heading, text = apart(chunk.heading), apart(chunk.text)
    return (
        chunk.document,
        chunk.number,
        chunk.heading,
        chunk.text,
        chunk.words,
        chunk.whose,
        json.dumps(chunk.segments),
        title,
        heading if heading != chunk.heading else None,
        day,
        text if text != chunk.text else None,
    )


def _passage(
    id_: int, row: tuple[Document, str, str, str], score: float, found_by: tuple[str, ...]
) -> RetrievedPassage:
    document, heading, text, whose = row
    return RetrievedPassage(
        id=id_,
        document=document.id,
        title=visible(document.title),
        date=document.date.date().isoformat() if document.date else None,
        url=document.url.strip() if _LINK.fullmatch(document.url.strip()) else "",
        heading=heading,
        text=text,
        whose=cast(Whose, whose),
        score=score,
        found_by=found_by,
    )
