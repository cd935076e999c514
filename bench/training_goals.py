"""Training steps of the shapes that matter, beside those of another checkout, in turns.

    python bench/training_goals.py                  all shapes, two threads
    python bench/training_goals.py --against DIR    each beside the checkout DIR, run by its Python
    python bench/training_goals.py --only gemma     shapes whose name has this in it

Weights are bfloat16, with float32 masters or frozen under a LoRA; batches are random ids. Each
shape is one process a checkout, which live side by side and take turns, round by round; the least
time of a step counts, as a busy neighbour only ever adds to it. The limit is the bfloat16 matrix
product of torch on this machine, measured between the shapes. Arithmetic a token:
training/throughput.py of this checkout. Memory is what training adds to a process that has
imported all it needs.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
THREADS = 2


@dataclass(frozen=True)
class Work:
    """A model's shape and training settings."""

    family: str  # of a module in models/configs: gpt2, llama, qwen3, gemma3
    shape: dict[str, Any]
    rows: int
    context: int
    rank: int = 0  # of LoRA; 0: all weights
    optimizer: str = "muon"
    at_once: int = 0  # rows of a micro-batch; 0: all


GEMMA_270M = {
    "vocabulary": 32_768,
    **{"context": 512, "width": 640, "layers": 18, "hidden": 2048},
    **{"heads": 4, "kv_heads": 1, "head_dim": 256},
}
SMOLLM2_135M = {
    **{"vocabulary": 49_152, "context": 512, "width": 576, "layers": 30, "hidden": 1536},
    **{"heads": 9, "kv_heads": 3, "head_dim": 64, "tied": True},
}
QWEN3_600M = {
    **{"vocabulary": 32_768, "context": 512, "width": 1024, "layers": 28, "hidden": 3072},
    **{"heads": 16, "kv_heads": 8, "head_dim": 128},
}
WORKS = {
    "base of 10M, 8 x 512": Work(
        "qwen3",
        {
            **{"vocabulary": 8192, "context": 512, "width": 256, "layers": 11, "hidden": 704},
            **{"heads": 4, "kv_heads": 2, "head_dim": 64},
        },
        *(8, 512),
    ),
    "GPT-2 124M, 4 x 256": Work(
        "gpt2",
        {"vocabulary": 50_304, "context": 1024, "width": 768, "layers": 12, "heads": 12},
        *(4, 256),
        optimizer="adamw",
    ),
    "4 layers of 128, 12 x 64": Work(
        "qwen3",
        {
            **{"vocabulary": 65, "context": 64, "width": 128, "layers": 4, "hidden": 352},
            **{"heads": 4, "head_dim": 32},
        },
        *(12, 64),
    ),
    "Gemma 3 270M, 32k vocabulary, 4 x 512": Work("gemma3", GEMMA_270M, 4, 512),
    "Gemma 3 270M, 32k vocabulary, LoRA 16": Work("gemma3", GEMMA_270M, 4, 512, rank=16),
    "SmolLM2 135M, LoRA 16, 4 x 512": Work("llama", SMOLLM2_135M, 4, 512, rank=16),
    "Qwen3 0.6B, 32k vocabulary, LoRA 16, 4 x 512": Work("qwen3", QWEN3_600M, 4, 512, rank=16),
    "Gemma 3 270M, LoRA 16, a row at a time": Work("gemma3", GEMMA_270M, 4, 512, 16, at_once=1),
    "SmolLM2 135M, LoRA 16, a row at a time": Work("llama", SMOLLM2_135M, 4, 512, 16, at_once=1),
    "Qwen3 0.6B, LoRA 16, a row at a time": Work("qwen3", QWEN3_600M, 4, 512, 16, at_once=1),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--against", type=Path, help="a checkout with its .venv and library")
    parser.add_argument("--only", default="", help="shapes whose name has this in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn, a step at least")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return _work(arguments.worker)
    sys.path.append(str(ROOT))
    from bench.machine import measuring

    checkouts = [ROOT, *([arguments.against.resolve()] if arguments.against else [])]
    print(
        f"{'':45} {'tokens/s':>9} {'ms/step':>9} {'of limit':>9} {'MB':>6} {'weights':>8}"
        f" {'of them':>8} {'there':>9} {'ratio':>7} {'its MB':>7}"
    )
    with measuring():
        for name, work in WORKS.items():
            if arguments.only.lower() in name.lower():
                _show(name, work, _in_turns(name, checkouts, arguments.rounds, arguments.seconds))
    return 0


def _show(name: str, work: Work, results: list[dict[str, float]]) -> None:
    ours = results[0]
    speeds = [work.rows * work.context / result["seconds"] for result in results]
    share = speeds[0] * ours["flops_per_token"] / ours["limit"]
    line = f"{name:45} {speeds[0]:9,.0f} {1000 * ours['seconds']:9,.1f} {share:9.1%}"
    line += f" {ours['added_mb']:6,.0f} {ours['weights_mb']:8,.0f}"
    line += f" {ours['added_mb'] / ours['weights_mb']:7.2f}x"
    if len(results) > 1:
        line += f" {speeds[1]:9,.0f} {speeds[0] / speeds[1]:6.2f}x {results[1]['added_mb']:7,.0f}"
    print(line, flush=True)


def _in_turns(
    name: str, checkouts: list[Path], rounds: int, seconds: float
) -> list[dict[str, float]]:
    """The figures of each checkout."""
    with contextlib.ExitStack() as stack:
        asks = [stack.enter_context(_worker(name, checkout)) for checkout in checkouts]
        results = [ask({}) for ask in asks]
        for _ in range(rounds):
            for ask, figures in zip(asks, results, strict=True):
                reply = ask({"seconds": seconds})
                figures["seconds"] = min(reply["seconds"], figures.get("seconds", reply["seconds"]))
                figures["added_mb"] = reply["added_mb"]
            limit = asks[0]({"limit": True})["limit"]
            results[0]["limit"] = max(limit, results[0].get("limit", limit))
        return results


@contextlib.contextmanager
def _worker(name: str, checkout: Path) -> Iterator[Callable[[dict[str, Any]], dict[str, float]]]:
    """A process that trains this shape with this checkout's package on demand."""
    python = checkout / ".venv" / "bin" / "python"
    command = [str(python if python.exists() else sys.executable), "-P", __file__, "--worker", name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=checkout, text=True
    ) as process:

        def ask(order: dict[str, Any]) -> dict[str, float]:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise SystemExit(f"{checkout}: the step of {name} failed")
            figures: dict[str, float] = json.loads(answer)
            return figures

        try:
            yield ask
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                assert process.stdin is not None
                process.stdin.close()


def _work(name: str) -> int:
    """Answer commands from stdin until it ends."""
    import torch

    torch.set_num_threads(THREADS)
    work = WORKS[name]
    step, figures = _training(work)
    step(0)
    step(1)
    steps = 2
    for line in sys.stdin:
        order = json.loads(line)
        if "limit" in order:
            from ownwords.core.hardware import torch_product

            figures["limit"] = 1e9 * torch_product(torch, "cpu", "bfloat16").value
        if "seconds" in order:
            seconds_taken: list[float] = []
            while not seconds_taken or sum(seconds_taken) < order["seconds"]:
                began = time.perf_counter()
                step(steps)
                seconds_taken.append(time.perf_counter() - began)
                steps += 1
            figures["seconds"] = min(seconds_taken)
        added_mb = _peak_mb() - figures["empty_mb"]
        print(json.dumps(figures | {"added_mb": added_mb}), flush=True)
    return 0


def _peak_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if "VmHWM" in line).split()[1]) / 1024


def _first(*places: str) -> Any:  # noqa: ANN401 - what a checkout calls by one of these names
    """The first of these "module:name" paths that this checkout has."""
    import importlib

    for path in places:
        module, _, name = path.partition(":")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(f"ownwords.{module}"), name)
    raise SystemExit(f"this checkout has none of {', '.join(places)}")


def _training(work: Work) -> tuple[Callable[[int], object], dict[str, float]]:
    """A step of this shape, in this checkout or an earlier one."""
    import inspect

    import torch

    # Older checkouts have the second name.
    build = _first("models.decoder:build", "models.family:build")
    attach = _first("models.lora:attach")
    adapter = _first("models.lora:AdapterConfig", "models.lora:Settings")
    library = _first("models.fused:find_library", "models.fused:kernels")
    optimizer_type = _first("training.optim:Optimizer")
    optim = _first("training.settings:OptimConfig")
    configs = {"gpt2": "GPT2", "llama": "Llama", "qwen3": "Qwen3", "gemma3": "Gemma3"}
    config = _first(f"models.configs.{work.family}:{configs[work.family]}Config")
    per_token = _first("training.step_time:flops_per_token", "training.throughput:flops_per_token")
    if library() is None:
        raise SystemExit("no compiled library: run python -m ownwords.native.build in the checkout")

    empty_mb = _peak_mb()
    model = build(config(**work.shape), dtype=torch.bfloat16 if work.rank else torch.float32)
    model.init_weights(1)
    exact: dict[str, torch.Tensor] = {}
    if not work.rank:
        exact = {name: parameter.detach() for name, parameter in model.named_parameters()}
    model.to(torch.bfloat16)
    figures = {"weights_mb": sum(2 * parameter.numel() for parameter in model.parameters()) / 1e6}
    if work.rank:
        attach(model, adapter(rank=work.rank, alpha=2.0 * work.rank), 1)
    model.train()
    parameters = inspect.signature(optimizer_type).parameters
    masters = "master_weights" if "master_weights" in parameters else "masters"
    kind = optim(kind="adamw" if work.rank else work.optimizer)
    optimizer = optimizer_type(model, kind, exact=exact, **{masters: True})
    exact.clear()
    generator = torch.Generator().manual_seed(1)
    vocabulary = model.config.vocabulary
    ids_BT1 = torch.randint(0, vocabulary, (work.rows, work.context + 1), generator=generator)
    parts = torch.split(ids_BT1, work.at_once or work.rows)

    def step(number: int) -> None:
        optimizer.zero_grad()
        for part in parts:
            loss, _ = model.loss(part[:, :-1].contiguous(), part[:, 1:].contiguous())
            torch.autograd.backward(loss / (work.rows * work.context))
        optimizer.step(1.0, number)
        loss.item()

    of_shape = "rank" in inspect.signature(per_token).parameters
    model_flops = (
        per_token(model.config, work.context, work.rank)
        if of_shape
        else per_token(model, work.context)
    )
    figures |= {"flops_per_token": float(model_flops), "empty_mb": empty_mb}
    return step, figures


if __name__ == "__main__":
    sys.exit(main())
