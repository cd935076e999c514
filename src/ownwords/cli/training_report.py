"""The plan of a training, and what came of it, as a terminal shows them."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ownwords.cli.line_chart import LOUD, QUIET, VALIDATED, line_chart
from ownwords.core.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.cli.training_view import Seen
    from ownwords.training.planned import Derived, Plan
    from ownwords.training.recipes import Made

_WIDEST = 104
_STOPPED = {
    "done": "",
    "early": "It ended early: more training no longer helped on texts it had not seen.",
    "memorised": "It ended early: it had begun to learn the texts by heart.",
}


def print_plan(plan: "Plan", console: "Console") -> None:
    """Every number with its reason and its source; those the user set are marked."""
    width = max(40, min(console.width, _WIDEST))
    console.print()
    console.print(Text("The plan", style=LOUD))
    section = ""
    table = Table.grid(padding=(0, 2))
    longest = max(len(one.key.partition(".")[2]) for one in plan.reasons)
    table.add_column(no_wrap=True, width=longest + 2)
    table.add_column(no_wrap=True, justify="right", width=11, overflow="crop")
    table.add_column(overflow="fold", width=max(12, width - longest - 2 - 11 - 4))
    # Derived one from another, the numbers of a section need not follow each other.
    sections = list(dict.fromkeys(one.key.partition(".")[0] for one in plan.reasons))
    for one in sorted(plan.reasons, key=lambda one: sections.index(one.key.partition(".")[0])):
        now, _, name = one.key.partition(".")
        if now != section:
            section = now
            table.add_row("", "", "")
            table.add_row(Text(section, style=QUIET), "", "")
        table.add_row(Text(f"  {name}"), Text(_value(one), style=LOUD), _why(one))
    console.print(table)
    console.print()
    console.print(Text("What to expect", style=LOUD))
    for sentence in plan.expected.sentences():
        console.print(Text(sentence), width=width)
    console.print()


def _value(one: "Derived") -> str:
    if isinstance(one.value, bool):
        return "yes" if one.value else "no"
    if isinstance(one.value, int):
        return f"{one.value:,}"
    return f"{one.value:g}" if isinstance(one.value, float) else str(one.value)


def _why(one: "Derived") -> Text:
    if one.origin == "setting":
        return Text("as you set it", style=VALIDATED)
    said = Text(printable(one.reason))
    return said.append(f"  {one.source}", style=QUIET) if one.source else said


def print_made(made: "Made", samples: Sequence[str], seen: "Seen", console: "Console") -> None:
    """What came of it: the figure, the curve, how right the plan was, samples, what to do next."""
    width = max(40, min(console.width, _WIDEST))
    plain = (console.encoding or "").lower().replace("-", "") not in {"utf8", "utf16"}
    outcome = made.outcome

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style=style), width=width)

    console.print()
    if made.bits_per_byte is None:
        say("A model is trained; no text was held out, so nobody knows how good it is.", LOUD)
    else:
        before = "" if made.before is None else f"; the base had {made.before:.3f}"
        say(f"{made.bits_per_byte:.3f} bits a byte on texts it has never seen{before}", LOUD)
    marks = [(float(e.step), e.best) for e in outcome.evaluations if e.best is not None]
    # What was left out because of the time is not drawn; what a run that ended early saved, is.
    steps = outcome.steps if outcome.stopped == "done" else made.plan.recipe.train.steps
    if len(marks) > 1:
        console.print()
        line = list(seen.line)
        for row in line_chart(line, marks, steps=steps, width=width, height=7, plain=plain):
            console.print(row)
    console.print()
    for sentence in made.judged:
        say(sentence)
    if _STOPPED[outcome.stopped]:
        say(_STOPPED[outcome.stopped])
    if made.bits_per_byte is not None:
        say(_kept(made))
    if outcome.setbacks:
        times = "once" if outcome.setbacks == 1 else f"{outcome.setbacks} times"
        say(f"The loss went astray {times}: it went back to a checkpoint, at half the rate.")
    if samples:
        console.print()
        say("What it writes", LOUD)
        for sample in samples:
            text = " ".join(sample.split())
            say(f'"{text}"' if plain else f"“{text}”", "italic")
    console.print()
    say("The model", LOUD)
    folder = shlex.quote(str(_near(made.folder)))
    # Whole on one line, however long: they are to be copied.
    for text, style in (
        (str(_near(made.folder)), ""),
        (f"For other tools: ownwords export {folder} --to gguf", QUIET),
        (f"All figures: {_near(made.run.folder)}", QUIET),
    ):
        console.print(Text(text, style=style), soft_wrap=True)
    say("With more --minutes another run begins, from the start, with a larger plan.", QUIET)


def _kept(made: "Made") -> str:
    if not made.share:
        return "Nothing that was learned helped on those texts: the base's own weights are kept."
    averaged = ", averaged with those before" if made.outcome.averaged else ""
    way = f", {made.share:.0%} of the way from the base" if made.share < 1 else ""
    return f"The weights kept are those after step {made.outcome.best_step:,}{averaged}{way}."


def _near(path: Path) -> Path:
    """From the current folder, where it is below."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path
