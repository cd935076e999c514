"""The time of a call relative to ordinary text: a ratio, independent of the machine."""

import time
from collections.abc import Callable

_PLAIN = "seen and heard, in a few words\n"
_MIN_S = 0.01  # what takes less is lost in the clock's grain


def is_far_from_quadratic(call: Callable[[str], object], text: str) -> bool:
    """Whether `text` takes at most 200 times what plain prose of its length takes.

    Odd markup that is parsed in proportion takes up to 35 times as long; in the square of its
    length it would take thousands of times as long.
    """

    def fastest_s(text_of_length: str) -> float:
        times = []
        for _ in range(2):
            began = time.process_time()
            call(text_of_length)
            times.append(time.process_time() - began)
        return max(min(times), _MIN_S)

    return fastest_s(text) < 200 * fastest_s(_PLAIN * (len(text) // len(_PLAIN) + 1))
