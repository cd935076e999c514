"""The Settings page: this machine, how other programs connect, and stopping the server."""

import asyncio
import platform
from contextlib import suppress
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core import hardware
from ownwords.core.version import __version__
from ownwords.core.workspace import path_text
from ownwords.models import atomic_dir
from ownwords.native import bindings
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import conflict
from ownwords.serve.json_api import ApiCall, json_route
from ownwords.training.run import CHECKPOINTS

_STOP_AFTER_S: Final = 0.1  # so that the answer is sent first


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /api/machine, and /api/connect."""

    async def stop(_: Request) -> Response:
        """Stop the server; jobs go on without it."""
        if state.stop_server is None:
            raise conflict("this server cannot be stopped from the page")
        asyncio.get_running_loop().call_later(_STOP_AFTER_S, state.stop_server)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return [
        json_route(state, "GET", "/api/machine", show_machine),
        json_route(state, "GET", "/api/connect", show_connection),
        json_route(state, "POST", "/api/machine/free", free_space),
        Route("/api/machine/stop", stop, methods=["POST"]),
    ]


def show_machine(state: AppState, _: ApiCall) -> dict[str, Any]:
    """Show the machine, the free memory and disk, and the versions; 0 and "" are unknown."""
    cpu, memory, root = hardware.read_cpu(), hardware.read_memory(), state.workspace.root
    library = bindings.load_library()
    return {
        "processor": cpu.model or cpu.architecture,
        "cores": cpu.usable_cores,
        "memory_bytes": memory.total_bytes,
        "memory_free_bytes": memory.available_bytes,
        "disk_free_bytes": hardware.disk_capacity(root).available_bytes,
        "instruction_set": library.isa.label if library else "",
        "python": platform.python_version(),
        "torch": _version_of("torch"),
        "version": __version__,
        "workspace": path_text(root.resolve()),
        "workspace_bytes": _size(root),
        "unfinished_bytes": sum(map(_size, _unfinished(state))),
        "can_stop": state.stop_server is not None,
    }


def free_space(state: AppState, _: ApiCall) -> None:
    """Delete the checkpoints of unfinished trainings. Raises ApiError during a training."""
    if holder := state.jobs.find_worker():
        raise conflict(holder, hint="wait until it ends, or stop it")
    for folder in _unfinished(state):
        atomic_dir.delete_dir(folder)


def _unfinished(state: AppState) -> list[Path]:
    """Return the checkpoints of unfinished trainings; `make` deletes those of finished ones."""
    return [*state.workspace.runs.glob(f"*/{CHECKPOINTS}")]


def show_connection(state: AppState, _: ApiCall) -> dict[str, str]:
    """Show how another program uses the model: addresses, key, and the model's name."""
    settings = state.settings
    return {
        "address": f"{settings.address}v1",
        "editors": f"{settings.address}v2",
        "key": settings.key,
        "model": next(iter(state.models()), ""),
    }


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _size(folder: Path) -> int:
    sizes: dict[tuple[int, int], int] = {}  # by inode: files of the current model are linked
    for path in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            stat = path.lstat()
            sizes[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(sizes.values())
