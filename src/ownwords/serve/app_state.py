"""What is being served: one workspace and its models, opened when first asked for."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from ownwords.archive.store import Archive
from ownwords.ask.embedders import Embedder
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace
from ownwords.inference.generation import GenerationRequest
from ownwords.inference.text_generation import TextGenerator, TextOutcome
from ownwords.models import atomic_dir
from ownwords.models.directory import CONFIG, PROVENANCE
from ownwords.models.fingerprint import Stamp, model_stamp
from ownwords.models.untrusted_files import read_json
from ownwords.serve.archive_pool import ArchivePool
from ownwords.serve.errors import ApiError
from ownwords.serve.fair_lock import FairLock
from ownwords.serve.loaded_model import LoadedModel, load, room_for
from ownwords.serve.metrics import Metrics
from ownwords.serve.model_worker import ModelWorker
from ownwords.serve.settings import ServeSettings
from ownwords.serve.text_stream import TextStream
from ownwords.serve.thread_pool import ThreadPool

T = TypeVar("T")

FROM_NOTHING = "from-nothing"
_LONG_THREADS, _LONG_WAITING = 4, 16
_FRESH_S = 1.0  # for so long nobody asks the disk again whether a model was replaced
_TUNED_FROM = re.compile(r"tuned from (.+?)(?: through a LoRA)?")  # see training.recipes


class AppState:
    """One workspace, opened once and shared by all routes; nothing of it holds up the event loop.

    `models` are further ones by name. What touches the disk goes through `run`.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: ServeSettings | None = None,
        *,
        sources: Sequence[Path] = (),
        models: Mapping[str, Path] | None = None,
    ) -> None:
        self.workspace = workspace
        self.settings = settings or ServeSettings()
        self.sources = tuple(sources)
        self.metrics = Metrics()
        self.ending = asyncio.Event()
        self._given = dict(models or {})
        self._opened: dict[str, LoadedModel] = {}  # the one used last is the last
        self._checked: dict[str, float] = {}
        self._loading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._turns = FairLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._short = ThreadPool("archive", self.settings.workers, self.settings.tasks)
        self._long = ThreadPool("answers", _LONG_THREADS, _LONG_WAITING)
        self._archive_pool = ArchivePool(workspace.archive, self.settings.embed)
        self._embedder: Embedder | None = None  # once it was asked for

    # --- work that would hold up the event loop ------------------------------------------------

    async def run(self, work: Callable[[], T]) -> T:
        """What the work comes to, on a thread where it may wait for the disk; Busy for too many."""
        return await self._short.run(work)

    async def run_long(self, work: Callable[[], T]) -> T:
        """The same for what may take minutes, such as an answer; it keeps nobody else waiting."""
        self._loop = asyncio.get_running_loop()
        return await self._long.run(work)

    async def pause(self, seconds: float) -> bool:
        """Wait that long, but not beyond the end of the server; whether it goes on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), seconds)
        return not self.ending.is_set()

    # --- models ------------------------------------------------------------------------------

    @property
    def own(self) -> str:
        """The name of the workspace's own model; empty while there is none."""
        return self._own_name if _holds_model(self._own_folder) else ""

    def models(self) -> dict[str, Path]:
        """The models there are now, by name; the first is the one that is meant by default."""
        found: dict[str, Path] = {}
        if self.own:
            found[self.own] = self._own_folder
        found |= self._given
        for name, folder in (self._base(), (FROM_NOTHING, self._from_nothing)):
            if name not in found and _holds_model(folder):
                found[name] = folder
        return found

    async def opened(self, name: str = "") -> LoadedModel:
        """A model, loaded when first asked for and whenever another has taken its place.

        Refused where there is none of that name; OwnwordsError where it cannot be loaded.
        """
        now = asyncio.get_running_loop().time()
        known = self._opened.get(name)
        if known is not None and now - self._checked[name] < _FRESH_S:
            return self._used(known)
        name, folder, stamp = await self.run(lambda: self._find(name))
        known = self._opened.get(name)
        if known is None or known.stamp != stamp:
            async with self._loading:
                known = self._opened.get(name)
                if known is None or known.stamp != stamp:
                    known = await self._open(name, folder)
        self._checked[name] = now
        return self._used(known)

    def queue_lengths(self) -> Iterator[tuple[str, int, int]]:
        """Of each loaded model: its name, texts that wait, texts being written."""
        for each in self._opened.values():
            yield each.name, each.worker.waiting, each.worker.writing

    def text(
        self, opened: LoadedModel, request: GenerationRequest, stops: Sequence[str] = ()
    ) -> TextGenerator:
        """What a model writes, piece by piece; for work on `run_long`, which cannot await it."""
        assert self._loop is not None
        ends: list[TextOutcome] = []
        stream, loop = _texts(opened, request, stops, ends.append), self._loop

        async def following() -> str | None:
            return await anext(stream, None)

        async def ended() -> None:
            await stream.aclose()

        try:
            while (
                piece := asyncio.run_coroutine_threadsafe(following(), loop).result()
            ) is not None:
                yield piece
        finally:
            asyncio.run_coroutine_threadsafe(ended(), loop).result()
        return ends[0]

    def _used(self, opened: LoadedModel) -> LoadedModel:
        self._opened[opened.name] = self._opened.pop(opened.name, opened)
        return opened

    def _find(self, name: str) -> tuple[str, Path, Stamp]:
        models = self.models()
        if not models:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                "there is no model yet",
                hint="make one with `ownwords make PATH`, or on the page under Train",
            )
        name = name or next(iter(models))
        if name not in models:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                f"there is no model called {name[:80]!r}",
                hint="there is " + ", ".join(models),
            )
        return name, models[name], model_stamp(models[name])

    async def _open(self, name: str, folder: Path) -> LoadedModel:
        said, model, stamp = await self._long.run(lambda: load(folder, self.settings))
        rows, length = room_for(said.config, self.settings)
        worker = ModelWorker(
            model.engine,
            name=name,
            rows=rows,
            length=length,
            queue=self.settings.queue,
            ahead=self.settings.ahead,
            metrics=self.metrics,
            turns=self._turns,
        )
        if replaced := self._opened.pop(name, None):
            self._retire(replaced)
        self._opened[name] = opened = LoadedModel(name, folder, said, model, worker, stamp)
        idle = [
            each for each in self._opened.values() if each.worker.is_idle and each is not opened
        ]
        for each in idle[: max(0, len(self._opened) - self.settings.loaded)]:
            self._retire(self._opened.pop(each.name))
        return opened

    def _retire(self, opened: LoadedModel) -> None:
        task = asyncio.create_task(opened.close_when_idle())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    @property
    def _own_name(self) -> str:
        return self.workspace.root.name.removesuffix(SUFFIX) or "own"

    @property
    def _own_folder(self) -> Path:
        return self.workspace.root / "model"

    @property
    def _from_nothing(self) -> Path:
        return self.workspace.runs / FROM_NOTHING / "model"

    def _base(self) -> tuple[str, Path]:
        """What the workspace's model was tuned from, if it has a name; else the one in the box."""
        with suppress(OwnwordsError):
            said = str(
                read_json(atomic_dir.readable_dir(self._own_folder) / PROVENANCE).get("base")
            )
            tuned = _TUNED_FROM.fullmatch(said)
            for each in catalogue.entries() if tuned else ():
                if tuned and each.name == tuned[1] and not each.problem:
                    return each.name, each.folder
        with suppress(OwnwordsError):
            return catalogue.SHIPPED, catalogue.shipped()
        return "", Path()

    # --- the archive, for work on `run` ------------------------------------------------------

    def archive(self) -> Archive:
        """The archive, by a connection of the thread that asks; Refused while there is none."""
        return self._archive_pool.archive()

    def index(self) -> SearchIndex:
        """The passages of the archive, as they were last indexed; Refused while there is none."""
        return self._archive_pool.index()

    def searcher(self) -> ArchiveSearcher:
        """What finds passages; the index is brought up to date before. Refused as `index`."""
        return self._archive_pool.searcher()

    async def embedder(self) -> Embedder | None:
        """What makes vectors of meaning, None where the settings name none."""
        if not self.settings.embed:
            return None  # nobody waits behind long answers to hear that
        if self._embedder is None:
            self._embedder = await self.run_long(self._archive_pool.embedder)
        return self._embedder

    async def close(self) -> None:
        """End all streams and threads; the house is of no use afterwards."""
        self.ending.set()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*(each.worker.close() for each in self._opened.values()))
        self._opened.clear()
        self._short.close()
        self._long.close()
        self._archive_pool.close()


def _holds_model(folder: Path) -> bool:
    return (atomic_dir.readable_dir(folder) / CONFIG).exists()


async def _texts(
    opened: LoadedModel,
    request: GenerationRequest,
    stops: Sequence[str],
    ended: Callable[[TextOutcome], None],
) -> AsyncGenerator[str, None]:
    async with opened.worker.write(request) as written:
        pieces = TextStream(written, opened.model.tokenizer, stops)
        async for piece in pieces:
            if piece.text:
                yield piece.text
        ended(TextOutcome(pieces.tokens, pieces.finished or "error"))
