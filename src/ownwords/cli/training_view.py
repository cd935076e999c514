"""Training as it goes: a picture on a terminal, plain lines where there is none.

It reads the one stream of events, and knows of training what the metrics of its stage say.
"""

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ownwords.cli.line_chart import LOUD, QUIET, TRAINED, VALIDATED, Point, bar, line_chart
from ownwords.cli.options import Common
from ownwords.cli.progress_bars import ProgressBars
from ownwords.core.progress import Event, Progress, in_words, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from ownwords.archive.analysis import AskAuthor

STAGE = "train"  # the stage whose metrics are shown
SAMPLE = "sample: "  # a note that begins so is text the model wrote

_WIDEST = 104  # wider than this, an eye loses the line
_SMOOTHED = 20  # metrics over which the training figure is smoothed, the first over fewer
_MOST_POINTS = 512


class Seen:
    """What the events of a run have told so far."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the run before."""
        self.step = 0
        self.total: int | None = None
        self.remaining_s: float | None = None
        self.seconds = 0.0
        self.latest: dict[str, float] = {}
        self.line: list[Point] = []  # smoothed bits a byte
        self.marks: list[Point] = []  # on validation
        self.sample = ""
        self.other = ""  # what else is under way, such as an evaluation
        self._before = 0  # steps done by earlier processes
        self._every = 1  # of so many metrics one becomes a point
        self._metrics = 0
        self._smooth = math.nan

    def take(self, event: Event) -> None:
        """Learn from an event of the training stage.

        Its metrics carry the step of the whole run; what it counts are the steps done since this
        process began, which may have gone on where another one stopped.
        """
        self.seconds, self.remaining_s = event.seconds, event.remaining_s
        if event.kind == "note" and event.message.startswith(SAMPLE):
            self.sample = event.message.removeprefix(SAMPLE)
        if event.kind != "metric":
            if self.total is None:
                self.step, self.total = event.done, event.total
            return
        values = event.values
        self.latest.update(values)
        step = values.get("step", event.done)
        self.step = int(step)
        self._before = max(self._before, self.step - event.done)
        if event.total is not None:
            self.total = self._before + event.total
        if math.isfinite(trained := values.get("bits_per_byte", math.nan)):
            self._point(step, trained)
        if math.isfinite(validated := values.get("validation_bits_per_byte", math.nan)):
            self.marks.append((step, validated))

    def _point(self, step: float, value: float) -> None:
        self._metrics += 1
        share = max(min(1.0, 3 / (self._metrics + 2)), 1 / _SMOOTHED)
        old = self._smooth
        self._smooth = value if math.isnan(old) else old + share * (value - old)
        if self.line and step < self.line[-1][0]:  # stepped back to an earlier checkpoint
            self.line = [point for point in self.line if point[0] < step]
            self.marks = [point for point in self.marks if point[0] <= step]
        if self._metrics % self._every == 0:
            if self.line and self.line[-1][0] == step:
                self.line.pop()
            self.line.append((step, self._smooth))
        if len(self.line) > _MOST_POINTS:
            self.line = self.line[::2]
            self._every *= 2

    @property
    def smooth(self) -> float:
        """Bits a byte in training, smoothed; nan before the first."""
        return self._smooth

    @property
    def best(self) -> Point | None:
        """The best evaluation and its step."""
        return min(self.marks, key=lambda mark: mark[1], default=None)


class TrainingView:
    """A subscriber: the picture while training is under way, the usual bars before and after.

    Without bars it shows nothing, and only learns.
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
        self.seen = Seen()
        self._training = False

    def __call__(self, event: Event) -> None:
        with self._lock:
            if event.stage == STAGE:
                self._train(event)
            elif not self._training:
                self._pass_on(event)
            elif event.kind == "note":
                self._say(event.message)
            elif event.kind in {"start", "advance"}:
                of = f" {event.done:,} of {event.total:,}" if event.total else ""
                self.seen.other = f"{event.stage}{of}"
                self._refresh()
            elif event.kind == "done":
                self.seen.other = ""

    def close(self) -> None:
        """Take the picture away and give the cursor back."""
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
            self.seen.begin()
            self._training, self._said_at = True, 0.0
        before = (len(self.seen.marks), self.seen.sample)
        self.seen.take(event)
        if event.kind == "note" and not event.message.startswith(SAMPLE):
            self._say(event.message)
        elif event.kind == "done":
            self._stop()
            if not self._draws:
                self._tell(event, before)
        elif self._draws:
            self._refresh()
        else:
            self._tell(event, before)

    def _say(self, text: str) -> None:
        if self._bars is None:
            return
        if self._live:
            self._live.console.print(Text(printable(text)))
        else:
            print(printable(text), file=self._stream, flush=True)

    def _tell(self, event: Event, before: tuple[int, str]) -> None:
        """Plain lines: every few seconds, and whenever the model was evaluated or wrote."""
        seen = self.seen
        if len(seen.marks) > before[0]:
            step, value = seen.marks[-1]
            best = " (the best so far)" if seen.marks[-1] == seen.best else ""
            self._say(f"training: validation {value:.3f} bits/byte at step {step:,.0f}{best}")
        if seen.sample != before[1]:
            self._say(f"training: it writes: {' '.join(seen.sample.split())[:300]}")
        if event.kind == "done":
            ended = "stopped after" if event.message else "done in"
            self._say(f"training: {seen.step:,} steps, {ended} {in_words(event.seconds)}")
        elif event.kind == "metric" and event.seconds - self._said_at >= self._every_s:
            self._said_at = event.seconds
            self._say("training: " + ", ".join(_in_a_line(seen)))

    def _refresh(self) -> None:
        if not self._draws:
            return
        if not self._live:
            from rich.console import Console
            from rich.live import Live

            console = self._console or Console(file=self._stream, highlight=False)
            self._live = Live(
                get_renderable=lambda: picture(self.seen, console),
                console=console,
                # Drawn in a thread of its own: training never waits. That thread takes no lock of
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


def _in_a_line(seen: Seen) -> Iterator[str]:
    of = f" of {seen.total:,}" if seen.total else ""
    yield f"step {seen.step:,}{of}"
    if math.isfinite(seen.smooth):
        yield f"{seen.smooth:.3f} bits/byte"
    if speed := seen.latest.get("tokens_per_s"):
        yield f"{speed:,.0f} tokens/s"
    if share := seen.latest.get("share_of_limit"):
        yield f"{share:.0%} of the machine's limit"
    if seen.remaining_s is not None:
        yield f"about {in_words(seen.remaining_s)} left"


def picture(seen: Seen, console: "Console") -> "RenderableType":
    """What the terminal shows of a run under way; never wider than the terminal."""
    plain = not _can_show("█⠿●━“”…", console)
    margin = 2 if console.width >= 40 else 0
    width = max(20, min(console.width - 2 * margin, _WIDEST))
    parts: list[Text | Table] = [Text(""), _how_far(seen, width, plain), Text("")]
    # Of a low terminal the figures are the last to go.
    height = 7 if console.height >= 24 else 4 if console.height >= 18 else 0
    drawn = line_chart(
        list(seen.line),
        list(seen.marks),
        steps=seen.total or seen.step,
        width=width,
        height=height,
        plain=plain,
    )
    parts += [*drawn, Text("")] if drawn else []
    parts.append(_figures(seen, width, plain))
    if seen.sample:
        parts += [Text(""), _sample(seen.sample, width, 3 if console.height >= 24 else 1, plain)]
    if seen.other:
        parts += [Text(""), Text(printable(seen.other), style=QUIET)]
    grid = Table.grid(padding=0)
    grid.add_column(width=margin)
    grid.add_column(width=width, no_wrap=True, overflow="crop")
    for part in parts:
        grid.add_row("", part)
    return Group(grid)


def _how_far(seen: Seen, width: int, plain: bool) -> Table:
    of = f" of {seen.total:,}" if seen.total else ""
    left = Text("Training", style=LOUD).append(f"  step {seen.step:,}{of}", style="not bold")
    right = in_words(seen.seconds)
    if seen.remaining_s is not None:
        right = f"{right} gone, about {in_words(seen.remaining_s)} left"
        if left.cell_len + len(right) + 2 > width:
            right = f"{in_words(seen.remaining_s)} left"
    head = Table.grid(expand=False)
    head.add_column(width=width - len(right), no_wrap=True, overflow="crop")
    head.add_column(width=len(right), no_wrap=True, overflow="crop")
    head.add_row(left, Text(right))
    share = seen.step / seen.total if seen.total else 0.0
    done = round(max(0.0, min(1.0, share)) * width)
    line = "=" if plain else "━"
    rest = "-" if plain else "─"
    whole = Table.grid()
    whole.add_column(no_wrap=True, overflow="crop")
    whole.add_row(head)
    whole.add_row(Text(line * done, style=TRAINED).append(rest * (width - done), style=QUIET))
    return whole


def _figures(seen: Seen, width: int, plain: bool) -> Table:
    """Name, figure, and what it means; the last only where there is room."""
    rows: list[tuple[Text, str, str]] = []
    latest = seen.latest
    if math.isfinite(seen.smooth):
        nats = f"{latest['loss']:.3f} nats a token" if "loss" in latest else ""
        mark = Text("- " if plain else "━ ", style=TRAINED)
        rows.append((mark.append("training", style="default"), f"{seen.smooth:.3f}", nats))
    if seen.best:
        _, value = seen.marks[-1]
        best_step, best = seen.best
        said = "bits a byte of text it has not seen"
        if best < value:
            said = f"best {best:.3f} at step {best_step:,.0f}"
        mark = Text("o " if plain else "● ", style=VALIDATED)
        rows.append((mark.append("validation", style="default"), f"{value:.3f}", said))
    if speed := latest.get("tokens_per_s"):
        share = latest.get("share_of_limit", 0.0)
        said = f"{share:.0%} of this machine's limit" if share else ""
        if share and width >= 74:
            said = f"{bar(share, 14, plain=plain):<14} {said}"
        rows.append((Text("  tokens/s"), f"{speed:,.0f}", said))
    if rate := latest.get("rate"):
        norm = latest.get("gradient_norm", math.nan)
        said = f"gradient {norm:.2f}" if math.isfinite(norm) else ""
        rows.append((Text("  rate"), f"{rate:.3g}", said))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, width=12, overflow="crop")
    grid.add_column(no_wrap=True, justify="right", style=LOUD, width=9, overflow="crop")
    room = width - 12 - 9 - 4
    if room >= 14:
        grid.add_column(
            no_wrap=True, width=room, overflow="crop" if plain else "ellipsis", style=QUIET
        )
    for name, figure, said in rows:
        grid.add_row(name, Text(figure), *([Text(said)] if room >= 14 else []))
    return grid


def _sample(sample: str, width: int, lines: int, plain: bool) -> Text:
    opening, closing_, more = ('"', '"', "...") if plain else ("“", "”", "…")
    words = printable(" ".join(sample.split()))
    if plain:
        words = words.encode("ascii", "replace").decode()
    room = lines * (width - 2) - 8
    if len(words) > room:
        words = words[:room].rsplit(" ", 1)[0] + more
    return Text(f"{opening}{words}{closing_}", style="italic", no_wrap=False, overflow="fold")


def _can_show(text: str, console: "Console") -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return not console.legacy_windows


@contextmanager
def watching(common: Common) -> Iterator[tuple[Progress, "AskAuthor | None", TrainingView]]:
    """As `common.watched`, with the picture of training in place of its bar.

    Where no progress is to be shown the view still learns what the events tell.
    """
    with common.watched() as (progress, ask):
        shown = [one for one in progress.subscribers if isinstance(one, ProgressBars)]
        with closing(TrainingView(shown[0] if shown else None)) as view:
            progress.subscribers[:] = [
                view,
                *(one for one in progress.subscribers if one not in shown),
            ]
            yield progress, ask, view
