"""Measures training speed with real steps of small models, and predicts it for other sizes.

A step takes `layers * layer_s + flops / flops_per_s`: a fixed cost per layer, and the arithmetic.
Timing two shapes determines both. This is a first guess of how many steps fit into the minutes; the
run itself follows the clock.
"""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import nn

from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.fused import has_fast_bf16
from ownwords.native import bindings
from ownwords.training.device import Device
from ownwords.training.optim import Optimizer
from ownwords.training.plan_constants import PLAN_CONSTANTS, PlanConstants, optimizer_flops
from ownwords.training.settings import OptimConfig, Precision

MEASURED, ASSUMED = "measured here", "assumed"
_TIMED_S, _TIMED = 0.25, 3  # the least seconds and steps of a timing, if there is time
# A less exact precision is chosen only if it is faster by this factor.
_MARGIN: Mapping[Precision, float] = {"float32": 1.0, "autocast": 1.03, "bf16": 1.08}


class StepTiming(NamedTuple):
    """The measured seconds of a step of one shape."""

    layers: int
    flops: float  # of the whole step
    seconds: float


@dataclass(frozen=True)
class StepTimeModel:
    """Predicts the time of a step in one precision."""

    layer_s: float
    flops_per_s: float
    origin: str = ASSUMED

    def step_s(self, shape: ModelConfig, rows: int, context: int, rank: int = 0) -> float:
        """Seconds of a step of `rows` rows of `context` tokens each; with `rank`, of a LoRA."""
        computing_s = step_flops(shape, rows, context, rank) / self.flops_per_s
        return shape.layers * self.layer_s + computing_s


@dataclass(frozen=True)
class DeviceSpeeds:
    """The training speed of a device, by precision."""

    kind: str  # of device: cpu, cuda, ...
    step_times: Mapping[Precision, StepTimeModel] = field(default_factory=dict)
    fused: bool = False  # whether the C++ kernels are in use: they fuse what compiling would

    def fastest(self, shape: ModelConfig, rows: int, context: int, rank: int = 0) -> Precision:
        """The fastest precision; a less exact one must be faster by a margin."""
        # With bf16 the frozen weights under a LoRA would stay rounded to bfloat16.
        allowed = {p: each for p, each in self.step_times.items() if not (rank and p == "bf16")}
        models = allowed or self.step_times
        return pick_precision({p: models[p].step_s(shape, rows, context, rank) for p in models})


def pick_precision(seconds: Mapping[Precision, float]) -> Precision:
    """The precision to train in, given the seconds that a step takes in each."""
    return min(seconds, key=lambda precision: seconds[precision] * _MARGIN[precision])


def assumed_speeds(device: Device, constants: PlanConstants = PLAN_CONSTANTS) -> DeviceSpeeds:
    """The speeds to assume as long as nothing has been measured."""
    cpu = device.kind == "cpu"
    step_time = StepTimeModel(
        constants.assumed_cpu_layer_s if cpu else constants.assumed_gpu_layer_s,
        constants.assumed_cpu_flops if cpu else constants.assumed_gpu_flops,
    )
    fused = cpu and bindings.load_library() is not None
    return DeviceSpeeds(device.kind, {precisions(device)[0]: step_time}, fused)


def measure_speeds(
    device: Device,
    shapes: Sequence[ModelConfig],
    *,
    rows: int,
    context: int,
    seconds: float,
    optim: OptimConfig | None = None,
    base: CausalLM | None = None,
    rank: int = 0,
    constants: PlanConstants = PLAN_CONSTANTS,
) -> DeviceSpeeds:
    """Time a few steps of each shape in each precision, in at most `seconds` seconds.

    Shapes are timed in order, so give the most important one first; one that takes too long is
    timed with fewer rows.
    For a LoRA of `rank`, give its base: only the likeliest precision is timed: its steps are long.
    Returns assumed speeds if nothing could be timed.
    """
    ends = time.perf_counter() + seconds
    tried = precisions(device)
    if base:
        tried = tuple(each for each in tried if each != "bf16")[:1]
    guess = assumed_speeds(device, constants)
    step_times: dict[Precision, StepTimeModel] = {}
    samples: dict[Precision, list[StepTiming]] = {}
    for shape in shapes:
        for precision in tried:
            left = ends - time.perf_counter()
            if left <= 0:
                break
            before = step_times.get(precision) or next(iter(guess.step_times.values()))
            fitting = rows
            # One row is always timed: nothing assumed of a machine is near enough.
            while fitting > 1 and before.step_s(shape, fitting, context, rank) > left / 6:
                fitting //= 2
            # Ignore only errors of the device: out of memory, or a dtype that it does not support.
            with suppress(RuntimeError, MemoryError):
                taken = _steps(
                    base or _model(shape, device, precision),
                    device,
                    fitting,
                    context,
                    precision,
                    optim or OptimConfig(),
                    left / 3,
                    rank,
                )
                work = step_flops(shape, fitting, context, rank)
                timing = StepTiming(shape.layers, work, statistics.median(taken))
                samples.setdefault(precision, []).append(timing)
                step_times[precision] = fit_step_time(samples[precision], before)
            device.release_memory()
    return replace(guess, step_times=step_times) if step_times else guess


def precisions(device: Device) -> tuple[Precision, ...]:
    """The precisions to try on a device, the likeliest first: there may be time for only one."""
    if device.kind == "cpu":
        if has_fast_bf16():
            return ("autocast", "bf16", "float32")
        return ("float32", "autocast", "bf16")
    if device.kind == "mps":
        return ("float32", "autocast")
    return ("autocast", "bf16", "float32") if device.has_fast_bf16 else ("float32",)


def step_flops(shape: ModelConfig, rows: int, context: int, rank: int = 0) -> float:
    """FLOPs of a whole step, including the optimizer's."""
    optimizer = 0.0 if rank else optimizer_flops(shape)
    return rows * context * _flops_of_shape(shape, context, rank) + optimizer


@lru_cache(maxsize=256)
def _flops_of_shape(shape: ModelConfig, context: int, rank: int) -> float:
    model = build(shape, device="meta")
    if rank:
        lora.attach(model, lora.AdapterConfig(rank), seed=0)
    return flops_per_token(model, context)


def fit_step_time(samples: Sequence[StepTiming], before: StepTimeModel) -> StepTimeModel:
    """Fit a step time model to the first and the last sample; neither part is ever negative.

    One shape alone cannot separate the two parts: then both parts of `before` are scaled by the
    same factor, so that it predicts the last sample.
    """
    first, last = samples[0], samples[-1]
    determinant = first.layers * last.flops - last.layers * first.flops
    if len(samples) == 1:
        wanted = last.layers * before.layer_s + last.flops / before.flops_per_s
        factor = last.seconds / wanted
        return StepTimeModel(before.layer_s * factor, before.flops_per_s / factor, MEASURED)
    layer_s = flop_s = 0.0
    if determinant:
        layer_s = (first.seconds * last.flops - last.seconds * first.flops) / determinant
        flop_s = (first.layers * last.seconds - last.layers * first.seconds) / determinant
    if flop_s <= 0 or layer_s < 0:  # the timing of some shapes was disturbed
        work = sum(sample.flops for sample in samples)
        layer_s, flop_s = 0.0, sum(sample.seconds for sample in samples) / work
    return StepTimeModel(layer_s, 1 / flop_s, MEASURED)


# --- timing ------------------------------------------------------------------------------------


def _model(shape: ModelConfig, device: Device, precision: Precision) -> CausalLM:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = build(shape, device=device.torch_device, dtype=dtype)
    model.init_weights(1)
    return model


def _steps(
    model: CausalLM,
    device: Device,
    rows: int,
    context: int,
    precision: Precision,
    optim: OptimConfig,
    seconds: float,
    rank: int,
) -> list[float]:
    """The seconds of real steps: forward, backward, optimizer; of a LoRA of that rank, if any."""
    adapter = lora.attach(model, lora.AdapterConfig(rank), seed=1) if rank else None
    optimizer = Optimizer(model.train(), optim, master_weights=precision == "bf16")
    generator = torch.Generator().manual_seed(1)
    ids_BT1 = torch.randint(0, model.config.vocabulary, (rows, context + 1), generator=generator)
    ids_BT1 = ids_BT1.to(device.torch_device)
    # Two documents a row, so that attention needs a document mask, as in training.
    documents_BT = (torch.arange(context) >= context // 2).long().expand(rows, context)
    documents_BT = documents_BT.to(device.torch_device)

    def step() -> float:
        began = time.perf_counter()
        with device.autocast(precision):
            loss, count = model.loss(ids_BT1[:, :-1], ids_BT1[:, 1:], documents_BT=documents_BT)
        torch.autograd.backward(loss / count)
        optimizer.step(1.0, 0)
        device.synchronize()
        return time.perf_counter() - began

    taken: list[float] = []
    try:
        # The first step chooses kernels, too: it counts only if there is no time for another.
        first = step()
        if first > seconds:
            return [first]
        while not taken or (
            sum(taken) <= seconds and (sum(taken) < _TIMED_S or len(taken) < _TIMED)
        ):
            taken.append(step())
    finally:
        if adapter:
            adapter.detach()
    return taken


# --- FLOPs ---------------------------------------------------------------------------------------


def flops_per_token(model: CausalLM, context: int) -> float:
    """FLOPs of training on one token in a row of `context` tokens.

    These are 6 for each weight of a matrix product (2 forward, 4 backward; 4 in total if it is
    frozen), and for attention 12 * total width of the heads * attended tokens in each layer, on
    average context / 2 with a causal mask and fewer with a sliding window. Embedding lookups,
    norms, activations and recomputation are not counted.
    """
    config = model.config
    attended = sum(_attended(context, window) for window in config.windows())
    flops = 12.0 * config.heads * config.head_dim * attended
    for module in model.modules():
        # A lookup costs nothing; an embedding shared with the head is a matrix product.
        is_lookup = module is not model.embedding or model.head is not None
        if isinstance(module, nn.Embedding) and is_lookup:
            continue
        for weight in module.parameters(recurse=False):
            if weight.dim() == 2:
                flops += (6.0 if weight.requires_grad else 4.0) * weight.numel()
    return flops


def _attended(context: int, window: int | None) -> float:
    """The number of tokens that a token of a row attends to, on average."""
    if window is None or window >= context:
        return context / 2
    return window - math.comb(window, 2) / context
