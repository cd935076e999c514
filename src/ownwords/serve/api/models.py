"""The models of a workspace, their scorecards and exports, and the bases they can start from."""

import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from ownwords.archive.blog_name import as_file_name, blog_name, new_name
from ownwords.base import catalogue, estimates, install
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import Meta
from ownwords.core.workspace import path_text
from ownwords.evaluation import scorecard_view as card_view
from ownwords.evaluation.scorecard import DATA, PAGE, read_scorecard
from ownwords.evaluation.verdict import tone
from ownwords.make.stages import FINISHED, SCORING_SHARE, StageCache, TrainingSummary
from ownwords.models import atomic_dir
from ownwords.models.directory import ADAPTER, CONFIG, PROVENANCE, base_name, times_read
from ownwords.models.model_library import KeptModel
from ownwords.models.untrusted_files import read_json
from ownwords.serve.api.posts import word_counts
from ownwords.serve.app_state import EXPORTS, AppState
from ownwords.serve.errors import as_conflict, conflict, not_found
from ownwords.serve.json_api import ApiCall, json_route
from ownwords.view import html

_SAMPLES = 3
_MIN_SAMPLE_CHARS = 120  # of a sample that is worth showing
_BYTES_PER_WORD = 6  # of English, spaces included
MODELFILE = "Modelfile"  # as in inference.export, which imports torch
# Bits of a weight in each type of GGUF: blocks of 32 share a scale of 16 bits.
_GGUF = {
    "q8_0": (8.5, "GGUF, 8 bits"),
    "q4_0": (4.5, "GGUF, 4 bits, the smallest, writes a little worse"),
    "f16": (16.0, "GGUF, 16 bits, no visible loss"),
    "f32": (32.0, "GGUF, 32 bits, as large as in training"),
}


@dataclass(frozen=True)
class RenameRequest:
    """A new name."""

    name: Annotated[str, Meta(min_length=1, max_length=80)]


def routes(state: AppState) -> list[BaseRoute]:
    """Return the routes of the models, their bases, the scorecard and the exports."""
    one, export = "/api/models/{name}", "/api/exports/{name}"
    return [
        json_route(state, "GET", "/api/models", show_models),
        json_route(state, "POST", one + "/use", use_model),
        json_route(state, "PATCH", one, rename_model),
        json_route(state, "DELETE", one, delete_model),
        json_route(state, "DELETE", "/api/bases/{name}", delete_base),
        json_route(state, "GET", "/api/score", show_scorecard),
        Route("/api/score/page", partial(_download_scorecard, state), methods=["GET"]),
        json_route(state, "GET", "/api/exports", list_exports),
        Route(export, partial(_download, state), methods=["GET"]),
        json_route(state, "DELETE", export, delete_export),
    ]


# --- models --------------------------------------------------------------------------------------


def show_models(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the models with their figures, the current one first, and the bases."""
    with state.library.lock:  # so that the current model does not change in between
        current = current_model(state)
        kept = [_kept_row(model) for model in state.library.models() if not model.is_current]
    return {
        "models": [current, *kept] if current else kept,
        "bases": _bases(state),
        "can_train": importlib.util.find_spec("torch") is not None,
    }


def use_model(state: AppState, call: ApiCall) -> None:
    """Make a model the current one; the one before it is kept."""
    model = _find(state, call)
    with as_conflict():
        state.library.use(model.name)


def rename_model(state: AppState, call: ApiCall) -> None:
    """Rename a model."""
    model = _find(state, call)
    with as_conflict():
        state.library.rename(model.name, call.body(RenameRequest).name)


def delete_model(state: AppState, call: ApiCall) -> None:
    """Delete a model that is not the current one."""
    model = _find(state, call)
    if model.is_current:
        raise conflict(
            f"{model.name} is the current model", hint="make another one the current model first"
        )
    state.library.delete(model.name)


def delete_base(state: AppState, call: ApiCall) -> None:
    """Delete an installed base; models made from it stay."""
    with as_conflict():
        install.remove(call.path["name"])


def _find(state: AppState, call: ApiCall) -> KeptModel:
    """Return the model to be changed. Raises ApiError if it is missing, or during a job."""
    if holder := state.jobs.find_worker():
        raise conflict(holder, hint="wait until it ends, or stop it")
    name, library = call.path["name"], state.library
    try:
        # A model that was made in another way enters the library at its first change.
        if state.own_model and name == state.own_name:
            return library.keep() or library.find(name)
        return library.find(name)
    except OwnwordsError as error:
        raise not_found(error.message, error.hint) from error


def current_model(state: AppState) -> dict[str, Any] | None:
    """Return the current model with its figures; None if there is none."""
    with state.library.lock:
        kept = next((model for model in state.library.models() if model.is_current), None)
        if kept is None and not state.own_model:
            return None
        root = state.workspace.root
        # The files beside the current model may be newer than their copy in the library.
        folder = atomic_dir.readable_dir(root / "model")
        made_at = kept.made_at if kept else (folder / CONFIG).stat().st_mtime
        name = kept.name if kept else state.own_name
        return _row(name, folder, root, StageCache(root / FINISHED), made_at, current=True)


def _kept_row(model: KeptModel) -> dict[str, Any]:
    finished = StageCache(model.beside(FINISHED))
    return _row(model.name, model.model, model.folder, finished, model.made_at, current=False)


def _row(
    name: str, folder: Path, scorecard: Path, finished: StageCache, made_at: float, *, current: bool
) -> dict[str, Any]:
    """Return a model of the list; `scorecard` is the folder of its scorecard."""
    provenance = _provenance(folder)
    read = times_read(provenance)
    trained = finished.latest("train", TrainingSummary)
    minutes = finished.inputs("train").get("minutes", "")
    outcome: Mapping[str, Any] = provenance.get("outcome") or {}
    card = read_scorecard(scorecard)
    bits = outcome.get("validation_bits_per_byte")
    before = outcome.get("validation_bits_per_byte_before")
    if card and card.ours:  # of unseen posts, as everywhere else
        bits, before = card.ours.bits, card.base.bits if card.base else None
    in_turn = card_view.in_turn(card.samples) if card else []
    # Short ones, such as the end of a given sentence, come last.
    samples = sorted(in_turn, key=lambda each: len(each.tuned) < _MIN_SAMPLE_CHARS)[:_SAMPLES]
    return {
        "name": name,
        "is_current": current,
        "made_at": made_at,
        "bytes": _size(folder),
        "base": base_name(provenance),
        "minutes": float(minutes) if minutes.replace(".", "").isdecimal() else None,
        "read": read and round(read, 2),
        "posts": card.about.training_posts if card else trained.posts if trained else None,
        "bits_per_byte": bits,
        "before": before,  # of its base
        "sentence": card.verdict.sentence if card else "",
        "tone": tone(card),
        "figures": list(card_view.headline(card)) if card else [],
        "samples": [
            {
                "beginning": card_view.beginning(sample),
                "text": "\n\n".join(card_view.paragraphs(sample.tuned)),
            }
            for sample in samples
        ],
        "because": list(card.verdict.because) if card else [],
    }


def _provenance(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / PROVENANCE)
    except (OwnwordsError, OSError):
        return {}


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.is_file()]
    return sum(file.stat().st_size for file in files)


# --- bases ---------------------------------------------------------------------------------------


def _bases(state: AppState) -> list[dict[str, Any]]:
    """Return all bases, the smallest first, with the time to fine-tune each on this blog."""
    task = tuning_task(state)
    try:
        listed = estimates.base_options()
    except OwnwordsError:  # the folder of installed bases is not available
        listed = []
    longest = replace(task, seconds=60.0 * max(estimates.USUAL_MINUTES))
    usual = estimates.best_installed(longest, listed)
    bases: list[dict[str, Any]] = []
    for option in listed:
        base = task.figures(option)
        base["title"] = option.title[0].upper() + option.title[1:]
        base["is_usual"] = option is usual
        base["minutes"] = base["minutes"] and base["minutes"] * (1 + SCORING_SHARE)
        base["readings"] = [
            {
                "times": each.epochs,
                "minutes": round(each.seconds / 60, 2),  # to train
                "total": each.seconds / 60 * (1 + SCORING_SHARE),
            }
            for each in (task.readings(option) if option.entry else ())
        ]
        bases.append(base)
    return bases


def tuning_task(state: AppState) -> estimates.TuningTask:
    """Return the task that a base is chosen for: this blog, or a usual one until it is read."""
    with suppress(OwnwordsError):
        posts = state.report().report.posts
        english = [post for post in posts if post.language in ("", "English")]
        return estimates.task_here(
            _BYTES_PER_WORD * word_counts(posts).learned_words,
            len(posts),
            is_english=2 * len(english) >= len(posts),
        )
    return estimates.task_here()


# --- the scorecard and the exports ---------------------------------------------------------------


def show_scorecard(state: AppState, call: ApiCall) -> dict[str, Any]:
    """Show the scorecard of a model, drawn."""
    folder = _scored_folder(state, call.query)
    card = read_scorecard(folder)
    if card is None:
        # Written by another version of ownwords, or damaged; scoring again fixes both.
        return {"html": "", "unreadable": (folder / DATA).exists()}
    # The card contains the model's path when it was measured; the workspace may have moved.
    path = path_text((folder / "model").absolute())
    here = replace(card.about, model=path, name=new_name(state.workspace.root) or card.about.name)
    drawn = str(html.fragment(card_view.scorecard_view(replace(card, about=here))))
    return {"html": drawn, "unreadable": False}


def _scored_folder(state: AppState, query: Mapping[str, str]) -> Path:
    """Return the folder with the scorecard of the query's model, by default of the current one."""
    others = {each.name: each.folder for each in state.library.models() if not each.is_current}
    return others.get(query.get("model", ""), state.workspace.root)


async def _download_scorecard(state: AppState, request: Request) -> Response:
    """Download the scorecard as one self-contained HTML file."""
    page = await state.run(lambda: _scored_folder(state, request.query_params) / PAGE)
    if not await state.run(page.exists):
        raise not_found("this model has not been scored yet")
    name = as_file_name(blog_name(state.workspace.root)) or "scorecard"
    return FileResponse(page, filename=f"{name}.html")


def list_exports(state: AppState, _: ApiCall) -> dict[str, Any]:
    """List the possible and the existing exports."""
    rows = [_export_row(path) for path in _exports(state)]
    rows.sort(key=lambda row: -row["made_at"])
    return {"options": _export_options(state) if state.own_model else [], "exports": rows}


async def _download(state: AppState, request: Request) -> Response:
    """Download an export that is one file."""
    path = await state.run(lambda: _find_export(state, request.path_params["name"]))
    if not path.is_file():
        raise conflict(
            f"{path.name} is a folder",
            hint=f"it is stored in {path_text(path)}; export a zip to download it",
        )
    return FileResponse(path, filename=path.name, media_type="application/octet-stream")


def delete_export(state: AppState, call: ApiCall) -> None:
    """Delete an export."""
    path = _find_export(state, call.path["name"])
    if path.is_dir():
        atomic_dir.delete_dir(path)
    else:
        path.unlink()


def _exports(state: AppState) -> list[Path]:
    return [*(state.workspace.root / EXPORTS).glob("[!.]*")]


def _find_export(state: AppState, name: str) -> Path:
    path = next((path for path in _exports(state) if path.name == name), None)
    if path is None:
        raise not_found(f"there is no export called {name[:80]!r}")
    return path


def _export_options(state: AppState) -> list[dict[str, Any]]:
    """Return the formats and types that the current model can be exported in, the usual first."""
    folder = atomic_dir.readable_dir(state.model_to_export()[1])
    entry = catalogue.entry(folder.name, folder)
    lora = (folder / ADAPTER).stat().st_size if (folder / ADAPTER).exists() else 0
    sizes = {type_: round(entry.parameters * bits / 8) for type_, (bits, _) in _GGUF.items()}
    options = [("gguf", type_, label, sizes[type_]) for type_, (_, label) in _GGUF.items()]
    options += [
        ("ollama", "q8_0", "For Ollama", sizes["q8_0"]),
        ("zip", "", "The model's folder as a zip", entry.bytes - lora),
        ("hf", "", "The model's folder, for transformers", entry.bytes - lora),
    ]
    if lora:
        options.append(("adapter", "", "Its LoRA alone, for PEFT", lora))
    return [
        {"to": to, "type": type_ or None, "label": label, "bytes": bytes_}
        for to, type_, label, bytes_ in options
    ]


def _export_row(path: Path) -> dict[str, Any]:
    """Return an exported model: its path, and the commands that use it."""
    shown, name = path_text(path.absolute()), path.name
    commands: list[str] = []
    if name.endswith(".gguf"):
        commands = [f'llama-cli -m "{shown}"']
    elif (path / MODELFILE).exists():
        model = name.removesuffix("-ollama").lower()
        commands = [f'ollama create {model} -f "{shown}/{MODELFILE}"', f"ollama run {model}"]
    return {
        "name": name,
        "path": shown,
        "bytes": _size(path),
        "made_at": path.stat().st_mtime,
        "commands": commands,
        "can_download": path.is_file(),
    }
