"""Handles SIGINT and SIGTERM: the first lets the step finish and be saved, the second stops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted, and everything is saved; the message says how to resume."""


# SIGBREAK is Ctrl-Break, which ends a group of processes on Windows.
_SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")


class InterruptHandler:
    """In its block the first SIGINT or SIGTERM sets `wanted`; the second raises KeyboardInterrupt.

    Outside the main thread it does nothing, because Python handles no signals there.
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
        """Let the first signal interrupt this block, which can be repeated, as an evaluation."""
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
