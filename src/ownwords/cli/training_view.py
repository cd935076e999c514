"""Training under way: a live picture on a terminal, plain lines elsewhere, from the events."""

import math
import os
import sys
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ownwords.cli.options import CommonOptions
from ownwords.cli.progress_bars import ProgressBars
from ownwords.core.progress import Event, Progress, duration, printable
from ownwords.training.run import SAMPLE, STAGE, RunHistory
from ownwords.view.terminal import LOUD, QUIET

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from ownwords.archive.analysis import AskAuthor

_WIDEST = 104  # columns that are easy to read
# Colours that are readable on black and on white.
TRAINED, VALIDATED = "bright_blue", "magenta"

Point = tuple[float, float]  # (step, value)

_AXIS = 6  # columns of the scale on the left, its line included
# Braille: two columns of four dots in a character.
_ACROSS, _DOWN = 2, 4
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass
class LiveRun:
    """The training that is under way, as the picture shows it."""

    history: RunHistory = field(default_factory=RunHistory)
    seconds: float = 0.0
    remaining_s: float | None = None
    activity: str = ""  # another stage within the training, such as an evaluation


class TrainingView:
    """A subscriber: shows the picture during training, the usual bars before and after.

    Without bars it shows nothing, and only records the history.
    """

    def __init__(
        self,
        bars: ProgressBars | None,
        stream: TextIO | None = None,
        *,
        every_s: float = 10.0,
        console: "Console | None" = None,
    ) -> None:
        self._bars = bars
        self._stream = stream or sys.stderr
        self._draws = (
            bars is not None and self._stream.isatty() and os.environ.get("TERM") != "dumb"
        )
        self._every_s = every_s
        self._console = console
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._with_bars: set[str] = set()  # stages that the bars have heard the start of
        self._said_at = 0.0
        self.run = LiveRun()
        self._training = False

    def __call__(self, event: Event) -> None:
        if event.kind in ("expect", "begin"):  # of a part of the job, which may have a stage's name
            return
        with self._lock:
            if event.stage == STAGE:
                self._train(event)
            elif not self._training:
                self._pass_on(event)
            elif event.kind == "note":
                self._say(event.message)
            elif event.kind in {"start", "advance"}:
                of = f" {event.done:,} of {event.total:,}" if event.total else ""
                self.run.activity = f"{event.stage}{of}"
                self._refresh()
            elif event.kind == "done":
                self.run.activity = ""

    def close(self) -> None:
        """Remove the picture and restore the cursor."""
        with self._lock:
            self._stop()
            if self._bars:
                self._bars.close()

    def _pass_on(self, event: Event) -> None:
        if self._bars is None:
            return
        if event.kind == "start":
            self._with_bars.add(event.stage)
        if event.kind in {"note", "metric"} or event.stage in self._with_bars:
            self._bars(event)
        if event.kind == "done":
            self._with_bars.discard(event.stage)

    def _train(self, event: Event) -> None:
        if event.kind == "start":
            if self._bars:
                self._bars.close()  # one picture at a time
            self._with_bars.clear()
            self.run = LiveRun()
            self._training, self._said_at = True, 0.0
        run = self.run
        before = (len(run.history.evaluations), run.history.sample)
        run.history.add(event)
        run.seconds, run.remaining_s = event.seconds, event.remaining_s
        if event.kind == "note" and not event.message.startswith(SAMPLE):
            self._say(event.message)
        elif event.kind == "done":
            self._stop()
            if not self._draws:
                self._print_lines(event, before)
        elif self._draws:
            self._refresh()
        else:
            self._print_lines(event, before)

    def _say(self, text: str) -> None:
        if self._bars is None:
            return
        if self._live:
            self._live.console.print(Text(printable(text)))
        else:
            print(printable(text), file=self._stream, flush=True)

    def _print_lines(self, event: Event, before: tuple[int, str]) -> None:
        """Print plain lines: every few seconds, and after each evaluation and sample."""
        history = self.run.history
        if len(history.evaluations) > before[0] and history.evaluations[-1].best is not None:
            point = history.evaluations[-1]
            best = " (the best so far)" if history.is_best_so_far else ""
            self._say(
                f"training: step {point.step:,}: {point.best:.3f} bits per byte on held-out"
                f" posts{best}"
            )
        if history.sample != before[1]:
            self._say(f"training: sample: {' '.join(history.sample.split())[:300]}")
        if event.kind == "done":
            ended = "stopped after" if event.message else "done in"
            self._say(f"training: {history.step:,} steps, {ended} {duration(event.seconds)}")
        elif event.kind == "metric" and event.seconds - self._said_at >= self._every_s:
            self._said_at = event.seconds
            self._say("training: " + ", ".join(_in_a_line(self.run)))

    def _refresh(self) -> None:
        if not self._draws:
            return
        if not self._live:
            from rich.console import Console
            from rich.live import Live

            console = self._console or Console(file=self._stream, highlight=False)
            self._live = Live(
                get_renderable=lambda: picture(self.run, console),
                console=console,
                # Drawn in its own thread, so training never waits; that thread takes no lock of
                # ours, whose holder may be waiting for the terminal.
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _stop(self) -> None:
        self._training = False
        live, self._live = self._live, None
        if live:
            live.stop()


def _in_a_line(run: LiveRun) -> Iterator[str]:
    history = run.history
    of = f" of {history.total:,}" if history.total else ""
    yield f"step {history.step:,}{of}"
    if math.isfinite(history.smooth):
        yield f"{history.smooth:.3f} bits per byte"
    if speed := history.latest.get("tokens_per_s"):
        yield f"{speed:,.0f} tokens/s"
    if share := history.latest.get("share_of_limit"):
        yield f"{share:.0%} of the machine's limit"
    if run.remaining_s is not None:
        yield f"about {duration(run.remaining_s)} left"


def picture(run: LiveRun, console: "Console") -> "RenderableType":
    """What the terminal shows of a run under way; never wider than the terminal."""
    history = run.history
    plain = not _can_show("█⠿●━“”…", console)
    margin = 2 if console.width >= 40 else 0
    width = max(20, min(console.width - 2 * margin, _WIDEST))
    parts: list[Text | Table] = [Text(""), _progress(run, width, plain), Text("")]
    # On a low terminal the figures are the last to go.
    height = 7 if console.height >= 24 else 4 if console.height >= 18 else 0
    chart = line_chart(
        [(point.step, point.smooth) for point in history.points],
        [(float(p.step), p.best) for p in history.evaluations if p.best is not None],
        steps=history.total or history.step,
        width=width,
        height=height,
        plain=plain,
    )
    parts += [*chart, Text("")] if chart else []
    parts.append(_figures(history, width, plain))
    if history.sample:
        lines = 3 if console.height >= 24 else 1
        parts += [Text(""), _sample(history.sample, width, lines, plain)]
    if run.activity:
        parts += [Text(""), Text(printable(run.activity), style=QUIET)]
    grid = Table.grid(padding=0)
    grid.add_column(width=margin)
    grid.add_column(width=width, no_wrap=True, overflow="crop")
    for part in parts:
        grid.add_row("", part)
    return Group(grid)


def _progress(run: LiveRun, width: int, plain: bool) -> Table:
    step, total = run.history.step, run.history.total
    of = f" of {total:,}" if total else ""
    left = Text("Training", style=LOUD).append(f"  step {step:,}{of}", style="not bold")
    right = duration(run.seconds)
    if run.remaining_s is not None:
        right = f"{right} gone, about {duration(run.remaining_s)} left"
        if left.cell_len + len(right) + 2 > width:
            right = f"{duration(run.remaining_s)} left"
    head = Table.grid(expand=False)
    head.add_column(width=width - len(right), no_wrap=True, overflow="crop")
    head.add_column(width=len(right), no_wrap=True, overflow="crop")
    head.add_row(left, Text(right))
    share = step / total if total else 0.0
    done = round(max(0.0, min(1.0, share)) * width)
    line = "=" if plain else "━"
    rest = "-" if plain else "─"
    grid = Table.grid()
    grid.add_column(no_wrap=True, overflow="crop")
    grid.add_row(head)
    grid.add_row(Text(line * done, style=TRAINED).append(rest * (width - done), style=QUIET))
    return grid


def _figures(history: RunHistory, width: int, plain: bool) -> Table:
    """Name, figure and meaning; the meaning only where it fits."""
    rows: list[tuple[Text, str, str]] = []
    latest = history.latest
    if math.isfinite(history.smooth):
        nats = f"{latest['loss']:.3f} nats a token" if "loss" in latest else ""
        mark = Text("- " if plain else "━ ", style=TRAINED)
        rows.append((mark.append("training", style="default"), f"{history.smooth:.3f}", nats))
    best, point = history.best, history.evaluations[-1] if history.evaluations else None
    if best and point and point.best is not None and best.best is not None:
        meaning = "bits per byte on held-out posts"
        if best.best < point.best:
            meaning = f"best {best.best:.3f} at step {best.step:,}"
        mark = Text("o " if plain else "● ", style=VALIDATED)
        rows.append((mark.append("validation", style="default"), f"{point.best:.3f}", meaning))
    if speed := latest.get("tokens_per_s"):
        share = latest.get("share_of_limit", 0.0)
        meaning = f"{share:.0%} of this machine's limit" if share else ""
        if share and width >= 74:
            meaning = f"{bar(share, 14, plain=plain):<14} {meaning}"
        rows.append((Text("  tokens/s"), f"{speed:,.0f}", meaning))
    if rate := latest.get("rate"):
        norm = latest.get("gradient_norm", math.nan)
        meaning = f"gradient {norm:.2f}" if math.isfinite(norm) else ""
        rows.append((Text("  rate"), f"{rate:.3g}", meaning))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, width=12, overflow="crop")
    grid.add_column(no_wrap=True, justify="right", style=LOUD, width=9, overflow="crop")
    rest = width - 12 - 9 - 4
    if rest >= 14:
        grid.add_column(
            no_wrap=True, width=rest, overflow="crop" if plain else "ellipsis", style=QUIET
        )
    for name, figure, meaning in rows:
        grid.add_row(name, Text(figure), *([Text(meaning)] if rest >= 14 else []))
    return grid


def _sample(sample: str, width: int, lines: int, plain: bool) -> Text:
    opening, closing_, more = ('"', '"', "...") if plain else ("“", "”", "…")
    words = printable(" ".join(sample.split()))
    if plain:
        words = words.encode("ascii", "replace").decode()
    limit = lines * (width - 2) - 8
    if len(words) > limit:
        words = words[:limit].rsplit(" ", 1)[0] + more
    return Text(f"{opening}{words}{closing_}", style="italic", no_wrap=False, overflow="fold")


def _can_show(text: str, console: "Console") -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return not console.legacy_windows


@contextmanager
def watching(common: CommonOptions) -> Iterator[tuple[Progress, "AskAuthor | None", TrainingView]]:
    """`common.watched` with the picture of training instead of its bar.

    Where no progress is shown, the view still records the history.
    """
    with common.watched() as (progress, ask):
        bars = [s for s in progress.subscribers if isinstance(s, ProgressBars)]
        with closing(TrainingView(bars[0] if bars else None)) as view:
            progress.subscribers[:] = [
                view,
                *(s for s in progress.subscribers if s not in bars),
            ]
            yield progress, ask, view


# --- charts ---------------------------------------------------------------------------------------


def line_chart(
    line: Sequence[Point],
    marks: Sequence[Point],
    *,
    steps: float,
    width: int,
    height: int,
    plain: bool = False,
) -> list[Text]:
    """Draw the line as dots with the marks on it: `height` rows and a row of steps, `width` wide.

    `steps` is where the run ends; what is still to come stays empty. `plain` uses ASCII. Returns no
    rows where there is nothing to draw or too little space.
    """
    columns = width - _AXIS
    if not (line or marks) or columns < 8 or height < 2:
        return []
    low, high = _range(line, marks)
    across, down = (1, 1) if plain else (_ACROSS, _DOWN)
    dots = _dots(line, steps, low, high, columns * across, height * down)
    places = {
        (
            min(columns - 1, int(step / max(steps, 1) * columns)),
            _row(value, low, high, height),
        )
        for step, value in marks
    }
    rows = []
    for y in range(height):
        label = {0: _figure(high), height - 1: _figure(low)}.get(y, "")
        row = Text(f"{label:>{_AXIS - 2}} ", style=QUIET)
        row.append("|" if plain else "┤" if label else "│", style=QUIET)
        for x in range(columns):
            if (x, y) in places:
                row.append("o" if plain else "●", style=VALIDATED)
            elif plain:
                row.append("." if (x, y) in dots else " ", style=TRAINED)
            else:
                row.append(_braille(dots, x, y), style=TRAINED)
        rows.append(row)
    rows.append(_scale(steps, columns))
    return rows


def _figure(value: float) -> str:
    """A number in four characters."""
    for digits, below in ((2, 9.995), (1, 99.95), (0, 9999.5)):
        if 0 <= value < below:
            return f"{value + 0.0:.{digits}f}"  # no minus before a zero
    return ">10k" if value > 0 else "< 0"


def _range(line: Sequence[Point], marks: Sequence[Point]) -> Point:
    """The range of values after the first tenth of the steps, whose fall would hide the rest."""
    later = [value for step, value in line if step >= 0.1 * line[-1][0]]
    values = [*later, *(value for step, value in marks if not later or step >= 0.1 * line[-1][0])]
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    least = max(0.02, abs(high) * 0.01)  # less would magnify noise
    return low, max(high, low + least)


def _dots(
    line: Sequence[Point], steps: float, low: float, high: float, across: int, down: int
) -> set[tuple[int, int]]:
    points = [(step, value) for step, value in line if math.isfinite(value)]
    at = [step for step, _ in points]
    dots: set[tuple[int, int]] = set()
    before: int | None = None
    for x in range(across):
        step = (x + 0.5) / across * max(steps, 1)
        if not points or step < at[0] or step > at[-1]:
            continue
        y = _row(_value_at(points, at, step), low, high, down)
        # A steep curve stays one line.
        reached = range(min(y, before + 1), max(y, before - 1) + 1) if before is not None else (y,)
        dots.update((x, y) for y in reached)
        before = y
    return dots


def _value_at(points: Sequence[Point], at: Sequence[float], step: float) -> float:
    i = bisect_right(at, step)
    if i == len(at):
        return points[-1][1]
    (left, low), (right, high) = points[i - 1], points[i]
    return low + (high - low) * (step - left) / (right - left)


def _row(value: float, low: float, high: float, rows: int) -> int:
    """The row from the top, within the chart."""
    if not math.isfinite(value):
        return 0
    share = (value - low) / (high - low)
    return min(rows - 1, max(0, round((1 - share) * (rows - 1))))


def _braille(dots: set[tuple[int, int]], x: int, y: int) -> str:
    bits = sum(
        _DOTS[dy][dx]
        for dx in range(_ACROSS)
        for dy in range(_DOWN)
        if (x * _ACROSS + dx, y * _DOWN + dy) in dots
    )
    return chr(0x2800 + bits) if bits else " "


def _scale(steps: float, columns: int) -> Text:
    last = f"step {steps:,.0f}"
    first = "0" if len(last) < columns - 1 else ""
    shown = first + last.rjust(columns - len(first))[: columns - len(first)]
    return Text(" " * _AXIS + shown, style=QUIET)


def bar(share: float, width: int, *, plain: bool = False) -> str:
    """A horizontal bar of that share of the width."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8) if math.isfinite(share) else 0
    if plain:
        return "#" * (eighths // 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
