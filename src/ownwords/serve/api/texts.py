"""The saved texts and conversations of the Write and Ask pages."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ownwords.serve import saved_texts
from ownwords.serve.api_route import ApiCall, ApiRoute, NoBody, json_route
from ownwords.serve.app_state import AppState
from ownwords.serve.json_body import decode_fields
from ownwords.serve.saved_texts import SavedText, SavedTextRow, SavedTexts

_MAX_ROWS, _ROWS = 200, 50
_QUERY = {
    "q": "words that must occur",
    "kind": "text or conversation",
    "first": "the number of rows to skip",
    "most": f"the number of rows, at most {_MAX_ROWS}",
}


@dataclass(frozen=True)
class SavedTextList:
    """A page of the saved texts, the last changed first."""

    total: int
    first: int
    rows: tuple[SavedTextRow, ...]


@dataclass(frozen=True)
class TextChange:
    """The fields of a text that a request gave, and their names."""

    text: SavedText
    fields: Mapping[str, Any]


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/texts."""
    api = _Texts(state)
    one = "/api/texts/{id}"

    def download(path: str, work: Any) -> ApiRoute:  # noqa: ANN401 - a method of _Texts
        async def endpoint(request: Request) -> Response:
            name, text = await state.run(lambda: work(request.path_params.get("id", "")))
            disposition = f"attachment; filename*=UTF-8''{quote(name)}"
            headers = {"Content-Disposition": disposition}
            return Response(text, headers=headers, media_type="text/markdown; charset=utf-8")

        return ApiRoute("GET", path, endpoint, summary=work.__doc__, media_type="text/markdown")

    return [
        json_route(state, "GET", "/api/texts", api.list, query=_QUERY, result=SavedTextList),
        json_route(
            state,
            "POST",
            "/api/texts",
            api.create,
            body=SavedText,
            result=SavedText,
            status=HTTPStatus.CREATED,
        ),
        download("/api/texts/markdown", api.all_markdown),
        json_route(state, "GET", one, api.show, result=SavedText),
        json_route(state, "PUT", one, api.change, parse=_parse, shape=SavedText, result=SavedText),
        json_route(state, "DELETE", one, api.delete),
        download(one + "/markdown", api.markdown),
    ]


def _parse(fields: Mapping[str, Any]) -> TextChange:
    return TextChange(decode_fields(SavedText, dict(fields)), fields)


class _Texts:
    def __init__(self, state: AppState) -> None:
        self._texts = SavedTexts(state.workspace)

    def list(self, call: ApiCall[NoBody]) -> SavedTextList:
        """List the saved texts and conversations, or find those that hold some words."""
        found = self._texts.find(call.query.get("q", "")[:500], call.query.get("kind", ""))
        first = _number(call.query.get("first", ""), 0)
        most = min(_number(call.query.get("most", ""), _ROWS), _MAX_ROWS)
        rows = tuple(map(saved_texts.row, found[first : first + most]))
        return SavedTextList(len(found), first, rows)

    def create(self, call: ApiCall[SavedText]) -> SavedText:
        """Save a text or a conversation; without a title it is named by its first words."""
        return self._texts.create(call.body)

    def show(self, call: ApiCall[NoBody]) -> SavedText:
        """Show one saved text."""
        return self._texts.get(call.path["id"])

    def change(self, call: ApiCall[TextChange]) -> SavedText:
        """Change the given fields of a saved text."""
        return self._texts.change(call.path["id"], call.body.text, call.body.fields)

    def delete(self, call: ApiCall[NoBody]) -> None:
        """Delete a saved text."""
        self._texts.delete(call.path["id"])

    def markdown(self, id_: str) -> tuple[str, str]:
        """Download one saved text as Markdown."""
        text = self._texts.get(id_)
        return saved_texts.file_name(text), saved_texts.markdown([text])

    def all_markdown(self, _: str) -> tuple[str, str]:
        """Download all saved texts as one Markdown file."""
        return "texts.md", saved_texts.markdown(self._texts.find())


def _number(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else default
