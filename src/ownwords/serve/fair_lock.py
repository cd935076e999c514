"""One after the other: engines share the same cores, and two at once would be slower than both."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairLock:
    """A lock that is fair: who waits longest comes next, also before who has just had it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_taken = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Within the block, nobody else has a turn."""
        with self._lock:
            mine = None
            if self._is_taken:
                mine = threading.Lock()
                mine.acquire()
                self._waiting.append(mine)
            self._is_taken = True
        if mine is not None:
            mine.acquire()  # until whoever goes before lets go of it
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._waiting.popleft().release()
                else:
                    self._is_taken = False
