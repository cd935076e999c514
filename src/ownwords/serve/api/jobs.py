"""The jobs of the page, and the one stream of events that tells every page what has changed."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ownwords.serve.api.train import check_can_train
from ownwords.serve.api_route import EVENT_STREAM, ApiCall, ApiRoute, NoBody, json_route
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, TooManyRequestsError, as_conflict
from ownwords.serve.jobs.job import Job
from ownwords.serve.jobs.requests import REQUESTS, BaseRequest, JobRequest, parse_request
from ownwords.serve.sse import EventSender, EventStreamResponse
from ownwords.serve.watcher import Change, Watcher

_KEEP_ALIVE_S = 15.0
_MAX_READERS = 32
_TRAINS = ("make", "score", "export", "tune")


@dataclass(frozen=True)
class JobList:
    """The newest jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class LogLine:
    """A note of a job with its time, or a line that it printed."""

    time: float | None
    text: str


@dataclass(frozen=True)
class JobLog:
    """The end of a job's log."""

    lines: tuple[LogLine, ...]


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/jobs, and /api/events."""
    api = _Jobs(state)
    one = "/api/jobs/{id}"
    shapes = tuple(REQUESTS.values())
    return [
        json_route(state, "GET", "/api/jobs", api.list, result=JobList),
        json_route(
            state,
            "POST",
            "/api/jobs",
            api.start,
            parse=_parse,
            shape=shapes,
            result=Job,
            status=HTTPStatus.CREATED,
        ),
        json_route(state, "GET", one, api.show, result=Job),
        json_route(state, "DELETE", one, api.remove),
        json_route(state, "POST", one + "/stop", api.stop, result=Job),
        json_route(state, "POST", one + "/resume", api.resume, result=Job),
        json_route(state, "GET", one + "/log", api.log, result=JobLog),
        ApiRoute(
            "GET",
            "/api/events",
            api.events,
            media_type=EVENT_STREAM,
        ),
    ]


def _parse(fields: Mapping[str, Any]) -> JobRequest:
    return parse_request(fields.get("kind"), fields)


class _Jobs:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._watcher = Watcher(state)

    def list(self, _: ApiCall[NoBody]) -> JobList:
        """List the jobs of this workspace, the newest first."""
        return JobList(tuple(self._state.jobs.jobs()))

    def start(self, call: ApiCall[JobRequest]) -> Job:
        """Start a job."""
        if call.body.kind in _TRAINS:
            check_can_train()
        if isinstance(call.body, BaseRequest) and call.body.with_package:
            self._check_own_machine()
        with as_conflict():
            return self._state.jobs.start(call.body)

    def _check_own_machine(self) -> None:
        """Raise ApiError unless only this user can ask: programs are installed for nobody else."""
        settings = self._state.settings
        if not (settings.is_loopback and settings.key):
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

    def log(self, call: ApiCall[NoBody]) -> JobLog:
        """Show the end of a job's log."""
        lines = self._state.jobs.lines(call.path["id"])
        return JobLog(tuple(LogLine(time, text) for time, text in lines[-500:]))

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
