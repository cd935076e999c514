"""Measures training speed with real steps of small models.

Timing two shapes determines both terms of a `StepTimeModel`. The result is a first estimate of the
number of steps that fit into the minutes; the run itself follows the clock.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import torch

from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.fused import find_library
from ownwords.training.device import Device
from ownwords.training.optim import Optimizer
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import OptimConfig, Precision
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel, step_flops

_TIMED_S, _TIMED = 0.25, 3  # minimum seconds and steps of a timing, if there is time


class StepTiming(NamedTuple):
    """The measured seconds of a step with one shape."""

    layers: int
    flops: float  # of the whole step
    seconds: float


def assumed_speeds(device: Device, *, is_lora: bool = False) -> DeviceSpeeds:
    """The speeds to assume until something has been measured."""
    precision = precisions(device, is_lora=is_lora)[0]
    return PLAN_CONSTANTS.assumed_speeds(device.kind, precision, is_lora=is_lora)


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
) -> DeviceSpeeds:
    """Time a few steps of each shape in each precision, in at most `seconds` seconds.

    Shapes are timed in order, so pass the most important one first; a shape that takes too long is
    timed with fewer rows. For a LoRA of `rank`, pass its base; its steps are long, so only the
    likeliest precision is timed. Returns assumed speeds if nothing could be timed.
    """
    ends = time.perf_counter() + seconds
    tried = precisions(device, is_lora=bool(rank))
    if rank:
        tried = tried[:1]
    guess = assumed_speeds(device, is_lora=bool(rank))
    step_times: dict[Precision, StepTimeModel] = {}
    samples: dict[Precision, list[StepTiming]] = {}
    for shape in shapes:
        for precision in tried:
            left = ends - time.perf_counter()
            if left <= 0:
                break
            before = step_times.get(precision) or next(iter(guess.step_times.values()))
            fitting = rows
            # One row is always timed, because assumed speeds are too inaccurate to refuse it.
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


def precisions(device: Device, *, is_lora: bool = False) -> tuple[Precision, ...]:
    """The precisions to try in order: the most exact first, or for a LoRA the likeliest.

    There may be time for only one. They depend on whether the device multiplies float32 or bfloat16
    faster. If it is float32, the compiled blocks multiply in float32 with "bf16" too, which moves
    fewer bytes. The frozen weights under a LoRA may be multiplied in int16; "bf16" is not tried,
    because it would round them.
    """
    library = find_library() if device.kind == "cpu" else None
    if is_lora and library is not None and library.has_fast_int16:
        return ("int16", "float32")
    if device.kind == "mps":
        return ("float32", "autocast")
    if device.has_fast_bf16:
        return ("autocast",) if is_lora else ("autocast", "bf16")
    return ("float32", "bf16") if library is not None and not is_lora else ("float32",)


def fit_step_time(samples: Sequence[StepTiming], before: StepTimeModel) -> StepTimeModel:
    """Fit a step time model to the first and the last sample; neither term is ever negative.

    A single shape cannot separate the two terms: then both terms of `before` are scaled by the same
    factor, so that the model predicts the last sample.
    """
    first, last = samples[0], samples[-1]
    determinant = first.layers * last.flops - last.layers * first.flops
    if len(samples) == 1:
        wanted = last.layers * before.layer_s + last.flops / before.flops_per_s
        factor = last.seconds / wanted
        return StepTimeModel(before.layer_s * factor, before.flops_per_s / factor, is_measured=True)
    layer_s = flop_s = 0.0
    if determinant:
        layer_s = (first.seconds * last.flops - last.seconds * first.flops) / determinant
        flop_s = (first.layers * last.seconds - last.layers * first.seconds) / determinant
    if flop_s <= 0 or layer_s < 0:  # the timing of some shapes was disturbed
        work = sum(sample.flops for sample in samples)
        layer_s, flop_s = 0.0, sum(sample.seconds for sample in samples) / work
    return StepTimeModel(layer_s, 1 / flop_s, is_measured=True)


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
    """The seconds of real steps (forward, backward, optimizer); `rank` above 0: of a LoRA."""
    adapter = lora.attach(model, lora.AdapterConfig(rank), seed=1) if rank else None
    optimizer = Optimizer(model.train(), optim)
    generator = torch.Generator().manual_seed(1)
    ids_BT1 = torch.randint(0, model.config.vocabulary, (rows, context + 1), generator=generator)
    ids_BT1 = ids_BT1.to(device.torch_device)
    # Two documents per row, so that attention needs a document mask, as in training.
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
        # The first step also chooses kernels, so it counts only if there is no time for another.
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
