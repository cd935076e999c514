"""Training steps compared with nanoGPT's: tokens/s, share of the machine's peak, memory.

    python bench/training.py                    GPT-2 124M at 64, 256, 1024 tokens; tiny models
    python bench/training.py --contexts 256     some of the rows
    python bench/training.py --tiny | --large   only these models
    python bench/training.py --all              with the slow rows that decide nothing
    python bench/training.py --quick            one round of few steps

Each row is a fresh process; all rows of a shape take turns, so that other processes slow all alike;
the median over the rounds counts. Ratios are to nanoGPT as published: float32, eager. "chosen" is
the precision that a plan would choose if it had measured these steps.
The limit is the FLOP/s that our fastest products, of float32 or bfloat16, reach in registers on all
threads; the float32 rows are compared with it, too. FLOPs per token: 6 per multiplied weight, and
attention over half the context (training/step_time.py), the same formula for both.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import run
from bench.machine import measuring

if TYPE_CHECKING:
    from ownwords.models.configs.config import ModelConfig
    from ownwords.training.settings import Precision

BASELINE = "nanoGPT float32"
SLOW_S = 4.0  # slower steps are timed once per round, after one untimed step
# With so many tokens per row, the slowest step takes half a minute, and some rows add nothing.
LONG = 1024
PRECISIONS: "tuple[Precision, ...]" = ("float32", "autocast", "bf16")
# Batches of small models as in our plans; nanoGPT's recipe has 12 x 64.
LARGER = ((16, 256),)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    shape: str  # gpt2, tiny
    rows: int
    context: int
    precision: "Precision"
    ours: str = ""  # the family; empty: nanoGPT
    optimizer: str = "adamw"


SearchResult = dict[str, list[dict[str, float]]]  # the figures of each round, by the row's name


def table(shape: str, rows: int, context: int, *, every: bool) -> list[Row]:
    """Return the rows of one shape, the baseline first."""
    names: list[tuple[str, Precision, str, str]] = [
        (BASELINE, "float32", "", "adamw"),
        ("nanoGPT autocast", "autocast", "", "adamw"),
        ("ours GPT-2 float32", "float32", "gpt2", "adamw"),
        ("ours GPT-2 autocast", "autocast", "gpt2", "adamw"),
        ("ours GPT-2 bf16", "bf16", "gpt2", "adamw"),
    ]
    if context >= LONG and not every:
        names = [name for name in names if name[1] != "float32" or name[0] == BASELINE]
        names = [name for name in names if name[0] != "nanoGPT autocast"]
    kinds = (("adamw", "muon") if every else ("muon",)) if shape == "tiny" else ()
    names += [
        (f"ours Qwen3 {kind} {precision}", precision, "qwen3", kind)
        for kind in kinds
        for precision in PRECISIONS
    ]
    rows_made = [Row(n, shape, rows, context, p, family, kind) for n, p, family, kind in names]
    if shape == "tiny":
        rows_made += [
            Row(f"ours Qwen3 muon {p}, {r} x {c}", shape, r, c, p, "qwen3", "muon")
            for r, c in LARGER
            for p in PRECISIONS
        ]
    return rows_made


@measuring()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, help="instead of 3, and 2 from 256 tokens a row on")
    parser.add_argument("--seconds", type=float, help="for each row in each round; 3, tiny ones 1")
    parser.add_argument("--tiny", action="store_true", help="nanoGPT's CPU recipe's shape alone")
    parser.add_argument("--large", action="store_true", help="GPT-2 124M alone")
    parser.add_argument("--only", help="rows whose name has this in it, and the baseline")
    parser.add_argument("--all", action="store_true", help="all rows of each shape")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        settings = json.loads(arguments.child)
        print(json.dumps(measure(Row(**settings["row"]), settings["seconds"])))
        return 0
    shapes = []
    if not arguments.tiny:
        shapes += [("gpt2", 4, context) for context in arguments.contexts]
    if not arguments.large:
        shapes.append(("tiny", 12, 64))
    for shape, rows, context in shapes:
        chosen = [
            row
            for row in table(shape, rows, context, every=arguments.all)
            if not arguments.only or row.name == BASELINE or arguments.only in row.name
        ]
        name = "GPT-2 124M" if shape == "gpt2" else "4 layers of 128, 0.8M"
        rounds, seconds = arguments.rounds, arguments.seconds
        if arguments.quick:
            rounds, seconds = 1, 0.5
        rounds = rounds or (2 if shape == "gpt2" and context >= 256 else 3)
        seconds = seconds or (3.0 if shape == "gpt2" else 1.0)
        print(f"\n{name}, {rows} x {context} tokens, median of {rounds}", flush=True)
        _show(chosen, _in_turn(chosen, rounds, seconds))
    return 0


def _in_turn(rows: Sequence[Row], rounds: int, seconds: float) -> SearchResult:
    results: dict[str, list[dict[str, float]]] = {row.name: [] for row in rows}
    for _ in range(rounds):
        for row in rows:
            message = json.dumps({"row": asdict(row), "seconds": seconds})
            ran = run("training", "--child", message)
            results[row.name].append(ran.figures | {"peak_mb": ran.peak_mb})
    return results


def _show(rows: Sequence[Row], results: SearchResult) -> None:
    limit = max(figure["limit"] for figures in results.values() for figure in figures)
    median = {
        name: {key: statistics.median(figure[key] for figure in figures) for key in figures[0]}
        for name, figures in results.items()
    }
    base = median[BASELINE]
    chosen = _chosen(rows, {name: figure["seconds"] for name, figure in median.items()})
    print(
        f"{'':34} {'tokens/s':>9} {'ratio':>6} {'ms/step':>8} {'of limit':>9}"
        f" {'MB':>6} {'memory':>7} {'parameters':>11}"
    )
    for row in rows:
        figure = median[row.name]
        speed = figure["tokens"] / figure["seconds"]
        ratio = speed / (base["tokens"] / base["seconds"])
        memory = f"{figure['peak_mb'] / base['peak_mb']:6.2f}x"
        if figure["tokens"] != base["tokens"]:  # another batch needs other memory
            memory = f"{'':7}"
        print(
            f"{row.name:34} {speed:9,.0f} {ratio:5.2f}x {1000 * figure['seconds']:8.1f}"
            f" {speed * figure['flops_per_token'] / limit:9.1%} {figure['peak_mb']:6,.0f}"
            f" {memory} {figure['parameters'] / 1e6:10.2f}M"
            f"{'  chosen' if row.name in chosen else ''}",
            flush=True,
        )
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s", flush=True)


def _chosen(rows: Sequence[Row], seconds: Mapping[str, float]) -> set[str]:
    """Return the rows that a plan would choose among ours that differ only in precision."""
    from ownwords.training.step_time import pick_precision

    same_but_precision: dict[Row, dict[Precision, Row]] = {}
    for row in rows:
        if row.ours:
            same = replace(row, name="", precision="float32")
            same_but_precision.setdefault(same, {})[row.precision] = row
    return {
        by_precision[pick_precision({p: seconds[row.name] for p, row in by_precision.items()})].name
        for by_precision in same_but_precision.values()
    }


def measure(row: Row, seconds: float) -> dict[str, float]:
    """Measure the median seconds of a step in this process."""
    step, parameters, flops_per_token = (_ours if row.ours else _nanogpt)(row)
    began = time.perf_counter()
    step(0)  # warm-up: allocates memory, chooses kernels
    first_s = time.perf_counter() - began
    if first_s < SLOW_S:
        step(1)
    seconds_taken: list[float] = []
    while sum(seconds_taken) < seconds or (len(seconds_taken) < 2 and seconds_taken[0] < SLOW_S):
        began = time.perf_counter()
        step(len(seconds_taken) + 2)
        seconds_taken.append(time.perf_counter() - began)
    return {
        "seconds": statistics.median(seconds_taken),
        "first_s": first_s,
        "tokens": row.rows * row.context,
        "parameters": parameters,
        "flops_per_token": flops_per_token,
        "limit": peak_flops(),
    }


def peak_flops() -> float:
    """Return the FLOP/s of the fastest products of the C++ library, the reference for speeds."""
    import torch

    from ownwords.models.fused import library

    rates = library().rates
    return 1e9 * max(rates.float32, rates.bfloat16, rates.bfloat16_tiles) * torch.get_num_threads()


def _nanogpt(row: Row) -> tuple[Callable[[int], object], int, float]:
    import torch
    from bench import nanogpt

    shape = (
        nanogpt.Shape(50304, context=1024, layers=12, heads=12, width=768)
        if row.shape == "gpt2"
        else nanogpt.Shape(65, context=row.context)
    )
    torch.manual_seed(1)
    model = nanogpt.NanoGPT(shape)
    recipe = nanogpt.Recipe(rows=row.rows)
    adamw = nanogpt.optimizer(model, recipe)
    ids_BT1 = torch.randint(0, min(50257, shape.vocabulary), (row.rows, row.context + 1))
    batch = ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()

    def step(number: int) -> None:
        mixed = torch.autocast("cpu", torch.bfloat16) if row.precision == "autocast" else None
        nanogpt.update(model, adamw, recipe, number, batch, autocast=mixed)

    multiplied = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    multiplied -= model.positions.weight.numel()
    attention = 12.0 * shape.width * shape.layers * row.context / 2
    return step, sum(p.numel() for p in model.parameters()), 6.0 * multiplied + attention


def _shape_of(row: Row) -> "ModelConfig":
    from ownwords.models.configs.gpt2 import GPT2Config
    from ownwords.models.configs.llama import Qwen3Config

    if row.shape == "gpt2":
        return GPT2Config(vocabulary=50304, layers=12, width=768, heads=12)
    if row.ours == "gpt2":
        return GPT2Config(vocabulary=65, context=row.context, width=128, layers=4, heads=4)
    return Qwen3Config(
        vocabulary=65, context=row.context, width=128, layers=4, heads=4, head_dim=32, hidden=352
    )


def _ours(row: Row) -> tuple[Callable[[int], object], int, float]:
    import torch

    from ownwords.models.decoder import build
    from ownwords.training import device
    from ownwords.training.optim import Optimizer
    from ownwords.training.settings import OptimConfig
    from ownwords.training.step_time import flops_per_token

    chosen_device = device.choose("cpu")
    model = build(_shape_of(row))
    model.init_weights(1)
    per_token = flops_per_token(model.config, row.context)
    parameters = sum(p.numel() for p in model.parameters())
    model.train()
    master_weights = row.precision == "bf16"
    exact = {}
    if master_weights:
        exact = {name: p.detach() for name, p in model.named_parameters()}
        model.to(torch.bfloat16)
    kind = OptimConfig().kind if row.optimizer == "muon" else "adamw"
    optimizer = Optimizer(model, OptimConfig(kind=kind), exact=exact)
    exact.clear()
    generator = torch.Generator().manual_seed(1)
    vocabulary = min(50257, model.config.vocabulary)
    ids_BT1 = torch.randint(0, vocabulary, (row.rows, row.context + 1), generator=generator)
    ids_BT, targets_BT = ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()

    def step(number: int) -> None:
        optimizer.zero_grad()
        with chosen_device.autocast(row.precision):
            loss, tokens = model.loss(ids_BT, targets_BT)
        torch.autograd.backward(loss / tokens)
        optimizer.step(1.0, number)
        loss.item()

    return step, parameters, per_token


if __name__ == "__main__":
    sys.exit(main())
