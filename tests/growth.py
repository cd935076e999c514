"""The time of a call relative to the length of its text, independent of the machine."""

import time
from collections.abc import Callable
from contextlib import suppress

from ownwords.core.errors import OwnwordsError

_PLAIN = "seen and heard, in a few words\n"
_MIN_S = 0.01  # what takes less is lost in the clock's grain


def is_far_from_quadratic(call: Callable[[str], object], text: str) -> bool:
    """Whether `text` takes at most 200 times what plain prose of its length takes.

    Odd markup that is parsed in proportion takes up to 35 times as long; in the square of its
    length it would take thousands of times as long.
    """

    def fastest_s(text_of_length: str) -> float:
        return max(min(_taken_s(call, text_of_length) for _ in range(2)), _MIN_S)

    return fastest_s(text) < 200 * fastest_s(_PLAIN * (len(text) // len(_PLAIN) + 1))


def growth(call: Callable[[str], object], piece: str, size: int, begin: str = "") -> float:
    """How much longer a call takes if a text of so many characters becomes four times as long.

    About 4 in proportion, and 16 in the square. The text is a beginning, the piece repeated, and
    an end that no pattern expects.
    """
    times = size // len(piece)
    short, long = (f"{begin}{piece * n}\0x" for n in (times, 4 * times))
    longer = 0.0
    for _ in range(3):  # the lowest, as other processes take their share
        longer = _taken_s(call, long) / max(_taken_s(call, short), _MIN_S / 6)
        if longer < 9:
            break
    return longer


def _taken_s(call: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    with suppress(OwnwordsError):
        call(text)
    return time.thread_time() - began
