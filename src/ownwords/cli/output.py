"""Output: results on stdout, everything else on stderr; word wrap, and pages in the browser."""

import json
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from ownwords.core.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

EXIT_STATUSES = {
    0: "done",
    1: "a bug in ownwords: the traceback says where, the last line how to report it",
    2: "bad input, settings or surroundings: one sentence on stderr says what, a second what to do",
    130: "interrupted with Ctrl-C, also in the middle of a question",
    141: "whoever read the output stopped reading, as `| head` does",
}


def stdout() -> "Console":
    """For results."""
    return _console(to_stderr=False)


def stderr() -> "Console":
    """For all that is not the result."""
    return _console(to_stderr=True)


def _console(*, to_stderr: bool) -> "Console":
    from rich.console import Console  # slow to import: `ownwords write` has no need of it

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program here; main handles it

    return _Console(stderr=to_stderr, highlight=False)


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
    from rich.text import Text

    message = " ".join(message.split())
    console = stderr()
    console.print(Text(f"ownwords: {printable(message)}"), soft_wrap=True)
    if hint:
        console.print(Text(f"hint: {printable(hint)}", style="dim"), soft_wrap=True)
    if as_json:
        print_json({"error": {"message": message, "hint": hint}})


def choose(title: str, options: Mapping[Any, str], *, text: str = "", default: str) -> str:
    """Let the user choose an option, by number; KeyboardInterrupt where the input ends."""
    from rich.prompt import Prompt
    from rich.text import Text

    console, numbers = stderr(), [str(number) for number in range(1, len(options) + 1)]
    console.print(Text(f"\n{printable(title)}", style="bold"))
    if text:
        console.print(Text(printable(text)))
    for number, (option, meaning) in zip(numbers, options.items(), strict=True):
        console.print(Text(f"  {number}  {option:10}").append(f"  {meaning}", style="dim"))
    names = dict(zip(numbers, options, strict=True))
    usual = next(number for number, name in names.items() if name == default)
    with _ending_as_interrupt():
        chosen = Prompt.ask("Your choice", console=console, choices=numbers, default=usual)
        return str(names[chosen])


def confirm(question: str, *, default: bool) -> bool:
    """Ask yes or no; KeyboardInterrupt where the input ends."""
    from rich.prompt import Confirm

    with _ending_as_interrupt():
        return Confirm.ask(question, console=stderr(), default=default)


@contextmanager
def _ending_as_interrupt() -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise KeyboardInterrupt from None


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

    `shown` turns a word into what the stream can show, without control characters. A word may go on
    in the next piece, unless `has_whole_words`.
    """

    def __init__(
        self,
        stream: IO[str],
        *,
        width: int,
        margin: int = 0,
        shown: Callable[[str], str] = printable,
        has_whole_words: bool = False,
    ) -> None:
        from rich.cells import cell_len

        self._stream, self._shown, self._size_of = stream, shown, cell_len
        self._limit, self._margin = max(8, width - margin), " " * margin
        self._has_whole_words = has_whole_words
        self.has_begun = False
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
        self.has_begun = True
        for letter in piece:
            if letter.isspace():
                self._put_word()
                self._gap += letter
            else:
                self._word += letter
                # Scripts without spaces break at the end of the line.
                if self._size_of(self._word) >= self._limit:
                    self._put_word()
        if self._has_whole_words:
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
        word, size = self._shown(self._word), self._size_of(self._word)
        space = " " if self._gap and self._column else ""
        lines = min(2, self._gap.count("\n"))
        if self._column and (lines or self._column + len(space) + size > self._limit):
            self._stream.write("\n" * max(1, lines))
            self._column, space = 0, ""
        self._stream.write((space if self._column else self._margin) + word)
        self._column += len(space) + size
        self._word = self._gap = ""
