"""`ownwords chat`."""

import secrets
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain

from ownwords.cli.model_options import (
    NO_OPTIONS,
    MaxTokens,
    WritingOptions,
    check_positive,
    resolve_model_directory,
)
from ownwords.cli.output import StreamingWordWrap, are_terminals
from ownwords.core.errors import OwnwordsError
from ownwords.inference.model import Model

MAX_TOKENS = 200
_SEEDS = 1 << 31
_WIDEST = 92  # columns that are easy to read
HELP = """\
Type the beginning of a text; the model continues it. An empty line starts a new text.
/again            continue the same beginning once more, with another seed
/seed 7           set the seed of the next text; the same seed writes the same text
/temperature 0.5  safer; 1.2 is bolder
/quit             end, as Ctrl-D does; Ctrl-C ends the current text"""


def chat(*, max_tokens: MaxTokens = MAX_TOKENS, options: WritingOptions = NO_OPTIONS) -> None:
    """Continue each line you type."""
    check_positive("--max-tokens", max_tokens)
    model = Model.load(resolve_model_directory(options.model), device=options.device)
    on_terminal = are_terminals(sys.stdin, sys.stdout)
    if on_terminal:
        print(HELP, file=sys.stderr)
    ChatSession(model, options, max_tokens).run(_line if on_terminal else _piped_line)


class ChatSession:
    """A model that continues one line after another, and the settings it does so with."""

    def __init__(
        self, model: Model, options: WritingOptions = NO_OPTIONS, max_tokens: int = MAX_TOKENS
    ) -> None:
        self._model, self._options, self._max_tokens = model, options, max_tokens
        self._temperature = options.temperature
        self._seed = secrets.randbelow(_SEEDS) if options.seed is None else options.seed
        self._last = ""
        self._commands: dict[str, Callable[[str], bool]] = {
            "/again": self._again,
            "/seed": self._set_seed,
            "/temperature": self._set_temperature,
            "/help": self._help,
            "/quit": lambda _: False,
        }

    def run(self, next_line: Callable[[], str]) -> None:
        """Answer lines until they end, or one says so."""
        while True:
            try:
                line = next_line()
            except (EOFError, KeyboardInterrupt):
                print(file=sys.stderr)
                return
            try:
                if not self.answer(line):
                    return
            except OwnwordsError as error:  # such as an impossible temperature
                self._print(str(error))

    def answer(self, line: str) -> bool:
        """Obey a command or continue a text; False when the session is over."""
        if not line.startswith("/"):
            self._write(line)
            return True
        name, _, value = line.strip().partition(" ")
        if name not in self._commands:
            self._print(f"there is no {name}: " + ", ".join(self._commands))
            return True
        return self._commands[name](value.strip())

    def _write(self, beginning: str) -> None:
        self._last = beginning
        pieces = self._model.write(
            beginning,
            max_tokens=self._max_tokens,
            seed=self._seed,
            quote=self._options.quote,
            temperature=self._temperature,
        )
        try:
            _show(chain([beginning], pieces))
        except KeyboardInterrupt:  # ends this text, not the session
            self._print("(ended)")
        if sys.stderr.isatty():
            self._print(f"seed {self._seed}, temperature {self._temperature:g}")
        self._seed += 1

    def _again(self, _: str) -> bool:
        self._write(self._last)
        return True

    def _set_seed(self, value: str) -> bool:
        if value.isdecimal():
            self._seed = int(value)
        else:
            self._print(f"the next seed is {self._seed}; /seed 7 makes it 7")
        return True

    def _set_temperature(self, value: str) -> bool:
        with suppress(ValueError):
            temperature = float(value)
            if 0 <= temperature <= 5:
                self._temperature = temperature
                return True
        self._print(f"the temperature is {self._temperature:g}; it may be 0 to 5")
        return True

    def _help(self, _: str) -> bool:
        self._print(HELP)
        return True

    @staticmethod
    def _print(text: str) -> None:
        print(text, file=sys.stderr)


def _show(pieces: Iterable[str]) -> None:
    """Print the text wrapped on a terminal, unchanged elsewhere."""
    if sys.stdout.isatty():
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        StreamingWordWrap(sys.stdout, width=width).write(pieces)
        print()
        return
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    finally:
        print(flush=True)


def _line() -> str:
    with suppress(ImportError):  # lines can then be edited, and earlier ones called back
        import readline  # noqa: F401
    return input("> ")


def _piped_line() -> str:
    line = sys.stdin.readline() if sys.stdin is not None else ""  # closed by whoever started this
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
