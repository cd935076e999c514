"""Errors of endpoints; the passages are then shown instead of an answer."""

from ownwords.core.errors import OwnwordsError


class EndpointError(OwnwordsError):
    """An endpoint does not answer, breaks off, or sends something invalid."""


class EndpointRefusedError(EndpointError):
    """The endpoint refuses the request; `field` is the field it rejects, if it names one."""

    def __init__(self, message: str, status: int, field: str = "", hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.field = field


class ContextLengthError(OwnwordsError):
    """A prompt of `sent` tokens exceeds a context of `context` tokens; 0 if unknown."""

    def __init__(self, message: str, context: int = 0, sent: int = 0, hint: str = "") -> None:
        super().__init__(message, hint)
        self.context = context
        self.sent = sent
