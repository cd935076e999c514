"""The body of a request: JSON within bounds, every field of its kind, or one clear refusal."""

import json
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NoReturn

from ownwords.serve.errors import ApiError
from ownwords.serve.openai.errors import invalid, missing

# A parsed value takes up to 80 bytes: within these limits a body stays under 200 MB. Text between
# quotes counts, too, which is why there are so many.
_MOST_BRACKETS, _MOST_COMMAS = 200_000, 2_000_000
_LARGEST = 1 << 63  # beyond any number that their API knows

Json = dict[str, object]


def parsed(data: bytes) -> Json:
    """The JSON object of a body; Refused for what is none, or could be read in two ways."""
    if data.count(b"[") + data.count(b"{") > _MOST_BRACKETS or data.count(b",") > _MOST_COMMAS:
        raise ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "the body of the request holds more values than are read",
            hint="send less at once",
        )
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
        if b"\\u" in data:  # half a surrogate passes the parser, and is no text
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else _said(error)
        raise invalid(
            f"the body of the request is not the JSON that is expected here: {why}",
            hint='send an object like {"model": "...", "prompt": "..."} in UTF-8',
        ) from None
    if not isinstance(found, dict):
        raise invalid(
            f"the body of the request is {_kind(found)}, and should be a JSON object",
            hint='like {"model": "...", "prompt": "..."}',
        )
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value of JSON")


def _once(pairs: Sequence[tuple[str, object]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, value in pairs:  # what is kept is the last of them
            if found[name] is not value:
                raise ValueError(f"{name[:50]!r} is given twice")
        raise ValueError("a name is given twice")
    return found


def _said(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "it holds half a surrogate pair, which is no character"
    if "integer string conversion" in str(error):
        return "it holds a number of thousands of digits"
    return str(error)[:200]


class RequestBody:
    """The fields of a request by name; one that is null is as one that is not there."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = {name: value for name, value in given.items() if value is not None}

    def get(self, name: str) -> object:
        """The value as it came; None where it was not given."""
        return self._given.get(name)

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        if value is None or isinstance(value, str):
            return value
        raise wrong_kind(name, "a string", value)

    def needed(self, name: str) -> str:
        """A text that has to be there."""
        value = self.text(name)
        if not value:
            raise missing(name)
        return value

    def yes(self, name: str, default: bool = False) -> bool:
        value = self._given.get(name, default)
        if isinstance(value, bool):
            return value
        raise wrong_kind(name, "true or false", value)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number from `least` to `most`."""
        value = self._given.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_kind(name, "a whole number", value)
        return int(_within(name, value, least, most))

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number from `least` to `most`."""
        value = self._given.get(name)
        return None if value is None else number(name, value, least, most)

    def section(self, name: str) -> "RequestBody":
        """The fields of an object within the request; none where it was not given."""
        value = self._given.get(name, {})
        if not isinstance(value, dict):
            raise wrong_kind(name, "an object", value)
        return RequestBody(value)


def number(name: str, value: object, least: float, most: float) -> float:
    """That value as a number from `least` to `most`; Refused for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise wrong_kind(name, "a number", value)
    return float(_within(name, value, least, most))


def ids_of(value: object, name: str) -> list[int]:
    """A list of token ids."""
    if not isinstance(value, list) or not value:
        raise wrong_kind(name, "a list of token ids", value)
    for i in value:
        if not isinstance(i, int) or isinstance(i, bool):
            raise wrong_kind(name, "a list of whole numbers", i)
        if not 0 <= i < _LARGEST:
            raise invalid(f"{name} holds a number that is the id of no token", param=name)
    return value


def wrong_kind(name: str, expected: str, seen: object) -> ApiError:
    """For a field that is of another kind than it should be."""
    return invalid(
        f"{name} should be {expected}, and is {_kind(seen)}", param=name, code="invalid_type"
    )


def _within(name: str, value: float, least: float, most: float) -> float:
    if least <= value <= most:
        return value
    seen = f"{value:.6g}" if abs(value) < _LARGEST else "far beyond"
    low = value < least  # not of a nan, which no JSON brings here
    kind = "decimal" if isinstance(value, float) else "integer"
    raise invalid(
        f"{name} should be from {least:.6g} to {most:.6g}, and is {seen}",
        param=name,
        code=f"{kind}_{'below_min' if low else 'above_max'}_value",
    )


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return (
                "a number" if not isinstance(value, float) or math.isfinite(value) else "infinite"
            )
        case str():
            return "a string"
        case dict():
            return "an object"
    return "a list" if value else "an empty list"
