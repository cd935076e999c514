"""`ownwords score`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.options import DEFAULTS, CommonOptions
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace, path_text

if TYPE_CHECKING:
    from ownwords.archive.report import Report
    from ownwords.archive.store import Archive
    from ownwords.evaluation.scoring import ComparisonModels

_NONE = "none"
_NO_POSTS = "holds no posts to judge the model by"


def score(
    model: Annotated[
        Path | None,
        Parameter(
            name="--model",
            help="A model directory, or a workspace that holds one. [default: that of the only"
            " NAME.ownwords here]",
        ),
    ] = None,
    *,
    base: Annotated[
        str | None,
        Parameter(
            help="What it was tuned from: a name that `ownwords base` lists, or a model directory;"
            " none compares it with none. [default: what the model says of itself]"
        ),
    ] = None,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Judge the model on the posts held out, write the scorecard into the workspace, show it."""
    from ownwords.archive.store import Archive
    from ownwords.core.resolve import resolve_model
    from ownwords.evaluation.card import files
    from ownwords.evaluation.card.terminal import print_card
    from ownwords.evaluation.scoring import ScoreConfig
    from ownwords.make.scoring import write_scorecard
    from ownwords.training import corpus

    folder = resolve_model(model or common.workspace, Path.cwd())
    place = Workspace(common.workspace or folder.parent)
    if not place.archive.exists():
        raise OwnwordsError(
            f"{place.root} {_NO_POSTS}",
            hint="say which workspace does with --workspace; `ownwords look PATH` makes one",
        )
    before = files.read(place.root)
    spent = {one.name: one.seconds for one in before.seconds} if before else {}
    try:
        with common.watched() as (progress, _), Archive(place.archive) as archive:
            texts = corpus.load_corpus(archive)
            card = write_scorecard(
                place.root,
                folder,
                _rivals(folder, base, place, texts.key),
                archive,
                texts,
                _report(archive),
                spent=spent,
                config=ScoreConfig(),
                progress=progress,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what was measured is kept; the same command goes on") from None
    page = path_text(place.root / files.PAGE)
    common.show(card.to_dict(), lambda console: print_card(card, console, page))


def _rivals(folder: Path, base: str | None, place: Workspace, texts: str) -> "ComparisonModels":
    """What it is compared with: the base given, or the one it says it was tuned from.

    And those that `make` has made to compare, if they were made of the same texts: of others they
    may have seen what they are to be judged by.
    """
    from ownwords.base import catalogue
    from ownwords.evaluation.scoring import ComparisonModels, base_of
    from ownwords.models.directory import PROVENANCE
    from ownwords.models.untrusted_files import read_json

    def told(of: Path) -> dict[str, object]:
        path = of / PROVENANCE
        return read_json(path) if path.exists() else {}

    def made_here(name: str) -> Path | None:
        path = place.runs / name / "model"
        return path if path != folder and told(path).get("corpus") == texts else None

    scratch, undivided = made_here("from-nothing"), made_here("in-full")
    if undivided and told(undivided).get("recipe") != told(folder).get("recipe"):
        undivided = None  # it was made to be compared with another
    name = base if base is not None else base_of(folder) or _NONE
    if name == _NONE:
        return ComparisonModels(scratch=scratch, undivided=undivided)
    try:
        found = catalogue.find(name)
    except OwnwordsError as error:
        if base is not None:
            raise
        raise OwnwordsError(
            f"{folder} says that it was tuned from {name}, which is not here",
            hint="say where it is with --base PATH, or leave it out with --base none",
        ) from error
    return ComparisonModels(found, catalogue.called(found), scratch, undivided)


def _report(archive: "Archive") -> "Report":
    """The corpus report that was kept with the texts."""
    from ownwords.archive.report import Report

    kept = archive.get_meta("report")
    if not kept:
        raise OwnwordsError(
            f"{archive.path} {_NO_POSTS}: it was never finished",
            hint="run `ownwords look PATH` again, into the same workspace",
        )
    return Report.from_json(kept)
