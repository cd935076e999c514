"""What goes wrong with an endpoint, in one sentence each; the passages are shown then instead."""

from ownwords.core.errors import OwnwordsError


class EndpointError(OwnwordsError):
    """An endpoint does not answer, breaks off, or answers with what is no answer."""


class EndpointRefusedError(EndpointError):
    """The endpoint understood, and will not: `field` is what it does not take, where it says so."""

    def __init__(self, message: str, status: int, field: str = "", hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.field = field


class ContextLengthError(OwnwordsError):
    """More was sent than fits the context: `room` tokens, of `sent`; 0 where nobody says."""

    def __init__(self, message: str, room: int = 0, sent: int = 0, hint: str = "") -> None:
        super().__init__(message, hint)
        self.room = room
        self.sent = sent
