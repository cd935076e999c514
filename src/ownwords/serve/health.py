"""Whether it works, for machines that look after it: /healthz, and /metrics for Prometheus."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.core.version import __version__
from ownwords.serve import metrics
from ownwords.serve.app_state import AppState

HEALTH = "/healthz"


def routes(state: AppState) -> Sequence[BaseRoute]:
    """Both; the first needs no key, and says nothing but that the server answers."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def figures(_: Request) -> Response:
        page = state.metrics.page(state.queue_lengths())
        return Response(page, headers={"Content-Type": metrics.CONTENT_TYPE})

    return [
        Route(HEALTH, health, methods=["GET"]),
        Route("/metrics", figures, methods=["GET"]),
    ]
