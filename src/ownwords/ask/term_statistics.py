"""Document frequencies of terms in the index."""

import json
import math
import re
import threading
from collections.abc import Iterable

from ownwords.ask.index import SearchIndex
from ownwords.ask.query_terms import QueryTerm

_LEAST = 1e-6  # minimum IDF, for terms in half of the chunks or more
_MOST_FOUND = 1000  # chunks returned by `chunks_with_all`
_MARKED = re.compile("\x01([^\x02]+)\x02")
_MOST_KEPT = 50_000  # counts cached in memory


class TermStatistics:
    """The number of chunks with each term, cached."""

    def __init__(self, index: SearchIndex) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._generation = ""
        self._chunks = 0
        self._counts: dict[str, int] = {}

    def counts(self, terms: Iterable[QueryTerm]) -> dict[QueryTerm, int]:
        """The number of chunks with each term."""
        self._refresh()
        counted: dict[QueryTerm, int] = {}
        for term in terms:
            number = self._counts.get(term.match)
            if number is None:
                with self._index.reading() as db:
                    (number,) = db.execute(
                        "SELECT count(*) FROM chunk_search WHERE chunk_search MATCH ?",
                        (term.match,),
                    ).fetchone()
                with self._lock:
                    if len(self._counts) >= _MOST_KEPT:
                        self._counts.clear()
                    self._counts[term.match] = number
            counted[term] = number
        return counted

    def rarity(self, count: int) -> float:
        """The inverse document frequency (IDF) of a term, as in SQLite's bm25."""
        self._refresh()
        return max(_LEAST, math.log((self._chunks - count + 0.5) / (count + 0.5)))

    def chunks(self) -> int:
        """The number of chunks in the index."""
        self._refresh()
        return self._chunks

    def chunks_with(self, term: QueryTerm, ids: Iterable[int]) -> set[int]:
        """The subset of these chunks that contain a term."""
        with self._index.reading() as db:
            rows = db.execute(
                "SELECT rowid FROM chunk_search WHERE chunk_search MATCH ?"
                " AND rowid IN (SELECT value FROM json_each(?))",
                (term.match, json.dumps(list(ids))),
            )
            return {row[0] for row in rows}

    def chunks_with_all(self, terms: Iterable[QueryTerm]) -> list[int]:
        """The chunks that contain all of the terms, at most `_MOST_FOUND`."""
        with self._index.reading() as db:
            rows = db.execute(
                "SELECT rowid FROM chunk_search WHERE chunk_search MATCH ? LIMIT ?",
                (_all(terms), _MOST_FOUND),
            )
            return [row[0] for row in rows]

    def documents_titled_with(self, terms: Iterable[QueryTerm], most: int) -> list[str]:
        """The documents whose title contains all of the terms, at most so many."""
        with self._index.reading() as db:
            rows = db.execute(
                "SELECT DISTINCT c.document FROM chunk_search f JOIN chunks c ON c.id = f.rowid"
                " WHERE chunk_search MATCH ? LIMIT ?",
                (f"title : ({_all(terms)})", most),
            )
            return [row[0] for row in rows]

    def spellings_of(self, terms: Iterable[QueryTerm]) -> tuple[str, ...]:
        """The spelling of each term that occurs, in lower case, as found in a post."""
        spellings: dict[str, None] = {}
        with self._index.reading() as db:
            for term in terms:
                row = db.execute(
                    "SELECT highlight(chunk_search, 0, char(1), char(2)) || char(10) ||"
                    " highlight(chunk_search, 3, char(1), char(2)) FROM chunk_search"
                    " WHERE chunk_search MATCH ? LIMIT 1",
                    (term.match,),
                ).fetchone()
                if row and (marked := _MARKED.search(row[0])):
                    spellings[marked[1].lower()] = None
        return tuple(spellings)

    def _refresh(self) -> None:
        now = self._index.generation()
        with self._lock:
            if now != self._generation:
                self._generation, self._chunks = now, self._index.size()
                self._counts = {}


def _all(terms: Iterable[QueryTerm]) -> str:
    return " AND ".join(term.match for term in terms)
