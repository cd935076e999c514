"""The saved texts and conversations of the Write and Ask pages, one JSON file each."""

import json
import re
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta, decode
from ownwords.core.workspace import Workspace, translate_os_errors, write_atomically
from ownwords.drafts.mark_choices import MarksFile
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import not_found
from ownwords.serve.json_api import ApiCall, json_route

_ID = re.compile(r"[0-9a-f]{16}")
_TITLE_WORDS, _TITLE_CHARACTERS = 9, 80
_ROWS = 30  # of a list; others can be searched
_PATH = "/api/texts"
_CHANGING: Final = threading.Lock()  # held from reading a text to writing it


@dataclass(frozen=True)
class SavedText:
    """A text with its notes or draft, or a conversation, and the model that wrote it.

    A message of a conversation is a question or, as it was shown, the answer of /api/ask; `role`
    says which, and `text` is what was asked or answered.
    `machine` are the ranges of the text that a model wrote, in UTF-16 units as in JavaScript;
    `drafted` is the last draft from the notes, with its lines so far, which the page can continue.
    """

    kind: Literal["text", "conversation"] = "text"
    title: Annotated[str, Meta(max_length=200)] = ""
    model: Annotated[str, Meta(max_length=300)] = ""
    text: Annotated[str, Meta(max_length=2_000_000)] = ""
    notes: Annotated[str, Meta(max_length=2_000_000)] = ""
    messages: tuple[dict[str, Any], ...] = ()
    machine: tuple[tuple[int, int], ...] = ()
    drafted: dict[str, Any] | None = None
    id: str = ""
    changed: float = 0.0

    @property
    def content(self) -> str:
        """All of its text, to be counted and searched."""
        parts = (self.text, self.notes, *(str(each.get("text", "")) for each in self.messages))
        return "\n\n".join(parts).strip()


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes under /api/texts."""

    async def download(request: Request) -> Response:
        """Download one saved text, or all of them, as Markdown."""
        id_ = request.path_params.get("id")

        def read() -> tuple[str, list[SavedText]]:
            if id_ is None:
                return "texts.md", find(state.workspace)
            text = get(state.workspace, id_)
            return (re.sub(r"[^\w]+", "-", text.title).strip("-")[:60] or "text") + ".md", [text]

        name, texts = await state.run(read)
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return Response(markdown(texts), headers=headers, media_type="text/markdown")

    return [
        json_route(state, "GET", _PATH, list_texts),
        json_route(state, "POST", _PATH, create, status=HTTPStatus.CREATED),
        Route(f"{_PATH}/markdown", download, methods=["GET"]),
        json_route(state, "GET", _PATH + "/{id}", show),
        json_route(state, "PUT", _PATH + "/{id}", change),
        json_route(state, "DELETE", _PATH + "/{id}", delete),
        Route(_PATH + "/{id}/markdown", download, methods=["GET"]),
    ]


def list_texts(state: AppState, call: ApiCall) -> dict[str, Any]:
    """List the saved texts and conversations, or find those that hold some words."""
    found = find(state.workspace, call.query.get("q", "")[:500], call.query.get("kind", ""))
    rows = [
        {
            "id": text.id,
            "title": text.title,
            "changed": text.changed,
            "words": len(text.content.split()),
        }
        for text in found[:_ROWS]
    ]
    return {"total": len(found), "rows": rows}


def create(state: AppState, call: ApiCall) -> SavedText:
    """Save a text or a conversation; the default title is its first words."""
    text = call.body(SavedText)
    return _write(state.workspace, replace(text, id=secrets.token_hex(8), changed=time.time()))


def show(state: AppState, call: ApiCall) -> SavedText:
    """Show one saved text."""
    return get(state.workspace, call.path["id"])


def change(state: AppState, call: ApiCall) -> SavedText:
    """Change the given fields of a saved text."""
    names = call.fields.keys() - {"id", "kind", "changed"}
    values = {name: value for name, value in vars(call.body(SavedText)).items() if name in names}
    with _CHANGING:
        text = get(state.workspace, call.path["id"])
        if text.title == _title(text):  # the user has not changed it
            values.setdefault("title", "")
        saved = _write(state.workspace, replace(text, **values, changed=time.time()))
    _count_changes(state.marks_file, saved)
    return saved


def _count_changes(marks: MarksFile, text: SavedText) -> None:
    """Count which words of a draft the user has replaced by hand."""
    lines = (text.drafted or {}).get("lines", ())
    drafted = [str(each.get("text", "")) for each in lines if each.get("kept")]
    with suppress(OwnwordsError):  # what is counted must not keep a text from being saved
        if marks().changed_words(text.id, drafted, text.text) != marks():
            marks.change(lambda choices: choices.changed_words(text.id, drafted, text.text))


def delete(state: AppState, call: ApiCall) -> None:
    """Delete a saved text."""
    with _CHANGING, translate_os_errors(state.workspace.root):
        _path(state.workspace, get(state.workspace, call.path["id"]).id).unlink()


# --- the files -----------------------------------------------------------------------------------


def get(workspace: Workspace, id_: str) -> SavedText:
    """Return the text with this id. Raises ApiError if there is none."""
    text = _read(_path(workspace, id_)) if _ID.fullmatch(id_) else None
    if text is None:
        raise not_found("this text no longer exists")
    return text


def find(workspace: Workspace, query: str = "", kind: str = "") -> list[SavedText]:
    """Return the texts that hold every word of the query, the last changed first."""
    words = query.casefold().split()
    texts = filter(None, map(_read, workspace.root.glob("texts/*.json")))
    found = [
        text
        for text in texts
        if kind in ("", text.kind)
        and all(word in f"{text.title}\n{text.content}".casefold() for word in words)
    ]
    return sorted(found, key=lambda text: text.changed, reverse=True)


def _write(workspace: Workspace, text: SavedText) -> SavedText:
    text = replace(text, title=text.title.strip() or _title(text))
    if not workspace.root.is_dir() or not any(workspace.root.iterdir()):
        workspace.create()
    path = _path(workspace, text.id)
    with translate_os_errors(path.parent):
        path.parent.mkdir(exist_ok=True)
    write_atomically(path, json.dumps(asdict(text), ensure_ascii=False) + "\n")
    return text


def _title(text: SavedText) -> str:
    """Return the first words of the first line, which are often a title."""
    line = text.content.partition("\n")[0]
    return " ".join(line.split()[:_TITLE_WORDS])[:_TITLE_CHARACTERS] or "Untitled"


def _read(path: Path) -> SavedText | None:
    try:
        text = decode(SavedText, json.loads(path.read_bytes()), unknown="ignore")
    except (OSError, ValueError, OwnwordsError):  # deleted, or damaged
        return None
    return replace(text, id=path.stem)  # a copied file holds the id of the first one


def _path(workspace: Workspace, id_: str) -> Path:
    return workspace.root / "texts" / f"{id_}.json"


# --- Markdown ------------------------------------------------------------------------------------


def markdown(texts: Sequence[SavedText]) -> str:
    """Return the texts as one Markdown document."""
    return "\n".join(f"# {text.title}\n\n{_body(text)}\n" for text in texts)


def _body(text: SavedText) -> str:
    if text.kind == "text":
        return (text.text or text.notes).strip()
    parts = []
    for message in text.messages:
        said = message.get("text") or message.get("why") or f"{message.get('sentence', '')}:"
        parts.append(f"## {said}" if message.get("role") == "user" else str(said))
        for number, item in enumerate(message.get("citations") or message.get("passages") or (), 1):
            about = ", ".join(str(item[key]) for key in ("title", "date") if item.get(key))
            quoted = " ".join(str(item.get("quote") or item.get("excerpt", "")).split())
            parts.append(f"> {quoted}\n>\n> [{number}] {about}")
    return "\n\n".join(part for part in parts if part)
