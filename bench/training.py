"""Training steps beside nanoGPT's: tokens/s, share of what the machine can do, memory.

    python bench/training.py                    GPT-2 124M at 64, 256, 1024 tokens; tiny models
    python bench/training.py --contexts 256     some of the rows
    python bench/training.py --tiny | --large   those alone
    python bench/training.py --compile          nanoGPT and ours compiled as well
    python bench/training.py --quick            one round of few steps

Each row is a fresh process; all rows of a shape take turns, so that a busy neighbour slows them
alike, and the median over the rounds counts. Ratios are to nanoGPT as it comes: float32, eager.
The limit is the bfloat16 matrix product of this machine, measured in the same run, which the
float32 rows are held against too. Arithmetic a token: 6 for each weight that is multiplied by, and
attention over half the context (training/flops.py), the same formula for both.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # bench/tokenizers.py must not hide the library of that name
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import run

if TYPE_CHECKING:
    from ownwords.models.family import Config
    from ownwords.training.settings import Precision

BASELINE = "nanoGPT float32"


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
    compiled: bool = False


@dataclass(frozen=True)
class Limits:
    """How long a row is timed."""

    seconds: float
    steps: int  # at least


def table(shape: str, rows: int, context: int, *, compiled: bool) -> list[Row]:
    """The rows of one shape, the baseline first."""
    names: list[tuple[str, Precision, str, str]] = [
        (BASELINE, "float32", "", "adamw"),
        ("nanoGPT autocast", "autocast", "", "adamw"),
        ("ours GPT-2 float32", "float32", "gpt2", "adamw"),
        ("ours GPT-2 autocast", "autocast", "gpt2", "adamw"),
        ("ours GPT-2 masters", "masters", "gpt2", "adamw"),
    ]
    if shape == "tiny":
        names += [
            (f"ours Qwen3 {precision} {kind}", precision, "qwen3", kind)
            for kind in ("adamw", "muon")
            for precision in ("float32", "autocast", "masters")
        ]
    found = [Row(n, shape, rows, context, p, family, kind) for n, p, family, kind in names]
    if compiled:
        found += [
            Row(f"{row.name} compiled", shape, rows, context, *_rest(row), compiled=True)
            for row in found
        ]
    return found


def _rest(row: Row) -> "tuple[Precision, str, str]":
    return row.precision, row.ours, row.optimizer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="for each row in each round")
    parser.add_argument("--tiny", action="store_true", help="nanoGPT's CPU recipe's shape alone")
    parser.add_argument("--large", action="store_true", help="GPT-2 124M alone")
    parser.add_argument("--compile", action="store_true", help="compiled rows too")
    parser.add_argument("--only", help="rows whose name has this in it, and the baseline")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        said = json.loads(arguments.child)
        limits = Limits(**said["limits"])
        figures = measure(Row(**said["row"]), limits) if said["row"] else peaks()
        print(json.dumps(figures))
        return 0
    limits = Limits(1.0, 2) if arguments.quick else Limits(arguments.seconds, 3)
    rounds = 1 if arguments.quick else arguments.rounds
    shapes = []
    if not arguments.tiny:
        shapes += [("gpt2", 4, context) for context in arguments.contexts]
    if not arguments.large:
        shapes.append(("tiny", 12, 64))
    peak = run("training", "--child", json.dumps({"row": None, "limits": asdict(limits)})).figures
    for what in ("float32", "bfloat16"):
        print(f"{peak[what]['what']}: {peak[what]['value']:,.0f} GFLOP/s")
    for shape, rows, context in shapes:
        chosen = [
            row
            for row in table(shape, rows, context, compiled=arguments.compile)
            if not arguments.only or row.name == BASELINE or arguments.only in row.name
        ]
        name = "GPT-2 124M" if shape == "gpt2" else "4 layers of 128, 0.8M"
        print(f"\n{name}, {rows} x {context} tokens, median of {rounds}")
        _show(chosen, _in_turn(chosen, rounds, limits), peak["bfloat16"]["value"] * 1e9)
    return 0


def _in_turn(rows: Sequence[Row], rounds: int, limits: Limits) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {row.name: [] for row in rows}
    for _ in range(rounds):
        for row in rows:
            asked = json.dumps({"row": asdict(row), "limits": asdict(limits)})
            ran = run("training", "--child", asked)
            found[row.name].append(ran.figures | {"peak_mb": ran.peak_mb})
    return found


def _show(rows: Sequence[Row], found: dict[str, list[dict[str, float]]], limit: float) -> None:
    median = {
        name: {key: statistics.median(one[key] for one in figures) for key in figures[0]}
        for name, figures in found.items()
    }
    base = median[BASELINE]
    print(
        f"{'':34} {'tokens/s':>9} {'ratio':>6} {'ms/step':>8} {'of limit':>9}"
        f" {'MB':>6} {'memory':>7} {'parameters':>11}"
    )
    for row in rows:
        one = median[row.name]
        speed = one["tokens"] / one["seconds"]
        ratio = speed / (base["tokens"] / base["seconds"])
        print(
            f"{row.name:34} {speed:9,.0f} {ratio:5.2f}x {1000 * one['seconds']:8.1f}"
            f" {speed * one['flops_per_token'] / limit:9.1%} {one['peak_mb']:6,.0f}"
            f" {one['peak_mb'] / base['peak_mb']:6.2f}x {one['parameters'] / 1e6:10.2f}M",
            flush=True,
        )


def peaks() -> dict[str, Any]:
    import torch

    from ownwords.core.speed import torch_product

    return {name: asdict(torch_product(torch, "cpu", name)) for name in ("float32", "bfloat16")}


def measure(row: Row, limits: Limits) -> dict[str, float]:
    """Median seconds of a step, in this process."""
    step, parameters, flops_per_token = (_ours if row.ours else _nanogpt)(row)
    began = time.perf_counter()
    step(0)  # finds memory, chooses kernels, compiles
    first_s = time.perf_counter() - began
    step(1)
    taken: list[float] = []
    while len(taken) < limits.steps or sum(taken) < limits.seconds:
        began = time.perf_counter()
        step(len(taken) + 2)
        taken.append(time.perf_counter() - began)
    return {
        "seconds": statistics.median(taken),
        "first_s": first_s,
        "tokens": row.rows * row.context,
        "parameters": parameters,
        "flops_per_token": flops_per_token,
    }


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
    if row.compiled:
        model.compile()

    def step(number: int) -> None:
        mixed = torch.autocast("cpu", torch.bfloat16) if row.precision == "autocast" else None
        nanogpt.update(model, adamw, recipe, number, batch, autocast=mixed)

    multiplied = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    multiplied -= model.positions.weight.numel()
    attention = 12.0 * shape.width * shape.layers * row.context / 2
    return step, sum(p.numel() for p in model.parameters()), 6.0 * multiplied + attention


def _shape_of(row: Row) -> "Config":
    from ownwords.models.gpt2 import PRESETS, GPT2Config
    from ownwords.models.qwen3 import Qwen3Config

    if row.shape == "gpt2":
        published = vars(PRESETS["gpt2"])
        return GPT2Config(**{**published, "vocabulary": 50304})
    if row.ours == "gpt2":
        return GPT2Config(vocabulary=65, context=row.context, width=128, layers=4, heads=4)
    return Qwen3Config(
        vocabulary=65, context=row.context, width=128, layers=4, heads=4, head_dim=32, hidden=352
    )


def _ours(row: Row) -> tuple[Callable[[int], object], int, float]:
    import torch

    from ownwords.models.family import build
    from ownwords.training import device, flops
    from ownwords.training.optim import Optimizer
    from ownwords.training.settings import OptimConfig

    where = device.choose("cpu")
    model = build(_shape_of(row))
    model.init_weights(1)
    per_token = flops.per_token(model, row.context)
    parameters = sum(p.numel() for p in model.parameters())
    model.train()
    masters = row.precision == "masters"
    exact = {}
    if masters:
        exact = {name: p.detach().clone() for name, p in model.named_parameters()}
        model.to(torch.bfloat16)
    kind = OptimConfig().kind if row.optimizer == "muon" else "adamw"
    optimizer = Optimizer(model, OptimConfig(kind=kind), masters=masters)
    if masters:
        optimizer.load_weights(exact)
        exact.clear()
    note = device.compile_if(model, row.compiled, where)
    if note:
        raise SystemExit(note)
    generator = torch.Generator().manual_seed(1)
    vocabulary = min(50257, model.config.vocabulary)
    ids_BT1 = torch.randint(0, vocabulary, (row.rows, row.context + 1), generator=generator)
    ids_BT, targets_BT = ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()

    def step(number: int) -> None:
        optimizer.zero_grad()
        with where.autocast(row.precision):
            loss, tokens = model.loss(ids_BT, targets_BT)
        torch.autograd.backward(loss / tokens)
        optimizer.step(1.0, number)
        loss.item()

    return step, parameters, per_token


if __name__ == "__main__":
    sys.exit(main())
