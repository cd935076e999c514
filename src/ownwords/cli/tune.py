"""`ownwords tune`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.cli.options import (
    DEFAULTS,
    CommonOptions,
    SourcePath,
    TrainingDevice,
    described,
    flag,
    require_package,
)
from ownwords.cli.output import relative_path
from ownwords.cli.training import command_start, read_texts, training_settings
from ownwords.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.tune.tuning import TuneResult


def tune(
    *paths: SourcePath,
    minutes: Annotated[
        float, Parameter(help="Minutes for everything, from reading to the winner's model.")
    ] = 30.0,
    each: Annotated[
        float | None,
        described(
            "Minutes of one trial: as long as you want to train with the settings found."
            " [default: a thirtieth of --minutes]"
        ),
    ] = None,
    trials: Annotated[
        int | None,
        described(
            "Try at most this many choices, the plan's own included; repetitions of the best come"
            " on top. [default: as many as there is time for]"
        ),
    ] = None,
    base: Annotated[
        str,
        described(
            "The model to start from: a name from `ownwords base`, or a folder; none trains from"
            " scratch. [default: the built-in one]"
        ),
    ] = "",
    replay: Annotated[
        Path | None,
        described("Texts like those the base was trained on. [default: what the base comes with]"),
    ] = None,
    keep: Annotated[bool, flag("Keep the workspace's model; put the winner's beside it.")] = False,
    device: TrainingDevice = "auto",
    common: CommonOptions = DEFAULTS,
) -> None:
    """Train with the plan's settings and with others around them; keep what is truly better.

    Every trial is a whole training. At the end the best two and the plan are trained again with
    other seeds, and only those decide. The same command resumes after any interruption.
    """
    from ownwords.base import catalogue
    from ownwords.make.make_request import check_minutes, find_base

    began = command_start()
    check_minutes(minutes)
    if each is not None and not each > 0:
        raise ConfigError(f"--each should be more than 0, and is {each:g}")
    if trials is not None and trials < 2:
        raise ConfigError(
            f"--trials should be 2 or more, and is {trials}",
            hint="the first is the plan's own choice",
        )
    require_package("torch", "searching for settings")
    require_package("optuna", "searching for settings")
    from ownwords.training.recipes import TrainRequest
    from ownwords.tune import tuning

    request = tuning.TuneRequest(
        minutes=minutes,
        each_s=None if each is None else each * 60,
        trials=trials,
        keep=keep,
    )
    folder = find_base(base)
    workspace = common.workspace_for(paths)
    resolved = common.resolve({}, workspace.root)
    with common.watched() as (progress, ask):
        progress.expect("read")
        progress.expect("search", minutes * 60)
        progress.begin("read")
        texts, base_text = read_texts(paths, replay, workspace, resolved.settings, progress, ask)
        progress.begin("search")
        train_request = TrainRequest(
            workspace=workspace.root,
            seconds=request.trial_s,
            fixed=training_settings(resolved),
            progress=progress,
            device=device,
            own_share=texts.own_share,
            corpus=texts.key,
            base_title=catalogue.called(folder) if folder else "",
            began=began,
        )
        tuned = tuning.tune(texts, train_request, request, base=folder, replay=base_text)
    common.show(figures(tuned), lambda console: print_tuned(tuned, console))


def figures(tuned: "TuneResult") -> dict[str, Any]:
    """The whole search, as `--json` prints it."""
    return {
        "verdict": asdict(tuned.verdict),
        "sentences": list(tuned.verdict.sentences()),
        "ranges": [asdict(axis) for axis in tuned.axes],
        "trials": [asdict(trial) for trial in tuned.trials],
        "settings": dict(tuned.settings),
        "toml": tuned.toml,
        "model": str(tuned.model),
        "note": tuned.note,
        "table": str(tuned.table),
        "page": str(tuned.page),
    }


def print_tuned(tuned: "TuneResult", console: "Console") -> None:
    """Print the verdict, the settings to keep, the best trials, and where the files are."""
    from ownwords.view.terminal import TerminalWriter, print_view

    writer = TerminalWriter(console)
    print_view(tuned.view, console, relative_path(tuned.page))
    if tuned.note:
        writer.copied(tuned.note)
    writer.copied(f"The model: {relative_path(tuned.model)}")
    writer.copied(f"All trials: {relative_path(tuned.table)}")
