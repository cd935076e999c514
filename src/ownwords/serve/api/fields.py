"""The fields of a request's JSON, each asked for by name and kind; what does not fit is refused."""

import json
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request

from ownwords.serve.errors import ApiError

_BAD = 400


class JsonFields:
    """A JSON object that was sent; Refused says which field is not what it should be."""

    def __init__(self, said: object) -> None:
        if not isinstance(said, dict):
            raise ApiError(_BAD, f"a JSON object was expected, and {_kind(said)} was sent")
        self._said: dict[str, Any] = said

    @classmethod
    async def of(cls, request: Request) -> "JsonFields":
        """Those of a request; an empty body is an empty object."""
        data = await request.body()
        try:
            return cls(json.loads(data) if data.strip() else {})
        except (ValueError, RecursionError) as error:
            raise ApiError(_BAD, f"what was sent is not JSON: {error}") from error

    def has(self, name: str) -> bool:
        """Whether the field was sent."""
        return name in self._said

    def text(self, name: str, *, most: int, default: str = "") -> str:
        """A text of at most so many characters."""
        value = self._said.get(name, default)
        if not isinstance(value, str):
            raise ApiError(_BAD, f"{name} should be a text, and is {_kind(value)}")
        if len(value) > most:
            raise ApiError(
                _BAD, f"{name} has {len(value):,} characters, and {most:,} are the most it may have"
            )
        # Half a pair of UTF-16, which JSON can hold and no file can.
        return value.encode("utf-8", "replace").decode("utf-8")

    def number(self, name: str, *, least: float, most: float, default: float) -> float:
        """A number from `least` to `most`."""
        value = self._said.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ApiError(_BAD, f"{name} should be a number, and is {_kind(value)}")
        if not least <= value <= most:  # nor is what is no number at all
            shown = f"{value:g}" if abs(value) < 1e300 else "beyond all numbers"
            raise ApiError(_BAD, f"{name} should be from {least:g} to {most:g}, and is {shown}")
        return float(value)

    def whole(self, name: str, *, least: int, most: int, default: int) -> int:
        """A whole number from `least` to `most`."""
        value = self.number(name, least=least, most=most, default=default)
        if value != int(value):
            raise ApiError(_BAD, f"{name} should be a whole number, and is {value:g}")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._said.get(name, default)
        if not isinstance(value, bool):
            raise ApiError(_BAD, f"{name} should be true or false, and is {_kind(value)}")
        return value

    def one_of(self, name: str, choices: Iterable[str], *, default: str) -> str:
        """One of a few texts."""
        known = list(choices)
        value = self.text(name, most=500, default=default)
        if value not in known:
            raise ApiError(_BAD, f"{name} should be one of {', '.join(known)}")
        return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")
