"""`ownwords tune`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.cli.options import (
    DEFAULTS,
    CommonOptions,
    SourcePath,
    TrainingDevice,
    described,
    require_package,
)
from ownwords.cli.output import relative_path
from ownwords.cli.training import command_start, read_texts, training_settings

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.training.settings_search import TuneResult


def tune(
    *paths: SourcePath,
    minutes: Annotated[
        float,
        Parameter(
            help="Minutes for the whole search. A trial has a thirtieth of them: give thirty times"
            " what you want to train."
        ),
    ] = 30.0,
    base: Annotated[
        str,
        described(
            "The model to start from: a name from `ownwords base`, or a folder; none trains from"
            " scratch. [default: the built-in one]"
        ),
    ] = "",
    device: TrainingDevice = "auto",
    common: CommonOptions = DEFAULTS,
) -> None:
    """Train with the plan's settings and with others around them; print those that are better.

    Every trial is a whole training. At the end the best and the plan are trained again with other
    seeds, and only those decide. The same command resumes after any interruption; `ownwords make`
    takes the settings once they are in the workspace's ownwords.toml.
    """
    from ownwords.base import catalogue
    from ownwords.make.make_request import check_minutes, find_base

    began = command_start()
    check_minutes(minutes)
    require_package("torch", "searching for settings")
    require_package("optuna", "searching for settings")
    from ownwords.training import settings_search as search
    from ownwords.training.recipes import TrainRequest

    folder = find_base(base)
    workspace = common.workspace_for(paths)
    resolved = common.resolve({}, workspace.root)
    with common.watched() as (progress, ask):
        progress.expect("read")
        progress.expect("search", minutes * 60)
        progress.begin("read")
        texts, _ = read_texts(paths, None, workspace, resolved.settings, progress, ask)
        progress.begin("search")
        request = TrainRequest(
            workspace=workspace.root,
            seconds=60 * minutes / search.TRIALS,
            fixed=training_settings(resolved),
            progress=progress,
            device=device,
            own_share=texts.own_share,
            corpus=texts.key,
            base_title=catalogue.called(folder) if folder else "",
            began=began,
        )
        found = search.tune(texts, request, 60 * minutes, base=folder)
    common.show(figures(found), lambda console: print_found(found, console))


def figures(found: "TuneResult") -> dict[str, Any]:
    """The whole search, as `--json` prints it."""
    from ownwords.training.settings_search import sentences

    return {
        "verdict": asdict(found.verdict),
        "sentences": sentences(found.verdict),
        "trials": list(found.trials),
        "settings": dict(found.settings),
        "toml": found.toml,
        "table": str(found.table),
        "page": str(found.page),
    }


def print_found(found: "TuneResult", console: "Console") -> None:
    """Print the verdict, the settings to use, the trials, and where the files are."""
    from ownwords.view.terminal import TerminalWriter, print_view

    print_view(found.view, console, relative_path(found.page))
    TerminalWriter(console).copied(f"All trials: {relative_path(found.table)}")
