"""`ownwords tune`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from ownwords.cli.line_chart import LOUD, QUIET
from ownwords.cli.optional_packages import needs_torch
from ownwords.cli.options import DEFAULTS, Common
from ownwords.cli.output import relative_path
from ownwords.cli.training import Texts, fixed, reading
from ownwords.cli.training_view import watching
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import duration, printable
from ownwords.core.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.tune.tuning import TuneResult

_SHOWN = 8  # trials of the table on the terminal
_WIDEST = 104
_PATIENCE_S = 600.0  # with another process that is reading the same texts
_MOST_MINUTES = 10_000_000  # nineteen years


def tune(
    *paths: Texts,
    minutes: Annotated[
        float, Parameter(help="For all of it, from the first word read to the winner's model.")
    ] = 30.0,
    each: Annotated[
        float | None,
        Parameter(
            help="Minutes of one trial: as many as you want to train with the settings found."
            " [default: a thirtieth of --minutes]",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        Parameter(
            help="Try no more than so many choices, the plan's own among them; the best are tried"
            " again with other seeds in addition. [default: as many as there is time for]",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        str,
        Parameter(
            help="The model to begin with: a name that `ownwords base` lists, or a folder; none:"
            " train from nothing. [default: the one in the box]",
            show_default=False,
        ),
    ] = "",
    replay: Annotated[
        Path | None,
        Parameter(
            help="Texts like those the base was trained on. [default: the base writes some]",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        Parameter(
            help="Where the trials are recorded, for several machines that search together: a"
            " journal file all of them reach, or the address of a database"
            " (postgresql://...). [default: trials.db in the workspace]",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Leave the workspace's model as it is; the winner's lies beside. [default: no]",
        ),
    ] = False,
    device: Annotated[
        str, Parameter(help="cpu, cuda, rocm, mps, xpu; auto is the best there is.")
    ] = "auto",
    common: Common = DEFAULTS,
) -> None:
    """Train the plan's own choice and others around it; keep what is better beyond luck.

    Every trial is a whole training. In the end the best two and the plan are trained again with
    other seeds, and those decide. Whatever ends it, the same command goes on where it was.
    """
    from ownwords.training.plan_constants import PLAN_CONSTANTS

    began = (
        time.perf_counter() - PLAN_CONSTANTS.start_s
    )  # what Python and PyTorch took is waited for, too
    _check(minutes, each, trials)
    with needs_torch("searching for settings"), _optuna_needed():
        from ownwords.training.recipes import TrainRequest
        from ownwords.tune import tuning
    from ownwords.make.make_request import base_of

    order = tuning.TuneRequest(
        minutes=minutes,
        each_s=None if each is None else each * 60,
        trials=trials,
        storage=storage,
        keep=keep,
    )
    begin = base_of(base)
    place = Workspace(common.workspace) if common.workspace else Workspace.default_for(paths[0])
    resolved = common.resolve({}, workspace=place.root)
    with (
        watching(common) as (progress, ask, _),
        reading(
            paths,
            replay,
            place,
            resolved.settings,
            progress,
            ask,
            patience_s=_PATIENCE_S,
        ) as (texts, own),
    ):
        work = TrainRequest(
            workspace=place.root,
            seconds=order.trial_s,
            fixed=fixed(resolved),
            progress=progress,
            device=device,
            own_share=texts.own_share,
            corpus=texts.key,
            began=began,
        )
        tuned = tuning.tune(texts, work, order, base=begin, replay=own)
    common.show(figures(tuned), lambda console: print_tuned(tuned, console))


def figures(tuned: "TuneResult") -> dict[str, Any]:
    """All of a search, as `--json` has it."""
    return {
        "verdict": asdict(tuned.verdict),
        "sentences": list(tuned.verdict.sentences()),
        "ranges": [asdict(axis) for axis in tuned.space.axes],
        "trials": [asdict(one) for one in tuned.found.tried],
        "settings": dict(tuned.settings),
        "toml": tuned.toml,
        "model": None if tuned.model is None else str(tuned.model),
        "note": tuned.note,
        "table": str(tuned.table),
        "page": str(tuned.page),
    }


def print_tuned(tuned: "TuneResult", console: "Console") -> None:
    """The verdict first, then the best trials, the settings to keep, and where all of it is."""
    width = max(40, min(console.width, _WIDEST))

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style), width=width)

    first, *rest = tuned.verdict.sentences()
    console.print()
    say(first, LOUD)
    for sentence in rest:
        say(sentence)
    console.print()
    console.print(_table(tuned, width))
    if tuned.toml:
        console.print()
        file = relative_path(tuned.table.parent / "ownwords.toml")
        say(f"To use these settings from now on, add to {file}:")
        console.print()
        for line in tuned.toml.splitlines():
            console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()
    if tuned.note:
        say(tuned.note)
    places = (("The model", tuned.model), ("Pictures", tuned.page), ("All trials", tuned.table))
    for name, path in places:
        if path is not None:
            console.print(Text(f"{name}: {relative_path(path)}", style=QUIET), soft_wrap=True)


def _table(tuned: "TuneResult", width: int) -> Table:
    from ownwords.tune.search_space import shown
    from ownwords.tune.trial import done

    scored = done(tuned.found.tried)
    choices = [one for one in scored if one.kind != "again"]
    rows = choices[:_SHOWN]
    plan = next((one for one in choices if one.kind == "plan"), None)
    if plan and plan not in rows:
        rows = [*rows[:-1], plan]
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(no_wrap=True, justify="right", style=LOUD)
    grid.add_column(overflow="fold", max_width=max(20, width - 34))
    heads = ("trial", "bits a byte", "other seeds", "what")
    grid.add_row(*(Text(head, style=f"not bold {QUIET}") for head in heads))
    for one in rows:
        again = [other.score for other in scored if other.of == one.number and other.score]
        mean = f"{sum(again) / len(again):.4f}" if again else ""
        what = "the plan's own choice" if one is plan else shown(tuned.space.axes, one.settings)
        grid.add_row(
            str(one.number),
            f"{one.score:.4f}",
            mean,
            Text(f"{what}, {duration(one.seconds)}"),
        )
    return grid


def _check(minutes: float, each: float | None, trials: int | None) -> None:
    if not minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, and is {minutes:g}")
    if minutes > _MOST_MINUTES:
        raise ConfigError(f"--minutes should be {_MOST_MINUTES:,} at most")
    if each is not None and not each > 0:
        raise ConfigError(f"--each should be more than 0, and is {each:g}")
    if trials is not None and trials < 2:
        raise ConfigError(
            f"--trials should be 2 or more, and is {trials}",
            hint="the first is the plan's own choice",
        )


@contextmanager
def _optuna_needed() -> Iterator[None]:
    """Around the imports of the search: one sentence in place of a missing module."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise OwnwordsError(
            "searching for settings takes Optuna, which is not installed",
            hint='pip install "ownwords[train,tune]"',
        ) from error
