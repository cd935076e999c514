"""What a request is told that is not answered: a status, one sentence, what to do about it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from ownwords.core.errors import OwnwordsError

_KINDS: Mapping[int, tuple[str, str | None]] = {
    HTTPStatus.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    HTTPStatus.FORBIDDEN: ("invalid_request_error", "forbidden"),
    HTTPStatus.NOT_FOUND: ("invalid_request_error", "not_found"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("invalid_request_error", "request_too_large"),
    HTTPStatus.TOO_MANY_REQUESTS: ("rate_limit_error", "rate_limit_exceeded"),
}


class ApiError(OwnwordsError):
    """A request that gets this status instead of an answer.

    `param` and `code` are told under /v1 only: the field to blame, and what OpenAI calls it.
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
    """There is no room for one more just now."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(
            HTTPStatus.TOO_MANY_REQUESTS,
            message,
            hint=f"try again in {retry_after_s} s",
            retry_after_s=retry_after_s,
        )


def status_of(error: OwnwordsError) -> int:
    """The status a mistake is answered with: its own, or that of a request that cannot be met."""
    status = getattr(error, "status", HTTPStatus.BAD_REQUEST)
    return int(status)


def refusal(path: str, error: OwnwordsError) -> JSONResponse:
    """The answer that tells of it, in the form that callers of this path expect."""
    status = status_of(error)
    headers = {}
    if (seconds := getattr(error, "retry_after_s", None)) is not None:
        headers["Retry-After"] = str(seconds)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body(path, error), status, headers)


def body(path: str, error: OwnwordsError) -> dict[str, Any]:
    """What the answer says of it, also in the middle of a stream."""
    if path != "/v1" and not path.startswith("/v1/"):
        return {"error": {"message": error.message, "hint": error.hint}}
    status = status_of(error)
    usual: tuple[str, str | None] = ("invalid_request_error", None)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        usual = ("server_error", "server_error")
    kind, code = _KINDS.get(status, usual)
    param, its_own = getattr(error, "param", None), getattr(error, "code", None)
    said = {"message": str(error), "type": kind, "param": param, "code": its_own or code}
    return {"error": said}
