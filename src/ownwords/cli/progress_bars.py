"""Progress bars on a terminal, plain lines elsewhere."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ownwords.core.progress import Event, duration, printable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class ProgressBars:
    """Shows stages longer than `after_s`: bars on a terminal, removed when done; else plain lines.

    Without a terminal, a running stage prints its progress at most every `every_s` seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, *, after_s: float = 1.0, every_s: float = 10.0
    ) -> None:
        self._stream = stream or sys.stderr
        self._after_s, self._every_s = after_s, every_s
        self._draws = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.RLock()  # timers reveal stages from their own threads
        self._latest: dict[str, Event] = {}
        self._said_at: dict[str, float] = {}
        self._timers: dict[str, threading.Timer] = {}
        self._tasks: dict[str, TaskID] = {}
        self._bars: RichProgress | None = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            if event.kind == "note":
                self._say(event.message)
            elif event.kind != "metric" and self._draws:
                self._draw(event)
            elif event.kind != "metric":
                self._tell(event)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bars while a question is asked."""
        with self._lock:
            if self._bars:
                self._bars.stop()
            try:
                yield
            finally:
                if self._bars:
                    self._bars.start()

    def close(self) -> None:
        """Remove the bars and restore the cursor."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._tasks.clear()
            self._latest.clear()
            if self._bars:
                self._bars.stop()
                self._bars = None

    def _say(self, text: str) -> None:
        if self._bars:
            self._bars.console.print(printable(text), markup=False, highlight=False)
        else:
            print(printable(text), file=self._stream, flush=True)

    def _tell(self, event: Event) -> None:
        name = event.stage
        if event.kind == "start":
            self._said_at[name] = 0.0
        elif event.kind == "advance" and event.seconds - self._said_at[name] >= self._every_s:
            self._said_at[name] = event.seconds
            self._say(f"{name}: {_how_far(event)}")
        elif event.kind == "done" and event.seconds >= self._after_s:
            ended = "stopped after" if event.message else "done in"
            counted = _counted(event.done, None, event.unit)
            self._say(
                f"{name}: {counted}{', ' if counted else ''}{ended} {duration(event.seconds)}"
            )

    def _draw(self, event: Event) -> None:
        name = event.stage
        if event.kind == "start":
            self._latest[name] = event
            timer = self._timers[name] = threading.Timer(self._after_s, self._reveal, [name])
            timer.daemon = True
            timer.start()
        elif event.kind == "advance":
            self._latest[name] = event
            if self._bars and name in self._tasks:
                self._bars.update(
                    self._tasks[name],
                    total=event.total,
                    completed=event.done,
                    how_far=_how_far(event),
                )
        elif event.kind == "done":
            self._timers.pop(name).cancel()
            del self._latest[name]
            if self._bars and name in self._tasks:
                self._bars.remove_task(self._tasks.pop(name))
            if not self._tasks and self._bars:
                self._bars.stop()
                self._bars = None

    def _reveal(self, name: str) -> None:
        with self._lock:
            event = self._latest.get(name)
            if not event:
                return
            if not self._bars:
                self._bars = _new_bars(self._stream)
                self._bars.start()
            self._tasks[name] = self._bars.add_task(
                name, total=event.total, completed=event.done, how_far=_how_far(event)
            )


def _new_bars(stream: TextIO) -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[how_far]}", markup=False),
        console=Console(file=stream),
        transient=True,
        redirect_stdout=False,  # stdout is for results, and may be a pipe
        redirect_stderr=False,
    )


def _how_far(event: Event) -> str:
    counted = _counted(event.done, event.total, event.unit)
    if event.remaining_s is None:
        return counted
    return f"{counted}, about {duration(event.remaining_s)} left"


def _counted(done: int, total: int | None, unit: str) -> str:
    if not done and total is None:
        return ""
    of = "" if total is None else f" of {total:,}"
    return f"{done:,}{of} {unit}".rstrip()
