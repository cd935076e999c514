"""`ownwords make`."""

import importlib.util
import os
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.desktop import has_desktop, opened
from ownwords.cli.optional_packages import needs_torch
from ownwords.cli.options import DEFAULTS, Common
from ownwords.cli.output import are_terminals, stderr, stdout
from ownwords.cli.training import Texts, fixed, plan_figures
from ownwords.cli.training_report import print_plan
from ownwords.cli.training_view import watching
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.make.make_request import COMPARED_FROM, MINUTES, NOTHING, MakeRequest, base_of

if TYPE_CHECKING:
    from ownwords.cli.make_view import MakeView
    from ownwords.make.result import MakeResult

_CHOICES = {
    "write": "once more from that title, with other luck",
    "chat": "you begin, it writes on, line by line",
    "open": "the scorecard, in your browser",
    "done": "that is all for now",
}


def make(
    *paths: Texts,
    minutes: Annotated[
        float | None,
        Parameter(
            help="For reading, planning and training, from the first word read to the saved model;"
            f" scoring comes after them. From {COMPARED_FROM:g} on, a fifth of them is for a model"
            f" from nothing, to compare. [default: {MINUTES:g}]",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        str,
        Parameter(
            help=f"The model to begin with: a name that `ownwords base` lists, or a folder;"
            f" {NOTHING}: train from nothing. [default: the one in the box]",
            show_default=False,
        ),
    ] = "",
    device: Annotated[
        str, Parameter(help="cpu, cuda, rocm, mps, xpu; auto is the best there is.")
    ] = "auto",
    plan: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Show the whole plan, each number with its reason, and stop there. [default: no]",
        ),
    ] = False,
    open_: Annotated[
        bool,
        Parameter(
            name="--open",
            negative=(),
            show_default=False,
            help="Open the scorecard in the end, where there is a desktop. [default: no]",
        ),
    ] = False,
    common: Common = DEFAULTS,
) -> None:
    """Read the paths, tune a model to them, let it write, score it; then the same command is quick.

    Whatever ends it, the same command goes on where it was; nothing that has not changed is done
    again.
    """
    from ownwords.training.plan_constants import PLAN_CONSTANTS

    began = (
        time.perf_counter() - PLAN_CONSTANTS.start_s
    )  # what Python and PyTorch took is waited for, too
    with needs_torch("making a model"):
        if importlib.util.find_spec("torch") is None:  # importing it is left to who computes
            raise ModuleNotFoundError(name="torch")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "`ownwords make` is the work of one process, and here are several",
            hint="train with `ownwords finetune` under torchrun, then judge with `ownwords score`",
        )
    from ownwords.cli.make_view import MakeView
    from ownwords.make import pipeline
    from ownwords.make.callbacks import MakeCallbacks

    place = Workspace(common.workspace) if common.workspace else Workspace.default_for(paths[0])
    resolved = common.resolve({}, workspace=place.root)
    order = MakeRequest(
        paths=paths,
        workspace=place.root,
        minutes=MINUTES if minutes is None else minutes,
        is_timed=minutes is not None,
        base=base_of(base),
        fixed=fixed(resolved),
        archive=resolved.settings.archive,
        provenance=resolved.settings.provenance,
        split=resolved.settings.split,
        device=device,
        began=began,
    )
    view = MakeView(stdout(), stages=not common.quiet)
    with watching(common) as (progress, ask, _):
        if plan:
            planned = pipeline.plan(order, progress=progress, ask=ask)
        else:
            callbacks = MakeCallbacks() if common.json else view
            made = pipeline.make(order, progress=progress, ask=ask, callbacks=callbacks)
    if plan:
        common.show(plan_figures(planned), lambda console: print_plan(planned, console))
        return
    common.show(made.to_dict(), lambda _: view.result(made))
    if open_ and made.scorecard:
        opened(made.scorecard_page)
    if are_terminals(sys.stdin, sys.stdout) and not (common.yes or common.json):
        _offer(made, view)


def _offer(made: "MakeResult", view: "MakeView") -> None:
    """What one may want to do with it now, until that is nothing."""
    from rich.prompt import Prompt
    from rich.text import Text

    from ownwords.cli.chat import HELP, ChatSession
    from ownwords.inference.model import Model
    from ownwords.make.paragraph import MOST_TOKENS, ended_well, prompt_of

    @cache
    def model() -> Model:
        return Model.load(made.model)

    can_open = bool(made.scorecard) and has_desktop()
    names = [name for name in _CHOICES if name != "open" or can_open]
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    console, seed = stderr(), made.paragraph.seed
    while True:
        console.print(Text("\nWhat now?", style="bold"))
        for number, name in numbers.items():
            console.print(Text(f"  {number}  {name:6}") + Text(f"  {_CHOICES[name]}", style="dim"))
        try:
            asked = Prompt.ask(
                "Your choice", console=console, choices=list(numbers), default=str(len(numbers))
            )
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        name = numbers[asked]
        if name == "write":
            seed += 1
            title = made.paragraph.title
            pieces = model().write(prompt_of(title), max_tokens=MOST_TOKENS, seed=seed)
            view.on_writing(title, ended_well(pieces))
        elif name == "chat":
            console.print(Text(HELP))
            ChatSession(model()).run(lambda: input("> "))
        elif name == "open":
            opened(made.scorecard_page)
        else:
            return
