"""The jobs of the page, and its stream of events."""

import importlib.util
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.base import catalogue, estimates
from ownwords.base.catalogue import find_known, is_model_name
from ownwords.core.packages import install_command
from ownwords.make.stages import SCRATCH
from ownwords.serve.api.models import tuning_task
from ownwords.serve.app_state import KEEP_ALIVE_S, AppState
from ownwords.serve.errors import as_conflict, conflict, forbidden
from ownwords.serve.jobs import POLL_S, Job, JobRequest, WorkspaceState
from ownwords.serve.json_api import ApiCall, json_route
from ownwords.serve.sse import EventSender, EventStreamResponse

_NEEDS_TORCH = {
    "make": "training needs PyTorch, which is not installed",
    "score": "scoring needs PyTorch, which is not installed",
    "export": "exporting needs PyTorch, which is not installed",
}


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /api/jobs, and the streams of events."""
    one = "/api/jobs/{id}"

    async def changes(_: Request) -> Response:
        """Stream all `jobs`, then the changes: `job`, `removed` and `changed`."""
        return EventStreamResponse(partial(send_changes, state))

    return [
        json_route(state, "POST", "/api/jobs", start, status=HTTPStatus.CREATED),
        json_route(state, "DELETE", one, lambda state, call: state.jobs.remove(call.path["id"])),
        json_route(
            state, "POST", one + "/stop", lambda state, call: state.jobs.stop(call.path["id"])
        ),
        json_route(state, "POST", one + "/resume", resume),
        Route("/api/events", changes),
    ]


def start(state: AppState, call: ApiCall) -> Job:
    """Start a job."""
    request = call.body(JobRequest)
    if request.kind in _NEEDS_TORCH and importlib.util.find_spec("torch") is None:
        raise conflict(
            _NEEDS_TORCH[request.kind],
            hint=f"{install_command('train')}, then start ownwords serve again",
        )
    if not state.settings.is_private:
        _refuse_if_shared(request)
    if request.kind == "make" and request.base and request.minutes:
        task = replace(tuning_task(state), seconds=60 * request.minutes)
        estimates.check_fits(request.base, task, estimates.base_options())
    with as_conflict():
        return state.jobs.start(request)


def _refuse_if_shared(request: JobRequest) -> None:
    """Raise ApiError for what would let users of other machines reach into this one."""
    if request.kind == "fetch":  # its address may be of this machine, or of its network
        raise forbidden(
            "posts can be fetched only if no other machine can reach the server",
            hint="drop a file with the posts here",
        )
    if _names_path(request):
        raise forbidden(
            "paths can be chosen only if no other machine can reach the server",
            hint="give the name of a base; `ownwords base add PATH` on that machine makes one",
        )


def _names_path(request: JobRequest) -> bool:
    """Whether the request names a base by its path on this machine."""
    if request.kind == "base":
        source = request.source
        is_name = bool(find_known(source)) or is_model_name(source)
        return not is_name or Path(source).exists()
    names = {"", SCRATCH, catalogue.SHIPPED, *(entry.name for entry in catalogue.entries())}
    return request.kind == "make" and request.base not in names


def resume(state: AppState, call: ApiCall) -> Job:
    """Continue a stopped job from its saved state."""
    with as_conflict():
        check = None if state.settings.is_private else _refuse_if_shared
        return state.jobs.resume(call.path["id"], check)


# --- what changes --------------------------------------------------------------------------------


async def send_changes(state: AppState, events: EventSender) -> None:
    """Send the jobs, then what changes, until the server shuts down."""
    now = await state.run(state.jobs.state)
    await events.send({"jobs": now.jobs}, "jobs")
    while await state.sleep(POLL_S):
        before, now = now, await state.run(state.jobs.state)
        await _send_difference(before, now, events)
        await events.keep_alive(silent_s=KEEP_ALIVE_S)


async def _send_difference(
    before: WorkspaceState, now: WorkspaceState, events: EventSender
) -> None:
    """Send the jobs that changed, and which parts of the workspace did."""
    known = {job.id: job for job in before.jobs}
    for id_ in known.keys() - {job.id for job in now.jobs}:
        await events.send({"id": id_}, "removed")
    for job in now.jobs:
        if known.get(job.id) != job:
            await events.send(job, "job")
    if changed := [name for name, at in now.stamps.items() if at != before.stamps[name]]:
        await events.send({"what": changed}, "changed")
