"""One plain sentence for a command line that cannot be parsed."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ownwords.cli.parameters import renaming
from ownwords.core.errors import OwnwordsError

if TYPE_CHECKING:
    from cyclopts import CycloptsError

_KINDS = {int: "a whole number", float: "a number"}


def usage_error(error: "CycloptsError") -> OwnwordsError:
    """The parser's error in our words, with the help to look at."""
    verb = " ".join(["ownwords", *(error.command_chain or ())])
    return OwnwordsError(_sentence(error, verb), hint=f"{verb} --help")


def _sentence(error: "CycloptsError", verb: str) -> str:
    from cyclopts import (
        CoercionError,
        MissingArgumentError,
        UnknownCommandError,
        UnknownOptionError,
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
    if isinstance(error, UnknownOptionError) and error.token.keyword:
        renamed = renaming(error.token.keyword)
        if renamed:
            return renamed
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
