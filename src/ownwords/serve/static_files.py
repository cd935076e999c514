"""The page: every file of it, read once when the server starts.

What is asked for is looked up in a table of these, so no path from a request ever comes near the
file system.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

_FOLDER = Path(__file__).parent / "pages"
_KINDS: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
FRONT = "/"
_INDEX = "index.html"


@dataclass(frozen=True)
class StaticFile:
    """One file, as it is sent."""

    data: bytes
    kind: str
    key: str  # of its contents, by which a browser knows whether it has it

    def answer(
        self,
        request: Request,
        status: int = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """The file, or that the browser has it already."""
        both = {"ETag": f'"{self.key}"', "Cache-Control": "no-cache", **(headers or {})}
        has = request.headers.get("if-none-match", "")
        if status == HTTPStatus.OK and f'"{self.key}"' in has:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=both)
        return Response(self.data, status, both, media_type=self.kind)


def read(folder: Path = _FOLDER) -> dict[str, StaticFile]:
    """All files of the page by their names."""
    found = {}
    for path in sorted(folder.iterdir()):
        if kind := _KINDS.get(path.suffix):
            data = path.read_bytes()
            found[path.name] = StaticFile(data, kind, hashlib.sha256(data).hexdigest()[:32])
    return found


def routes(files: Mapping[str, StaticFile]) -> list[BaseRoute]:
    """A route for each file, and the page itself at `/`."""
    by_path = {f"/{name}": file for name, file in files.items() if name != _INDEX}
    return [_route(path, file) for path, file in ({FRONT: files[_INDEX]} | by_path).items()]


def _route(path: str, file: StaticFile) -> Route:
    async def shown(request: Request) -> Response:
        return file.answer(request)

    return Route(path, shown, methods=["GET"])
