"""What was typed wrong, in a sentence of ours: the library's own speak of tokens and types."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

_KINDS = {int: "a whole number", float: "a number"}


def sentence(error: "CycloptsError", verb: str) -> str:
    """What is wrong with the words after `verb`, and what was perhaps meant."""
    from cyclopts import (
        CoercionError,
        MissingArgumentError,
        UnknownCommandError,
        UnusedCliTokensError,
    )

    if isinstance(error, MissingArgumentError) and error.argument:
        name = error.argument.name
        if error.argument.index is not None:  # it has a place, and needs no dashes
            name = name.lstrip("-").upper()
        return f"{name} needs a value" if error.keyword else f"{verb} needs a {name}"
    if isinstance(error, CoercionError) and error.token and error.target_type in (int, float, bool):
        name, said = error.token.keyword or "it", error.token.value
        if error.target_type is bool:
            return f"{name} is said or not said, and takes no value; {said!r} was given"
        return f"{name} should be {_KINDS[error.target_type]}, and is {said!r}"
    if isinstance(error, UnknownCommandError | UnusedCliTokensError) and error.unused_tokens:
        word, verbs = error.unused_tokens[0], _verbs(error.app)
        if verbs:
            return _no_verb(word, verbs, verb)
        if isinstance(error, UnusedCliTokensError):
            return f"{verb} has no use for {word!r}"
    message = str(error)
    return message[:1].lower() + message[1:].rstrip(".")


def _verbs(app: "App | None") -> list[str]:
    return [] if app is None else [name for name in app if not name.startswith("-")]


def _no_verb(word: str, verbs: list[str], within: str) -> str:
    close = get_close_matches(word, verbs, n=1)
    if close:
        return f"{within} knows no {word!r}; did you mean {close[0]}?"
    return f"{within} knows no {word!r}; it knows {', '.join(verbs)}"
