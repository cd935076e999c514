"""One poller of the workspace's files that tells every open page what has changed."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ownwords.base import catalogue
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import TooManyRequestsError
from ownwords.serve.jobs.elsewhere import OtherJob, OtherJobs
from ownwords.serve.jobs.job import Job

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
