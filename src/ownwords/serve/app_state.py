"""The state that all routes share: one workspace and its models, opened on first use."""

import asyncio
import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from ownwords.base import catalogue
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace
from ownwords.drafts.mark_choices import MarksFile
from ownwords.models import atomic_dir
from ownwords.models.directory import CONFIG, PROVENANCE, Stamp, base_name, model_stamp
from ownwords.models.model_library import ModelLibrary
from ownwords.models.untrusted_files import read_json
from ownwords.serve.archive_access import ArchivePool, Learned, ReportCache
from ownwords.serve.errors import ApiError
from ownwords.serve.following import Follower
from ownwords.serve.jobs import KINDS, JobKind, JobManager, JobRequest
from ownwords.serve.model_worker import FairLock, LoadedModel, ModelWorker, cache_size, load
from ownwords.serve.settings import ServeSettings
from ownwords.serve.source_list import SourceList
from ownwords.serve.sse import EventSender, ThreadEvents

T = TypeVar("T")

_Task = tuple[Callable[[], Any], Future[Any]]

EXPORTS = "exports"  # the folder of a workspace
_LONG_THREADS = 4
KEEP_ALIVE_S = 10.0  # silence after which a stream sends a comment


class ThreadPool:
    """Daemon threads that run tasks in order.

    Unlike with ThreadPoolExecutor, the interpreter does not wait for the threads at exit.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name} {number}", daemon=True)
            for number in range(1, threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result; once started, it cannot be cancelled."""
        future: Future[T] = Future()
        self._tasks.put((work, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads after their current tasks."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            work, future = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except StopIteration as stop:  # asyncio refuses it, and the caller would hang
                    future.set_exception(RuntimeError(f"an iterator ended too early: {stop!r}"))
                except BaseException as error:
                    future.set_exception(error)
            del task, work, future  # frees the result before waiting for the next task


class AppState:
    """The workspace, its models and thread pools; all disk access must go through `run`.

    `models` are additional models by name; `sources` are the blogs that the workspace is made from.
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
        self.stop_server: Callable[[], None] | None = None  # set by the server that runs
        self.others: list[AppState] = []  # of other workspaces, closed with this one
        self._shutdown = asyncio.Event()
        self._extra_models = dict(models or {})
        self._loaded: dict[str, LoadedModel] = {}  # the most recently used last
        self._loading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self.compute_lock = FairLock()
        self._short = ThreadPool("archive", self.settings.workers)
        self._long = ThreadPool("answers", _LONG_THREADS)
        # Short work, and work of up to minutes, such as an answer or reading an upload.
        self.run, self.run_long = self._short.run, self._long.run
        # The archive and its search and report, for work in `run`.
        self._archive_pool = ArchivePool(workspace.archive, self.settings.embed)
        self.archive, self.searcher = self._archive_pool.archive, self._archive_pool.searcher
        self.vector_counts = self._archive_pool.vector_counts
        self.report, self.learned = ReportCache(self.archive), Learned(self.archive)
        self.marks_file = MarksFile.beside(workspace.archive)
        self.sources = SourceList(workspace, sources, last_report=lambda: self.report().report)
        self.library = ModelLibrary(workspace.root)
        self.jobs = JobManager(workspace, arguments_of=self._arguments, on_done=self._on_job_done)
        self.follower = Follower(self.sources, self.jobs, self.archive, self.report)

    def of_workspace(self, workspace: Workspace) -> "AppState":
        """Return the state of another workspace, served beside this one."""
        state = AppState(workspace, self.settings, models=self._extra_models)
        state.stop_server, state.compute_lock = self.stop_server, self.compute_lock
        return state

    # --- work that would block the event loop ----------------------------------------------------

    async def sleep(self, seconds: float) -> bool:
        """Sleep until the time is over or the server shuts down; return False at shutdown."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._shutdown.wait(), seconds)
        return not self._shutdown.is_set()

    async def send_work(
        self, work: Callable[[ThreadEvents], object], last: str, events: EventSender
    ) -> None:
        """Send what `work` sends from its thread, then its result as the event `last`."""
        sender = ThreadEvents(events)
        task = asyncio.create_task(self.run_long(lambda: work(sender)))
        try:
            while not (await asyncio.wait([task], timeout=KEEP_ALIVE_S))[0]:
                await events.keep_alive()
            await events.send(task.result(), last)
        finally:
            sender.leave()
            task.cancel()

    # --- models ----------------------------------------------------------------------------------

    @property
    def own_model(self) -> str:
        """The name of the workspace's own model; "" if there is none."""
        with self.library.lock:
            return self.own_name if _is_model(self._own_folder) else ""

    def models(self) -> dict[str, Path]:
        """Return the folders of all models by name; the first is the default."""
        with self.library.lock:
            models = {self.own_model: self._own_folder} if self.own_model else {}
            models |= self._extra_models
            kept = [
                (each.name, each.model) for each in self.library.models() if not each.is_current
            ]
            writer = catalogue.note_writer()
            bases = [self._base(), *([(writer.name, writer)] if writer else [])]
            for name, folder in (*kept, *bases):
                if name not in models and _is_model(folder):
                    models[name] = folder
            return models

    async def get_model(self, name: str = "") -> LoadedModel:
        """Return a model by name, loaded on first use and again after it was replaced on disk.

        Raises ApiError if the name is unknown, OwnwordsError if the model cannot be loaded.
        """
        name, folder, stamp = await self.run(lambda: self._find(name))
        loaded = self._loaded.get(name)
        if loaded is None or loaded.stamp != stamp:
            async with self._loading:
                loaded = self._loaded.get(name)
                if loaded is None or loaded.stamp != stamp:
                    loaded = await self._load(name, folder)
        self._loaded[name] = self._loaded.pop(name, loaded)
        return loaded

    def _find(self, name: str) -> tuple[str, Path, Stamp]:
        with self.library.lock:
            models = self.models()
            first = next(iter(models), "")
            name = name or first
            if name not in models and name in {kept.name for kept in self.library.models()}:
                name = first  # the current model, by its name in the library
            if name not in models:
                raise no_such_model(name, models)
            return name, models[name], model_stamp(models[name])

    async def _load(self, name: str, folder: Path) -> LoadedModel:
        contents, model, stamp = await self._long.run(lambda: load(folder, self.settings))
        rows, length = cache_size(contents.config, self.settings)
        worker = ModelWorker(
            model.engine,
            name=name,
            rows=rows,
            length=length,
            queue=self.settings.queue,
            compute_lock=self.compute_lock,
        )
        if replaced := self._loaded.pop(name, None):
            self._retire(replaced)
        self._loaded[name] = loaded = LoadedModel(name, folder, model, worker, stamp)
        idle = [x for x in self._loaded.values() if x.worker.is_idle and x is not loaded]
        for model_to_drop in idle[: max(0, len(self._loaded) - self.settings.loaded)]:
            self._retire(self._loaded.pop(model_to_drop.name))
        return loaded

    def _retire(self, loaded: LoadedModel) -> None:
        task = asyncio.create_task(loaded.close_when_idle())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    @property
    def own_name(self) -> str:
        """The name of the workspace, and of its own model."""
        return self.workspace.root.absolute().name.removesuffix(SUFFIX) or "own"

    def label_of(self, name: str) -> str:
        """Return a model's name on the page; the user may have renamed the workspace's own."""
        if name != self.own_model:
            return name
        return next((model.name for model in self.library.models() if model.is_current), name)

    @property
    def _own_folder(self) -> Path:
        return self.workspace.root / "model"

    def _base(self) -> tuple[str, Path]:
        """Return name and folder of the base of the workspace's model, or of the built-in one."""
        with suppress(OwnwordsError):
            provenance = read_json(atomic_dir.readable_dir(self._own_folder) / PROVENANCE)
            name = base_name(provenance)
            for entry in catalogue.entries() if name else ():
                if entry.name == name and not entry.problem:
                    return entry.name, entry.folder
        with suppress(OwnwordsError):
            return catalogue.SHIPPED, catalogue.shipped()
        return "", Path()

    # --- jobs, for work in `run` ------------------------------------------------------------------

    def _arguments(self, request: JobRequest) -> list[str]:
        """Return the arguments of a job's command. Raises ApiError if something is missing."""
        kind, root, device = request.kind, self.workspace.root, self.settings.device
        options = {name: getattr(request, name) for name in KINDS[kind].options}
        if kind == "fetch":
            return [request.url, request.host, str(self.sources.new_folder(request.host))]
        if kind == "encoder":
            return [request.name]
        if kind == "base":
            options["accept-terms"] = request.source if request.accepted else ""
            return ["base", "add", request.source, *_words(options), "--json"]
        if kind == "export":
            name, folder = self.model_to_export()
            (root / EXPORTS).mkdir(exist_ok=True)
            options["out"] = root / EXPORTS / request.file_name(name)
            return ["export", str(folder), *_words(options), "--json"]
        paths, words = [], _words({"workspace": root, **options})
        if kind in ("look", "make"):
            paths = [str(path) for path in self.sources.paths()]
            words += self.sources.filter.flags()
        if kind != "look" and device != "auto":
            words += ["--device", device]
        return [kind, *paths, *words, "--json"]

    def _on_job_done(self, kind: JobKind, printed: Mapping[str, Any]) -> None:
        """Add the feed that a job has fetched as a source."""
        if kind == "fetch" and (path := Path(str(printed.get("path")))).exists():
            label, name = str(printed.get("label", "")), str(printed.get("name", ""))
            with suppress(OwnwordsError):  # the jobs are listed anyway
                self.sources.add(path, "feed", label, name, self.sources.find_version(path))

    def model_to_export(self) -> tuple[str, Path]:
        """Return the name and folder of the current model."""
        if not self.own_model:
            raise no_such_model("", ())
        return self.label_of(self.own_model), self._own_folder

    async def close(self) -> None:
        """End all streams and threads."""
        self._shutdown.set()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*(loaded.worker.close() for loaded in self._loaded.values()))
        self._loaded.clear()
        self._short.close()
        self._long.close()
        await asyncio.to_thread(self.follower.close)
        await asyncio.to_thread(self._archive_pool.close)
        for other in self.others:
            await other.close()


def _words(options: Mapping[str, object]) -> list[str]:
    given = {name: value for name, value in options.items() if value not in ("", None)}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def _is_model(folder: Path) -> bool:
    return (atomic_dir.readable_dir(folder) / CONFIG).exists()


def no_such_model(name: str, models: Collection[str]) -> ApiError:
    """Create the error for a name that is not among the models, or for a lack of models."""
    message, hint = "there is no model yet", "make one on the page, or with `ownwords make PATH`"
    if models:
        message = f"there is no model called {name[:80]!r}"
        hint = "available models: " + ", ".join(models)
    return ApiError(HTTPStatus.NOT_FOUND, message, hint=hint, param="model", code="model_not_found")
