"""The page's API: JSON in, JSON out; bodies are parsed into dataclasses, without ambiguities."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ownwords.core.validation import ValidationError, decode, shown
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import ApiError, invalid

T = TypeVar("T")

# A parsed value takes up to 80 bytes, so these limits keep a body under 200 MB. They are high,
# since brackets and commas within strings count, too.
_MAX_BRACKETS, _MAX_COMMAS = 200_000, 2_000_000
_EXAMPLE = 'send an object like {"model": "...", "prompt": "..."} in UTF-8'


@dataclass(frozen=True)
class NoBody:
    """The body of a request that needs none."""


@dataclass(frozen=True)
class ApiCall(Generic[T]):
    """One request: the parts of its path, its query and its decoded body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: T


def json_route(
    state: AppState,
    method: str,
    path: str,
    work: Callable[[ApiCall[T]], object],
    *,
    body: type[T] = NoBody,  # type: ignore[assignment]
    parse: Callable[[Mapping[str, Any]], T] | None = None,
    status: int = HTTPStatus.OK,
) -> Route:
    """Create a route whose `work` runs in a thread; None as its result is 204 without a body.

    `parse` decodes a body whose shape depends on its content.
    """
    decode_body = parse or (lambda fields: decode_fields(body, fields))

    async def endpoint(request: Request) -> Response:
        data = await request.body()

        def answer() -> object:
            fields = parse_json(data.strip() or b"{}") if method != "GET" else {}
            return work(ApiCall(request.path_params, request.query_params, decode_body(fields)))

        value = await state.run(answer)
        if value is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return json_response(value, status)

    return Route(path, endpoint, methods=[method])


def json_response(value: object, status: int = HTTPStatus.OK) -> Response:
    """A response of dataclasses, mappings, lists and text as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_body(state: AppState, request: Request, kind: type[T]) -> T:
    """Parse a request's body into a `kind`, in a thread; an empty body is an empty object."""
    data = await request.body()
    return await state.run(lambda: decode_fields(kind, parse_json(data.strip() or b"{}")))


def parse_json(data: bytes) -> dict[str, object]:
    """Parse a body as a JSON object. Raises ApiError if it is invalid, ambiguous or too large."""
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
        if b"\\u" in data:  # json accepts lone surrogates, which UTF-8 cannot encode
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
    """Decode the fields into a `kind`; unknown ones are ignored, null counts as missing."""
    try:
        return decode(kind, fields, path=path, unknown="ignore", null_is_missing=True)
    except ValidationError as error:
        raise invalid(
            error.message, hint=error.hint, param=error.path or None, code=_code(error)
        ) from None


def wrong_type(name: str, expected: str, seen: object) -> ApiError:
    """Create the error for a field of the wrong type."""
    return invalid(f"{name} must be {expected}, not {shown(seen)}", param=name, code="invalid_type")


def _code(error: ValidationError) -> str:
    """OpenAI's error code for the problem."""
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
    """Parse a number; 3.0 becomes 3, since some clients send integers in this form."""
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
