"""Work under way: bars and a picture of the training on a terminal, plain lines elsewhere."""

import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ownwords.core.progress import Event, duration, printable
from ownwords.training.run import SAMPLE, STAGE, RunHistory

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from ownwords.view.terminal import TerminalWriter

# Colours that are readable on black and on white.
_TRAINED, _VALIDATED = "bright_blue", "magenta"
_AXIS = 6  # columns of the scale on the left, its line included
# Braille: two columns of four dots in a character.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

Point = tuple[float, float]  # (step, value)


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
        self._lock = threading.RLock()  # a timer reveals the stages from its own thread
        self._running: dict[str, Event] = {}  # the latest event of each stage
        self._said_at: dict[str, float] = {}
        self._history: RunHistory | None = None
        self._timer: threading.Timer | None = None
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        if event.kind in ("expect", "begin", "overall"):  # about the parts of a whole job
            return
        with self._lock:
            is_sample = event.stage == STAGE and event.message.startswith(SAMPLE)
            if event.kind == "note" and not is_sample:
                self._say(event.message)
            before = self._follow_training(event) if event.stage == STAGE else None
            if not self._draws:
                self._print_line(event, before)
            if event.kind == "start":
                self._running[event.stage] = event
                self._reveal_later()
            elif event.stage in self._running:
                self._running[event.stage] = event
                if event.kind == "done":
                    self._end(event.stage)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show nothing while a question is asked."""
        with self._lock:
            self._hide()
            try:
                yield
            finally:
                if self._running:
                    self._reveal_later()

    def close(self) -> None:
        """Remove what is shown and restore the cursor."""
        with self._lock:
            self._hide()
            self._running.clear()

    def _follow_training(self, event: Event) -> tuple[int, str]:
        """Add the event to the history; returns how many evaluations and which sample it had."""
        if event.kind == "start" or self._history is None:
            self._history = RunHistory()
        before = len(self._history.evaluations), self._history.sample
        self._history.add(event)
        return before

    def _say(self, text: str) -> None:
        if self._live:
            self._live.console.print(printable(text), markup=False, highlight=False)
        else:
            print(printable(text), file=self._stream, flush=True)

    # --- plain lines ------------------------------------------------------------------------------

    def _print_line(self, event: Event, before: tuple[int, str] | None) -> None:
        name = "training" if event.stage == STAGE else event.stage
        if self._history and before is not None:
            self._print_evaluation(self._history, before)
        elif STAGE in self._running:
            return  # such as an evaluation: the training tells what it found
        if event.kind == "start":
            self._said_at[event.stage] = 0.0
        elif event.kind == "done" and (before is not None or event.seconds >= self._after_s):
            ended = "stopped after" if event.message else "done in"
            counted = _counted(event.done, None, event.unit)
            self._say(
                f"{name}: {f'{counted}, ' if counted else ''}{ended} {duration(event.seconds)}"
            )
        elif event.kind == ("advance" if before is None else "metric") and (
            event.seconds - self._said_at.get(event.stage, 0.0) >= self._every_s
        ):
            self._said_at[event.stage] = event.seconds
            told = _how_far(event)
            if before is not None and self._history:
                told = ", ".join(_training_figures(self._history, event.remaining_s))
            self._say(f"{name}: {told}")

    def _print_evaluation(self, history: RunHistory, before: tuple[int, str]) -> None:
        evaluations, sample = before
        point = history.evaluations[-1] if len(history.evaluations) > evaluations else None
        if point and point.bits_per_byte is not None:
            best = " (the best so far)" if history.is_best_so_far else ""
            self._say(
                f"training: step {point.step:,}: {point.bits_per_byte:.3f} bits per byte on"
                f" held-out posts{best}"
            )
        if history.sample != sample:
            self._say(f"training: sample: {' '.join(history.sample.split())[:300]}")

    # --- on a terminal ----------------------------------------------------------------------------

    def _reveal_later(self) -> None:
        if self._draws and not (self._live or self._timer):
            self._timer = threading.Timer(self._after_s, self._reveal)
            self._timer.daemon = True
            self._timer.start()

    def _reveal(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._timer is None:  # hidden in the meantime
                return
            self._timer = None
            console = Console(file=self._stream, highlight=False)
            self._live = Live(
                # Drawn in a thread of its own, so work never waits; that thread takes no lock of
                # ours, whose holder may be waiting for the terminal.
                get_renderable=lambda: self._picture(console),
                console=console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,  # stdout is for results, and may be a pipe
                redirect_stderr=False,
            )
            self._live.start()

    def _end(self, stage: str) -> None:
        if len(self._running) == 1:  # what is shown goes away with the last stage
            self._hide()
        del self._running[stage]

    def _hide(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        live, self._live = self._live, None
        if live:
            live.stop()

    def _picture(self, console: "Console") -> "RenderableType":
        running = dict(self._running)
        training = running.pop(STAGE, None)
        if training and self._history:
            return picture(self._history, training, tuple(running.values()), console)
        return _bars(tuple(running.values()))


def _bars(running: Sequence[Event]) -> "Table":
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    for event in running:
        bar = ProgressBar(event.total, event.done, width=28, pulse=event.total is None)
        grid.add_row(Spinner("dots"), Text(event.stage), bar, Text(_how_far(event)))
    return grid


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


# --- training -------------------------------------------------------------------------------------


def _training_figures(history: RunHistory, remaining_s: float | None) -> Iterator[str]:
    yield f"step {_counted(history.step, history.total or None, '')}"
    if math.isfinite(history.smooth):
        yield f"{history.smooth:.3f} bits per byte"
    if speed := history.latest.get("tokens_per_s"):
        yield f"{speed:,.0f} tokens/s"
    if share := history.latest.get("share_of_limit"):
        yield f"{share:.0%} of the machine's limit"
    if remaining_s is not None:
        yield f"about {duration(remaining_s)} left"


def picture(
    history: RunHistory, training: Event, others: Sequence[Event], console: "Console"
) -> "RenderableType":
    """What a terminal shows of a training under way; never wider than the terminal."""
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from ownwords.view.terminal import BOLD, DIM, TerminalWriter

    writer = TerminalWriter(console)
    width = writer.width
    left = Text("Training", style=BOLD).append(
        f"  step {_counted(history.step, history.total or None, '')}", style="not bold"
    )
    remaining = training.remaining_s
    right = duration(training.seconds)
    if remaining is not None:
        right = f"{right} gone, about {duration(remaining)} left"
        if left.cell_len + len(right) + 2 > width:
            right = f"{duration(remaining)} left"
    head = Table.grid()
    head.add_column(width=width - len(right), no_wrap=True, overflow="crop")
    head.add_column(width=len(right), no_wrap=True, overflow="crop")
    head.add_row(left, right)
    grid = Table.grid()
    grid.add_column(width=width, no_wrap=True, overflow="crop")
    total = history.total or 1
    bar = ProgressBar(total, min(total, history.step), width=width, complete_style=_TRAINED)
    grid.add_row("")
    grid.add_row(head)
    grid.add_row(bar)
    grid.add_row("")
    # On a low terminal the figures are the last to go.
    chart = line_chart(
        [(point.step, point.smooth) for point in history.points],
        [
            (float(p.step), p.bits_per_byte)
            for p in history.evaluations
            if p.bits_per_byte is not None
        ],
        steps=history.total or history.step,
        width=width,
        height=7 if console.height >= 24 else 4 if console.height >= 18 else 0,
        plain=not writer.can_show("⠿●"),
    )
    for line in chart:
        grid.add_row(line)
    if chart:
        grid.add_row("")
    grid.add_row(_figures(history, writer))
    if history.sample:
        words = " ".join(history.sample.split())
        limit = (3 if console.height >= 24 else 1) * (width - 2) - 8
        if len(words) > limit:
            words = words[:limit].rsplit(" ", 1)[0] + "…"
        sample = writer.text(f"“{words}”")
        sample.stylize("italic")
        sample.no_wrap, sample.overflow = False, "fold"
        grid.add_row("")
        grid.add_row(sample)
    for event in others[-1:]:  # within the training, such as an evaluation
        of = f" of {event.total:,}" if event.total else ""
        grid.add_row("")
        grid.add_row(writer.text(f"{event.stage} {event.done:,}{of}" if of else event.stage, DIM))
    return Padding(grid, (0, 0, 0, writer.margin), expand=False)


def _figures(history: RunHistory, writer: "TerminalWriter") -> "Table":
    """Name, figure and meaning; the meaning only where it fits."""
    from rich.table import Table
    from rich.text import Text

    from ownwords.view.terminal import BOLD, DIM

    plain = not writer.can_show("━●")
    latest, meaning_width = history.latest, writer.width - 12 - 9 - 4
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, width=12, overflow="crop")
    grid.add_column(no_wrap=True, justify="right", style=BOLD, width=9, overflow="crop")
    if meaning_width >= 14:
        grid.add_column(no_wrap=True, width=meaning_width, overflow="crop", style=DIM)

    def add(name: str, figure: str, meaning: str, mark: str = " ", style: str = "") -> None:
        label = Text(mark, style=style).append(f" {name}", style="default")
        grid.add_row(label, figure, *([meaning] if meaning_width >= 14 else []))

    if math.isfinite(history.smooth):
        nats = f"{latest['loss']:.3f} nats a token" if "loss" in latest else ""
        add("training", f"{history.smooth:.3f}", nats, "-" if plain else "━", _TRAINED)
    best, point = history.best, history.evaluations[-1] if history.evaluations else None
    if best and point and point.bits_per_byte is not None and best.bits_per_byte is not None:
        meaning = "bits per byte on held-out posts"
        if best.bits_per_byte < point.bits_per_byte:
            meaning = f"best {best.bits_per_byte:.3f} at step {best.step:,}"
        add("validation", f"{point.bits_per_byte:.3f}", meaning, "o" if plain else "●", _VALIDATED)
    if speed := latest.get("tokens_per_s"):
        share = latest.get("share_of_limit", 0.0)
        add("tokens/s", f"{speed:,.0f}", f"{share:.0%} of this machine's limit" if share else "")
    if rate := latest.get("rate"):
        norm = latest.get("gradient_norm", math.nan)
        add("rate", f"{rate:.3g}", f"gradient {norm:.2f}" if math.isfinite(norm) else "")
    return grid


# --- the chart ------------------------------------------------------------------------------------


def line_chart(
    line: Sequence[Point],
    marks: Sequence[Point],
    *,
    steps: float,
    width: int,
    height: int,
    plain: bool = False,
) -> "list[Text]":
    """Draw the line as dots with the marks on it: `height` rows and a row of steps, `width` wide.

    `steps` is where the run ends; what is still to come stays empty. `plain` uses ASCII. Returns no
    rows where there is nothing to draw or too little space.
    """
    from rich.text import Text

    from ownwords.view.terminal import DIM

    columns, end = width - _AXIS, max(steps, 1)
    if not (line or marks) or columns < 8 or height < 2:
        return []
    # The first tenth of the steps falls so far that it would hide the rest.
    begin = 0.1 * line[-1][0] if line else 0.0
    values = [value for step, value in (*line, *marks) if step >= begin and math.isfinite(value)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    high = max(high, low + max(0.02, abs(high) * 0.01))  # less would magnify noise
    across, down = (1, 1) if plain else (2, 4)

    def row_of(value: float, rows: int) -> int:
        share = (value - low) / (high - low) if math.isfinite(value) else 1.0
        return min(rows - 1, max(0, round((1 - share) * (rows - 1))))

    cells: dict[tuple[int, int], int] = {}  # the dots of each character
    before: int | None = None
    for x, value in _sampled(line, end, columns * across):
        y = row_of(value, height * down)
        # A steep curve stays one line.
        reached = range(min(y, before + 1), max(y, before - 1) + 1) if before is not None else (y,)
        for each in reached:
            place = x // across, each // down
            cells[place] = cells.get(place, 0) | _DOTS[each % down][x % across]
        before = y
    marked = {(min(columns - 1, int(at / end * columns)), row_of(v, height)) for at, v in marks}
    labels = {0: f"{high:.2f}", height - 1: f"{low:.2f}"}
    rows = []
    for y in range(height):
        label = labels.get(y, "")[: _AXIS - 2].rstrip(".")
        row = Text(f"{label:>{_AXIS - 2}} ", style=DIM)
        row.append("|" if plain else "┤" if label else "│", style=DIM)
        for x in range(columns):
            if (x, y) in marked:
                row.append("o" if plain else "●", style=_VALIDATED)
            elif dots := cells.get((x, y)):
                row.append("." if plain else chr(0x2800 + dots), style=_TRAINED)
            else:
                row.append(" ")
        rows.append(row)
    last = f"step {steps:,.0f}"
    first = "0" if len(last) < columns - 1 else ""
    scale = (first + last.rjust(columns - len(first)))[:columns]
    return [*rows, Text(" " * _AXIS + scale, style=DIM)]


def _sampled(line: Sequence[Point], end: float, count: int) -> Iterator[tuple[int, float]]:
    """Yield the value at each of so many places from step 0 to the end, where there is one."""
    import numpy as np

    points = [point for point in line if math.isfinite(point[1])]
    if points:
        at, values = zip(*points, strict=True)
        places = (np.arange(count) + 0.5) * end / count
        sampled = np.interp(places, at, values, left=np.nan, right=np.nan)
        yield from ((x, float(value)) for x, value in enumerate(sampled) if np.isfinite(value))
