"""Output: results on stdout, everything else on stderr; word wrap, and pages in the browser."""

import json
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from rich.cells import cell_len
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


def has_desktop(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> bool:
    """Whether a graphical browser can be expected; never in CI."""
    if environment.get("CI", "").lower() not in ("", "0", "false"):
        return False
    if system in ("win32", "darwin"):
        # Over SSH the user sits elsewhere.
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def open_browser(link: str) -> bool:
    """Open a link in the browser; False where that is not possible."""
    try:
        return has_desktop() and webbrowser.open(link)
    except (OSError, webbrowser.Error):
        return False


class StreamingWordWrap:
    """Writes pieces to a stream as lines of `width` columns behind a margin, word by word.

    `shown` turns a word into what the stream can show, without control characters.
    """

    def __init__(
        self,
        stream: IO[str],
        *,
        width: int,
        margin: int = 0,
        shown: Callable[[str], str] = printable,
    ) -> None:
        self._stream, self._shown = stream, shown
        self._limit, self._margin = max(8, width - margin), " " * margin
        self._column = 0  # columns used
        self._gap = ""  # the space before the next word
        self._word = ""

    def write(self, pieces: Iterable[str]) -> None:
        """Write all pieces, then end the line, also when interrupted."""
        try:
            for piece in pieces:
                self.add(piece)
        finally:
            self.end()

    def add(self, piece: str) -> None:
        """Add a piece of the text."""
        for letter in piece:
            if letter.isspace():
                self._put_word()
                self._gap += letter
            else:
                self._word += letter
                # Scripts without spaces break at the end of the line.
                if cell_len(self._word) >= self._limit:
                    self._put_word()
        self._stream.flush()

    def end(self) -> None:
        """Write the last word and end its line."""
        self._put_word()
        if self._column:
            self._stream.write("\n")
        self._column, self._gap = 0, ""
        self._stream.flush()

    def _put_word(self) -> None:
        if not self._word:
            return
        word, size = self._shown(self._word), cell_len(self._word)
        lines = min(2, self._gap.count("\n"))
        if lines and self._column:
            self._stream.write("\n" * lines)
            self._column = 0
        elif self._column and self._gap:
            if self._column + 1 + size > self._limit:
                self._stream.write("\n")
                self._column = 0
            else:
                self._stream.write(" ")
                self._column += 1
        elif self._column and self._column + size > self._limit:
            self._stream.write("\n")
            self._column = 0
        self._stream.write(word if self._column else self._margin + word)
        self._column += size
        self._word = self._gap = ""
