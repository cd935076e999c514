"""JSON request bodies: within bounds, unambiguous, each field as a dataclass says."""

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import NoReturn, TypeVar

from starlette.requests import Request

from ownwords.core.validation import ValidationError, decode, shown
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, invalid

T = TypeVar("T")

# A parsed value takes up to 80 bytes: within these limits a body stays under 200 MB. Brackets and
# commas within texts count, too, which is why the limits are high.
_MAX_BRACKETS, _MAX_COMMAS = 200_000, 2_000_000
_EXAMPLE = 'send an object like {"model": "...", "prompt": "..."} in UTF-8'


async def read_body(state: AppState, request: Request, kind: type[T]) -> T:
    """The body of a request as a `kind`, parsed in a thread; an empty body is an empty object."""
    data = await request.body()
    return await state.run(lambda: decode_fields(kind, parse_json(data.strip() or b"{}")))


def parse_json(data: bytes) -> dict[str, object]:
    """The JSON object of a body. Raises ApiError if it is none, or could be read in two ways."""
    if data.count(b"[") + data.count(b"{") > _MAX_BRACKETS or data.count(b",") > _MAX_COMMAS:
        raise ApiError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "the request's body holds too many values",
            hint="send less at once",
        )
    try:
        parsed = json.loads(
            data.decode("utf-8"),
            parse_float=_parse_float,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
        if b"\\u" in data:  # the parser lets lone surrogates pass, which UTF-8 cannot hold
            json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise invalid(
            f"the request's body is not valid JSON: {_why(error)}", hint=_EXAMPLE
        ) from None
    if not isinstance(parsed, dict):
        raise invalid(
            f"the request's body must be a JSON object, not {shown(parsed)}", hint=_EXAMPLE
        )
    return parsed


def decode_fields(kind: type[T], fields: object, path: str = "") -> T:
    """The fields as a `kind`; unknown ones are ignored, and null is as if not given."""
    try:
        return decode(kind, fields, path=path, unknown="ignore", null_is_missing=True)
    except ValidationError as error:
        raise invalid(
            error.message, hint=error.hint, param=error.path or None, code=_code(error)
        ) from None


def wrong_type(name: str, expected: str, seen: object) -> ApiError:
    """The error for a field of another type than it must have."""
    return invalid(f"{name} must be {expected}, not {shown(seen)}", param=name, code="invalid_type")


def _code(error: ValidationError) -> str:
    """OpenAI's code for the problem."""
    if error.problem == "missing":
        return "missing_required_parameter"
    if error.problem == "type":
        return "invalid_type"
    if error.problem in ("below", "above"):
        side = "below_min" if error.problem == "below" else "above_max"
        if isinstance(error.seen, str):
            return f"string_{side}_length"
        return f"{'decimal' if isinstance(error.seen, float) else 'integer'}_{side}_value"
    return "invalid_value"


def _parse_float(text: str) -> float:
    """A number; 3.0 becomes 3, since some clients write whole numbers so."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not allowed in JSON")


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:50]!r} is given twice")
    return fields


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "it holds half a surrogate pair"
    if "integer string conversion" in str(error):
        return "it holds a number of thousands of digits"
    return str(error)[:200]
