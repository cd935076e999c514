"""The static files of the web page, read once when the server starts.

Each file has its own route, so no path from a request reaches the file system.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.archive.report.page_template import SHARED_STYLE

_FOLDER = Path(__file__).parent / "pages"
_MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
FRONT = "/"


def with_blog(path: str, query: Mapping[str, str]) -> str:
    """A path with the blog of a query, which the page takes along wherever it goes."""
    blog = query.get("blog")
    return f"{path}?blog={quote(blog)}" if blog else path


@dataclass(frozen=True)
class StaticFile:
    """A static file with its response headers."""

    data: bytes
    media_type: str
    etag: str

    def response(
        self,
        request: Request,
        status: int = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Create the response: the file, or 304 if the browser's copy is current."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache", **(headers or {})}
        if status == HTTPStatus.OK and self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(self.data, status, headers, media_type=self.media_type)


def read(folder: Path = _FOLDER) -> dict[str, StaticFile]:
    """Read all files of the page, by name, and the style that it shares with the reports."""
    files = {}
    for path in (*sorted(folder.iterdir()), SHARED_STYLE):
        if media_type := _MEDIA_TYPES.get(path.suffix):
            data = path.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            files[path.name] = StaticFile(data, media_type, etag)
    return files


def routes(files: Mapping[str, StaticFile]) -> list[BaseRoute]:
    """Create a route for each file."""

    def route(name: str, file: StaticFile) -> Route:
        async def respond(request: Request) -> Response:
            return file.response(request)

        return Route(f"/{name}", respond, methods=["GET"])

    return [route(name, file) for name, file in files.items()]
