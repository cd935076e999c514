"""A language model of your own writing, on your own machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.version import __version__

# Read when PyTorch is first imported. By default its threads spin for milliseconds wherever they
# wait for each other, which beside other programs takes most of a step.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # of GNU's runtime: some microseconds

if TYPE_CHECKING:
    from ownwords.archive.report import Report
    from ownwords.ask.answer import Answer
    from ownwords.ask.servers import Endpoint
    from ownwords.drafts.voice_card import VoiceCard
    from ownwords.inference.engine import WeightFormat
    from ownwords.inference.model import Model
    from ownwords.make.stages import MakeResult

__all__ = ["__version__", "ask_archive", "load", "look", "make_model", "voice"]


def look(
    *paths: str | Path, workspace: str | Path | None = None, export: str | Path | None = None
) -> Report:
    """Read blogs, exports or folders into a workspace and report what is in them.

    The same as `ownwords look`: the workspace is `./<name>.ownwords` unless given; nothing is
    asked, the stated defaults apply. Raises `ownwords.core.errors.OwnwordsError` for what cannot
    be read.
    """
    # Only now, so that importing ownwords costs nothing.
    from ownwords.archive.look import look as look_at  # noqa: PLC0415

    return look_at(
        [Path(path) for path in paths],
        workspace=Path(workspace) if workspace else None,
        export=Path(export) if export else None,
    )


def make_model(
    *paths: str | Path,
    minutes: float | None = None,
    base: str | Path = "",
    workspace: str | Path | None = None,
) -> MakeResult:
    """Make a model of blogs, exports or folders, let it write, and score it.

    The same as `ownwords make`, with its minutes unless given: `base` is the best installed one
    that these allow, the name of another, a model directory, or "none"; nothing is asked. What was
    made before and has not changed is not made again. `MakeResult` says where the model is, what it
    wrote and how good it is. Raises `ownwords.core.errors.OwnwordsError` for what cannot be.
    """
    # Not called `make`: importing the package of that name would put it in the function's place.
    from ownwords.make import pipeline, stages  # noqa: PLC0415 - NumPy takes a moment

    return pipeline.make(
        stages.MakeRequest(
            [Path(path) for path in paths],
            workspace=Path(workspace) if workspace else None,
            minutes=minutes,
            base=base if isinstance(base, str) else str(base.absolute()),
        )
    )


def ask_archive(
    question: str,
    workspace: str | Path | None = None,
    *,
    model: str | None = "",
    embed: str = "",
    passages: int = 8,
) -> Answer:
    """Answer a question from the archive of a workspace.

    The same as `ownwords ask`: the workspace is this folder or the only `NAME.ownwords` here unless
    given; `model` is the address of an endpoint, or the name of a model that runs here; "" is what
    runs on this machine, if `ownwords ask` was allowed to send passages to it; None shows the
    passages alone; `embed` names what makes vectors: "" is what is installed, "none" nothing.
    `Answer` holds the text, each citation with its verbatim quote, and the passages. Raises
    `ownwords.core.errors.OwnwordsError` for what cannot be.
    """
    # Not called `ask`: importing the package of that name would put it in the function's place.
    from ownwords.ask import answer, servers  # noqa: PLC0415 - NumPy takes a moment
    from ownwords.ask.encoder import embed_missing, open_embedder  # noqa: PLC0415
    from ownwords.ask.index import SearchIndex  # noqa: PLC0415
    from ownwords.ask.search import ArchiveSearcher  # noqa: PLC0415
    from ownwords.ask.servers import EndpointConsent  # noqa: PLC0415
    from ownwords.core.workspace import resolve_workspace  # noqa: PLC0415

    place = resolve_workspace(Path(workspace) if workspace else None, Path.cwd())
    embedder = open_embedder(embed)
    backend: Endpoint | None = None
    if model:
        backend = servers.open_backend(model)
    elif model is not None:
        running = servers.default_backend()
        if running and running.url in EndpointConsent.read().allowed:
            backend = running
    with SearchIndex(place.archive) as index:
        index.refresh()
        if embedder is not None:
            embed_missing(index, embedder)
        return answer.answer(question, ArchiveSearcher(index, embedder), backend, limit=passages)


def voice(about: str = "", workspace: str | Path | None = None, *, words: int = 1200) -> VoiceCard:
    """Describe how the author of a workspace writes, as instructions for a model or a writer.

    The same as `ownwords voice`: `about` is a task, near which the passages are chosen. `text` of
    the card is for a prompt, `skill` a SKILL.md, `modelfile()` for Ollama. Raises
    `ownwords.core.errors.OwnwordsError` if there are too few posts.
    """
    from ownwords.archive.store import Archive  # noqa: PLC0415 - NumPy takes a moment
    from ownwords.core.workspace import resolve_workspace  # noqa: PLC0415
    from ownwords.drafts.voice_card import voice_card  # noqa: PLC0415

    place = resolve_workspace(Path(workspace) if workspace else None, Path.cwd())
    with Archive(place.archive) as archive:
        return voice_card(archive, about, words)


def load(
    folder: str | Path,
    *,
    device: str = "auto",
    weights: WeightFormat = "stored",
    threads: int | None = None,
) -> Model:
    """The model of a directory, ours or another's, with its tokenizer.

    `Model.write(prompt)` gives what follows, piece by piece; `Model.logits(ids)` the scores of what
    follows each id; `Model.tokenizer` turns text into ids and back. `weights` may be "f32", "bf16",
    "int8", to be rounded while loading. Nothing in the directory is executed. Raises
    `ownwords.core.errors.OwnwordsError` for what is missing, damaged or does not fit.
    """
    from ownwords.inference.model import Model  # noqa: PLC0415 - NumPy takes a moment

    return Model.load(Path(folder), device=device, weights=weights, threads=threads)
