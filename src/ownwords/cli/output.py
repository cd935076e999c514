"""Output: results on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.prompt import Prompt
from rich.text import Text

from ownwords.cli.progress_bars import ProgressBars
from ownwords.core.progress import printable

if TYPE_CHECKING:
    from ownwords.archive.analysis import PostQuestion

EXIT_STATUSES = {
    0: "done",
    1: "a bug in ownwords: the traceback says where, the last line how to report it",
    2: "bad input, settings or surroundings: one sentence on stderr says what, a second what to do",
    130: "interrupted with Ctrl-C, also in the middle of a question",
    141: "whoever read the output stopped reading, as `| head` does",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would end the program here; main handles it.
        raise BrokenPipeError


def stdout() -> Console:
    """For results."""
    return _Console(highlight=False)


def stderr() -> Console:
    """For all that is not the result."""
    return _Console(stderr=True, highlight=False)


def are_terminals(*streams: TextIO | None) -> bool:
    """Whether all of these are terminals; closed streams are None."""
    return all(stream is not None and stream.isatty() for stream in streams)


def relative_path(path: Path) -> str:
    """The path from the current folder where it lies below it, else the path itself."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def print_json(figures: Mapping[str, Any]) -> None:
    """Print one JSON object, in ASCII where stdout is not UTF-8."""
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(figures, ensure_ascii=not is_utf8, allow_nan=False, indent=2))


def print_error(message: str, hint: str, *, as_json: bool) -> None:
    """Print a sentence and a hint on stderr; with `as_json` also `{"error": {...}}` on stdout."""
    message = " ".join(message.split())
    console = stderr()
    console.print(Text(f"ownwords: {printable(message)}"), soft_wrap=True)
    if hint:
        console.print(Text(f"hint: {printable(hint)}", style="dim"), soft_wrap=True)
    if as_json:
        print_json({"error": {"message": message, "hint": hint}})


def ask(question: "PostQuestion", bars: ProgressBars | None) -> str:
    """Ask the author for an option, by number; KeyboardInterrupt where the input ends."""
    console = stderr()
    numbers = {str(number): option for number, option in enumerate(question.options, 1)}
    default = next(number for number, option in numbers.items() if option == question.default)
    if bars:
        with bars.paused():
            return ask(question, None)
    console.print(Text(f"\n{printable(question.title)}", style="bold"))
    console.print(Text(printable(question.text)))
    for number, option in numbers.items():
        meaning = Text(f"  {question.options[option]}", style="dim")
        console.print(Text(f"  {number}  {option:10}") + meaning)
    try:
        chosen = Prompt.ask("Your choice", console=console, choices=list(numbers), default=default)
    except EOFError:
        raise KeyboardInterrupt from None
    return numbers[chosen]
