"""The page's API: JSON in, JSON out; bodies are decoded into dataclasses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ownwords.core.validation import ValidationError, decode, shown
from ownwords.serve.app_state import AppState
from ownwords.serve.errors import invalid

T = TypeVar("T")

_EXAMPLE = 'send an object like {"model": "...", "prompt": "..."} in UTF-8'


def _parse_float(text: str) -> float:
    """Parse a number; 3.0 becomes 3, since some clients send integers in this form."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


_DECODER = msgspec.json.Decoder(float_hook=_parse_float)


@dataclass(frozen=True)
class ApiCall:
    """One request: the parts of its path, its query, and the fields of its body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    fields: Mapping[str, Any]

    def body(self, kind: type[T]) -> T:
        """Return the body as a `kind`. Raises ApiError if it does not fit."""
        return decode_fields(kind, self.fields)


def json_route(
    state: AppState,
    method: str,
    path: str,
    work: Callable[[AppState, ApiCall], object],
    *,
    status: int = HTTPStatus.OK,
) -> Route:
    """Return a route whose `work` runs in a thread; a result of None becomes status 204."""

    async def endpoint(request: Request) -> Response:
        data = await request.body()

        def answer() -> object:
            fields = parse_json(data) if method != "GET" else {}
            return work(state, ApiCall(request.path_params, request.query_params, fields))

        value = await state.run(answer)
        if value is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return json_response(value, status)

    return Route(path, endpoint, methods=[method])


def json_response(value: object, status: int = HTTPStatus.OK) -> Response:
    """Return a response of dataclasses, mappings, lists and text as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_body(state: AppState, request: Request, kind: type[T]) -> T:
    """Parse a request's body into a `kind`, in a thread."""
    data = await request.body()
    return await state.run(lambda: decode_fields(kind, parse_json(data)))


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object; no body is an empty one. Raises ApiError if invalid."""
    try:
        parsed = _DECODER.decode(data.strip() or b"{}")
    except (ValueError, RecursionError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")[:200]
        raise invalid(f"the request's body is not valid JSON: {reason}", hint=_EXAMPLE) from None
    if not isinstance(parsed, dict):
        raise invalid(
            f"the request's body must be a JSON object, not {shown(parsed)}", hint=_EXAMPLE
        )
    return parsed


def decode_fields(kind: type[T], fields: object) -> T:
    """Decode the fields into a `kind`; unknown ones are ignored, null counts as missing."""
    try:
        return decode(kind, fields, unknown="ignore", null_is_missing=True)
    except ValidationError as error:
        raise invalid(
            error.message, hint=error.hint, param=error.path or None, code=_code(error)
        ) from None


def _code(error: ValidationError) -> str:
    """OpenAI's error code for the problem."""
    if error.problem == "missing":
        return "missing_required_parameter"
    return "invalid_type" if error.problem == "type" else "invalid_value"
