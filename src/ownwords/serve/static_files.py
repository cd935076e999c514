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
from starlette.routing import Route

from ownwords.view.html import STYLE

_FOLDER = Path(__file__).parent / "pages"
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
FRONT = "/"


def with_blog(path: str, query: Mapping[str, str]) -> str:
    """Return the path with the query's blog, which every address of the page contains."""
    blog = query.get("blog")
    return f"{path}?blog={quote(blog)}" if blog else path


@dataclass(frozen=True)
class StaticFile:
    """A static file."""

    data: bytes
    media_type: str

    def response(
        self, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return the file as a response."""
        headers = {"Cache-Control": "no-cache", **(headers or {})}
        return Response(self.data, status, headers, media_type=self.media_type)

    def route(self, path: str) -> Route:
        """Return a route to the file."""

        headers = {"ETag": f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'}

        async def respond(request: Request) -> Response:
            if headers["ETag"] in request.headers.get("if-none-match", ""):
                return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
            return self.response(headers=headers)

        return Route(path, respond, methods=["GET"])


def read() -> dict[str, StaticFile]:
    """Read all files of the page, by name, and the style that it shares with the reports."""
    catalogues = sorted((_FOLDER / "languages").glob("*.json"))
    languages = f'data-languages="{" ".join(path.stem for path in catalogues)}"'
    return {
        path.name: StaticFile(
            path.read_bytes().replace(b'data-languages=""', languages.encode(), 1),
            _MEDIA_TYPES[path.suffix],
        )
        for path in (*_FOLDER.iterdir(), *catalogues, STYLE)
        if path.suffix in _MEDIA_TYPES  # no leftovers of file managers or editors
    }
