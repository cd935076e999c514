"""Measures training speed with real steps.

The result is a first estimate of the number of steps that fit into the minutes; the run itself
follows the clock.
"""

import statistics
import time
from contextlib import suppress
from dataclasses import replace

import torch

from ownwords.models import lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.decoder import CausalLM, build
from ownwords.models.fused import find_library
from ownwords.training.device import Device
from ownwords.training.optim import Optimizer
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import OptimConfig, Precision
from ownwords.training.step_time import DeviceSpeeds, StepTimeModel

_TIMED_S, _TIMED = 0.25, 3  # minimum seconds and steps of a timing, if there is time


def assumed_speeds(device: Device, *, is_lora: bool = False) -> DeviceSpeeds:
    """The speeds to assume until something has been measured."""
    precision = precisions(device, is_lora=is_lora)[0]
    return PLAN_CONSTANTS.assumed_speeds(device.kind, precision, is_lora=is_lora)


def measure_speeds(
    device: Device,
    shape: ModelConfig,
    *,
    rows: int,
    context: int,
    seconds: float,
    optim: OptimConfig | None = None,
    base: CausalLM | None = None,
    rank: int = 0,
) -> DeviceSpeeds:
    """Time a few steps of a model in each precision, in at most `seconds` seconds.

    If a step takes too long, fewer rows are timed. For a LoRA of `rank`, pass its base; its steps
    are long, so only the likeliest precision is timed. Returns assumed speeds if nothing could be
    timed. A single shape does not separate the cost per layer from the arithmetic: their assumed
    ratio is kept.
    """
    ends = time.perf_counter() + seconds
    tried = precisions(device, is_lora=bool(rank))
    if rank:
        tried = tried[:1]
    guess = assumed_speeds(device, is_lora=bool(rank))
    assumed = next(iter(guess.step_times.values()))
    step_times: dict[Precision, StepTimeModel] = {}
    for precision in tried:
        left = ends - time.perf_counter()
        if left <= 0:
            break
        fitting = rows
        # One row is always timed, because assumed speeds are too inaccurate to refuse it.
        while fitting > 1 and assumed.step_s(shape, fitting, context, rank) > left / 6:
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
            factor = statistics.median(taken) / assumed.step_s(shape, fitting, context, rank)
            step_times[precision] = StepTimeModel(
                assumed.layer_s * factor, assumed.flops_per_s / factor, is_measured=True
            )
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
