"""Prints results on stdout and everything else on stderr; wraps words, and opens the browser."""

import json
import os
import re
import sys
import webbrowser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from ownwords.core.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.view.terminal import TerminalWriter

EXIT_STATUSES = {
    0: "done",
    1: "a bug in ownwords: the traceback shows where, the last line says how to report it",
    2: "bad input, settings or environment: stderr says in one sentence what, in a second what to"
    " do",
    130: "interrupted with Ctrl-C, also while a question is asked",
    141: "the reader of the output stopped reading, as `| head` does",
}


def examples(verb: str, *arguments: str) -> str:
    """Return the end of a verb's help: commands to copy."""
    return "\n".join(["Examples:", *(f"  ownwords {verb} {each}".rstrip() for each in arguments)])


def shown_default(value: object) -> str | None:
    """Return a default for the help; None for one that the help gives in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value in (None, "", ()) else str(value)


def stdout() -> "Console":
    """Return a console for results."""
    return _console(to_stderr=False)


def stderr() -> "Console":
    """Return a console for everything but results."""
    return _console(to_stderr=True)


def _console(*, to_stderr: bool) -> "Console":
    from rich.console import Console  # slow to import, and `ownwords write` does not need it

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program here; main handles it

    return _Console(stderr=to_stderr, highlight=False)


def are_terminals(*streams: TextIO | None) -> bool:
    """Return whether all of these are terminals; closed streams are None."""
    return all(stream is not None and stream.isatty() for stream in streams)


def relative_path(path: Path) -> str:
    """Return a path below the current folder relative to it, any other path as it is."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def print_json(figures: Mapping[str, Any]) -> None:
    """Print one JSON object, in ASCII if stdout is not UTF-8."""
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
    """Return the option that the user chooses by number; KeyboardInterrupt if the input ends."""
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
    """Return the answer to a yes-no question; KeyboardInterrupt if the input ends."""
    from rich.prompt import Confirm

    with _ending_as_interrupt():
        return Confirm.ask(question, console=stderr(), default=default)


def input_line(prompt: str) -> str:
    """Return a line that the user types, with editing and history if available."""
    with suppress(ImportError):
        import readline  # noqa: F401
    return input(prompt)


@contextmanager
def _ending_as_interrupt() -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise KeyboardInterrupt from None


def has_desktop(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> bool:
    """Return whether a graphical browser can be expected; never in CI."""
    if environment.get("CI", "").lower() not in ("", "0", "false"):
        return False
    if system in ("win32", "darwin"):
        # Over SSH the user is at another machine.
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def open_browser(link: str) -> bool:
    """Open a link in the browser; return whether that was possible."""
    try:
        return has_desktop() and webbrowser.open(link)
    except (OSError, webbrowser.Error):
        return False


class StreamingWordWrap:
    """Writes pieces to a stream as lines of `width` columns behind a margin, word by word.

    A word may continue in the next piece, unless `has_whole_words`. Unlike rich, it does not hold
    lines back.
    """

    def __init__(
        self, stream: IO[str], *, width: int, margin: int = 0, has_whole_words: bool = False
    ) -> None:
        self._stream = stream
        self._limit, self._margin = max(8, width - margin), " " * margin
        self._has_whole_words = has_whole_words
        self.has_begun = False
        self._column = 0  # columns used
        self._gap = ""  # the space before the next word
        self._word = ""

    @classmethod
    def of(cls, writer: "TerminalWriter", indent: int = 0) -> "StreamingWordWrap":
        """Return one within a writer's margins."""
        margin = writer.margin + indent
        return cls(writer.console.file, width=writer.margin + writer.width, margin=margin)

    def write(self, pieces: Iterable[str]) -> None:
        """Write all pieces, then end the line, also when interrupted."""
        try:
            for piece in pieces:
                self.add(piece)
        finally:
            self.end()

    def add(self, piece: str) -> None:
        self.has_begun = True
        *parts, self._word = re.split(r"(\s+)", self._word + piece)
        if self._has_whole_words:
            parts, self._word = [*parts, self._word], ""
        for part in parts:
            self._put(part)
        self._stream.flush()

    def end(self) -> None:
        """Write the last word and end its line."""
        self._put(self._word)
        if self._column:
            self._stream.write("\n")
        self._column, self._gap, self._word = 0, "", ""
        self._stream.flush()

    def _put(self, part: str) -> None:
        """Write a word; keep space until the next one."""
        if not part.strip():
            self._gap += part
            return
        from rich.cells import cell_len

        word = printable(part)
        size, space = cell_len(word), " " if self._gap and self._column else ""
        lines = min(2, self._gap.count("\n"))
        if self._column and (lines or self._column + len(space) + size > self._limit):
            self._stream.write("\n" * max(1, lines))
            self._column, space = 0, ""
        self._stream.write((space if self._column else self._margin) + word)
        self._column += len(space) + size
        self._gap = ""
