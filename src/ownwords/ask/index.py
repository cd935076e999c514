"""The search index of an archive: its chunks, their words and vectors, in the archive's file."""

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import cast

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.store import (
    Archive,
    DamagedArchiveError,
    checksum,
    is_current,
    translate_sqlite_errors,
)
from ownwords.ask import vector_store
from ownwords.ask.chunks import Chunk, apart, chunks_of, count_words, visible
from ownwords.ask.index_schema import (
    are_current,
    generation,
    is_up_to_date,
    mark_up_to_date,
    new_generation,
    recreate_tables,
    state_of,
)
from ownwords.ask.passage import RetrievedPassage, Whose
from ownwords.ask.vector_store import Floats, StoredVectors
from ownwords.core.errors import CorpusError, OwnwordsError, WorkspaceError
from ownwords.core.progress import Progress

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
                    " sought_title, sought_heading, sought_date, sought_text, checksum)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            for row in rows:
                if checksum([row[1:-1]]) != row[-1]:
                    raise DamagedArchiveError(self.path, "its search index was changed")
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
                with _damage_as_sqlite_errors(post.document):
                    _ = post.day and date.fromisoformat(post.day)
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
            vector_store.put(db, name, entries)

    def keep_vectors(self, name: str) -> int:
        """Delete the vectors of all but this name and the one used before; returns how many."""
        with self._writing() as db:
            return vector_store.keep(db, name)

    def vectors(self, name: str, dimensions: int) -> StoredVectors:
        """The vectors of this embedder, cached in memory until the index changes."""
        key = name, dimensions
        with self._lock, self.reading() as db:
            now = generation(db)
            cached = self._vectors.get(key)
            if cached is None or cached[0] != now:
                self._vectors[key] = cached = (now, vector_store.load(db, *key))
        return cached[1]

    def without_vectors(self, name: str, dimensions: int) -> list[int]:
        """The ids of the chunks that have no vector of this embedder yet, in order."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT id FROM chunks WHERE id NOT IN"  # noqa: S608
                f" (SELECT chunk FROM vectors WHERE {vector_store.IS_VECTOR}) ORDER BY id",
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


@contextmanager
def _damage_as_sqlite_errors(document_id: str) -> Iterator[None]:
    """Turn errors about invalid stored values into SQLite's error for a damaged file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise sqlite3.DatabaseError(f"the post {document_id}: {error}") from error


def _searchable_date(date: datetime | None) -> str:
    """A date as searchable words, for "2019-04-28" and "April 2019"."""
    if date is None:
        return ""
    return f"{date.date().isoformat()} {MONTHS[date.month - 1]}"


def _row(chunk: Chunk, title: str, day: str) -> tuple[object, ...]:
    heading, text = apart(chunk.heading), apart(chunk.text)
    row = (
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
    return (*row, checksum([row]))


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
