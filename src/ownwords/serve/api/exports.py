"""Exported models: what can be made, what there is, and downloading it."""

from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from ownwords.base import catalogue
from ownwords.core.workspace import path_text
from ownwords.models import atomic_dir
from ownwords.serve.api_route import ApiCall, ApiRoute, NoBody, json_route
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError
from ownwords.serve.jobs.requests import EXPORTS, ExportForm

# Bits of a weight in each type of GGUF: blocks of 32 share a scale of 16 bits.
MODELFILE = "Modelfile"  # as in models.ollama, which imports torch
_BITS = {"f32": 32.0, "f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
_LABELS = {
    "f32": "32 bits, as large as in training",
    "f16": "16 bits, no loss that you can see",
    "q8_0": "8 bits",
    "q4_0": "4 bits, the smallest, writes a little worse",
}


@dataclass(frozen=True)
class ExportOption:
    """A form and type that a model can be exported in; `bytes` is about its size."""

    to: ExportForm
    type: str
    label: str
    bytes: int
    is_default: bool


@dataclass(frozen=True)
class ExportRow:
    """An exported model: where it lies, and the commands that use it."""

    name: str
    to: ExportForm
    path: str
    bytes: int
    made_at: float
    commands: tuple[str, ...]
    can_download: bool


@dataclass(frozen=True)
class ExportOverview:
    """What can be exported, and what has been."""

    options: tuple[ExportOption, ...]
    exports: tuple[ExportRow, ...]


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes under /api/exports."""
    api = _Exports(state)
    one = "/api/exports/{name}"
    return [
        json_route(state, "GET", "/api/exports", api.show, result=ExportOverview),
        ApiRoute(
            "GET",
            one,
            api.download,
            media_type="application/octet-stream",
        ),
        json_route(state, "DELETE", one, api.delete),
    ]


class _Exports:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._folder = state.workspace.root / EXPORTS

    def show(self, _: ApiCall[NoBody]) -> ExportOverview:
        """List what can be exported, and what has been."""
        rows = [_row(path) for path in self._paths()]
        rows.sort(key=lambda row: -row.made_at)
        return ExportOverview(tuple(self._options()), tuple(rows))

    async def download(self, request: Request) -> Response:
        """Download an export that is one file."""
        path = await self._state.run(lambda: self._find(request.path_params["name"]))
        if not path.is_file():
            raise ApiError(
                HTTPStatus.CONFLICT,
                f"{path.name} is a folder",
                hint=f"it lies in {path_text(path)}; export a zip to download it",
            )
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    def delete(self, call: ApiCall[NoBody]) -> None:
        """Delete an export."""
        path = self._find(call.path["name"])
        if path.is_dir():
            atomic_dir.delete_dir(path)
        else:
            path.unlink()

    def _paths(self) -> list[Path]:
        try:
            return [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        except OSError:
            return []

    def _find(self, name: str) -> Path:
        path = next((path for path in self._paths() if path.name == name), None)
        if path is None:
            raise ApiError(HTTPStatus.NOT_FOUND, f"there is no export called {name[:80]!r}")
        return path

    def _options(self) -> list[ExportOption]:
        if not self._state.own_model:
            return []
        _, folder = self._state.model_to_export()
        folder = atomic_dir.readable_dir(folder)
        whole = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        parameters = catalogue.entry(folder.name, folder, "added").parameters
        options = [
            ExportOption(
                "gguf", type_, f"GGUF, {label}", round(parameters * bits / 8), type_ == "q8_0"
            )
            for type_, label in _LABELS.items()
            if (bits := _BITS[type_])
        ]
        ollama = round(parameters * _BITS["q8_0"] / 8)
        return [
            *options,
            ExportOption("ollama", "q8_0", "For Ollama", ollama, is_default=True),
            ExportOption("zip", "", "The model's folder as a zip", whole, is_default=True),
            ExportOption("hf", "", "The model's folder, for transformers", whole, is_default=False),
        ]


def _row(path: Path) -> ExportRow:
    shown, name = path_text(path.absolute()), path.name
    form: ExportForm = "hf"
    commands: tuple[str, ...] = ()
    if name.endswith(".gguf"):
        form, commands = "gguf", (f'llama-cli -m "{shown}"',)
    elif name.endswith(".zip"):
        form = "zip"
    elif (path / MODELFILE).exists():
        model = name.removesuffix("-ollama").lower()
        form = "ollama"
        commands = (f'ollama create {model} -f "{shown}/{MODELFILE}"', f"ollama run {model}")
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.is_file()]
    return ExportRow(
        name=name,
        to=form,
        path=shown,
        bytes=sum(each.stat().st_size for each in files),
        made_at=path.stat().st_mtime,
        commands=commands,
        can_download=path.is_file(),
    )
