"""Predicts how long a training step takes, from the shape of the model; does not import torch.

A step takes `layers * layer_s + flops / flops_per_s`: a fixed cost per layer, and the arithmetic.
The speeds of the last training runs on this processor are stored in the user's data folder.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from ownwords.core import hardware
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import data_folder, write_atomically
from ownwords.models.configs.config import ModelConfig
from ownwords.models.weight_mapping import weight_shapes
from ownwords.native import bindings
from ownwords.training.settings import Precision

_FILE = "speeds.json"  # in the user's data folder
_RECENT = 6  # measurements kept, because a processor may become permanently slower
_ENOUGH = 3  # measurements needed before they count even if they are below the assumed speed
MIN_PARAMETERS = 10_000_000  # of a base: the speed with a smaller one says little about others
# A less exact precision is chosen only if it is faster by this factor.
_MARGIN: Mapping[Precision, float] = {
    "float32": 1.0,
    "int16": 1.01,
    "autocast": 1.03,
    "bf16": 1.08,
}


@dataclass(frozen=True)
class StepTimeModel:
    """Predicts the time of a step in one precision."""

    layer_s: float
    flops_per_s: float
    is_measured: bool = False  # on this machine; otherwise it is assumed

    def step_s(self, shape: ModelConfig, rows: int, context: int, rank: int = 0) -> float:
        """Seconds per step with `rows` rows of `context` tokens; with `rank`, of a LoRA."""
        computing_s = step_flops(shape, rows, context, rank) / self.flops_per_s
        return shape.layers * self.layer_s + computing_s


@dataclass(frozen=True)
class DeviceSpeeds:
    """The training speed of a device, by precision."""

    kind: str  # of device: cpu, cuda, ...
    step_times: Mapping[Precision, StepTimeModel] = field(default_factory=dict)

    def fastest(self, shape: ModelConfig, rows: int, context: int, rank: int = 0) -> Precision:
        """The fastest precision; a less exact one must be faster by a margin."""
        # With bf16 the frozen weights under a LoRA would stay rounded to bfloat16.
        allowed = {p: each for p, each in self.step_times.items() if not (rank and p == "bf16")}
        models = allowed or self.step_times
        return pick_precision({p: models[p].step_s(shape, rows, context, rank) for p in models})


def pick_precision(seconds: Mapping[Precision, float]) -> Precision:
    """The precision to train in, given the seconds that a step takes in each."""
    return min(seconds, key=lambda precision: seconds[precision] * _MARGIN[precision])


# --- FLOPs ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def block_matrices(shape: ModelConfig) -> tuple[tuple[int, ...], ...]:
    """The shapes of the matrices of all blocks: those that Muon and a LoRA train."""
    weights = weight_shapes(shape).items()
    return tuple(sides for name, sides in weights if name.startswith("blocks.") and sides[1:])


def lora_sides(shape: ModelConfig) -> int:
    """The sum of the sides of all matrices of the blocks: the parameters of a LoRA of rank 1."""
    return sum(map(sum, block_matrices(shape)))


def step_flops(shape: ModelConfig, rows: int, context: int, rank: int = 0) -> float:
    """FLOPs of a whole step, including the optimizer's."""
    optimizer = 0.0 if rank else optimizer_flops(shape)
    return rows * context * flops_per_token(shape, context, rank) + optimizer


def flops_per_token(shape: ModelConfig, context: int, rank: int = 0) -> float:
    """FLOPs of training on one token in a row of `context` tokens: all weights, or a LoRA.

    Each weight of a matrix product takes 6 (2 forward, 4 backward; 4 in total if it is frozen).
    Attention takes 12 * total width of the heads * attended tokens per layer; on average these are
    context / 2 tokens with a causal mask, and fewer with a sliding window. Embedding lookups,
    norms, activations and recomputation are not counted.
    """
    attended = sum(_attended(context, window) for window in shape.windows())
    head = shape.vocabulary * shape.width  # a product, tied to the embedding or not
    weights = head + sum(map(math.prod, block_matrices(shape)))
    products = 4.0 * weights + 6.0 * rank * lora_sides(shape) if rank else 6.0 * weights
    return products + 12.0 * shape.q_width * attended


def optimizer_flops(shape: ModelConfig) -> float:
    """FLOPs of a Muon step: 5 Newton-Schulz iterations on every matrix of the blocks.

    An iteration on an m by n matrix, m the shorter side, is two products of m * m * n and one of
    m * m * m. https://kellerjordan.github.io/posts/muon/
    """
    sides = ((min(each), max(each)) for each in block_matrices(shape))
    return sum(5 * (4.0 * short * short * long + 2.0 * short**3) for short, long in sides)


def _attended(context: int, window: int | None) -> float:
    """The number of tokens that a token of a row attends to, on average."""
    if window is None or window >= context:
        return context / 2
    return window - math.comb(window, 2) / context


# --- the speeds of earlier trainings --------------------------------------------------------------


def best_flops(assumed: float = 0.0, *, is_lora: bool) -> float:
    """FLOP/s of the best recent training of all weights, or of a LoRA.

    Fewer than three training runs count only if one was faster than `assumed`. The best one counts,
    because a slow one may have shared the machine with other programs.
    """
    recent = _stored().get(_key(is_lora=is_lora), [])
    return max(recent) if len(recent) >= _ENOUGH else max([assumed, *recent])


def remember(
    shape: ModelConfig, rows: int, context: int, rank: int, tokens_per_s: float, layer_s: float
) -> None:
    """Store the speed of a training run, if the data folder is writable."""
    if not tokens_per_s:
        return
    step_s = rows * context / tokens_per_s
    computing_s = max(step_s / 2, step_s - shape.layers * layer_s)
    remember_flops(step_flops(shape, rows, context, rank) / computing_s, is_lora=bool(rank))


def remember_flops(flops: float, *, is_lora: bool) -> None:
    """Store the FLOP/s of a training run."""
    stored, key = _stored(), _key(is_lora=is_lora)
    stored[key] = [*stored.get(key, []), float(f"{flops:.4g}")][-_RECENT:]
    with suppress(OwnwordsError, OSError):
        data_folder().mkdir(parents=True, exist_ok=True)
        write_atomically(data_folder() / _FILE, json.dumps(stored, indent=1) + "\n")


def _stored() -> dict[str, list[float]]:
    try:
        data = (data_folder() / _FILE).read_bytes()
        return msgspec.json.decode(data, type=dict[str, list[float]])
    except (OSError, ValueError, OwnwordsError):  # missing or damaged
        return {}


def _key(*, is_lora: bool) -> str:
    """What the speed depends on: the processor, its threads, the library, and what is trained."""
    library, cpu = bindings.load_library(), hardware.read_cpu()
    label = library.isa.label if library else "PyTorch alone"
    trained = "LoRA" if is_lora else "all weights"
    return f"{cpu.model}, {hardware.threads(cpu)} threads, {label}, {trained}"
