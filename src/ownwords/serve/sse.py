"""What all answers of server-sent events have in common.

They are sent in two ways. The page's begin at once. Those of /v1 begin with the first piece, so
that what goes wrong until then has a status of its own; and several texts are told in one answer.
"""

from collections.abc import Mapping
from typing import Final

HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would keep back what is to be seen as it comes
}
