"""Our models on a GPU: whether it computes the same, and how fast it trains and writes.

    python bench/gpu.py                          all rows, eight minutes at most
    python bench/gpu.py --only train             rows whose name has this in it
    python bench/gpu.py --out gpu.jsonl          also writes each row as JSON as soon as it is ready
    python bench/gpu.py --dry-run                tiny models on the CPU, to see that the rows run

Weights and data are random. The limits are measured first: products of 8192 x 8192 matrices in
bfloat16, and a copy within the memory. Training is compared with the first, writing a single text
with the second, because each token reads all weights. The most important rows come first. They run
in a separate process; a row that takes too long is stopped with it, and the later rows still run.
"""

import argparse
import json
import multiprocessing
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from multiprocessing.connection import Connection
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import torch
from bench import nanogpt
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from ownwords.base import catalogue
from ownwords.base.catalogue import find_known
from ownwords.core.errors import OwnwordsError
from ownwords.inference.torch_engine import TorchEngine
from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.gpt2 import GPT2Config
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import CausalLM, build
from ownwords.training.batches import Batches
from ownwords.training.checkpoint import Run
from ownwords.training.device import Device, choose
from ownwords.training.loop import TrainingInterrupted, TrainJob, TrainOutcome, train
from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, Recipe
from ownwords.training.step_time import step_flops
from ownwords.training.token_dataset import TokenDataset

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 480.0  # of all rows
TRAINED_S, WRITTEN_S = 4.0, 0.5  # of measured steps
ADAMW = OptimConfig(kind="adamw", learning_rate=1e-4)
TINY = config_for_budget(35_000, 256, 64)
SMALL = config_for_budget(5_000_000, 8192, 1024)
GPT2 = GPT2Config(layers=12, width=768, heads=12)
_LAUNCH = re.compile(r"(cuda|cu|hip)(Launch(Cooperative)?Kernel|GraphLaunch|ModuleLaunchKernel).*")

Figures = Mapping[str, float | str]


def known(name: str) -> ModelConfig:
    base = find_known(name)
    assert base
    return base.config


class Machine:
    """The device, and its limits; a dry run does less work."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.device: Device = choose("cpu" if dry_run else "cuda")

    @cached_property
    def flops(self) -> float:
        """FLOP/s of bfloat16 products."""
        side = 64 if self.dry_run else 8192
        ab = torch.randn(2, side, side, device=self.device.torch_device, dtype=torch.bfloat16)
        return 2 * side**3 / (self.seconds_of(lambda _: [ab[0] @ ab[1] for _ in range(10)]) / 10)

    @cached_property
    def bandwidth(self) -> float:
        """Bytes/s read and written by a copy within the memory."""
        size = 1 << (20 if self.dry_run else 30)
        block = torch.empty(size, dtype=torch.uint8, device=self.device.torch_device)
        return 2 * size / (self.seconds_of(lambda _: [block.clone() for _ in range(10)]) / 10)

    def seconds_of(self, step: Callable[[int], object]) -> float:
        """Return the median seconds of a step."""
        for number in range(3):  # warm-up: allocates memory, chooses kernels
            step(number)
        self.device.synchronize()
        taken: list[float] = []
        while len(taken) < 5 or (sum(taken) < WRITTEN_S and not self.dry_run):
            began = time.perf_counter()
            step(len(taken) + 3)
            self.device.synchronize()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    def model(self, shape: ModelConfig, *, is_bf16: bool = False, layers: int = 0) -> CausalLM:
        if self.dry_run:
            shape = TINY
        elif layers:
            shape = replace(shape, layers=layers)
        dtype = torch.bfloat16 if is_bf16 else torch.float32
        model = build(shape, device=self.device.torch_device, dtype=dtype)
        model.init_weights(1)
        return model


# --- training through the loop of `make` ----------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """What is trained: rows of two documents each; rank 0: all weights."""

    shape: ModelConfig
    rows: int
    context: int
    rank: int = 0
    optim: OptimConfig = ADAMW

    def tiny(self) -> "Training":
        return replace(self, shape=TINY, rows=4, context=32, rank=min(self.rank, 4))


def random_dataset(vocabulary: int, context: int, rows: int) -> TokenDataset:
    drawn = np.random.default_rng(1).integers(0, vocabulary, rows * context)
    return TokenDataset(
        key="random",
        tokenizer="none",
        vocabulary=vocabulary,
        ids=drawn.astype(np.uint32),
        offsets_D1=np.arange(0, len(drawn) + 1, context // 2),
        text_bytes=4 * len(drawn),
    )


def job(
    folder: Path, device: Device, model: CausalLM, training: Training, loop: LoopConfig
) -> TrainJob:
    vocabulary = model.config.vocabulary
    return TrainJob(
        model=model,
        batches=Batches(
            random_dataset(vocabulary, training.context, 256),
            rows=training.rows,
            context=training.context,
            seed=1,
            config=DataConfig(),
        ),
        settings=Recipe(train=loop, optim=training.optim),
        run=Run.new(folder, "run"),
        device=device,
    )


def loop_of(training: Training, steps: int, **changes: object) -> LoopConfig:
    loop = LoopConfig(
        steps=steps,
        batch_size=training.rows,
        sequence_length=training.context,
        precision="autocast",
        evaluations=0,
        checkpoint_every_s=1e9,
    )
    return replace(loop, **changes)  # type: ignore[arg-type]


def speed_row(training: Training, machine: Machine) -> Figures:
    """Return tokens/s of the loop, and how busy it keeps the GPU."""
    if machine.dry_run:
        training = training.tiny()
    work = step_flops(training.shape, training.rows, training.context, training.rank)
    steps = 8 if machine.dry_run else int(min(400, max(24, TRAINED_S * machine.flops / 3 / work)))

    def trained(steps: int) -> list[float]:
        model = machine.model(training.shape, is_bf16=training.rank > 0)
        if training.rank:
            lora.attach(model, lora.AdapterConfig(training.rank), seed=1)
        with tempfile.TemporaryDirectory() as folder:
            this = job(Path(folder), machine.device, model, training, loop_of(training, steps))
            train(this)
            lines = map(json.loads, this.run.metrics.read_text("utf-8").splitlines())
            return [
                line["values"]["tokens_per_s"]
                for line in lines
                if "tokens_per_s" in line.get("values", {})
            ]

    if machine.device.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    speeds = trained(steps)
    # The first steps choose kernels and are captured.
    speed = statistics.median(speeds[len(speeds) // 2 :])
    figures: dict[str, float | str] = {
        "tokens_per_s": speed,
        "share_of_limit": speed / (training.rows * training.context) * work / machine.flops,
        "peak_gb": machine.device.peak_memory() / 1e9,
    }
    if machine.device.kind == "cuda":
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            trained(24)
        seconds = training.rows * training.context / speed
        figures |= busy(profiled, seconds)
    return figures


def busy(profiled: profile, step_seconds: float) -> Figures:
    """Return the GPU's share of waiting and launches per step, over the last half of the steps."""
    events = profiled.events() or []  # type: ignore[no-untyped-call]
    on_card = sorted(
        (each.time_range.start, each.time_range.end)
        for each in events
        if each.device_type == DeviceType.CUDA and not each.name.startswith("Mem")
    )
    if not on_card:
        return {"waits": "no kernels were seen"}
    begin, end = (on_card[0][0] + on_card[-1][1]) / 2, on_card[-1][1]
    used, until = 0.0, begin
    for start, stop in on_card:
        used += max(0.0, stop - max(start, until))
        until = max(until, stop)
    launched = [
        each
        for each in events
        if each.device_type == DeviceType.CPU
        and _LAUNCH.fullmatch(each.name)
        and begin <= each.time_range.start <= end
    ]
    kernels = sum(start >= begin for start, _ in on_card)
    steps = (end - begin) / 1e6 / step_seconds
    return {
        "waits": 1 - used / (end - begin),
        "launches_per_step": len(launched) / steps,
        "kernels_per_step": kernels / steps,
    }


def nanogpt_row(machine: Machine, *, is_compiled: bool) -> Figures:
    """Measure nanoGPT's own loop with the shape and batch of GPT-2."""
    rows, shape = 32, nanogpt.Shape(50304, context=1024, layers=12, heads=12, width=768)
    if machine.dry_run:
        rows, shape = 2, nanogpt.Shape(256, context=32, layers=2, heads=2, width=32)
    device = machine.device.torch_device
    model = nanogpt.NanoGPT(shape).to(device)
    recipe = nanogpt.Recipe(rows=rows)
    adamw = nanogpt.optimizer(model, recipe)
    if is_compiled and not machine.dry_run:
        model.compile()
    ids_BT1 = torch.randint(0, shape.vocabulary - 47, (rows, shape.context + 1), device=device)
    batch = ids_BT1[:, :-1].contiguous(), ids_BT1[:, 1:].contiguous()
    mixed = torch.autocast(device.type, torch.bfloat16)
    seconds = machine.seconds_of(
        lambda number: nanogpt.update(model, adamw, recipe, number, batch, autocast=mixed)
    )
    work = step_flops(GPT2, 32, 1024)
    return {
        "tokens_per_s": rows * shape.context / seconds,
        "share_of_limit": work / seconds / machine.flops,
    }


# --- does it compute the same? --------------------------------------------------------------------


def off(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Return the distance between tensors, relative to the expected ones."""
    pairs = [
        (a.detach().double().cpu().flatten(), b.detach().double().cpu().flatten())
        for a, b in zip(found, expected, strict=True)
    ]
    a, b = torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])
    return float((a - b).norm() / b.norm())


def logits_of(network: CausalLM) -> Tensor:
    cache = TorchEngine(network.eval(), frozen=True).cache(2, 64)
    steps = ([[1, 5, 9, 13], [*range(2, 40)]], [[7], [8]], [[3, 4], [5]])
    parts = [cache.forward(dict(enumerate(step))) for step in steps]
    return torch.cat([torch.from_numpy(part) for part in parts]).double()


def logits_row(machine: Machine) -> Figures:
    network = machine.model(known("smollm2-135m"), layers=4)
    found = logits_of(network)
    return {"off_the_processors": off([found], [logits_of(network.cpu())])}


def gradients_row(machine: Machine) -> Figures:
    def gradients(network: CausalLM) -> list[Tensor]:
        device = network.embedding.weight.device
        ids_BT1 = torch.arange(2 * 33).reshape(2, 33).to(device) % 200
        loss, count = network.loss(ids_BT1[:, :-1], ids_BT1[:, 1:])
        return list(torch.autograd.grad(loss / count, list(network.parameters())))

    network = machine.model(known("smollm2-135m"), layers=4).train()
    found = [each.cpu() for each in gradients(network)]
    return {"off_the_processors": off(found, gradients(network.cpu()))}


def trained_weights(
    machine: Machine, device: Device, steps: int, stop_at: int = 0
) -> tuple[CausalLM, TrainOutcome]:
    """Train a small LoRA beside a model in float32; with `stop_at` interrupt and resume it."""
    training = Training(known("smollm2-135m"), rows=4, context=32, rank=4)
    loop = loop_of(training, steps, precision="float32", evaluations=2 if stop_at else 0)

    def ready(folder: Path) -> TrainJob:
        model = machine.model(training.shape, layers=4)
        lora.attach(model, lora.AdapterConfig(training.rank), seed=1)
        model.to(device.torch_device)
        return job(folder, device, model, training, loop)

    def interrupt(_model: CausalLM) -> str:
        raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        if stop_at:
            with suppress(TrainingInterrupted):
                train(replace(ready(Path(folder)), sample=interrupt))
        this = ready(Path(folder))
        if stop_at:
            this = replace(this, sample=lambda _model: "")
        outcome = train(this)
    return this.model, outcome


def trained_row(machine: Machine) -> Figures:
    found, _ = trained_weights(machine, machine.device, 20)
    expected, _ = trained_weights(machine, choose("cpu"), 20)
    return {"off_the_processors": off(*(adapters(each) for each in (found, expected)))}


def resumed_row(machine: Machine) -> Figures:
    found, outcome = trained_weights(machine, machine.device, 12, stop_at=6)
    expected, _ = trained_weights(machine, machine.device, 12)
    return {
        "steps": outcome.steps,
        "off_the_uninterrupted": off(*(adapters(each) for each in (found, expected))),
    }


def adapters(model: CausalLM) -> list[Tensor]:
    return [each for each in model.parameters() if each.requires_grad]


def merged_row(machine: Machine) -> Figures:
    network = machine.model(known("smollm2-135m"), layers=4)
    adapter = lora.attach(network, lora.AdapterConfig(4), seed=1)
    for each in adapters(network):
        torch.nn.init.normal_(each, std=0.02)
    expected = logits_of(network)
    adapter.merge()
    adapter.detach()
    return {"off_the_adapters": off([logits_of(network)], [expected])}


def memory_row(machine: Machine) -> Figures:
    """Check that a batch that does not fit is computed in parts."""
    if machine.dry_run:
        return {"left_out": "a processor's memory is not limited"}
    training = Training(GPT2, rows=64, context=1024)
    model = machine.model(training.shape)
    total = torch.cuda.get_device_properties(machine.device.torch_device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 12e9 / total))
    try:
        with tempfile.TemporaryDirectory() as folder:
            loop = loop_of(training, 4)
            outcome = train(job(Path(folder), machine.device, model, training, loop))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {"steps": outcome.steps, "rows_at_once": outcome.micro_batch_size}


# --- writing, and the whole of `make` -------------------------------------------------------------


def writing_row(shape: ModelConfig, streams: int, machine: Machine, *, graphs: bool) -> Figures:
    network = machine.model(shape, is_bf16=True).eval()
    cache = TorchEngine(network, frozen=graphs).cache(streams, 64 if machine.dry_run else 1024)
    prompt = list(range(1, 17 if machine.dry_run else 129))
    cache.forward(dict.fromkeys(range(streams), prompt))
    seconds = machine.seconds_of(lambda _: cache.forward({each: [7] for each in range(streams)}))
    read = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    return {
        "tokens_per_s": streams / seconds,
        "share_of_limit": read / seconds / machine.bandwidth,
        "ms_a_step": 1e3 * seconds,
    }


def make_row(machine: Machine) -> Figures:
    """Run `make` on the sample blog for one minute, from SmolLM2 if it is installed."""
    if machine.dry_run:
        return {"left_out": "the tests of make run it"}
    from bench import corpora

    base = "smollm2-135m" if is_installed("smollm2-135m") else ""
    with tempfile.TemporaryDirectory() as folder:
        blog, workspace = ROOT / "examples" / "blog", Path(folder) / "demo.ownwords"
        figures = corpora.make_row(blog, workspace, 1.0, base)
    return {key: value for key, value in figures.items() if isinstance(value, float | int | str)}


def is_installed(name: str) -> bool:
    return any(entry.name == name for entry in catalogue.entries())


# --- the rows, one after the other ----------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What is measured, and the seconds after which it is stopped."""

    name: str
    limit: float
    run: Callable[[Machine], Figures]


def trains(name: str, limit: float, training: Training) -> Row:
    what = f"LoRA {training.rank}" if training.rank else f"all weights by {training.optim.kind}"
    rows = f"{training.rows} x {training.context}"
    return Row(f"train {name}, {rows}, {what}", limit, partial(speed_row, training))


def writes(name: str, shape: ModelConfig, streams: int, *, graphs: bool) -> Row:
    how = "graphs" if graphs else "launched"
    row = partial(writing_row, shape, streams, graphs=graphs)
    return Row(f"write {name}, {streams} at once, {how}", 30.0, row)


SMOL, QWEN = known("smollm2-135m"), known("qwen3-1.7b")
MUON = OptimConfig()
ROWS = (
    Row("the card's limits", 30, lambda on: {"flops": on.flops, "bytes_per_s": on.bandwidth}),
    Row("check: logits", 30, logits_row),
    Row("check: gradients", 30, gradients_row),
    trains("GPT-2 124M", 45, Training(GPT2, 32, 1024)),
    Row("train nanoGPT 124M, 32 x 1024", 30, partial(nanogpt_row, is_compiled=False)),
    trains("SmolLM2 135M", 45, Training(SMOL, 64, 512, 32)),
    trains("Qwen3 1.7B", 60, Training(QWEN, 8, 512, 16)),
    Row("check: 20 steps of a LoRA", 60, trained_row),
    Row("check: a LoRA that is stopped and resumed", 60, resumed_row),
    Row("check: a merged LoRA", 30, merged_row),
    Row("check: a batch that does not fit", 60, memory_row),
    writes("SmolLM2 135M", SMOL, 1, graphs=True),
    writes("SmolLM2 135M", SMOL, 32, graphs=True),
    Row("make of the sample blog, one minute", 150, make_row),
    trains("SmolLM2 135M", 45, Training(SMOL, 32, 512, 0, MUON)),
    trains("SmolLM2 135M", 45, Training(SMOL, 4, 512, 32)),
    trains("GPT-2 124M", 45, Training(GPT2, 32, 1024, 0, MUON)),
    trains("5M", 45, Training(SMALL, 64, 256, 0, MUON)),
    Row("train nanoGPT 124M, 32 x 1024, compiled", 120, partial(nanogpt_row, is_compiled=True)),
    writes("SmolLM2 135M", SMOL, 1, graphs=False),
    *(writes("Qwen3 1.7B", QWEN, streams, graphs=True) for streams in (1, 32)),
    *(writes("5M", SMALL, streams, graphs=True) for streams in (1, 32)),
)


def work(pipe: Connection, *, dry_run: bool) -> None:
    """Run the rows whose names arrive, until the pipe is closed."""
    machine, rows = Machine(dry_run=dry_run), {row.name: row for row in ROWS}
    while True:
        try:
            row = rows[pipe.recv()]
        except EOFError:
            return
        try:
            figures = row.run(machine)
        except (RuntimeError, OwnwordsError) as error:  # out of memory, for one
            figures = {"error": f"{str(error).partition(chr(10))[0]:.200}"}
        machine.device.release_memory()
        pipe.send(figures)


class Worker:
    """A process that runs rows; it is stopped if one takes too long."""

    def __init__(self, *, dry_run: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=work, args=(theirs,), kwargs={"dry_run": dry_run}, daemon=True
        )
        self._process.start()
        theirs.close()

    def run(self, row: Row, seconds: float) -> Figures:
        self._pipe.send(row.name)
        if not self._pipe.poll(seconds):
            self._process.kill()
            return {"error": f"not done in {seconds:.0f} s"}
        try:
            figures: Figures = self._pipe.recv()
        except EOFError:
            return {"error": "its process ended"}
        return figures

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()


def measured(
    rows: Sequence[Row], seconds: float, *, dry_run: bool
) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each row; a row for which no time is left says so."""
    ends, worker = time.monotonic() + seconds, Worker(dry_run=dry_run)
    for row in rows:
        left = ends - time.monotonic()
        if left < 1:
            yield row.name, {"left_out": "no time was left"}
            continue
        if not worker.is_alive:
            worker = Worker(dry_run=dry_run)
        yield row.name, worker.run(row, min(left, row.limit))


def main() -> int:
    """Print each row as soon as it is ready; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    card = "a processor" if options.dry_run else torch.cuda.get_device_name()
    print(f"{card}, PyTorch {torch.__version__}", flush=True)
    failed = False
    chosen = [row for row in ROWS if options.only in row.name]
    for name, figures in measured(chosen, options.seconds, dry_run=options.dry_run):
        failed |= "error" in figures
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"card": card, "row": name, **figures}) + "\n")
        said = (
            f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in figures.items()
        )
        print(f"{name:50} {', '.join(said)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
