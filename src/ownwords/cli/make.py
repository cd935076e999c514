"""`ownwords make`."""

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated

from ownwords.cli.options import (
    DEFAULTS,
    CommonOptions,
    NoTrim,
    SourcePath,
    TrainingDevice,
    described,
    flag,
    require_package,
)
from ownwords.cli.output import choose, has_desktop, open_browser, stderr, stdout
from ownwords.cli.training import command_start, plan_figures, print_plan, training_settings
from ownwords.core.errors import ConfigError
from ownwords.make.make_request import MakeRequest

if TYPE_CHECKING:
    from ownwords.cli.make_view import MakeView
    from ownwords.make.result import MakeResult

_CHOICES = {
    "write": "continue the same title once more, with another seed",
    "chat": "you begin, it continues, line by line",
    "open": "open the scorecard in your browser",
    "done": "end",
}


def make(
    *paths: SourcePath,
    minutes: Annotated[
        float | None,
        described(
            "Minutes for reading, planning and training, up to the saved model; scoring takes up to"
            " two fifths of them on top. [default: as many as the best installed base needs to read"
            " the texts once, 2 to 6; 4 from the built-in one or from scratch]"
        ),
    ] = None,
    base: Annotated[
        str,
        described(
            "The model to start from: a name from `ownwords base`, or a folder; none trains from"
            " scratch. [default: the best installed one that the minutes allow]"
        ),
    ] = "",
    name: Annotated[
        str,
        described(
            "The model's name among those of this workspace. [default: the workspace's, with a"
            " number]"
        ),
    ] = "",
    no_trim: NoTrim = False,
    device: TrainingDevice = "auto",
    plan: Annotated[bool, flag("Show every number of the plan with its reason, and stop.")] = False,
    open_: Annotated[
        bool, flag("Open the scorecard at the end, if there is a desktop.", name="--open")
    ] = False,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, train a model on them, let it write, score it.

    The same command resumes after any interruption, and does nothing twice.
    """
    began = command_start()
    require_package("torch", "making a model")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "`ownwords make` runs in one process, and several were started",
            hint="train with `ownwords finetune` under torchrun, then use `ownwords score`",
        )
    from ownwords.cli.make_view import MakeView
    from ownwords.make import pipeline
    from ownwords.make.result import MakeCallbacks

    workspace = common.workspace_for(paths)
    accepts = {"archive.replaces_versions": common.yes or None}
    resolved = common.resolve(accepts, workspace.root)
    request = MakeRequest(
        paths=paths,
        workspace=workspace.root,
        minutes=minutes,
        base=base,
        name=name,
        trims=not no_trim,
        fixed=training_settings(resolved),
        reading=resolved.settings,
        device=device,
    )
    view = MakeView(stdout(), stages=not common.quiet)
    with common.watched() as (progress, ask):
        callbacks = MakeCallbacks() if common.json else view
        if plan:
            planned = pipeline.plan(
                request, progress=progress, ask=ask, callbacks=callbacks, began=began
            )
        else:
            made = pipeline.make(
                request, progress=progress, ask=ask, callbacks=callbacks, began=began
            )
    if plan:
        common.show(plan_figures(planned), lambda console: print_plan(planned, console))
        return
    common.show(made.to_dict(), lambda _: view.show_result(made))
    if open_ and made.scorecard:
        open_browser(made.scorecard_page.absolute().as_uri())
    if common.may_ask and sys.stdout.isatty():
        _offer_next_steps(made, view, device)


def _offer_next_steps(made: "MakeResult", view: "MakeView", device: str) -> None:
    """Let the user write, chat or open the scorecard, until they choose to end."""
    from ownwords.cli.write import HELP, ChatSession
    from ownwords.inference.model import Model
    from ownwords.make.result import MAX_TOKENS, SEED, cut_at_paragraph, prompt_of

    @cache
    def model() -> Model:
        return Model.load(made.model, device=device)

    can_open = bool(made.scorecard) and has_desktop()
    choices = {name: text for name, text in _CHOICES.items() if name != "open" or can_open}
    seed = SEED
    while True:
        try:
            choice = choose("What now?", choices, default="done")
        except KeyboardInterrupt:
            stderr().print()
            return
        if choice == "write":
            seed += 1
            title = made.paragraph.title
            pieces = model().write(prompt_of(title), max_tokens=MAX_TOKENS, seed=seed)
            view.on_writing(title, cut_at_paragraph(pieces))
        elif choice == "chat":
            print(HELP, file=sys.stderr)
            ChatSession(model()).run(lambda: input("> "))
        elif choice == "open":
            open_browser(made.scorecard_page.absolute().as_uri())
        else:
            return
