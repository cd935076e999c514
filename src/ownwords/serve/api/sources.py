"""Your blog: the sources of a workspace, and files that are dropped on the page."""

import contextlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import IO, Annotated, Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive.report import SourceVersion
from ownwords.archive.settings import ArchiveConfig
from ownwords.archive.sources import detect_source, readable_kinds
from ownwords.archive.untrusted_files import require_room
from ownwords.core.errors import SourceError
from ownwords.core.validation import Meta, decode, encode
from ownwords.core.workspace import translate_os_errors
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import forbidden, invalid
from ownwords.serve.jobs import PYTHON, clean_environment
from ownwords.serve.json_api import ApiCall, json_response, json_route, read_body
from ownwords.serve.source_list import FoundSite, Source, find_publii_sites

UPLOADS: Final = "/api/uploads"
_BLOCK_BYTES = 4 << 20
_INSPECTION_MINUTES = 5


@dataclass(frozen=True)
class PathRequest:
    """A path that the user has typed or chosen."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]


@dataclass(frozen=True)
class DecideRequest:
    """Whether a new version of a source replaces it."""

    replaces: bool


def routes(state: AppState) -> list[BaseRoute]:
    """The routes under /api/sources, and /api/uploads."""
    return [
        json_route(state, "GET", "/api/sources", list_sources),
        Route("/api/sources", partial(_add, state), methods=["POST"]),
        json_route(state, "POST", "/api/sources/{id}/decide", decide),
        json_route(state, "DELETE", "/api/sources/{id}", remove),
        Route(UPLOADS, partial(_upload, state), methods=["POST"]),
    ]


def list_sources(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the sources, Publii sites in the usual folders, and the kinds that can be read."""
    known = state.sources.sources()
    paths = {Path(source.path) for source in known}
    found: list[FoundSite] = []
    if state.settings.is_private:
        with contextlib.suppress(RuntimeError):  # a user without a home folder
            found = [site for site in find_publii_sites() if Path(site.path) not in paths]
    return {"sources": known, "found": found, "kinds": readable_kinds()}


async def _add(state: AppState, request: Request) -> Response:
    asked = await read_body(state, request, PathRequest)
    source = await state.run_long(lambda: add(state, asked.path))  # which reads all of its posts
    return json_response(source, HTTPStatus.CREATED)


def add(state: AppState, text: str) -> Source:
    """Add a path that the user has typed; only where nobody else reaches the server."""
    if not state.settings.is_private:
        raise forbidden(
            "paths can be chosen only where the server is not reached from elsewhere",
            hint="drop the file here, or start the server with the path",
        )
    path = Path(text)
    with contextlib.suppress(RuntimeError):  # "~nobody": no such user
        path = path.expanduser()
    if not path.is_absolute() or "\0" in text:
        raise invalid(
            f"{text!r:.200} is not a whole path",
            hint="give it from the root, or beginning with ~",
            param="path",
        )
    label = detect_source(path).label
    return state.sources.add(path, "path", label, version=state.sources.find_version(path))


def decide(state: AppState, call: ApiCall) -> None:
    """Read a new version of a source, in its place or beside it."""
    state.sources.decide(call.path["id"], replaces=call.body(DecideRequest).replaces)


def remove(state: AppState, call: ApiCall) -> None:
    """Remove a source; a file that was dropped or fetched is deleted, your own never is."""
    state.sources.remove(call.path["id"])


async def _upload(state: AppState, request: Request) -> Response:
    """Take in a file with posts as it arrives, and look at what it holds."""
    name = Path(request.query_params.get("name", "")).name[:200]
    length = int(request.headers.get("content-length", "0"))  # checked by the middleware
    path = await state.run(lambda: _new_file(state, name, length))
    try:
        await _store(state, request, path)
        found = await state.run_upload(
            lambda: _inspect(path, state.workspace.archive, state.sources.config)
        )
        stored, label = Path(found["path"]), str(found["label"])
        versions = decode(tuple[SourceVersion, ...], found["versions"])
        version = await state.run(lambda: state.sources.find_version(stored, versions))
        source = await state.run(lambda: state.sources.add(stored, "upload", label, name, version))
    except BaseException:
        shutil.rmtree(path.parents[1], ignore_errors=True)
        raise
    return json_response(source, HTTPStatus.CREATED)


async def _store(state: AppState, request: Request, path: Path) -> None:
    """Write the file in blocks, outside of the event loop."""
    waiting = bytearray()
    with translate_os_errors(path), path.open("xb") as file:
        try:
            async for part in request.stream():
                waiting += part
                if len(waiting) >= _BLOCK_BYTES:
                    await state.run(partial(_write, file, path.parent, bytes(waiting)))
                    waiting.clear()
        except ClientDisconnect as error:
            raise SourceError("the upload was broken off") from error
        await state.run(partial(_write, file, path.parent, bytes(waiting)))
        if not file.tell():
            raise SourceError("the file is empty")


def _write(file: IO[bytes], folder: Path, data: bytes) -> None:
    require_room(folder, len(data))  # a request need not say how long it is
    file.write(data)


def _inspect(path: Path, archive: Path, config: ArchiveConfig) -> dict[str, Any]:
    """What a file holds, found out by a process of its own: a hostile one harms nothing else.

    What it unpacks lies beside the file, to be deleted with it.
    """
    beside = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(path.parents[1]))
    try:
        answer = subprocess.run(
            [*PYTHON, "ownwords.serve.intake", str(path), str(archive), json.dumps(encode(config))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=clean_environment(os.environ) | beside,
            timeout=60 * _INSPECTION_MINUTES,
            check=False,
        ).stdout
        found: dict[str, Any] = json.loads(answer)
    except subprocess.TimeoutExpired:
        raise SourceError(
            f"{path.name} takes over {_INSPECTION_MINUTES} minutes to read",
            hint="give a smaller export, or unpack it and give its texts",
        ) from None
    except ValueError:
        raise SourceError(
            f"reading {path.name} ended early, as when the memory is full",
            hint="give a smaller export, or unpack it and give its texts",
        ) from None
    if error := found.get("error"):
        raise SourceError(error["message"], hint=error["hint"])
    return found


def _new_file(state: AppState, name: str, length: int) -> Path:
    """The path of a new upload. Raises SourceError if the disk cannot hold it."""
    folder = state.sources.new_folder(state.own_name)
    if not state.workspace.root.is_dir():
        state.workspace.create()
    require_room(state.workspace.root, length)
    with translate_os_errors(folder):
        folder.mkdir(parents=True)
    return folder / state.sources.new_folder(name or "upload").name
