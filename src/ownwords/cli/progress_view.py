"""Shows running stages: bars on a terminal, plain lines elsewhere."""

import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ownwords.core.progress import SAMPLE, Event, duration, printable
from ownwords.training.run import STAGE, RunHistory

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live


class ProgressView:
    """A subscriber that shows stages longer than `after_s`; on a terminal it cleans up after them.

    Without a terminal, a running stage prints its progress at most every `every_s` seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, *, after_s: float = 1.0, every_s: float = 10.0
    ) -> None:
        self._stream = stream or sys.stderr
        self._after_s, self._every_s = after_s, every_s
        self._draws = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.RLock()  # stages and timers run in several threads
        self._running: dict[str, Event] = {}  # the latest event of each stage
        self._began: dict[str, float] = {}
        self._printed_at: dict[str, float] = {}
        self._history = RunHistory()
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        if event.kind in ("expect", "begin", "overall"):  # about the parts of a whole job
            return
        with self._lock:
            is_sample = event.stage == STAGE and event.message.startswith(SAMPLE)
            if event.kind == "note" and not is_sample:
                self._print(event.message)
            if event.stage == STAGE:
                self._follow_training(event)
            if not self._draws:
                self._print_line(event)
            if event.kind == "start":
                self._began[event.stage] = time.monotonic()
                if self._draws:
                    timer = threading.Timer(self._after_s, self._draw)
                    timer.daemon = True
                    timer.start()
            elif event.stage not in self._running:
                return
            self._running[event.stage] = event
            if event.kind == "done":
                del self._running[event.stage]
            if not self._running:
                self._hide()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show nothing while a question is asked."""
        with self._lock:
            self._hide()
            try:
                yield
            finally:
                self._draw()

    def close(self) -> None:
        """Remove what is shown and restore the cursor."""
        with self._lock:
            self._running.clear()
            self._hide()

    def _follow_training(self, event: Event) -> None:
        """Add the event to the history; without a terminal, print a new evaluation or sample."""
        if event.kind == "start":
            self._history = RunHistory()
        history = self._history
        evaluations, sample = len(history.evaluations), history.sample
        history.add(event)
        if self._draws:
            return
        point = history.evaluations[-1] if len(history.evaluations) > evaluations else None
        if point and point.bits_per_byte is not None:
            best = " (the best so far)" if history.is_best_so_far else ""
            self._print(
                f"training: step {point.step:,}: {point.bits_per_byte:.3f} bits per byte on"
                f" held-out posts{best}"
            )
        if history.sample != sample:
            self._print(f"training: sample: {_shortened(history.sample)}")

    def _print(self, text: str) -> None:
        if self._live:
            self._live.console.print(printable(text), markup=False, highlight=False)
        else:
            print(printable(text), file=self._stream, flush=True)

    def _print_line(self, event: Event) -> None:
        """Print a plain line about a stage, if one is due."""
        is_training = event.stage == STAGE
        name = "training" if is_training else event.stage
        if not is_training and STAGE in self._running:
            return  # such as an evaluation: the training reports its result
        if event.kind == "start":
            self._printed_at[event.stage] = 0.0
        elif event.kind == "done" and (is_training or event.seconds >= self._after_s):
            ended = "stopped after" if event.message else "done in"
            counted = _counted(event.done, None, event.unit)
            self._print(
                f"{name}: {f'{counted}, ' if counted else ''}{ended} {duration(event.seconds)}"
            )
        elif event.kind == ("metric" if is_training else "advance") and (
            event.seconds - self._printed_at.get(event.stage, 0.0) >= self._every_s
        ):
            self._printed_at[event.stage] = event.seconds
            self._print(f"{name}: {_how_far(event, self._history)}")

    # --- on a terminal ----------------------------------------------------------------------------

    def _draw(self) -> None:
        """Draw the bars if a stage has run for long, until none is running."""
        with self._lock:
            if not self._draws or self._live or not self._shown():
                return
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                # Called in a thread of its own, which takes no lock of ours: its holder may be
                # waiting for the terminal.
                get_renderable=self._bars,
                console=Console(file=self._stream, highlight=False),
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,  # stdout is for results, and may be a pipe
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _shown(self) -> list[Event]:
        """Return the running stages that have lasted `after_s`."""
        since = time.monotonic() - self._after_s
        running = tuple(self._running.values())
        return [event for event in running if self._began[event.stage] <= since]

    def _hide(self) -> None:
        live, self._live = self._live, None
        if live:
            live.stop()

    def _bars(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        grid, history = Table.grid(padding=(0, 1)), self._history
        running = self._shown()
        for event in running:
            bar = ProgressBar(event.total, event.done, width=28, pulse=event.total is None)
            name = "Training" if event.stage == STAGE else event.stage
            grid.add_row(Spinner("dots"), Text(name), bar, Text(_how_far(event, history)))
        is_training = any(event.stage == STAGE for event in running)
        sample = Text(f"“{_shortened(history.sample)}”" if is_training and history.sample else "")
        return Group(*([grid] if running else []), *([sample] if sample else []))


def _shortened(sample: str) -> str:
    return printable(" ".join(sample.split())[:300])


def _how_far(event: Event, history: RunHistory) -> str:
    if event.stage == STAGE:
        return ", ".join(_training_figures(history, event.remaining_s))
    counted = _counted(event.done, event.total, event.unit)
    if event.remaining_s is None:
        return counted
    return f"{counted}, about {duration(event.remaining_s)} left"


def _counted(done: int, total: int | None, unit: str) -> str:
    if not unit:  # work of several kinds
        return f"{done / total:.0%}" if total else ""
    unit = unit.removesuffix("s") if (total or done) == 1 else unit
    return f"{_of(done, total)} {unit}" if done or total else ""


def _of(done: int, total: int | None) -> str:
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def _training_figures(history: RunHistory, remaining_s: float | None) -> Iterator[str]:
    yield f"step {_of(history.step, history.total or None)}"
    if math.isfinite(history.smooth):
        yield f"{history.smooth:.3f} bits per byte"
    if history.best and history.best.bits_per_byte is not None:
        yield f"{history.best.bits_per_byte:.3f} on held-out posts"
    if speed := history.latest.get("tokens_per_s"):
        yield f"{speed:,.0f} tokens/s"
    if remaining_s is not None:
        yield f"about {duration(remaining_s)} left"
