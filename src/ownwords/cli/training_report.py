"""The plan of a training, and what came of it, as a terminal shows them."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ownwords.cli.line_chart import LOUD, QUIET, VALIDATED, line_chart
from ownwords.cli.output import relative_path
from ownwords.core.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.training.plan import Plan, PlannedValue
    from ownwords.training.recipes import TrainedModel
    from ownwords.training.run_history import RunHistory


_WIDEST = 104
_STOPPED = {
    "done": "",
    "early": "Training ended early: more steps no longer helped on held-out posts.",
    "memorised": "Training ended early: the model began to memorise the texts.",
}


def print_plan(plan: "Plan", console: "Console") -> None:
    """Print every number with its reason and source; mark those the user set."""
    width = max(40, min(console.width, _WIDEST))
    console.print()
    console.print(Text("The plan", style=LOUD))
    sections: dict[str, list[PlannedValue]] = {}
    for number in plan.reasons:
        sections.setdefault(number.key.partition(".")[0], []).append(number)
    longest = max(len(number.key.partition(".")[2]) for number in plan.reasons)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, width=longest + 2)
    table.add_column(no_wrap=True, justify="right", width=11, overflow="crop")
    table.add_column(overflow="fold", width=max(12, width - longest - 2 - 11 - 4))
    for section, numbers in sections.items():
        table.add_row("", "", "")
        table.add_row(Text(section, style=QUIET), "", "")
        for number in numbers:
            name = number.key.partition(".")[2]
            table.add_row(Text(f"  {name}"), Text(_value(number), style=LOUD), _reason(number))
    console.print(table)
    console.print()
    console.print(Text("What to expect", style=LOUD))
    for sentence in plan.expected.sentences():
        console.print(Text(sentence), width=width)
    console.print()


def _value(number: "PlannedValue") -> str:
    if isinstance(number.value, bool):
        return "yes" if number.value else "no"
    if isinstance(number.value, int):
        return f"{number.value:,}"
    return f"{number.value:g}" if isinstance(number.value, float) else str(number.value)


def _reason(number: "PlannedValue") -> Text:
    if number.origin == "setting":
        return Text("as you set it", style=VALIDATED)
    reason = Text(printable(number.reason))
    return reason.append(f"  {number.source}", style=QUIET) if number.source else reason


def print_made(
    made: "TrainedModel", samples: Sequence[str], history: "RunHistory", console: "Console"
) -> None:
    """Print the result, the curve, how right the plan was, samples, and what to do next."""
    width = max(40, min(console.width, _WIDEST))
    plain = (console.encoding or "").lower().replace("-", "") not in {"utf8", "utf16"}
    outcome = made.outcome

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style), width=width)

    console.print()
    if made.bits_per_byte is None:
        say("The model is trained. No text was held out, so its quality is unknown.", LOUD)
    else:
        before = "" if made.before is None else f"; the base had {made.before:.3f}"
        say(f"{made.bits_per_byte:.3f} bits per byte on held-out posts{before}", LOUD)
    marks = [(float(e.step), e.best) for e in outcome.evaluations if e.best is not None]
    # Steps cut for lack of time are not drawn; steps saved by ending early are.
    steps = outcome.steps if outcome.stopped == "done" else made.plan.recipe.train.steps
    if len(marks) > 1:
        console.print()
        line = [(point.step, point.smooth) for point in history.points]
        for row in line_chart(line, marks, steps=steps, width=width, height=7, plain=plain):
            console.print(row)
    console.print()
    for sentence in made.judged:
        say(sentence)
    if _STOPPED[outcome.stopped]:
        say(_STOPPED[outcome.stopped])
    if made.bits_per_byte is not None:
        say(_saved_weights(made))
    if outcome.setbacks:
        times = "once" if outcome.setbacks == 1 else f"{outcome.setbacks} times"
        say(
            f"The loss diverged {times}; training went back to a checkpoint and halved the learning"
            " rate."
        )
    if samples:
        console.print()
        say("Samples", LOUD)
        for sample in samples:
            text = " ".join(sample.split())
            say(f'"{text}"' if plain else f"“{text}”", "italic")
    console.print()
    say("The model", LOUD)
    folder = relative_path(made.folder)
    # Each on one line, however long: they are to be copied.
    for text, style in (
        (folder, ""),
        (f"For other tools: ownwords export {shlex.quote(folder)} --to gguf", QUIET),
        (f"All figures: {relative_path(made.run.folder)}", QUIET),
    ):
        console.print(Text(text, style=style), soft_wrap=True)
    say("More --minutes start a new run from scratch, with a larger plan.", QUIET)


def _saved_weights(made: "TrainedModel") -> str:
    if not made.share:
        return "Training did not help on held-out posts, so the base's own weights are saved."
    averaged = ", averaged with earlier ones" if made.outcome.averaged else ""
    way = f", {made.share:.0%} of the way from the base" if made.share < 1 else ""
    return f"The saved weights are from step {made.outcome.best_step:,}{averaged}{way}."
