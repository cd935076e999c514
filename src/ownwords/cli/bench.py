"""`ownwords bench`."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from ownwords.cli.line_chart import LOUD, QUIET, TRAINED, bar
from ownwords.cli.optional_packages import needs_torch
from ownwords.cli.options import DEFAULTS, Common
from ownwords.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from ownwords.training.step_time import StepTime

_MOST_TOKENS = 2**24  # of a batch


def step(
    model: Annotated[
        Path | None,
        Parameter(name="MODEL", help="A model directory. [default: a fresh model, see below]"),
    ] = None,
    /,
    *,
    parameters: Annotated[
        int, Parameter(help="Without MODEL: about so many parameters.")
    ] = 1_000_000,
    vocabulary: Annotated[int, Parameter(help="Without MODEL: so many tokens.")] = 512,
    context: Annotated[int, Parameter(help="Tokens of a row.")] = 256,
    rows: Annotated[int, Parameter(help="Rows of a batch.")] = 16,
    precision: Annotated[
        Literal["float32", "autocast", "bf16"],
        Parameter(help="Of the arithmetic: autocast multiplies in bfloat16, masters keeps such."),
    ] = "float32",
    device: Annotated[str, Parameter(help="cpu, cuda, rocm, mps, xpu, or the best there is.")] = (
        "auto"
    ),
    seconds: Annotated[float, Parameter(help="Measure for about so long.")] = 3.0,
    common: Common = DEFAULTS,
) -> None:
    """Train for a few seconds on random ids, show where the time of a step goes."""
    with needs_torch("measuring a training step"):
        from ownwords.training.device import choose
        from ownwords.training.step_time import measure, subject

    counts = (("--parameters", parameters), ("--vocabulary", vocabulary), ("--rows", rows))
    for name, value in (*counts, ("--context", context), ("--seconds", seconds)):
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} should be more than 0, and is {value}")
    if rows * context > _MOST_TOKENS:
        raise ConfigError(f"--rows times --context should be {_MOST_TOKENS:,} tokens at most")
    settings = common.resolve({}, workspace=common.workspace).settings
    chosen = choose(device)
    with common.watched() as (progress, _), progress.stage("Measuring steps"):
        network = subject(chosen, precision, model, parameters, vocabulary, context)
        found = measure(
            network,
            chosen,
            rows=rows,
            context=context,
            precision=precision,
            optim=settings.optim,
            dropout=settings.train.dropout,
            for_s=seconds,
        )
    common.show(asdict(found), lambda console: print_step(found, console))


def print_step(found: "StepTime", console: "Console") -> None:
    """The picture: a bar for each part, as long as its share of the step."""
    plain = (console.encoding or "").lower().replace("-", "") not in {"utf8", "utf16"}
    width = max(20, min(console.width, 100) - 2)
    room = max(6, width - 26 - 10 - 6 - 6)
    on_cpu = found.device.startswith("cpu")
    told = Table.grid(padding=(0, 2))
    told.add_column(no_wrap=True)
    told.add_column(overflow="fold")
    share = f"{found.share_of_limit:.0%} of the {found.limit.value:,.0f} GFLOP/s of matrix products"
    host = "Python and dispatch" if on_cpu else "the device waits for the host"
    for name, figure in (
        ("model", f"{found.parameters:,} parameters, {found.vocabulary:,} tokens"),
        ("batch", f"{found.rows} rows of {found.context:,} tokens, {found.precision}"),
        ("device", found.device),
        ("step", _time(found.seconds)),
        ("speed", f"{found.tokens_per_s:,.0f} tokens/s, {share}"),
        ("host", f"{found.host_share:.1%} of the step: {host}"),
    ):
        told.add_row(Text(name, style=QUIET), Text(figure, style=LOUD if name == "step" else ""))
    console.print(told)
    most = max((part.share for part in found.parts), default=1.0)
    chart = Table.grid(padding=(0, 2))
    chart.add_column(no_wrap=True, width=26, overflow="crop")
    chart.add_column(no_wrap=True, width=room, overflow="crop")
    chart.add_column(no_wrap=True, justify="right", width=10)
    chart.add_column(no_wrap=True, justify="right", width=6)
    for phase in dict.fromkeys(part.phase for part in found.parts):
        parts = [part for part in found.parts if part.phase == phase]
        seconds, whole = sum(p.seconds for p in parts), sum(p.share for p in parts)
        chart.add_row("", "", "", "")
        chart.add_row(
            Text(phase, style=LOUD),
            "",
            Text(_time(seconds), style=LOUD),
            Text(f"{whole:.1%}", style=LOUD),
        )
        for part in parts:
            if part.share < 0.0005:
                continue
            name = "Python and dispatch" if part.kind == "host" else part.kind
            drawn = bar(part.share / most, room, plain=plain)
            figures = (Text(_time(part.seconds)), Text(f"{part.share:.1%}"))
            chart.add_row(Text(f"  {name}"), Text(drawn, style=TRAINED), *figures)
    console.print(chart)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 10 else f"{seconds:,.1f} s"
