"""The Settings page: this machine, how other programs connect, and stopping the server."""

import asyncio
import json
import platform
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
from ownwords.native import bindings
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.json_api import ApiCall, NoBody, json_route

_STOP_AFTER_S: Final = 0.1  # so that the answer is sent first
_PROMPT, _MAX_TOKENS = "The trouble with backups", 100


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/machine, and /api/connect."""
    api = _MachineApi(state)
    return [
        json_route(state, "GET", "/api/machine", api.show),
        json_route(state, "GET", "/api/connect", api.connect),
        Route("/api/machine/stop", api.stop, methods=["POST"]),
    ]


class _MachineApi:
    def __init__(self, state: AppState) -> None:
        self._state = state

    def show(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """Show the machine, the free memory and disk, and the versions; 0 and "" are unknown."""
        cpu, memory, root = hardware.read_cpu(), hardware.read_memory(), self._state.workspace.root
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
            "can_stop": self._state.stop_server is not None,
        }

    def connect(self, _: ApiCall[NoBody]) -> dict[str, str]:
        """Show how another program uses the model: an address, a key, and lines to copy."""
        settings, model = self._state.settings, next(iter(self._state.models()), "")
        address = f"{settings.address}v1"
        body = json.dumps({"model": model, "prompt": _PROMPT, "max_tokens": _MAX_TOKENS})
        header = f' -H "Authorization: Bearer {settings.key}"' if settings.key else ""
        body = body.replace("'", "'\\''")  # within the quotation marks of a shell
        header += ' -H "Content-Type: application/json"'
        curl = f"curl {address}/completions{header} -d '{body}'"
        python = (
            "from openai import OpenAI\n\n"
            f"client = OpenAI(base_url={address!r}, api_key={settings.key or 'none'!r})\n"
            f"answer = client.completions.create(model={model!r}, prompt={_PROMPT!r},"
            f" max_tokens={_MAX_TOKENS})\n"
            "print(answer.choices[0].text)"
        )
        return {
            "address": address,
            "key": settings.key,
            "model": model,
            "curl": curl,
            "python": python,
        }

    async def stop(self, _: Request) -> Response:
        """Stop the server; jobs go on without it."""
        if self._state.stop_server is None:
            raise ApiError(HTTPStatus.CONFLICT, "this server cannot be stopped from the page")
        asyncio.get_running_loop().call_later(_STOP_AFTER_S, self._state.stop_server)
        return Response(status_code=HTTPStatus.NO_CONTENT)


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:  # removed meanwhile
            continue
    return total
