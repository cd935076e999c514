"""The scorecard of the current model, drawn for the page."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute

from ownwords.core.workspace import path_text
from ownwords.evaluation import scorecard_files
from ownwords.evaluation.scorecard_view import scorecard_view
from ownwords.serve.api_route import ApiRoute
from ownwords.serve.app_state import AppState
from ownwords.view import html


def routes(state: AppState) -> list[BaseRoute]:
    """The route of the scorecard."""
    folder = state.workspace.root

    async def score(_: Request) -> JSONResponse:
        """Show the scorecard of the current model."""
        return JSONResponse(await state.run(lambda: _read(folder, bool(state.own_model))))

    return [ApiRoute("GET", "/api/score", score)]


def _read(folder: Path, has_model: bool) -> dict[str, Any]:
    card = scorecard_files.read(folder)
    if card is None:
        # Written by another version of ownwords, or damaged: scoring again fixes both.
        is_there = (folder / scorecard_files.DATA).exists()
        return {"html": "", "has_model": has_model, "unreadable": is_there}
    # The card holds the path at which it was measured, which a copied workspace has not.
    here = replace(card.about, model=path_text((folder / "model").absolute()))
    drawn = html.fragment(scorecard_view(replace(card, about=here)))
    return {"html": drawn, "has_model": has_model, "unreadable": False}
