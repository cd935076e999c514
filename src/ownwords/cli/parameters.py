"""How the verbs declare their parameters, and the ones several verbs share."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ownwords.core.errors import ConfigError, OwnwordsError

_STDIN = "-"
_LIKE_AN_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)
_RENAMED = {"--tokens": "--max-tokens"}


def flag(help: str, **more: Any) -> Parameter:  # noqa: ANN401 - what Parameter takes
    """A switch that is off unless given."""
    return Parameter(negative=(), show_default=False, help=f"{help} [default: no]", **more)


def described(help: str, **more: Any) -> Parameter:  # noqa: ANN401 - what Parameter takes
    """A parameter whose help says the default in words."""
    return Parameter(negative=(), show_default=False, help=help, **more)


SourcePath = Annotated[
    Path,
    Parameter(
        name="PATH",
        required=True,
        help="A blog, an export, a feed or a folder of texts, as `ownwords look` takes them.",
    ),
]
TrainingDevice = Annotated[
    str, Parameter(help="Train on cpu, cuda, rocm, mps or xpu; auto takes the best that works.")
]
Device = Annotated[
    str, Parameter(help="Run on cpu, cuda, rocm, mps or xpu; auto takes cuda if it works.")
]
BaseName = Annotated[
    str,
    described(
        "The model to start from: a name from `ownwords base`, or a folder; none trains from"
        " scratch. [default: the one in the box]"
    ),
]
Json = Annotated[bool, flag("Print the result as one JSON object.")]


def renaming(option: str) -> str:
    """The sentence that names what a renamed option is called now; empty for any other."""
    name = option.partition("=")[0]
    return f"{name} is now called {_RENAMED[name]}" if name in _RENAMED else ""


def text_of(words: Sequence[str], verb: str) -> str:
    """The text given as words on the command line, or read from standard input for "-"."""
    if option := next(filter(_LIKE_AN_OPTION.fullmatch, words), None):
        sentence = renaming(option) or f"unknown option: {option}"
        raise ConfigError(sentence, hint=f"{verb} --help")
    if list(words) != [_STDIN]:
        return " ".join(words)
    if sys.stdin is None:  # as where whoever started this closed it
        raise OwnwordsError("there is no standard input to read", hint="give the text itself")
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OwnwordsError(
            f"standard input is not UTF-8: {error.reason} at byte {error.start}",
            hint="convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE",
        ) from error
