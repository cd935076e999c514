"""How the verbs declare their parameters, those that several share, and what is told of errors."""

import importlib.util
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ownwords.core.errors import ConfigError, OwnwordsError

if TYPE_CHECKING:
    from cyclopts import CycloptsError

_STDIN = "-"
_PACKAGES = {"torch": ("PyTorch", "train"), "optuna": ("Optuna", "train,tune")}
_KINDS = {int: "a whole number", float: "a number"}
_LIKE_AN_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)


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


def refuse_options(words: Sequence[str], verb: str) -> None:
    """Raise ConfigError where a word of a text looks like an option."""
    if option := next(filter(_LIKE_AN_OPTION.fullmatch, words), None):
        raise ConfigError(f"unknown option: {option}", hint=f"{verb} --help")


def text_of(words: Sequence[str], verb: str) -> str:
    """The text given as words on the command line, or read from standard input for "-"."""
    refuse_options(words, verb)
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


def require_package(package: str, purpose: str) -> None:
    """Raise OwnwordsError where the package is missing; nothing is imported."""
    if importlib.util.find_spec(package) is None:
        name, extra = _PACKAGES[package]
        raise OwnwordsError(
            f"{purpose} needs {name}, which is not installed",
            hint=f'pip install "ownwords[{extra}]"',
        )


def usage_error(error: "CycloptsError") -> OwnwordsError:
    """The parser's error in our words, with the help to look at."""
    verb = " ".join(["ownwords", *(error.command_chain or ())])
    return OwnwordsError(_sentence(error, verb), hint=f"{verb} --help")


def _sentence(error: "CycloptsError", verb: str) -> str:
    from cyclopts import (
        CoercionError,
        MissingArgumentError,
        UnknownCommandError,
        UnusedCliTokensError,
    )

    if isinstance(error, MissingArgumentError) and error.argument:
        name = error.argument.name
        if error.argument.index is not None:  # positional: it has no dashes
            name = name.lstrip("-").upper()
        return f"{name} needs a value" if error.keyword else f"{verb} needs a {name}"
    if isinstance(error, CoercionError) and error.token and error.target_type in (int, float, bool):
        name, value = error.token.keyword or "it", error.token.value
        if error.target_type is bool:
            return f"{name} is a switch and takes no value; {value!r} was given"
        return f"{name} should be {_KINDS[error.target_type]}, and is {value!r}"
    if isinstance(error, UnknownCommandError | UnusedCliTokensError) and error.unused_tokens:
        word = error.unused_tokens[0]
        verbs = [name for name in error.app or () if not name.startswith("-")]
        if verbs:
            close = get_close_matches(word, verbs, n=1)
            known = f"did you mean {close[0]}?" if close else f"it has {', '.join(verbs)}"
            return f"{verb} has no {word!r}; {known}"
        if isinstance(error, UnusedCliTokensError):
            return f"{verb} takes no {word!r}"
    message = str(error)
    return message[:1].lower() + message[1:].rstrip(".")
