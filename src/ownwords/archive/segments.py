"""From a body in any markup to typed segments."""

from ownwords.archive.document import Markup, Reading


def read_body(body: str, markup: Markup) -> Reading:
    """The typed segments and links of a body, cleaned; what was taken out is counted by reason."""
    raise NotImplementedError
