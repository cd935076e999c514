"""The vectors of chunks by the name of their embedder, in the archive's file."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ownwords.ask.index_schema import meta

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

# The current embedder and the one before, so that switching back costs nothing.
NAMES_KEPT: Final = 2
_NAMES = "ask_embedders"  # key of the names in `meta`, most recent first


def put(db: sqlite3.Connection, name: str, ids: Sequence[int] | Ids, rows: Floats) -> None:
    """Store a row for each chunk that still exists."""
    blobs = np.ascontiguousarray(rows, "<f4")
    db.executemany(
        "INSERT OR REPLACE INTO vectors SELECT id, ?, ? FROM chunks WHERE id = ?",
        ((name, row.tobytes(), int(id_)) for id_, row in zip(ids, blobs, strict=True)),
    )


def load(db: sqlite3.Connection, name: str) -> tuple[Ids, Floats]:
    """The ids of the chunks with a vector of this name, and their vectors, one a row."""
    count, size = db.execute(
        "SELECT count(*), coalesce(max(length(vector)), 0) FROM vectors WHERE name = ?", (name,)
    ).fetchone()
    ids = np.zeros(count, np.int64)
    rows = np.zeros((count, size // 4), np.float32)
    cursor = db.execute("SELECT chunk, vector FROM vectors WHERE name = ? ORDER BY chunk", (name,))
    for place, (id_, blob) in enumerate(cursor):
        ids[place] = id_
        rows[place] = np.frombuffer(blob, "<f4")
    return ids, rows


def keep(db: sqlite3.Connection, name: str) -> int:
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
