"""The jobs of the page, and the one stream of events that tells every page what has changed."""

import importlib.util
from collections.abc import Mapping
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
from ownwords.serve.errors import ApiError, as_conflict
from ownwords.serve.job_requests import BaseRequest, JobRequest, MakeRequest, parse_request
from ownwords.serve.jobs import Job, OtherJob, OtherJobs
from ownwords.serve.json_api import ApiCall, NoBody, json_route
from ownwords.serve.sse import EventSender, EventStreamResponse

_POLL_S = 0.5
_TRAINS = ("make", "score", "export")


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/jobs, and /api/events."""
    api = JobsApi(state)
    one = "/api/jobs/{id}"
    return [
        json_route(state, "POST", "/api/jobs", api.start, parse=_parse, status=HTTPStatus.CREATED),
        json_route(state, "DELETE", one, api.remove),
        json_route(state, "POST", one + "/stop", api.stop),
        json_route(state, "POST", one + "/resume", api.resume),
        Route("/api/events", api.events),
    ]


def _parse(fields: Mapping[str, Any]) -> JobRequest:
    return parse_request(fields.get("kind"), fields)


class JobsApi:
    """Starts and stops jobs, and tells what changes."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def start(self, call: ApiCall[JobRequest]) -> Job:
        """Start a job."""
        if call.body.kind in _TRAINS and importlib.util.find_spec("torch") is None:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "training needs PyTorch, which is not installed",
                hint='pip install "ownwords[train]", then start ownwords serve again',
            )
        settings = self._state.settings
        installs = isinstance(call.body, BaseRequest) and call.body.with_package
        if installs and not (settings.is_private and settings.key):
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "packages are installed only where a key is needed and nobody else reaches the"
                " server",
                hint="install it in a terminal: ownwords base add NAME --with-package",
            )
        if not settings.is_private and _names_path(call.body):
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                "paths can be chosen only where the server is not reached from elsewhere",
                hint="give the name of a base; `ownwords base add PATH` on that machine makes one",
            )
        with as_conflict():
            return self._state.jobs.start(call.body)

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

    async def events(self, _: Request | None = None) -> Response:
        """Stream what changes: `jobs` first, then `job`, `removed`, `elsewhere` and `changed`."""
        return EventStreamResponse(self._send)

    async def _send(self, events: EventSender) -> None:
        others = OtherJobs(self._state.workspace)

        def look() -> tuple[list[Job], list[OtherJob], dict[str, object]]:
            return self._state.jobs.jobs(), others.running(), _stamps(self._state)

        jobs: dict[str, Job] | None = None
        elsewhere: list[OtherJob] = []
        stamps: dict[str, object] = {}
        async for listed, elsewhere_now, stamps_now in self._state.poll(look, _POLL_S, events):
            now = {job.id: job for job in listed}
            if jobs is None:
                value = {"jobs": listed, "elsewhere": elsewhere_now}
                await events.send(msgspec.to_builtins(value), "jobs")
            else:
                for id_ in jobs.keys() - now.keys():
                    await events.send({"id": id_}, "removed")
                for job in listed:
                    if jobs.get(job.id) != job:
                        await events.send(msgspec.to_builtins(job), "job")
                if elsewhere != elsewhere_now:
                    await events.send({"jobs": msgspec.to_builtins(elsewhere_now)}, "elsewhere")
                if changed := [name for name in stamps_now if stamps[name] != stamps_now[name]]:
                    await events.send({"what": changed}, "changed")
            jobs, elsewhere, stamps = now, elsewhere_now, stamps_now


def _stamps(state: AppState) -> dict[str, object]:
    """For each part of the workspace, what differs once it has changed."""
    root = state.workspace.root
    parts = {
        "blog": (state.workspace.archive, state.workspace.choices),
        "sources": (root / "sources.json",),
        "models": (root / "models",),
        "exports": (root / "exports",),
        "texts": (root / "texts",),
        "bases": (catalogue.bases_folder(),),
        "model": (root / "model", root / "scorecard.json"),
    }
    return {name: [_stamp(path) for path in paths] for name, paths in parts.items()}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _names_path(request: JobRequest) -> bool:
    """Whether a base is named by a path on this machine."""
    if isinstance(request, BaseRequest):
        source = request.source
        is_name = bool(find_known(source)) or is_model_name(source)
        return not is_name or Path(source).exists()
    names = {"", SCRATCH, catalogue.SHIPPED, *(entry.name for entry in catalogue.entries())}
    return isinstance(request, MakeRequest) and request.base not in names
