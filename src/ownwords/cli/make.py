"""`ownwords make`: on a terminal a line per stage, the first paragraph, and the verdict."""

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from ownwords.archive import report_view as summary
from ownwords.archive.report import Report
from ownwords.cli.options import (
    DEFAULTS,
    CommonOptions,
    NoTrim,
    SourcePath,
    TrainingDevice,
    require_package,
    with_help,
)
from ownwords.cli.output import (
    StreamingWordWrap,
    open_browser,
    relative_path,
    stdout,
)
from ownwords.cli.training import command_start, plan_figures, print_plan, training_settings
from ownwords.core.errors import ConfigError
from ownwords.core.progress import duration
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scorecard_view import headline, judged_on
from ownwords.make.stages import (
    CHANGED,
    MakeCallbacks,
    MakeRequest,
    MakeResult,
    TrainingSummary,
)
from ownwords.view import format as say
from ownwords.view.blocks import Figures
from ownwords.view.terminal import BOLD, DIM, TerminalWriter

if TYPE_CHECKING:
    from ownwords.training.plan import Plan

_LABEL, _TIME = 12, 7
_FEW = 3
_INDENT = 4
_BITS_PER_BYTE = (
    "Bits per byte say how much each letter surprises the model: the fewer, the better it predicts"
    " what you write."
)


@with_help
def make(
    *paths: SourcePath,
    minutes: float | None = None,
    base: str = "",
    name: str = "",
    no_trim: NoTrim = False,
    device: TrainingDevice = "auto",
    plan: bool = False,
    open_: Annotated[bool, Parameter(name="--open")] = False,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, train a model on them, let it write, score it.

    The same command resumes after any interruption, and does nothing twice.

    Args:
        minutes: Minutes for reading, planning and training, up to the saved model; scoring then
            takes up to 40% as long again. [default: as many as the best installed base needs to
            read the texts once, 2 to 6; 4 for the built-in base or training from scratch]
        base: The model to start from: a name from `ownwords base`, or a folder; none trains from
            scratch. [default: the best installed one that the minutes allow]
        name: The model's name in this workspace. [default: the workspace's name and a number]
        plan: Show every number of the plan with its reason, and stop.
        open_: Open the scorecard at the end, if there is a desktop.
    """
    began = command_start()
    require_package("torch", "making a model")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "`ownwords make` runs in one process, and several were started",
            hint="train with `ownwords finetune` under torchrun, then use `ownwords score`",
        )
    from ownwords.make import pipeline

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


# --- on a terminal --------------------------------------------------------------------------------


class MakeView(TerminalWriter, MakeCallbacks):
    """Prints each stage when it is done; without `stages` only the paragraph and the result."""

    def __init__(self, console: Console, *, stages: bool = True) -> None:
        super().__init__(console)
        self._stages = stages
        self._explained = self._has_changed = False

    # --- callbacks --------------------------------------------------------------------------------

    def on_read(self, report: Report, seconds: float) -> None:
        if not self._stages:
            return
        totals, years = report.totals, summary.years_spanned(report)
        self.space()
        self.line(summary.name(report), BOLD)
        for source in report.sources[:_FEW]:
            self.line(
                f"{source.path}, {source.detected_as}" if source.detected_as else source.path, DIM
            )
        self.rest(len(report.sources), _FEW)
        self.rule()
        self.stage(
            "Read",
            f"{say.count(totals.own_words, 'word')} of your own in"
            f" {summary.count_texts(totals.posts, totals.pages)}{years and f', {years}'}.",
            seconds,
        )
        for post in summary.notable_posts(report)[:_FEW]:
            why = summary.flags(post) if post.decision == "keep" else post.reason
            self.stage(summary.decision(post), f"{say.quoted(post.title, 60)}. {say.sentence(why)}")
        held = report.split.posts
        if sum(held.values()):
            train, validation, test = (held.get(s, 0) for s in ("train", "validation", "test"))
            self.stage(
                "Held out",
                f"{say.count(validation, 'text')} to choose the best checkpoint,"
                f" {say.count(test)} to judge the model. It is trained on the other"
                f" {say.count(train)}.",
            )

    def on_notice(self, label: str, text: str) -> None:
        self._has_changed = self._has_changed or label == CHANGED
        self.stage(label, text)

    def on_planned(self, plan: "Plan", base: str) -> None:
        expected = plan.expected
        what = f"{say.number(plan.recipe.model.parameters)} parameters from scratch"
        if base:
            what = f"{say.number(plan.recipe.model.parameters)} parameters, fine-tuned from {base}"
        self.stage(
            "Plan",
            f"{what}: {duration(expected.seconds)}, reading your texts"
            f" {say.times(expected.epochs)}. Expect {expected.bits_low:.2f} to"
            f" {expected.bits_high:.2f} bits per byte.",
        )
        self._explain()

    def on_trained(self, trained: TrainingSummary, seconds: float | None) -> None:
        is_as_it_was = seconds is None and not self._has_changed
        again = " Nothing has changed since then." if is_as_it_was else ""
        self.stage("Trained", _outcome(trained) + again, seconds)
        if seconds is not None:
            self._explain()

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        self.space()
        if title:
            self.line(
                f"Your post {say.quoted(title, 90)} was held out. From its title alone, the model"
                " writes:"
            )
        else:
            self.line("The model writes:")
        self.space()
        if title:
            self.line(title, BOLD, indent=_INDENT)
            self.space()
        StreamingWordWrap.of(self, indent=_INDENT).write(pieces)
        self.space()

    def on_scored(self, card: Scorecard, seconds: float | None) -> None:
        if seconds is not None:
            self.stage("Scored", f"On {say.count(card.about.judged_posts, 'post')}.", seconds)

    # --- the result -------------------------------------------------------------------------------

    def show_result(self, result: MakeResult) -> None:
        """Print the verdict, and where everything is."""
        card = result.scorecard
        self.rule()
        if card:
            self.line(card.verdict.sentence, BOLD)
            for reason in card.verdict.because:
                self.line(reason, indent=2)
            if figures := headline(card):
                self.blocks([Figures(rows=figures)])
            self.line(judged_on(card.about), DIM)
        else:
            self.line(
                "There are too few texts to hold any out for testing, so the quality is unknown."
            )
        self.heading("Where things are")
        rows = [("Your model", result.model), ("What is in your texts", result.report_page)]
        if card:
            rows.insert(1, ("Its scorecard", result.scorecard_page))
        for name, path in rows:
            self.copied(relative_path(path), f"{name:22}")
        self.space()
        folder = shlex.quote(relative_path(result.workspace))
        self.copied(f'ownwords write "The trouble with" --model {folder}')
        self.copied(f"ownwords chat --model {folder}")
        self.copied(f"ownwords export {shlex.quote(relative_path(result.model))} --to gguf")

    # --- lines ------------------------------------------------------------------------------------

    def stage(self, label: str, what: str, seconds: float | None = None) -> None:
        """Print a stage: label, text wrapped beside it, duration."""
        if not self._stages:
            return
        took = duration(seconds) if seconds is not None else ""
        grid = self.grid()
        grid.add_column(no_wrap=True, width=_LABEL, overflow="crop")
        grid.add_column(width=self.width - _LABEL - _TIME - 4, overflow="fold")
        grid.add_column(no_wrap=True, width=_TIME, justify="right", overflow="crop")
        grid.add_row(self.text(label, BOLD), self.text(what), self.text(took, DIM))
        self.put(grid)
        self.console.file.flush()

    def _explain(self) -> None:
        if not self._explained:
            self._explained = True
            self.stage("", _BITS_PER_BYTE)


def _outcome(trained: TrainingSummary) -> str:
    if trained.bits_per_byte is None:
        text = "No text was held out, so the quality is unknown."
    else:
        before = "" if trained.before is None else f"; the base had {trained.before:.2f}"
        text = f"{trained.bits_per_byte:.2f} bits per byte on held-out posts{before}."
    if trained.stopped == "early":
        return f"{text} Training ended early: more steps no longer helped."
    return text
