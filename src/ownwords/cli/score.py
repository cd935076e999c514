"""`ownwords score`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.options import DEFAULTS, CommonOptions, Device, with_help
from ownwords.core.errors import OwnwordsError, resumable
from ownwords.core.workspace import Workspace, path_text

if TYPE_CHECKING:
    from ownwords.archive.report import Report
    from ownwords.archive.store import Archive

_NONE = "none"
_NO_POSTS = "has no posts to score the model on"


@with_help
def score(
    model: Annotated[Path | None, Parameter(name="--model")] = None,
    *,
    base: str | None = None,
    device: Device = "auto",
    common: CommonOptions = DEFAULTS,
) -> None:
    """Score the model on the held-out posts; write the scorecard into the workspace and show it.

    Args:
        model: A model directory, or a workspace with a model. [default: the only NAME.ownwords
            here]
        base: The base to compare with: a name from `ownwords base`, a model directory or none.
            [default: the one that the model was fine-tuned from]
    """
    from ownwords.archive import corpus
    from ownwords.archive.store import Archive
    from ownwords.base import catalogue
    from ownwords.cli.write import resolve_model_directory
    from ownwords.evaluation.scorecard import PAGE
    from ownwords.evaluation.scorecard_view import scorecard_view, write_scorecard
    from ownwords.evaluation.scoring import score_model
    from ownwords.view.terminal import print_view

    folder = resolve_model_directory(model or common.workspace)
    place = Workspace(common.workspace or folder.parent)
    if not place.archive.exists():
        raise OwnwordsError(
            f"{place.root} {_NO_POSTS}",
            hint="give another with --workspace, or create one: ownwords look PATH",
        )
    with (
        resumable("the finished measurements are saved; the same command resumes"),
        common.watched() as (progress, _),
        Archive(place.archive) as archive,
    ):
        progress.expect("score")
        progress.begin("score")
        texts = corpus.load_corpus(archive)
        base_folder = _find_base(folder, base, place)
        card = score_model(
            folder,
            texts,
            base_folder,
            base_name=catalogue.display_name(base_folder),
            base_adapter=catalogue.notes_adapter(base_folder) if base_folder else None,
            workspace=place.root,
            report=_report(archive),
            progress=progress,
            device=device,
        )
        write_scorecard(card, place.root)
    page = path_text(place.root / PAGE)
    common.show(card.to_dict(), lambda console: print_view(scorecard_view(card), console, page))


def _find_base(folder: Path, base: str | None, place: Workspace) -> Path | None:
    """Return the folder of the given base, or of the one that the model was fine-tuned from."""
    from ownwords.base import catalogue
    from ownwords.base.trimming import TRIMMED
    from ownwords.models.directory import CONFIG, PROVENANCE, base_name
    from ownwords.models.untrusted_files import read_json

    path = folder / PROVENANCE
    name = base if base is not None else base_name(read_json(path)) if path.exists() else ""
    if name in ("", _NONE):
        return None
    try:
        trimmed = place.runs / TRIMMED / name
        return trimmed if (trimmed / CONFIG).exists() else catalogue.find(name)
    except OwnwordsError as error:
        if base is not None:
            raise
        raise OwnwordsError(
            f"{folder} was fine-tuned from {name}, which is not installed",
            hint="give its folder with --base PATH, or skip the comparison with --base none",
        ) from error


def _report(archive: "Archive") -> "Report":
    from ownwords.archive.report import Report

    stored = archive.get_meta("report")
    if not stored:
        raise OwnwordsError(
            f"{archive.path} {_NO_POSTS}: reading was never finished",
            hint="run `ownwords look PATH` again for the same workspace",
        )
    return Report.from_json(stored)
