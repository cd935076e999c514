"""The vectors of passages by the name and dimension of their embedder, in the archive's file.

A passage has a vector for each window of it (`windows`). They are stored as bytes with one scale
each: a fourth of the space, and cosines that differ by less than 0.005.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ownwords.ask.index_schema import meta
from ownwords.native.bindings import load_library

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


def put(db: sqlite3.Connection, name: str, entries: Iterable[tuple[int, Floats]]) -> None:
    """Store the vectors of each passage, one a row, if it still exists."""
    for id_, rows in entries:
        codes, scales = quantized(rows)
        db.execute(
            "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ? FROM chunks WHERE id = ?",
            (name, codes.tobytes(), scales.astype("<f4").tobytes(), int(id_)),
        )


def load(db: sqlite3.Connection, name: str, dimensions: int) -> StoredVectors:
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
