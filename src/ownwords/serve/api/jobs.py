"""The jobs of the page, and the one stream of events that tells every page what has changed."""

import asyncio
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.base import catalogue
from ownwords.base.known_bases import find_known
from ownwords.core.hub import is_model_name
from ownwords.make.make_request import SCRATCH
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, TooManyRequestsError, as_conflict
from ownwords.serve.job_requests import (
    BaseRequest,
    JobRequest,
    MakeRequest,
    TuneRequest,
    parse_request,
)
from ownwords.serve.jobs import Job, OtherJob, OtherJobs
from ownwords.serve.json_api import ApiCall, NoBody, json_route
from ownwords.serve.sse import EventSender, EventStreamResponse

_POLL_S = 0.5


@dataclass(frozen=True)
class Change:
    """An event for the pages: its name and its value."""

    event: str
    value: object


class ChangeReader:
    """One page's changes that it has not read yet: the latest of each kind only."""

    def __init__(self) -> None:
        self._pending: dict[str, Change] = {}
        self._what: set[str] = set()
        self._is_new = asyncio.Event()

    def add(self, key: str, change: Change) -> None:
        """Add a change; it replaces an older one of the same key."""
        self._pending[key] = change
        self._is_new.set()

    def add_parts(self, what: set[str]) -> None:
        """Add parts of the workspace that have changed."""
        self._what |= what
        self.add("changed", Change("changed", {"what": sorted(self._what)}))

    async def changes(self) -> list[Change]:
        """Wait for changes, and return them all."""
        await self._is_new.wait()
        self._is_new.clear()
        changes, self._pending, self._what = list(self._pending.values()), {}, set()
        return changes


class Watcher:
    """Polls while there are readers, however many there are."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._other_jobs = OtherJobs(state.workspace)
        self._readers: set[ChangeReader] = set()
        self._task: asyncio.Task[None] | None = None
        self._jobs: dict[str, bytes] = {}
        self._elsewhere: list[OtherJob] | None = None
        self._stamps: Mapping[str, object] = {}

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    @contextmanager
    def reading(self) -> Iterator[ChangeReader]:
        """A reader for the duration of the block."""
        reader = ChangeReader()
        self._readers.add(reader)
        if self._task is None or self._task.done():
            self._jobs, self._elsewhere, self._stamps = {}, None, {}
            self._task = asyncio.create_task(self._poll())
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    async def jobs(self) -> dict[str, object]:
        """The jobs as they are now, and those of other blogs that run, as plain JSON."""
        jobs, elsewhere, _ = await self._state.run(self._look)
        return {"jobs": msgspec.to_builtins(jobs), "elsewhere": msgspec.to_builtins(elsewhere)}

    async def _poll(self) -> None:
        is_first = True
        while self._readers:
            with suppress(TooManyRequestsError):  # try again at the next poll
                jobs, elsewhere, stamps = await self._state.run(self._look)
                self._compare(jobs, stamps, is_first=is_first)
                if elsewhere != self._elsewhere:
                    self._elsewhere = elsewhere
                    value = {"jobs": msgspec.to_builtins(elsewhere)}
                    self._tell("elsewhere", Change("elsewhere", value))
                is_first = False
            if not await self._state.sleep(_POLL_S):
                for reader in self._readers:
                    reader.add("end", Change("end", {}))
                return

    def _look(self) -> tuple[list[Job], list[OtherJob], Mapping[str, object]]:
        stamps = {name: stamp() for name, stamp in watched_files(self._state).items()}
        return self._state.jobs.jobs(), self._other_jobs.running(), stamps

    def _compare(self, jobs: list[Job], stamps: Mapping[str, object], *, is_first: bool) -> None:
        encoded = {job.id: msgspec.json.encode(job) for job in jobs}
        for id_, data in encoded.items():
            if self._jobs.get(id_) != data:
                self._tell(f"job {id_}", Change("job", msgspec.json.decode(data)))
        for id_ in self._jobs.keys() - encoded.keys():
            self._tell(f"job {id_}", Change("removed", {"id": id_}))
        changed = {name for name, stamp in stamps.items() if self._stamps.get(name) != stamp}
        if changed and not is_first:
            for reader in self._readers:
                reader.add_parts(changed)
        self._jobs, self._stamps = encoded, stamps

    def _tell(self, key: str, change: Change) -> None:
        for reader in self._readers:
            reader.add(key, change)


def watched_files(state: AppState) -> Mapping[str, Callable[[], object]]:
    """For each part of the workspace, a function whose result differs when the part has changed."""
    root = state.workspace.root
    return {
        "blog": lambda: (_stamp(state.workspace.archive), _stamp(state.workspace.choices)),
        "sources": lambda: _stamp(root / "sources.json"),
        "models": lambda: _stamp(root / "models"),
        "exports": lambda: _stamp(root / "exports"),
        "texts": lambda: _stamp(root / "texts"),
        "bases": lambda: _stamp(catalogue.bases_folder()),
        "model": lambda: (_stamp(root / "model"), _stamp(root / "scorecard.json")),
    }


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


_KEEP_ALIVE_S = 15.0
_MAX_READERS = 32
_TRAINS = ("make", "score", "export", "tune")


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/jobs, and /api/events."""
    api = _Jobs(state)
    one = "/api/jobs/{id}"
    return [
        json_route(state, "GET", "/api/jobs", api.list),
        json_route(state, "POST", "/api/jobs", api.start, parse=_parse, status=HTTPStatus.CREATED),
        json_route(state, "GET", one, api.show),
        json_route(state, "DELETE", one, api.remove),
        json_route(state, "POST", one + "/stop", api.stop),
        json_route(state, "POST", one + "/resume", api.resume),
        Route("/api/events", api.events),
    ]


def _parse(fields: Mapping[str, Any]) -> JobRequest:
    return parse_request(fields.get("kind"), fields)


class _Jobs:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._watcher = Watcher(state)

    def list(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """List the jobs of this workspace, the newest first."""
        return {"jobs": self._state.jobs.jobs()}

    def start(self, call: ApiCall[JobRequest]) -> Job:
        """Start a job."""
        if call.body.kind in _TRAINS:
            _check_can_train()
        if isinstance(call.body, BaseRequest) and call.body.with_package:
            self._check_own_machine()
        if not self._state.settings.is_private:
            _refuse_path(call.body)
        with as_conflict():
            return self._state.jobs.start(call.body)

    def _check_own_machine(self) -> None:
        """Raise ApiError unless only this user can ask: programs are installed for nobody else."""
        settings = self._state.settings
        if not (settings.is_private and settings.key):
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "packages are installed only where a key is needed and nobody else reaches the"
                " server",
                hint="install it in a terminal: ownwords base add NAME --with-package",
            )

    def show(self, call: ApiCall[NoBody]) -> Job:
        """Show one job."""
        return self._state.jobs.job(call.path["id"])

    def stop(self, call: ApiCall[NoBody]) -> Job:
        """Ask a job to save and end; a second time ends it at once, a third one kills it."""
        return self._state.jobs.stop(call.path["id"])

    def resume(self, call: ApiCall[NoBody]) -> Job:
        """Continue a job that has stopped from what it has saved."""
        with as_conflict():
            return self._state.jobs.resume(call.path["id"])

    def remove(self, call: ApiCall[NoBody]) -> None:
        """Forget a job that has ended, and its log."""
        self._state.jobs.remove(call.path["id"])

    async def events(self, _: Request) -> Response:
        """Stream what changes: `jobs` first, then `job`, `removed`, `elsewhere` and `changed`."""
        if self._watcher.readers >= _MAX_READERS:
            raise TooManyRequestsError(f"{_MAX_READERS} pages are already open", 10)
        return EventStreamResponse(partial(self._send))

    async def _send(self, events: EventSender) -> None:
        with self._watcher.reading() as reader:
            await events.send(await self._watcher.jobs(), "jobs")
            sent_at = time.monotonic()
            while not self._state.is_closing:
                changes: list[Change] = []
                with suppress(TimeoutError):
                    async with asyncio.timeout(_KEEP_ALIVE_S / 2):
                        changes = await reader.changes()
                for change in changes:
                    await events.send(change.value, change.event)
                if changes:
                    sent_at = time.monotonic()
                elif time.monotonic() - sent_at >= _KEEP_ALIVE_S / 2:
                    sent_at = time.monotonic()
                    await events.keep_alive()


def _check_can_train() -> None:
    """Raise ApiError if this installation cannot train."""
    if importlib.util.find_spec("torch") is None:
        raise ApiError(
            HTTPStatus.CONFLICT,
            "training needs PyTorch, which is not installed",
            hint='pip install "ownwords[train]", then start ownwords serve again',
        )


def _refuse_path(request: JobRequest) -> None:
    """Raise ApiError if a base is named by a path on this machine."""
    if isinstance(request, BaseRequest):
        source = request.source
        is_name = bool(find_known(source)) or is_model_name(source)
        is_path = not is_name or Path(source).exists()
    else:
        names = {"", SCRATCH, catalogue.SHIPPED, *(entry.name for entry in catalogue.entries())}
        is_path = isinstance(request, MakeRequest | TuneRequest) and request.base not in names
    if is_path:
        raise ApiError(
            HTTPStatus.FORBIDDEN,
            "paths can be chosen only where the server is not reached from elsewhere",
            hint="give the name of a base; `ownwords base add PATH` on that machine makes one",
        )
