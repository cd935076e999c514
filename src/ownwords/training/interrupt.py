"""SIGINT and SIGTERM: the first finishes the step and saves, the second stops at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted, and everything is saved; the message says how to resume."""


# The last is Ctrl-Break, which ends a group of processes on Windows.
_SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")


class InterruptHandler:
    """Within its block the first SIGINT or SIGTERM sets `wanted`, and the second interrupts.

    Outside the main thread Python receives no signals, and nothing changes.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._at_once = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                if (number := getattr(signal, name, None)) is not None:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)  # type: ignore[arg-type]

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Interrupt this block at once: it can be repeated without a loss, as an evaluation can."""
        self._at_once = True
        try:
            if self.wanted:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.wanted or self._at_once:
            self.wanted = True
            raise KeyboardInterrupt
        self.wanted = True
