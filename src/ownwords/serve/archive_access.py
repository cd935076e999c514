"""Thread-safe access to a workspace: its posts, search, last report, models and style."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ownwords.archive import store
from ownwords.archive.blog_name import new_name
from ownwords.archive.report import PostSummary, Report
from ownwords.archive.store import Archive
from ownwords.ask import encoder
from ownwords.ask.encoder import Embedder
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.core.errors import CorpusError, OwnwordsError, WorkspaceError
from ownwords.core.workspace import Workspace, has_model, resolve_model
from ownwords.drafts.mark_choices import MarksFile
from ownwords.serve.errors import conflict, not_found

if TYPE_CHECKING:
    from ownwords.drafts.check import AuthorStyle
    from ownwords.drafts.marks import TextMarker
    from ownwords.drafts.rewriting import Habits
    from ownwords.inference.model import Model

T = TypeVar("T")
_log = logging.getLogger("ownwords.serve")

_FileId = tuple[int, int]  # device and inode
_JOIN_S = 2.0  # wait for a batch of vectors at the end; an endpoint may take minutes


class ArchivePool:
    """Opens the archive, its index and its search. Raises ApiError while there is no archive.

    Thread-safe. Do not call it on the event loop: every call may wait for the disk.
    """

    def __init__(self, path: Path, embed: str = "") -> None:
        self.path = path
        self._embed = embed
        self._local = threading.local()
        self._refreshing, self._embedding = threading.Lock(), threading.Lock()
        self._indexes: list[SearchIndex] = []
        self._index_file: _FileId | None = None
        self._searcher: ArchiveSearcher | None = None
        self._indexed_state: tuple[int, ...] = ()
        self._embedder: Embedder | None = None
        self._vectors: threading.Thread | None = None
        self._is_closing = threading.Event()

    def archive(self) -> Archive:
        """Return the archive on the calling thread's connection, which stays open."""
        file = self._check_file()
        cached: tuple[_FileId, Archive] | None = getattr(self._local, "archive", None)
        if cached is None or cached[0] != file:
            if cached is not None:
                self._local.archive = None  # opening the new file may fail
                cached[1].close()
            cached = self._local.archive = (file, Archive(self.path))
        return cached[1]

    def searcher(self) -> ArchiveSearcher:
        """Return the search, after updating the index to the archive's current state."""
        file, embedder = self._check_file(), self.embedder()
        with self._refreshing:
            if not self._indexes or self._index_file != file:
                # The index before stays open: a search may still be using it.
                self._indexes.append(SearchIndex(self.path))
                self._index_file = file
            index, searcher = self._indexes[-1], self._searcher
            if searcher is None or (searcher.index, searcher.embedder) != (index, embedder):
                searcher = self._searcher = ArchiveSearcher(index, embedder)
                self._indexed_state = ()
            if self._indexed_state != self._file_state():
                index.refresh()
                self._indexed_state = self._file_state()
                self._start_vectors(index)
            return searcher

    def embedder(self) -> Embedder | None:
        """Return the embedder if one is installed; OwnwordsError if it cannot be opened."""
        with self._embedding:
            if self._embedder is None:
                self._embedder = encoder.open_embedder(self._embed)
            return self._embedder

    def vector_counts(self) -> tuple[int | None, int]:
        """Count the passages with a vector (None without an embedder), and all passages.

        Starts to compute missing vectors.
        """
        searcher = self.searcher()
        passages = searcher.index.size()
        if searcher.embedder is None:
            return None, passages
        return passages - len(searcher.index.without_vectors(searcher.embedder.name)), passages

    def close(self) -> None:
        """Close the indexes; each thread's connection closes when the thread ends."""
        self._is_closing.set()
        if self._vectors:
            self._vectors.join(_JOIN_S)
        with self._refreshing:
            while self._indexes:
                self._indexes.pop().close()

    def _check_file(self) -> _FileId:
        try:
            stat = self.path.stat()
            version = store.file_version(self.path)
        except FileNotFoundError:
            version = 0
        if not version:  # also 0 while the first `look` is writing the file
            raise not_found(
                "no posts have been read yet",
                hint="read them with `ownwords look PATH`, or make a model: ownwords make PATH",
            )
        if version != store.VERSION:
            # Only `look` rebuilds it.
            raise conflict(
                f"{self.path.name} was made by another version of ownwords",
                hint="read your posts again: ownwords look PATH",
            )
        return stat.st_dev, stat.st_ino

    def _start_vectors(self, index: SearchIndex) -> None:
        """Compute missing vectors in the background; until then, searches work without them."""
        embedder = self.embedder()
        if embedder is None or (self._vectors and self._vectors.is_alive()):
            return

        def compute() -> None:
            try:
                encoder.embed_missing(index, embedder, is_stopped=self._is_closing.is_set)
            except OwnwordsError as error:
                _log.warning("the search goes on without some vectors: %s", error)

        self._vectors = threading.Thread(target=compute, name="vectors", daemon=True)
        self._vectors.start()

    def _file_state(self) -> tuple[int, ...]:
        stat = self.path.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


@dataclass(frozen=True)
class CachedReport:
    """The report of one `look`, with the tags of every post."""

    state: str  # the archive's state: changes with every look that finds changes
    report: Report
    tags: dict[str, tuple[str, ...]]

    @cached_property
    def _posts(self) -> dict[str, PostSummary]:
        return {post.id: post for post in self.report.posts}

    def post(self, id_: str) -> PostSummary | None:
        """Return the report's entry of a post."""
        return self._posts.get(id_)


class ReportCache:
    """The server's one `CachedReport`, rebuilt when the archive changes; thread-safe."""

    def __init__(self, archive: Callable[[], Archive]) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._cached: CachedReport | None = None
        self._derived: dict[str, tuple[str, Any]] = {}

    def __call__(self) -> CachedReport:
        """Return the archive's current report; must be called inside `state.run`."""
        archive = self._archive()
        with self._lock:
            name = new_name(archive.path.parent)
            state = f"{archive.get_meta('state')} {name}".strip()
            if self._cached is None or self._cached.state != state:
                self._cached = _read(archive, state)
                self._cached.report.name = name or self._cached.report.name
            return self._cached

    def derived(self, name: str, derive: Callable[[CachedReport], Any]) -> Any:  # noqa: ANN401 - JSON
        """Return `derive(report)`, computed once per look."""
        cached = self()
        state, value = self._derived.get(name, ("", None))
        if not state or state != cached.state:
            value = derive(cached)
            self._derived[name] = (cached.state, value)
        return value


def _read(archive: Archive, state: str) -> CachedReport:
    stored = archive.get_meta("report")
    try:
        report = Report.from_json(stored)
    except WorkspaceError:  # missing, or written by another version of ownwords
        raise not_found(
            "the archive has no report that this version of ownwords can read",
            hint="read your blog again: ownwords look PATH",
        ) from None
    return CachedReport(state, report, archive.tags())


class Learned:
    """How the author writes, each part learned at its first use after a look; thread-safe."""

    def __init__(self, archive: Callable[[], Archive]) -> None:
        self._archive = archive
        self._lock = threading.RLock()
        self._state = ""  # the archive's
        self._parts: dict[str, Any] = {}

    def _part(self, name: str, learn: Callable[[Archive], T]) -> T:
        archive = self._archive()
        with self._lock:
            if (state := archive.get_meta("state")) != self._state:
                self._state, self._parts = state, {}
            if name not in self._parts:
                self._parts[name] = learn(archive)
            part: T = self._parts[name]
            return part

    def style(self) -> "AuthorStyle":
        """Return the style. Raises CorpusError if there are too few words, or not in English."""
        from ownwords.drafts.check import AuthorStyle  # noqa: PLC0415 - heavy, as the others

        return self._part("style", AuthorStyle.of)

    def habits(self) -> "Habits":
        """Return the author's choices of forms."""
        from ownwords.drafts.rewriting import Habits  # noqa: PLC0415

        return self._part("habits", Habits.of)

    def marker(self) -> "TextMarker":
        """Return what marks texts; without a style, it marks only other forms."""
        from ownwords.drafts.marks import TextMarker  # noqa: PLC0415

        def learn(_: Archive) -> TextMarker:
            style = None
            with suppress(CorpusError):
                style = self.style()
            return TextMarker(style, style.habits if style else self.habits())

        return self._part("marker", learn)


class OpenWorkspace:
    """A workspace for one client: its archive, its models, and how the author writes."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.pool = ArchivePool(workspace.archive)
        self.learned = Learned(self.pool.archive)
        self.marks_file = MarksFile.beside(workspace.archive)
        self.writing = threading.Lock()
        # Each with the state of what it was made from; a newer one replaces it.
        self._models: dict[Path, tuple[object, Model]] = {}

    def model(self, folder: Path) -> "Model":
        """Return the model of a folder; hold `writing`."""
        from ownwords.drafts.drafting import adapter_of  # noqa: PLC0415
        from ownwords.inference.model import Model  # noqa: PLC0415
        from ownwords.models.directory import model_stamp  # noqa: PLC0415

        stamp = model_stamp(folder)
        if folder not in self._models or self._models[folder][0] != stamp:
            self._models[folder] = stamp, Model.load(folder, adapter=adapter_of(folder))
        return self._models[folder][1]

    def own_model(self) -> Path:
        return resolve_model(self.workspace.root, Path.cwd())

    def draft(self, notes: str, seed: int = 1) -> str:
        """Write a text from notes with the own model, or with a base until that has learned to."""
        from ownwords.drafts import drafting  # noqa: PLC0415

        read = drafting.Notes.parse(notes)
        own = self.own_model() if has_model(self.workspace.root) else None
        with self.writing:
            written = drafting.write_lines(self.model(drafting.choose_model(own)), read, seed=seed)
            return str(drafting.Draft(tuple(drafting.with_rules(written, self.marks_file()))))
