"""Asked to stop: the step is finished, all is saved; asked again, it ends at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped from outside, and everything is saved; the message says how to go on."""


# The last is Ctrl-Break, by which a group of processes is asked to end on Windows, and only there.
_ASKING = ("SIGINT", "SIGTERM", "SIGBREAK")


class InterruptHandler:
    """Within its block the first SIGINT or SIGTERM sets `wanted`, and the second interrupts.

    So does Ctrl-Break, where there is one.

    Outside the main thread Python cannot hear signals: there they do what they did before.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._at_once = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _ASKING:
                if (number := getattr(signal, name, None)) is not None:
                    self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)  # type: ignore[arg-type]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What can be done again without a loss, such as an evaluation, is not waited for."""
        self._at_once = True
        try:
            if self.wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        if self.wanted or self._at_once:
            self.wanted = True
            raise KeyboardInterrupt
        self.wanted = True
