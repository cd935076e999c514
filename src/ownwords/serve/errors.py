"""API errors: a status, one sentence, and what to do about it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from ownwords.archive.store import DamagedArchiveError
from ownwords.core.errors import InUseError, OwnwordsError

_IN_USE_RETRY_S = 5  # another process writes the archive

# Type and code of OpenAI's API for each status.
_OPENAI_TYPES: Mapping[int, tuple[str, str | None]] = {
    HTTPStatus.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    HTTPStatus.FORBIDDEN: ("invalid_request_error", "forbidden"),
    HTTPStatus.NOT_FOUND: ("invalid_request_error", "not_found"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("invalid_request_error", "request_too_large"),
    HTTPStatus.TOO_MANY_REQUESTS: ("rate_limit_error", "rate_limit_exceeded"),
}


class ApiError(OwnwordsError):
    """A request that is answered with this status.

    `param` and `code` appear under /v1 only: the field to blame, and OpenAI's name for the problem.
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
    """There is no capacity for one more request now."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            message,
            hint=f"try again in {retry_after_s} s",
            retry_after_s=retry_after_s,
        )


def invalid(
    message: str, *, hint: str = "", param: str | None = None, code: str | None = None
) -> ApiError:
    """The error for a request that cannot be answered as it is."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, hint, param=param, code=code)


def unsupported(name: str, reason: str) -> ApiError:
    """The error for a field of OpenAI's API that would change the answer, and that we cannot do."""
    return invalid(f"{name} is not supported: {reason}", param=name, code="unsupported_parameter")


def no_such_model(message: str, hint: str) -> ApiError:
    """The error for a model's name that does not exist."""
    return ApiError(HTTPStatus.NOT_FOUND, message, hint, param="model", code="model_not_found")


def internal_error() -> ApiError:
    """The error for a bug."""
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "something went wrong in the server; this is a bug in ownwords",
        hint="please report it with the lines that the server has printed",
    )


def engine_failed() -> ApiError:
    """The error for a bug of an engine."""
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the engine failed; this is a bug in ownwords",
        hint="the server's log says more; trying again may work",
    )


def status_of(error: OwnwordsError) -> int:
    """The status that an error is answered with; 400 unless it has its own."""
    if isinstance(error, InUseError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, DamagedArchiveError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    return int(getattr(error, "status", HTTPStatus.BAD_REQUEST))


def error_response(path: str, error: OwnwordsError) -> JSONResponse:
    """The answer to a failed request, in the form that clients of this path expect."""
    status = status_of(error)
    headers = {}
    in_use_s = _IN_USE_RETRY_S if isinstance(error, InUseError) else None
    if (seconds := getattr(error, "retry_after_s", in_use_s)) is not None:
        headers["Retry-After"] = str(seconds)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(path, error), status, headers)


def error_body(path: str, error: OwnwordsError) -> dict[str, Any]:
    """The JSON of an error, also in the middle of a stream."""
    if path != "/v1" and not path.startswith("/v1/"):
        return {"error": {"message": error.message, "hint": error.hint}}
    status = status_of(error)
    default: tuple[str, str | None] = ("invalid_request_error", None)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        default = ("server_error", "server_error")
    kind, code = _OPENAI_TYPES.get(status, default)
    param, own_code = getattr(error, "param", None), getattr(error, "code", None)
    return {
        "error": {"message": str(error), "type": kind, "param": param, "code": own_code or code}
    }
