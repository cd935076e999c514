"""API errors: an HTTP status, a message of one sentence, and a hint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ownwords.archive.store import DamagedArchiveError
from ownwords.core.errors import InUseError, OwnwordsError

_IN_USE_RETRY_S = 5  # while another process writes the archive

# OpenAI's error type and code for each status.
_OPENAI_TYPES: Mapping[int, tuple[str, str | None]] = {
    HTTPStatus.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    HTTPStatus.FORBIDDEN: ("invalid_request_error", "forbidden"),
    HTTPStatus.NOT_FOUND: ("invalid_request_error", "not_found"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("invalid_request_error", "request_too_large"),
    HTTPStatus.TOO_MANY_REQUESTS: ("rate_limit_error", "rate_limit_exceeded"),
}


class ApiError(OwnwordsError):
    """An error that is sent to the client with this HTTP status.

    `param` and `code` are sent under /v1 only: the invalid field, and OpenAI's code of the error.
    """

    def __init__(
        self,
        status: int,
        message: str,
        hint: str = "",
        *,
        retry_after_s: int | None = None,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.retry_after_s = retry_after_s
        self.param = param
        self.code = code


class TooManyRequestsError(ApiError):
    """The server has no capacity for another request now (status 429)."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            message,
            hint=f"try again in {retry_after_s} s",
            retry_after_s=retry_after_s,
        )


invalid = partial(ApiError, HTTPStatus.BAD_REQUEST)
not_found = partial(ApiError, HTTPStatus.NOT_FOUND)
conflict = partial(ApiError, HTTPStatus.CONFLICT)  # the workspace's state does not allow it
forbidden = partial(ApiError, HTTPStatus.FORBIDDEN)


@contextmanager
def as_conflict() -> Iterator[None]:
    """Turn an error about the state of the workspace into status 409."""
    try:
        yield
    except ApiError:
        raise
    except OwnwordsError as error:
        raise conflict(error.message, error.hint) from error


def internal_error() -> ApiError:
    """Create the error for a bug in the server (status 500)."""
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "something went wrong in the server; this is a bug in ownwords",
        hint="report it with the lines that the server has printed",
    )


def status_of(error: OwnwordsError) -> int:
    """Return the HTTP status for an error; 400 unless it has its own."""
    if isinstance(error, InUseError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, DamagedArchiveError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    return int(getattr(error, "status", HTTPStatus.BAD_REQUEST))


def is_navigation(headers: Headers) -> bool:
    """Whether a person typed the address or followed a link, and will read the answer."""
    return "text/html" in headers.get("accept", "")


def error_response(path: str, error: OwnwordsError, headers: Headers | None = None) -> Response:
    """Return the response to a failed request: text for a person, otherwise as the API has it.

    The headers are those of the request.
    """
    status = status_of(error)
    answer_headers = {}
    if retry_after_s := getattr(error, "retry_after_s", None):
        answer_headers["Retry-After"] = str(retry_after_s)
    elif isinstance(error, InUseError):
        answer_headers["Retry-After"] = str(_IN_USE_RETRY_S)
    if status == HTTPStatus.UNAUTHORIZED:
        answer_headers["WWW-Authenticate"] = "Bearer"
    is_read = headers is not None and is_navigation(headers)
    if is_read or path.startswith("/v2/"):  # as LanguageTool sends them
        return PlainTextResponse(f"Error: {error}", status, answer_headers)
    return JSONResponse(error_body(path, error), status, answer_headers)


def error_body(path: str, error: OwnwordsError) -> dict[str, Any]:
    """Return the JSON of an error, for a response or an event in a stream."""
    if path != "/v1" and not path.startswith("/v1/"):
        return {"error": {"message": error.message, "hint": error.hint}}
    status = status_of(error)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    default = ("server_error", "server_error") if is_ours else ("invalid_request_error", None)
    kind, code = _OPENAI_TYPES.get(status, default)
    return {
        "error": {
            "message": str(error),
            "type": kind,
            "param": getattr(error, "param", None),
            "code": getattr(error, "code", None) or code,
        }
    }
