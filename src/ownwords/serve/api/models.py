"""The models of a workspace, their scorecards and exports, and the bases they can start from."""

import importlib.util
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.base import catalogue, install
from ownwords.base.expected_bits import ExpectedBits, TuningTask, curve_of
from ownwords.base.known_bases import KNOWN_BASES, KnownBase
from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import duration
from ownwords.core.validation import Meta
from ownwords.core.workspace import path_text
from ownwords.evaluation import scorecard_view as card_view
from ownwords.evaluation.scorecard import DATA, read_scorecard
from ownwords.evaluation.verdict import Tone, limits, tone
from ownwords.make.make_request import MINUTES
from ownwords.make.result import FINISHED, StageCache, TrainingSummary
from ownwords.models import atomic_dir
from ownwords.models.directory import CONFIG, PROVENANCE, base_name
from ownwords.models.model_library import KeptModel
from ownwords.models.untrusted_files import read_json
from ownwords.serve.api.posts import word_counts
from ownwords.serve.app_state import EXPORTS, AppState
from ownwords.serve.errors import ApiError, as_conflict
from ownwords.serve.job_requests import ExportForm
from ownwords.serve.json_api import ApiCall, NoBody, json_route
from ownwords.view import html
from ownwords.view.blocks import Figure

_SAMPLES = 3
_BYTES_PER_WORD = 6  # of English, spaces included
_GOOD = 10  # minutes that suit most blogs
_MINUTES = {"quick": 2, "good": _GOOD, "best": 30, "default": MINUTES}
_TITLE_OF_SHIPPED = "Built-in English model"


@dataclass(frozen=True)
class Sample:
    """The beginning that a model was given, and the text that it wrote."""

    beginning: str
    text: str


@dataclass(frozen=True)
class ModelRow:
    """A model with what it can be compared by."""

    name: str
    is_current: bool
    made_at: float
    bytes: int
    base: str
    minutes: float | None
    posts: int | None
    bits_per_byte: float | None
    before: float | None  # of its base
    sentence: str  # the verdict
    tone: Tone
    figures: tuple[Figure, ...]
    samples: tuple[Sample, ...]
    limits: tuple[str, ...]  # what it is not good for


@dataclass(frozen=True)
class BaseRow:
    """A base that a model can start from, installed or not."""

    name: str
    title: str
    source: str
    is_installed: bool
    parameters: int
    bytes: int  # on the disk, or of the download
    languages: str
    license: str
    terms: str  # their address; "" for none
    terms_title: str
    terms_gist: str
    needs_consent: bool
    gain: str  # what it is expected to give on this blog; "" where that was not measured
    package: str  # the command that installs what carries it; "" if none is needed
    problem: str


@dataclass(frozen=True)
class RenameRequest:
    """A new name."""

    name: Annotated[str, Meta(min_length=1, max_length=80)]


def routes(state: AppState) -> list[BaseRoute]:
    """Create the routes of the models, their bases, the scorecard and the exports."""
    api, exports = ModelReader(state), _Exports(state)
    one, export = "/api/models/{name}", "/api/exports/{name}"
    return [
        json_route(state, "GET", "/api/models", api.show),
        json_route(state, "POST", one + "/use", api.use),
        json_route(state, "PATCH", one, api.rename, body=RenameRequest),
        json_route(state, "DELETE", one, api.delete),
        json_route(state, "DELETE", "/api/bases/{name}", api.delete_base),
        json_route(state, "GET", "/api/score", lambda _: _scorecard(state)),
        json_route(state, "GET", "/api/exports", exports.show),
        Route(export, exports.download, methods=["GET"]),
        json_route(state, "DELETE", export, exports.delete),
    ]


class ModelReader:
    """Reads and changes the models of a workspace."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def show(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """List the models, the current one first, and the bases."""
        return {
            "models": self.models(),
            "bases": _bases(self._task()),
            "can_train": importlib.util.find_spec("torch") is not None,
            "minutes": _MINUTES,
        }

    def use(self, call: ApiCall[NoBody]) -> dict[str, Any]:
        """Make a model the current one; the one before it is kept."""
        self._refuse_while_busy()
        model = self._find(call.path["name"])
        with as_conflict():
            self._state.library.use(model.name)
        return self.show(call)

    def rename(self, call: ApiCall[RenameRequest]) -> dict[str, Any]:
        """Rename a model."""
        self._refuse_while_busy()
        model = self._find(call.path["name"])
        with as_conflict():
            self._state.library.rename(model.name, call.body.name)
        return self.show(ApiCall(call.path, call.query, NoBody()))

    def delete(self, call: ApiCall[NoBody]) -> None:
        """Delete a model that is not the current one."""
        self._refuse_while_busy()
        model = self._find(call.path["name"])
        if model.is_current:
            raise ApiError(
                HTTPStatus.CONFLICT,
                f"{model.name} is the current model",
                hint="make another one the current model first",
            )
        self._state.library.delete(model.name)

    def delete_base(self, call: ApiCall[NoBody]) -> None:
        """Delete an installed base; models made from it stay."""
        with as_conflict():
            install.remove(call.path["name"])

    def models(self) -> list[ModelRow]:
        """All models with their figures."""
        kept = self._state.library.models()
        current = self._current(kept)
        rows = [_kept_row(model) for model in kept if not model.is_current]
        return [current, *rows] if current else rows

    def current(self) -> ModelRow | None:
        """The current model with its figures; None if there is none."""
        return self._current(self._state.library.models())

    def _current(self, models: Iterable[KeptModel]) -> ModelRow | None:
        kept = next((model for model in models if model.is_current), None)
        if kept is None and not self._state.own_model:
            return None
        root = self._state.workspace.root
        # What is beside the current model may be newer than what was kept of it.
        folder = atomic_dir.readable_dir(root / "model")
        made_at = kept.made_at if kept else (folder / CONFIG).stat().st_mtime
        name = kept.name if kept else self._state.own_name
        return _row(name, folder, root, StageCache(root / FINISHED), made_at, current=True)

    def _task(self) -> TuningTask | None:
        """What a base is for: this blog, in the time that suits most; None before it is read."""
        try:
            posts = self._state.report().report.posts
        except OwnwordsError:
            return None
        return TuningTask(
            seconds=60 * _GOOD,
            text_bytes=_BYTES_PER_WORD * word_counts(posts).learned_words,
            flops_per_s=ExpectedBits.load().flops_per_s(),
            memory_bytes=hardware.read_memory().available_bytes or math.inf,
        )

    def _find(self, name: str) -> KeptModel:
        library = self._state.library
        try:
            # A model that was made in another way is kept when it is first changed.
            if self._state.own_model and name == self._state.own_name:
                return library.keep() or library.find(name)
            return library.find(name)
        except OwnwordsError as error:
            raise ApiError(HTTPStatus.NOT_FOUND, error.message, error.hint) from error

    def _refuse_while_busy(self) -> None:
        if holder := self._state.jobs.find_worker():
            raise ApiError(HTTPStatus.CONFLICT, holder, hint="wait until it ends, or stop it")


def _row(
    name: str, folder: Path, scorecard: Path, finished: StageCache, made_at: float, *, current: bool
) -> ModelRow:
    """A model in a list; `scorecard` is the folder of its scorecard, `finished` what made it."""
    provenance = _provenance(folder)
    trained = finished.latest("train", TrainingSummary)
    minutes = finished.inputs("train").get("minutes", "")
    outcome: Mapping[str, Any] = provenance.get("outcome") or {}
    card = read_scorecard(scorecard)
    bits = _number(outcome.get("validation_bits_per_byte"))
    before = _number(outcome.get("validation_bits_per_byte_before"))
    if card and card.ours:  # of unseen posts, as everywhere else
        bits, before = card.ours.bits, card.base.bits if card.base else None
    samples = card_view.in_turn(card.samples)[:_SAMPLES] if card else []
    return ModelRow(
        name=name,
        is_current=current,
        made_at=made_at,
        bytes=sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        base=base_name(provenance),
        minutes=float(minutes) if minutes.replace(".", "").isdecimal() else None,
        posts=card.about.training_posts if card else trained.posts if trained else None,
        bits_per_byte=bits,
        before=before,
        sentence=card.verdict.sentence if card else "",
        tone=tone(card),
        figures=tuple(card_view.headline(card)) if card else (),
        samples=tuple(
            Sample(card_view.beginning(sample), "\n\n".join(card_view.paragraphs(sample.tuned)))
            for sample in samples
        ),
        limits=tuple(limits(card)) if card else (),
    )


def _kept_row(model: KeptModel) -> ModelRow:
    finished = StageCache(model.beside(FINISHED))
    return _row(model.name, model.model, model.folder, finished, model.made_at, current=False)


def _provenance(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / PROVENANCE)
    except (OwnwordsError, OSError):
        return {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bases(task: TuningTask | None) -> list[BaseRow]:
    """The bases that are here, then the known ones that can be installed."""
    try:
        entries = catalogue.entries()
    except OwnwordsError:  # the folder of installed bases is not available
        entries = []
    known = {base.name: base for base in KNOWN_BASES}
    here = [_base_row(entry, known.pop(entry.name, None), task) for entry in entries]
    return here + [_base_row(None, base, task) for base in known.values()]


def _base_row(
    entry: catalogue.Entry | None, base: KnownBase | None, task: TuningTask | None
) -> BaseRow:
    """A base that is here, that is known, or both."""
    name = entry.name if entry else base.name if base else ""
    source = entry.source if entry else base.repository if base else ""
    is_shipped = name == catalogue.SHIPPED
    terms, package = (base.terms, base.package) if base else (None, None)
    return BaseRow(
        name=name,
        title=_TITLE_OF_SHIPPED if is_shipped else base.title if base else name,
        source=name if package and not entry else source,
        is_installed=entry is not None,
        parameters=entry.parameters if entry else base.parameters if base else 0,
        bytes=entry.bytes if entry else base.download_bytes if base else 0,
        languages=base.languages if base else "English" if is_shipped else "",
        license=base.license if base else "",
        terms=terms.url if terms else "",
        terms_title=terms.title if terms else "",
        terms_gist=terms.gist if terms else "",
        needs_consent=entry is None and terms is not None,
        gain=_gain(name, source, task),
        package=install.command_line(package) if package and not entry else "",
        problem=entry.problem if entry else "",
    )


def _gain(name: str, source: str, task: TuningTask | None) -> str:
    """The bits per byte that are expected of a base, beside the built-in one's."""
    curve, shipped = curve_of(name, source), curve_of(catalogue.SHIPPED, "")
    if task is None or curve is None or shipped is None or curve is shipped:
        return ""
    minutes = task.minutes_for(curve)
    if minutes is None:
        return "This machine is too small or too slow for it."
    bits, usual = task.bits(curve, max(task.seconds, 60 * minutes)), task.bits(shipped)
    return (
        f"On an English blog as long as yours, {duration(60 * minutes)} are expected to give about"
        f" {bits:.2f} bits per byte, instead of {usual:.2f} from the built-in model."
    )


def _scorecard(state: AppState) -> dict[str, Any]:
    """The scorecard of the current model, drawn."""
    folder, has_model = state.workspace.root, bool(state.own_model)
    card = read_scorecard(folder)
    if card is None:
        # Written by another version of ownwords, or damaged: scoring again fixes both.
        is_there = (folder / DATA).exists()
        return {"html": "", "has_model": has_model, "unreadable": is_there}
    # The card holds the path at which it was measured, which a copied workspace has not.
    here = replace(card.about, model=path_text((folder / "model").absolute()))
    drawn = str(html.fragment(card_view.scorecard_view(replace(card, about=here))))
    return {"html": drawn, "has_model": has_model, "unreadable": False}


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


class _Exports:
    def __init__(self, state: AppState) -> None:
        self._state = state
        self._folder = state.workspace.root / EXPORTS

    def show(self, _: ApiCall[NoBody]) -> dict[str, Any]:
        """List what can be exported, and what has been."""
        rows = [_export_row(path) for path in self._paths()]
        rows.sort(key=lambda row: -row.made_at)
        return {"options": self._options(), "exports": rows}

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
        entry = catalogue.entry(folder.name, folder, "added")
        sizes = {type_: round(entry.parameters * bits / 8) for type_, bits in _BITS.items()}
        options = [
            ExportOption("gguf", type_, f"GGUF, {label}", sizes[type_], type_ == "q8_0")
            for type_, label in _LABELS.items()
        ]
        return [
            *options,
            ExportOption("ollama", "q8_0", "For Ollama", sizes["q8_0"], is_default=True),
            ExportOption("zip", "", "The model's folder as a zip", entry.bytes, is_default=True),
            ExportOption(
                "hf", "", "The model's folder, for transformers", entry.bytes, is_default=False
            ),
        ]


def _export_row(path: Path) -> ExportRow:
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
