"""Training steps of the shapes that people tune: all weights and LoRA, tokens/s and memory.

    python bench/lora.py                         the shapes below, 4 x 512 tokens
    python bench/lora.py --shapes gemma3-270m    some of them
    python bench/lora.py --at-once 1             one row at a time, as where memory is short
    python bench/lora.py --plain                 beside them the same layers in PyTorch alone
    python bench/lora.py --rounds 1 --steps 1    quick

Weights are random: only the shapes count. Each row is a fresh process, and all rows take turns, so
that a busy neighbour slows them alike. The fastest step counts. A LoRA has rank 16 on all linear
layers; embedding, head and norms are frozen, in bfloat16. Training all weights keeps float32 master
weights. Arithmetic a token: training/flops.py; the limit is the bfloat16 matrix product of this
machine. Memory is what a process holds beyond one that has only imported the library, as a multiple
of the stored weights (bfloat16).
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # bench/tokenizers.py must not hide the library of that name
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import own_peak_mb, run

if TYPE_CHECKING:
    from ownwords.models.configs.config import ModelConfig

BATCH, CONTEXT, RANK = 4, 512, 16
SHAPES = ("gemma3-270m", "smollm2-135m", "qwen3-0.6b")


@dataclass(frozen=True)
class LoraRow:
    """One line of the table; a rank of 0 trains all weights."""

    shape: str
    rank: int
    steps: int
    at_once: int
    is_plain: bool = False

    @property
    def name(self) -> str:
        kind = f"LoRA rank {self.rank}" if self.rank else "all weights"
        return f"{self.shape}, {kind}{', PyTorch alone' if self.is_plain else ''}"


def shape_of(name: str) -> "ModelConfig":
    """Gemma 3 270M with a trimmed vocabulary; SmolLM2-135M and Qwen3-0.6B as published."""
    from ownwords.models.configs.gemma3 import Gemma3Config
    from ownwords.models.configs.llama import LlamaConfig
    from ownwords.models.configs.qwen3 import Qwen3Config

    if name == "gemma3-270m":
        return Gemma3Config(
            vocabulary=32_768,
            context=32_768,
            width=640,
            layers=18,
            heads=4,
            kv_heads=1,
            head_dim=256,
            hidden=2048,
        )
    if name == "smollm2-135m":
        return LlamaConfig(
            vocabulary=49_152,
            context=8192,
            width=576,
            layers=30,
            heads=9,
            kv_heads=3,
            hidden=1536,
            tied=True,
        )
    return Qwen3Config(
        vocabulary=151_936,
        context=32_768,
        width=1024,
        layers=28,
        heads=16,
        kv_heads=8,
        head_dim=128,
        hidden=3072,
    )


def measure(row: LoraRow) -> dict[str, float]:
    """The fastest step, in this process; the first one, which finds memory, does not count."""
    import torch

    from ownwords.models import lora
    from ownwords.models.decoder import build
    from ownwords.training import flops
    from ownwords.training.optim import Optimizer
    from ownwords.training.settings import OptimConfig

    empty_mb = own_peak_mb()
    model = build(shape_of(row.shape), dtype=torch.bfloat16)
    model.init_weights(1)
    stored_mb = sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6
    if row.rank:
        lora.attach(model, lora.AdapterConfig(row.rank, 2 * row.rank), seed=1)
    optimizer = Optimizer(model.train(), OptimConfig(kind="adamw"), master_weights=not row.rank)
    generator = torch.Generator().manual_seed(1)
    vocabulary = model.config.vocabulary
    ids_BT1 = torch.randint(0, vocabulary, (BATCH, CONTEXT + 1), generator=generator)
    seconds = []
    for step in range(row.steps + 1):
        began = time.perf_counter()
        for rows in torch.split(ids_BT1, row.at_once):
            total, _ = model.loss(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
            torch.autograd.backward(total / (BATCH * CONTEXT))
        optimizer.step(1.0, step)
        seconds.append(time.perf_counter() - began)
    return {
        "tokens_per_s": BATCH * CONTEXT / min(seconds[1:]),
        "flops_per_token": flops.per_token(model, CONTEXT),
        "stored_mb": stored_mb,
        "memory_mb": own_peak_mb() - empty_mb,
    }


def peak() -> dict[str, Any]:
    import torch

    from ownwords.core.speed import torch_product

    return asdict(torch_product(torch, "cpu", "bfloat16"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--at-once", type=int, default=BATCH, help="rows of a micro-batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="timed in each round")
    parser.add_argument("--plain", action="store_true", help="layer by layer in PyTorch, too")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        asked = json.loads(arguments.child)
        print(json.dumps(measure(LoraRow(**asked)) if asked else peak()))
        return 0
    rows = [
        LoraRow(shape, rank, arguments.steps, arguments.at_once, is_plain)
        for shape in arguments.shapes
        for rank in (0, RANK)
        for is_plain in ((False, True) if arguments.plain else (False,))
        if rank or shape == "gemma3-270m"
    ]
    found: dict[LoraRow, list[dict[str, float]]] = {row: [] for row in rows}
    limit = 0.0
    for _ in range(arguments.rounds):
        limit = max(limit, float(run("lora", "--child", "{}").figures["value"]))
        for row in rows:
            chosen = {"OWNWORDS_ISA": "none"} if row.is_plain else None
            child = run("lora", "--child", json.dumps(asdict(row)), environment=chosen)
            found[row].append(child.figures)
    print(f"{'':44} {'tokens/s':>9} {'of limit':>9} {'stored MB':>10} {'memory':>8}")
    for row, figures in found.items():
        best = max(figures, key=lambda each: each["tokens_per_s"])
        memory = min(each["memory_mb"] for each in figures) / best["stored_mb"]
        share = best["tokens_per_s"] * best["flops_per_token"] / limit / 1e9
        print(
            f"{row.name:44} {best['tokens_per_s']:9,.0f} {share:9.1%} {best['stored_mb']:10,.0f}"
            f" {memory:7.2f}x",
            flush=True,
        )
    print(f"limit: a product of bfloat16 matrices at {limit:,.0f} GFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
