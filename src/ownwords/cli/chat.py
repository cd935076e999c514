"""`ownwords chat`."""

import secrets
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.output import are_terminals
from ownwords.cli.sampling_options import Device, ModelFolder, Quote, Temperature
from ownwords.cli.word_wrap import StreamingWordWrap
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.inference.model import Model
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.inference.whereabouts import model_folder

TOKENS = 200
_SEEDS = 1 << 31
_WIDEST = 92  # columns: wider than this, an eye loses the line
HELP = """\
Type how a text begins; it is written on. An empty line: a new text.
/again            once more from the same beginning, with other luck
/seed 7           the luck of the next text; the same seed writes the same text
/temperature 0.5  safer; 1.2 is bolder
/quit             ends it, as Ctrl-D does; Ctrl-C ends the text under way"""


def chat(
    *,
    model: ModelFolder = None,
    tokens: Annotated[int, Parameter(help="Write at most so many for each line.")] = TOKENS,
    temperature: Temperature = DEFAULT_SAMPLING.temperature,
    seed: Annotated[
        int | None,
        Parameter(help="The luck of the first text. [default: another each time]"),
    ] = None,
    device: Device = "auto",
    quote: Quote = False,
) -> None:
    """Line by line: each is how a text begins, and the model writes on from it."""
    if tokens < 1:
        raise ConfigError(f"--tokens should be 1 or more, and is {tokens}")
    loaded = Model.load(model_folder(model, Path.cwd()), device=device)
    on_terminal = are_terminals(sys.stdin, sys.stdout)
    if on_terminal:
        print(HELP, file=sys.stderr)
    ChatSession(loaded, tokens=tokens, temperature=temperature, seed=seed, quote=quote).talk(
        _line if on_terminal else _piped_line
    )


class ChatSession:
    """A model that writes on from one line after another, and what was said about how."""

    def __init__(
        self,
        model: Model,
        *,
        tokens: int = TOKENS,
        temperature: float = DEFAULT_SAMPLING.temperature,
        seed: int | None = None,
        quote: bool = False,
    ) -> None:
        self._model, self._tokens, self._quote = model, tokens, quote
        self._temperature = temperature
        self._seed = secrets.randbelow(_SEEDS) if seed is None else seed
        self._last = ""
        self._commands: dict[str, Callable[[str], bool]] = {
            "/again": self._again,
            "/seed": self._set_seed,
            "/temperature": self._set_temperature,
            "/help": self._help,
            "/quit": lambda _: False,
        }

    def talk(self, line: Callable[[], str]) -> None:
        """Until the lines end, or one says so."""
        while True:
            try:
                said = line()
            except (EOFError, KeyboardInterrupt):
                print(file=sys.stderr)
                return
            try:
                if not self.answer(said):
                    return
            except OwnwordsError as error:  # as of a temperature that cannot be
                self._say(str(error))

    def answer(self, line: str) -> bool:
        """Do what the line says, or write on from it; whether there is more to come."""
        if not line.startswith("/"):
            self._write(line)
            return True
        name, _, value = line.strip().partition(" ")
        if name not in self._commands:
            self._say(f"there is no {name}: " + ", ".join(self._commands))
            return True
        return self._commands[name](value.strip())

    def _write(self, beginning: str) -> None:
        self._last = beginning
        pieces = self._model.write(
            beginning,
            tokens=self._tokens,
            seed=self._seed,
            quote=self._quote,
            temperature=self._temperature,
        )
        try:
            _show(chain([beginning], pieces))
        except KeyboardInterrupt:  # of this text, not of the whole
            self._say("(ended)")
        if sys.stderr.isatty():
            self._say(f"seed {self._seed}, temperature {self._temperature:g}")
        self._seed += 1

    def _again(self, _: str) -> bool:
        self._write(self._last)
        return True

    def _set_seed(self, value: str) -> bool:
        if value.isdecimal():
            self._seed = int(value)
        else:
            self._say(f"the next seed is {self._seed}; /seed 7 makes it 7")
        return True

    def _set_temperature(self, value: str) -> bool:
        with suppress(ValueError):
            wanted = float(value)
            if 0 <= wanted <= 5:
                self._temperature = wanted
                return True
        self._say(f"the temperature is {self._temperature:g}; it may be 0 to 5")
        return True

    def _help(self, _: str) -> bool:
        self._say(HELP)
        return True

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr)


def _show(pieces: Iterable[str]) -> None:
    """To be read on a terminal; elsewhere as it is."""
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
