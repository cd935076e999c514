"""What a GPU does with our models: training and writing, tokens/s and shares of the card's limits.

    python bench/gpu.py                     all rows, a few minutes
    python bench/gpu.py --only train        rows whose name has this in it

Weights are random, data too. Limits are measured first: a product of 8192 x 8192 matrices in
bfloat16, and a copy within the memory. Training is held against the first, writing a single text
against the second: each token reads all weights.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch
from bench import nanogpt

from ownwords.base.catalogue import find_known
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import build
from ownwords.training.device import Device, choose
from ownwords.training.optim import Optimizer
from ownwords.training.settings import OptimConfig
from ownwords.training.step_time import step_flops

SECONDS = 0.5  # of each row, after the first steps
ADAMW = OptimConfig(kind="adamw", learning_rate=1e-4)


def known(name: str) -> ModelConfig:
    base = find_known(name)
    assert base
    return base.config


SHAPES: dict[str, ModelConfig] = {
    "5M": config_for_budget(5_000_000, 8192, 1024),
    "GPT-2 124M": GPT2Config(layers=12, width=768, heads=12),
    "SmolLM2 135M": known("smollm2-135m"),
    "Qwen3 1.7B": known("qwen3-1.7b"),
}
# Shape, rows, context, LoRA's rank (0: all weights).
TRAINED = (
    ("SmolLM2 135M", 32, 512, 32),
    ("GPT-2 124M", 32, 1024, 0),
    ("SmolLM2 135M", 32, 512, 0),
    ("SmolLM2 135M", 4, 512, 32),
    ("5M", 64, 256, 0),
    ("Qwen3 1.7B", 8, 512, 16),
)


def timed(device: Device, step: Callable[[int], object]) -> float:
    """Median seconds of a step."""
    for number in range(3):  # finds memory, chooses kernels
        step(number)
    device.synchronize()
    taken: list[float] = []
    while sum(taken) < SECONDS or len(taken) < 5:
        began = time.perf_counter()
        step(len(taken) + 3)
        device.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def limits(device: Device) -> tuple[float, float]:
    """FLOP/s of bfloat16 products, and bytes/s that the memory reads."""
    a, b = torch.randn(2, 8192, 8192, device=device.torch_device, dtype=torch.bfloat16).unbind()
    block = torch.empty(1 << 30, dtype=torch.uint8, device=device.torch_device)
    product = timed(device, lambda _: [a @ b for _ in range(10)]) / 10
    copy = timed(device, lambda _: [block.clone() for _ in range(10)]) / 10
    return 2 * 8192**3 / product, 2 * len(block) / copy


def ours(
    device: Device, shape: ModelConfig, rows: int, context: int, rank: int
) -> Callable[[int], object]:
    dtype = torch.bfloat16 if rank else torch.float32  # frozen weights as `make` holds them
    model = build(shape, device=device.torch_device, dtype=dtype).train()
    model.init_weights(1)
    if rank:
        lora.attach(model, lora.AdapterConfig(rank), seed=1)
    optimizer = Optimizer(model, ADAMW if rank else OptimConfig())
    ids_BT1 = torch.randint(0, shape.vocabulary, (rows, context + 1), device=device.torch_device)
    documents_BT = (torch.arange(context) >= context // 2).long().expand(rows, context)
    documents_BT = documents_BT.to(device.torch_device)

    def step(number: int) -> None:
        optimizer.zero_grad()
        with device.autocast("autocast"):
            loss, count = model.loss(ids_BT1[:, :-1], ids_BT1[:, 1:], documents_BT=documents_BT)
        torch.autograd.backward(loss / count)
        optimizer.step(1.0, number)

    return step


def theirs(device: Device, rows: int) -> Callable[[int], object]:
    model = nanogpt.NanoGPT(nanogpt.Shape(50304, context=1024, layers=12, heads=12, width=768))
    model.to(device.torch_device)
    recipe = nanogpt.Recipe(rows=rows)
    adamw = nanogpt.optimizer(model, recipe)
    ids_BT1 = torch.randint(0, 50257, (rows, 1025), device=device.torch_device)
    batch = ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()
    mixed = torch.autocast(device.torch_device.type, torch.bfloat16)
    return lambda number: nanogpt.update(model, adamw, recipe, number, batch, autocast=mixed)


def training(device: Device, flops: float) -> Iterator[tuple[str, Callable[[], str]]]:
    def row(make: Callable[[], Callable[[int], object]], tokens: int, work: float) -> str:
        torch.cuda.reset_peak_memory_stats()
        seconds = timed(device, make())
        return (
            f"{tokens / seconds:9,.0f} tokens/s {work / seconds / flops:6.1%} of the limit,"
            f" {device.peak_memory() / 1e9:5.1f} GB"
        )

    for name, rows, context, rank in TRAINED:
        shape = SHAPES[name]
        kind = f"LoRA {rank}" if rank else "all weights"
        yield (
            f"train {name}, {rows} x {context}, {kind}",
            partial(
                row,
                partial(ours, device, shape, rows, context, rank),
                rows * context,
                step_flops(shape, rows, context, rank),
            ),
        )
    work = step_flops(SHAPES["GPT-2 124M"], 32, 1024)
    yield (
        "train nanoGPT 124M, 32 x 1024, all weights",
        partial(row, partial(theirs, device, 32), 32 * 1024, work),
    )


def writing(device: Device, bandwidth: float) -> Iterator[tuple[str, Callable[[], str]]]:
    def row(shape: ModelConfig, streams: int, graphs: bool) -> str:
        network = build(shape, device=device.torch_device, dtype=torch.bfloat16).eval()
        network.init_weights(1)
        engine = TorchEngine(network, frozen=graphs)
        cache = engine.cache(streams, 1024)
        prompt = list(range(1, 129))
        cache.forward(dict.fromkeys(range(streams), prompt))
        seconds = timed(device, lambda _: cache.forward({each: [7] for each in range(streams)}))
        read = sum(weight.numel() * weight.element_size() for weight in network.parameters())
        return (
            f"{streams / seconds:9,.0f} tokens/s {read / seconds / bandwidth:6.1%} of the limit"
            f" ({1e3 * seconds:.2f} ms a step)"
        )

    for name, shape in SHAPES.items():
        for streams in (1, 32):
            for graphs in (False, True):
                yield (
                    f"write {name}, {streams} at once, {'graphs' if graphs else 'launched'}",
                    partial(row, shape, streams, graphs),
                )


def same_as_processor(device: Device) -> str:
    """How far the logits of a random model are from the processor's, in float32."""
    network = build(replace(SHAPES["SmolLM2 135M"], layers=4))
    network.init_weights(1)

    def logits() -> torch.Tensor:
        cache = TorchEngine(network, frozen=True).cache(2, 64)
        parts = [
            cache.forward(dict(enumerate(step)))
            for step in ([[1, 5, 9, 13], [*range(2, 40)]], [[7], [8]], [[3, 4], [5]])
        ]
        return torch.cat([torch.from_numpy(part) for part in parts]).double()

    expected = logits()
    network.to(device.torch_device)
    return f"{float((logits() - expected).norm() / expected.norm()):.2e} off the processor's"


def main() -> int:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    device = choose("cuda")
    flops, bandwidth = limits(device)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}:", end=" ")
    print(f"{flops / 1e12:.0f} TFLOP/s, {bandwidth / 1e12:.2f} TB/s", flush=True)
    print(f"logits: {same_as_processor(device)}", flush=True)
    for name, run in (*training(device, flops), *writing(device, bandwidth)):
        if only in name:
            try:
                print(f"{name:55} {run()}", flush=True)
            except RuntimeError as error:  # out of memory: the others go on
                print(f"{name:55} {str(error).splitlines()[0]:.100}", flush=True)
            device.release_memory()
    return 0


if __name__ == "__main__":
    sys.exit(main())
