"""The archive on disk, for many threads: opened when first asked for, and anew when replaced."""

import logging
import threading
from http import HTTPStatus
from pathlib import Path

from ownwords.archive import store
from ownwords.archive.store import Archive
from ownwords.ask import embedders
from ownwords.ask.embedders import Embedder
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.core.errors import OwnwordsError
from ownwords.serve.errors import ApiError

_log = logging.getLogger("ownwords.serve")

_HEADER, _USER_VERSION = 64, slice(60, 64)  # of SQLite's file format

_File = tuple[int, int]  # which one it is: another may have taken its place under its name


class ArchivePool:
    """The archive, its index, and what searches it; all of it Refused while there is no archive.

    Any thread may ask, but for the event loop's: each call may wait for the disk.
    """

    def __init__(self, path: Path, embed: str = "") -> None:
        self.path = path
        self._embed = embed
        self._of_thread = threading.local()
        self._opening, self._refreshing, self._embedding = (threading.Lock() for _ in range(3))
        self._index: SearchIndex | None = None
        self._indexed: _File | None = None
        self._searcher: ArchiveSearcher | None = None
        self._state: tuple[int, ...] = ()  # of the archive, when the index was last up to date
        self._stale: list[SearchIndex] = []
        self._embedder: Embedder | None = None
        self._has_embedder = False
        self._maker: threading.Thread | None = None  # of vectors
        self._is_closed = False

    def archive(self) -> Archive:
        """By a connection of the thread that asks, which stays open."""
        file = self._file()
        kept: tuple[_File, Archive] | None = getattr(self._of_thread, "archive", None)
        if kept is None or kept[0] != file:
            if kept is not None:
                kept[1].close()
            kept = self._of_thread.archive = (file, Archive(self.path))
        return kept[1]

    def index(self) -> SearchIndex:
        """The passages, as they were last indexed."""
        file = self._file()
        with self._opening:
            if self._index is None or self._indexed != file:
                if self._index is not None:
                    self._stale.append(self._index)  # a search may still be using it
                self._index, self._indexed = SearchIndex(self.path), file
            return self._index

    def searcher(self) -> ArchiveSearcher:
        """What finds passages in the archive as it is now."""
        index = self.index()
        with self._refreshing:
            if self._searcher is None or self._searcher.index is not index:
                self._searcher, self._state = ArchiveSearcher(index, self.embedder()), ()
            if self._state != self._now():
                index.refresh()
                self._state = self._now()
                self._make_vectors(index)
            return self._searcher

    def embedder(self) -> Embedder | None:
        """What makes vectors, None where none is wanted. OwnwordsError where it cannot be had."""
        with self._embedding:
            if not self._has_embedder:
                self._embedder = embedders.open_embedder(self._embed)
                self._has_embedder = True
            return self._embedder

    def close(self) -> None:
        """Let go of the index; a thread's own connection ends with the thread."""
        with self._opening:
            self._is_closed = True
            for index in [*self._stale, *([self._index] if self._index else [])]:
                index.close()
            self._stale.clear()
            self._index = None

    def _file(self) -> _File:
        try:
            told = self.path.stat()
            with self.path.open("rb") as file:
                version = int.from_bytes(file.read(_HEADER)[_USER_VERSION])
        except FileNotFoundError:
            version = 0
        if not version:  # also of a file that its first `look` is still making
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "no posts have been read yet",
                hint="read them with `ownwords look PATH`, or make a model: ownwords make PATH",
            )
        if version != store.VERSION:
            # Opened, it would be made anew: that is for who reads posts, not for who shows them.
            raise ApiError(
                HTTPStatus.CONFLICT,
                f"{self.path.name} was made by another version of ownwords",
                hint="read your posts once more: ownwords look PATH",
            )
        return told.st_dev, told.st_ino

    def _make_vectors(self, index: SearchIndex) -> None:
        """Make those that are missing, while questions are answered with what there is."""
        embedder = self.embedder()
        if embedder is None or (self._maker is not None and self._maker.is_alive()):
            return

        def make() -> None:
            try:
                embedders.embed_missing(index, embedder)
            except OwnwordsError as error:
                _log.warning("the search goes without some vectors: %s", error)
            except Exception:
                if not self._is_closed:
                    _log.exception("making vectors failed")

        self._maker = threading.Thread(target=make, name="vectors", daemon=True)
        self._maker.start()

    def _now(self) -> tuple[int, ...]:
        told = self.path.stat()
        return told.st_ino, told.st_mtime_ns, told.st_size
