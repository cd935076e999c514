"""Chooses the model size with the lowest predicted loss in the time, from a ladder of sizes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from ownwords.core.errors import ConfigError
from ownwords.core.progress import duration
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.qwen3 import Qwen3Config, config_for_budget, parameter_count
from ownwords.training.forecast import size
from ownwords.training.plan import PlanInputs
from ownwords.training.plan_constants import PlanConstants
from ownwords.training.throughput import StepTimeModel

_SMALLEST, _STEP, _RUNGS = 60_000, 1.5, 32  # up to 17 billion
_BOUNDS = 0.5  # parameters per token read, at most


@dataclass(frozen=True)
class SizedRun:
    """How long a model of one shape is trained, and the expected loss."""

    shape: ModelConfig
    size: int
    rows: int
    steps: int  # in the time
    max_steps: int  # after which the text is only memorised
    step_s: float
    tokens: int
    precision: str
    compiles: bool
    bits: float


@dataclass
class ModelSizer:
    """Chooses the model size within the text, time and memory available."""

    facts: PlanInputs
    constants: PlanConstants
    fixed: Mapping[str, object]
    context: int
    vocabulary: int
    tokens: int  # of the training texts
    train_s: float  # for steps and evaluations
    eval_mode: float  # share of it that evaluations may take
    memory_budget: float  # bytes of memory
    rank: int = 0  # of the LoRA; 0: all weights are trained
    compile_why: str = ""

    @property
    def per_token(self) -> float:
        """Bytes of text per token."""
        return self.facts.text_bytes / self.tokens

    @property
    def replay(self) -> float:
        """The share of rows that are the base's own text."""
        wanted = self.constants.tune_replay if self.facts.base and self.facts.replay_bytes else 0.0
        return float(cast(float, self.fixed.get("data.replay", wanted)))

    def best(self) -> tuple[int, SizedRun]:
        """The smallest parameter budget whose expected loss is near the lowest, and its run."""
        constants = self.constants
        runs: list[tuple[int, SizedRun]] = []
        for rung in range(_RUNGS):
            budget = round(float(f"{_SMALLEST * _STEP**rung:.2g}"))
            shape = shape_of(budget, self.vocabulary, self.context)
            if shape is None:
                continue
            if (
                constants.training_bytes(shape, parameter_count(shape), 1, self.context)
                > self.memory_budget
            ):
                break
            length = self.length(shape, parameter_count(shape))
            if runs and (
                length.steps < constants.least_steps or length.size > _BOUNDS * length.tokens + 1e6
            ):
                break
            runs.append((budget, length))
        if not runs:
            raise ConfigError(
                f"no model fits into {size(self.facts.memory_bytes)} of memory with a"
                f" vocabulary of {self.vocabulary:,} tokens and a context of {self.context:,}",
                hint="close other programs, or set a smaller model.vocab_size or"
                " model.context_length",
            )
        least = min(length.bits for _, length in runs)
        return next(run for run in runs if run[1].bits <= least * (1 + constants.enough))

    def length(self, shape: ModelConfig, of: int) -> SizedRun:
        """The run of a model of this shape, with `of` parameters, in the available time."""
        constants, fixed = self.constants, self.fixed
        base = self.facts.base
        epochs = constants.tune_epochs if base else constants.epochs_limit
        limit = (constants.lora_epochs if self.rank else epochs) * self.tokens
        limit /= 1 - self.replay
        read = 64.0 * self.context
        rows = precision = steps = useful = None
        step_s, compiles = 0.0, False
        for _ in range(4):  # the batch depends on how much is read, and the speed on the batch
            rows = int(cast(int, fixed.get("train.batch_size", self.rows_for(read))))
            precision, step_s, compiles, costs = self.speed(shape, rows)
            time_s = max(0.0, self.train_s - costs) * (1 - self.eval_mode)
            useful = math.ceil(limit / (rows * self.context))
            useful = int(cast(int, fixed.get("train.max_steps", useful)))
            steps = int(cast(int, fixed.get("train.steps", min(int(time_s / step_s), useful))))
            read = float(max(1, steps) * rows * self.context)
        assert rows is not None and steps is not None and precision is not None
        assert useful is not None
        if base:
            bits = base.bits_per_byte or constants.bits_per_byte(of, 20 * of, 20 * of)
            # What has not been read yet has not helped yet.
            own = steps * rows * self.context * (1 - self.replay) * self.per_token
            bits *= constants.tuned_share(min(self.facts.text_bytes, own))
        else:
            # The size in the scaling law is that of the blocks, without embedding and head.
            blocks = of - shape.vocabulary * shape.width * (1 if shape.tied else 2)
            bits = constants.bits_per_byte(blocks, read * self.per_token, self.facts.text_bytes)
        most = steps if "train.steps" in fixed else useful
        return SizedRun(shape, of, rows, steps, most, step_s, int(read), precision, compiles, bits)

    def rows_for(self, read: float) -> int:
        """The batch size in rows of a run that reads `read` tokens."""
        constants = self.constants
        batch = constants.lora_batch if self.rank else constants.batch_tokens(read)
        # Many small steps learn more than few large ones.
        least = constants.lora_steps if self.rank else constants.steps_least
        while batch / 2 >= constants.batch_min and read / batch < least:
            batch /= 2
        return max(self.facts.processes, round(batch / self.context))

    def speed(self, shape: ModelConfig, rows: int) -> tuple[str, float, bool, float]:
        """The precision, seconds per step, whether to compile, and the seconds compiling takes."""
        constants, fixed, speeds = self.constants, self.fixed, self.facts.speeds
        fastest = speeds.fastest(shape, rows, self.context, self.rank)
        precision = str(fixed.get("train.precision", fastest))
        step_times = cast(Mapping[str, StepTimeModel], speeds.step_times)
        step_time = step_times.get(precision) or next(iter(step_times.values()))
        in_each = math.ceil(rows / self.facts.processes)
        step_s = step_time.step_s(shape, in_each, self.context, self.rank)
        cpu = speeds.kind == "cpu"
        gain = constants.compile_gain_cpu if cpu else constants.compile_gain_gpu
        if precision == "float32" and cpu:
            gain = constants.compile_gain_float32
        if speeds.fused:
            gain = constants.compile_gain_fused
        cost = constants.compile_cpu_s if cpu else constants.compile_gpu_s
        saved = self.train_s * (1 - 1 / gain)
        # It must save twice its cost: the cost is certain, the gain not measured for this shape.
        compiles = bool(fixed.get("train.compile", saved > 2 * cost))
        self.compile_why = (
            "the C++ kernels are faster than compiled code"
            if gain < 1
            else f"compiling takes about {cost:.0f} s and makes steps {gain:.1f} times as fast,"
            f" which saves {max(saved, 0):.0f} s in {duration(max(self.train_s, 0))}"
        )
        return precision, step_s / (gain if compiles else 1), compiles, cost if compiles else 0.0


@lru_cache(maxsize=4096)
def shape_of(budget: int, vocabulary: int, context: int) -> Qwen3Config | None:
    """The shape with that many parameters; None if the vocabulary alone needs more."""
    try:
        return config_for_budget(budget, vocabulary, context)
    except ConfigError:
        return None
