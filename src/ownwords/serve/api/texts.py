"""The saved texts and conversations of the Write and Ask pages, one JSON file each."""

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta, decode
from ownwords.core.workspace import Workspace, translate_os_errors, write_atomically
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.json_api import ApiCall, NoBody, decode_fields, json_route

_ID = re.compile(r"[0-9a-f]{16}")
_TITLE_WORDS, _TITLE_CHARACTERS = 9, 80
_UNTITLED = "Untitled"

TextKind = Literal["text", "conversation"]
Fields = dict[str, Any]


@dataclass(frozen=True)
class SavedMessage:
    """One message of a conversation; `citations` as the answer gave them."""

    role: Literal["user", "assistant"]
    text: str = ""
    searched: str = ""  # of a follow-up question: what it was searched with
    model: str = ""
    citations: tuple[Fields, ...] = ()


@dataclass(frozen=True)
class SavedText:
    """A text, or a conversation, with what it was made with."""

    kind: TextKind = "text"
    title: Annotated[str, Meta(max_length=200)] = ""
    model: Annotated[str, Meta(max_length=300)] = ""
    text: Annotated[str, Meta(max_length=2_000_000)] = ""
    messages: tuple[SavedMessage, ...] = ()
    prompt: Annotated[str, Meta(max_length=2_000_000)] = ""
    settings: Fields = field(default_factory=dict)
    id: str = ""
    created: float = 0.0
    changed: float = 0.0

    @property
    def content(self) -> str:
        """All words of it, to be counted and searched."""
        return "\n\n".join([self.text, *(message.text for message in self.messages)]).strip()


class SavedTexts:
    """The saved texts of a workspace. Thread-safe; every file is replaced whole."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._folder = workspace.root / "texts"
        self._mutex = threading.Lock()

    def create(self, text: SavedText) -> SavedText:
        """Save a new text."""
        now = time.time()
        return self._write(replace(text, id=secrets.token_hex(8), created=now, changed=now))

    def change(self, id_: str, text: SavedText, fields: Mapping[str, object]) -> SavedText:
        """Replace the given fields of a text; raises ApiError if there is no such text."""
        names = fields.keys() - {"id", "kind", "created", "changed"}
        values = {name: value for name, value in vars(text).items() if name in names}
        with self._mutex:  # between reading and writing, another page may change or delete it
            return self._write(replace(self.get(id_), **values, changed=time.time()))

    def get(self, id_: str) -> SavedText:
        """The text with this id. Raises ApiError if there is none."""
        if _ID.fullmatch(id_) and (text := _read(self._path(id_))) is not None:
            return text
        raise ApiError(HTTPStatus.NOT_FOUND, "this text is not there any more")

    def delete(self, id_: str) -> None:
        """Delete a text. Raises ApiError if there is none."""
        with self._mutex, translate_os_errors(self._folder):
            self.get(id_)
            self._path(id_).unlink(missing_ok=True)

    def find(self, query: str = "", kind: str = "") -> list[SavedText]:
        """The texts that hold every word of the query, the last changed first."""
        words = query.casefold().split()
        found = [
            text
            for text in self._all()
            if kind in ("", text.kind)
            and all(word in f"{text.title}\n{text.content}".casefold() for word in words)
        ]
        return sorted(found, key=lambda text: text.changed, reverse=True)

    def _all(self) -> Iterator[SavedText]:
        for path in sorted(self._folder.glob("*.json")):
            if (text := _read(path)) is not None:
                yield text

    def _write(self, text: SavedText) -> SavedText:
        text = replace(text, title=text.title.strip() or _title(text.content))
        root = self._workspace.root
        if not root.is_dir() or not any(root.iterdir()):
            self._workspace.create()
        with translate_os_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
        write_atomically(self._path(text.id), json.dumps(asdict(text), ensure_ascii=False) + "\n")
        return text

    def _path(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def row(text: SavedText) -> dict[str, Any]:
    """The text as a row of a list."""
    return {
        "id": text.id,
        "title": text.title,
        "changed": text.changed,
        "words": len(text.content.split()),
    }


def markdown(texts: Sequence[SavedText]) -> str:
    """The texts as one Markdown document."""
    return "\n".join(f"# {text.title}\n\n{_body(text)}\n" for text in texts)


def file_name(text: SavedText) -> str:
    """The name under which a text is downloaded."""
    return (re.sub(r"[^\w]+", "-", text.title).strip("-")[:60] or "text") + ".md"


def _body(text: SavedText) -> str:
    if text.kind == "text":
        return text.text.strip()
    parts = []
    for message in text.messages:
        if message.role == "user":
            parts.append(f"## {message.text}")
            continue
        parts.append(message.text)
        for cited in message.citations:
            about = ", ".join(str(cited[key]) for key in ("title", "date") if cited.get(key))
            quote = " ".join(str(cited.get("quote", "")).split())
            parts.append(f"> {quote}\n>\n> [{cited.get('number', '')}] {about}")
    return "\n\n".join(part for part in parts if part)


def _title(content: str) -> str:
    return " ".join(content.split()[:_TITLE_WORDS])[:_TITLE_CHARACTERS] or _UNTITLED


def _read(path: Path) -> SavedText | None:
    try:
        return decode(SavedText, json.loads(path.read_bytes()), unknown="ignore")
    except (OSError, ValueError, OwnwordsError):
        return None


_ROWS = 30  # of a list; the others are found by their words


@dataclass(frozen=True)
class TextChange:
    """The fields of a text that a request gave, and their names."""

    text: SavedText
    fields: Mapping[str, Any]


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/texts."""
    api = _Texts(state)
    one = "/api/texts/{id}"

    def download(path: str, work: Any) -> Route:  # noqa: ANN401 - a method of _Texts
        async def endpoint(request: Request) -> Response:
            name, text = await state.run(lambda: work(request.path_params.get("id", "")))
            disposition = f"attachment; filename*=UTF-8''{quote(name)}"
            headers = {"Content-Disposition": disposition}
            return Response(text, headers=headers, media_type="text/markdown; charset=utf-8")

        return Route(path, endpoint, methods=["GET"])

    return [
        json_route(state, "GET", "/api/texts", api.list),
        json_route(
            state, "POST", "/api/texts", api.create, body=SavedText, status=HTTPStatus.CREATED
        ),
        download("/api/texts/markdown", api.all_markdown),
        json_route(state, "GET", one, api.show),
        json_route(state, "PUT", one, api.change, parse=_parse),
        json_route(state, "DELETE", one, api.delete),
        download(one + "/markdown", api.markdown),
    ]


def _parse(fields: Mapping[str, Any]) -> TextChange:
    return TextChange(decode_fields(SavedText, dict(fields)), fields)


class _Texts:
    def __init__(self, state: AppState) -> None:
        self._texts = SavedTexts(state.workspace)

    def list(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """List the saved texts and conversations, or find those that hold some words."""
        found = self._texts.find(call.query.get("q", "")[:500], call.query.get("kind", ""))
        return {"total": len(found), "rows": [row(text) for text in found[:_ROWS]]}

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
        return file_name(text), markdown([text])

    def all_markdown(self, _: str) -> tuple[str, str]:
        """Download all saved texts as one Markdown file."""
        return "texts.md", markdown(self._texts.find())
