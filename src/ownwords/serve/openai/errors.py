"""What a request is told that cannot be met as it was asked: which part of it is to blame."""

from http import HTTPStatus

from ownwords.serve.errors import ApiError


def invalid(
    message: str, *, hint: str = "", param: str | None = None, code: str | None = None
) -> ApiError:
    """A request that makes no sense as it is, or asks for what is not to be had here."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, hint, param=param, code=code)


def unsupported(name: str, why: str) -> ApiError:
    """A part of a request that would change the answer, and that nothing here can do."""
    message = f"{name} is not supported here: {why}"
    return invalid(message, param=name, code="unsupported_parameter")


def missing(name: str) -> ApiError:
    """A field without which nothing can be done."""
    message = f"{name} is missing, and without it nothing can be done"
    return invalid(message, param=name, code="missing_required_parameter")


def no_such_model(message: str, hint: str) -> ApiError:
    """A name that no model here goes by."""
    status = HTTPStatus.NOT_FOUND
    return ApiError(status, message, hint, param="model", code="model_not_found")
