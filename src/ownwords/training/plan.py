"""The plan of a run: every setting with its reason, and the forecast.

`make_plan` chooses each number from the amount of text, the time and the measured speed. The user
may set any of them instead; the numbers that depend on it follow from the user's. The formulas and
constants are in plan_constants.py.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar

from ownwords.core.config import as_toml, resolve
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError, WorkspaceError
from ownwords.core.progress import duration
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.llama import Qwen3Config, config_for_budget, parameter_count
from ownwords.training.plan_constants import ESTIMATE, LOG, MEASURED, PLAN_CONSTANTS
from ownwords.training.settings import Precision, Recipe
from ownwords.training.step_time import DeviceSpeeds
from ownwords.view.format import number, size, times

constants = PLAN_CONSTANTS

T = TypeVar("T", int, float, bool, str)

_SPECIAL = 5  # special tokens in each vocabulary trained here
_MIN_SIZE, _SIZE_STEP, _SIZES = 60_000, 1.5, 32  # model sizes to try, up to 17 billion
_MAX_PARAMETERS_PER_TOKEN = 0.5  # per token read

Origin = Literal["plan", "measured", "setting"]


@dataclass(frozen=True)
class BaseModelInfo:
    """The base model of a fine-tuning run; unknown learning rates are None."""

    shape: ModelConfig
    parameters: int
    bits_per_byte: float | None = None  # on the validation text, before fine-tuning
    kind: str | None = None
    muon_lr: float | None = None
    learning_rate: float | None = None
    lora: bool | None = None  # None: the plan chooses between a LoRA and all weights
    bf16: bool = False  # the frozen weights under a LoRA stay in bfloat16, in the compiled block

    @property
    def is_lora(self) -> bool:
        """Whether a LoRA is trained unless the user sets its rank."""
        if self.lora is None:
            return self.parameters >= constants.lora_parameters
        return self.lora


@dataclass(frozen=True)
class PlanInputs:
    """Everything that a plan depends on, except the user's settings."""

    text_bytes: int  # of the training texts
    documents: int
    speeds: DeviceSpeeds
    memory_bytes: int  # available
    validation_bytes: int = 0
    own_share: float = 1.0  # fraction of the words in the archive that are the author's own
    tokens: int | None = None  # of the training texts; None: not counted yet
    vocabulary: int | None = None  # of the tokenizer; None: not trained yet
    spent_s: float = 0.0  # seconds used before the plan is made
    replay_bytes: int = 0  # of the base's replay text
    base: BaseModelInfo | None = None
    processes: int = 1  # training together


@dataclass(frozen=True)
class PlannedValue:
    """One number of a plan, with its reason and source."""

    key: str
    value: int | float | bool | str
    reason: str
    source: str
    origin: Origin


@dataclass(frozen=True)
class Forecast:
    """The expected outcome of a plan; bits per byte are on held-out text."""

    bits_low: float
    bits_high: float
    seconds: float  # of the whole run, from start to saved model
    tokens: int
    epochs: float
    memory_bytes: int
    tokens_per_s: float
    held_out_bytes: int  # bytes read at each evaluation
    evaluation_s: float = 0.0  # seconds per evaluation

    def epochs_of(self, tokens: int) -> float:
        return tokens / max(self.tokens, 1) * self.epochs

    def sentences(self) -> tuple[str, ...]:
        """The forecast as sentences for the user."""
        return (
            f"About {duration(self.seconds)}, including start and saving: {number(self.tokens)}"
            f" tokens at {number(self.tokens_per_s)} per second, which reads the text"
            f" {times(self.epochs)}.",
            f"{self.bits_low:.2f} to {self.bits_high:.2f} bits per byte on held-out texts, and"
            f" about {size(self.memory_bytes)} of memory.",
        )


@dataclass(frozen=True)
class Plan:
    """The planned settings of a run, each with its reason, and the forecast."""

    reasons: tuple[PlannedValue, ...]
    expected: Forecast

    @cached_property
    def recipe(self) -> Recipe:
        """All settings of the run: the planned ones, and defaults for the rest."""
        return resolve(Recipe, flags={each.key: each.value for each in self.reasons}).settings

    def to_toml(self) -> str:
        """The plan as TOML, from which `read_plan` makes an equal plan."""
        lines = ["# Each number of this run with its reason, and the forecast.\n"]
        for each in self.reasons:
            lines.append("\n[[number]]\n" + _table(each))
        lines.append("\n[expected]\n" + _table(self.expected))
        return "".join(lines)


def read_plan(text: str) -> Plan:
    """Read a plan from TOML; WorkspaceError if it is damaged or of another version."""
    try:
        table = tomllib.loads(text)
        reasons = tuple(PlannedValue(**each) for each in table["number"])
        plan = Plan(reasons, Forecast(**table["expected"]))
        _ = plan.recipe  # ConfigError for settings of another version
    except (tomllib.TOMLDecodeError, LookupError, TypeError, ConfigError) as error:
        raise WorkspaceError(
            f"the plan of this run is damaged or of another version ({error})",
            hint="delete the run's folder",
        ) from error
    return plan


def _table(part: PlannedValue | Forecast) -> str:
    return "".join(f"{k} = {as_toml(v)}\n" for k, v in asdict(part).items())


# --- choosing the numbers -------------------------------------------------------------------------


def make_plan(facts: PlanInputs, seconds: float, fixed: Mapping[str, Any]) -> Plan:
    """Plan every setting of a run that takes `seconds` from its start to the saved model.

    `fixed` holds the user's settings by key, validated by `resolve`. The run takes longer than
    `seconds` if too few steps fit into them to learn anything. CorpusError if there is too little
    text to learn from, ConfigError if there is too little memory; each says how much is needed.
    OwnwordsError if a setting would have no effect.
    """
    return _Planner(facts, seconds, fixed).plan()


@dataclass(frozen=True)
class SizedRun:
    """The length of a training run for one model shape, and the expected loss."""

    shape: ModelConfig
    size: int
    rows: int
    steps: int  # that fit into the time
    max_steps: int  # more would only memorise the text
    step_s: float
    tokens: int
    precision: Precision
    bits: float


class _Planner:
    """Chooses the numbers of a plan in order, each from the earlier ones."""

    def __init__(self, facts: PlanInputs, seconds: float, fixed: Mapping[str, Any]) -> None:
        self.facts, self.seconds, self.fixed = facts, seconds, fixed
        self.reasons: dict[str, PlannedValue] = {}
        self.memory_budget = facts.memory_bytes * constants.memory_share
        self.overhead_s = facts.spent_s + constants.close_s
        self.train_s = seconds * (1 - constants.unforeseen) - self.overhead_s
        self.eval_share = constants.evaluate_share if facts.validation_bytes else 0.0

    def choose(
        self, key: str, value: T, reason: str, source: str = LOG, origin: Origin = "plan"
    ) -> T:
        """Record a number with its reason, or the user's instead; return the recorded number."""
        if key in self.fixed:
            value = self.fixed[key]
            reason, source, origin = "as you set it", "setting", "setting"
        self.reasons[key] = PlannedValue(key, value, reason, source, origin)
        return value

    def plan(self) -> Plan:
        self.choose_inputs()
        run = self.size_of_base(self.facts.base) if self.facts.base else self.choose_size()
        least = round(min(constants.least_steps, run.max_steps))
        if run.steps < least and not self.steps_are_fixed:
            # The machine may be slow only for the moment, so extend the run instead of refusing it.
            self.train_s = least * run.step_s / (1 - self.eval_share)
            run = replace(run, steps=least, tokens=least * run.rows * self.context)
        self.choose_steps(run)
        self.choose_micro_batch(run)
        if self.rank:
            self.choose_lora_optimizer()
        else:
            self.choose_optimizer(run)
        self.choose_regularization()
        self.choose_evaluations(run)
        for key in self.fixed:
            if key not in self.reasons:
                self.choose(key, self.fixed[key], "")
        return Plan(tuple(self.reasons.values()), self.forecast(run))

    # --- the text -------------------------------------------------------------------------------

    def choose_inputs(self) -> None:
        """Choose what depends on the text and the base: vocabulary, rank, context, replay."""
        self.check()
        self.choose_vocabulary()
        self.rank = self.choose_rank()
        self.context = self.choose_context()
        share = constants.lora_pairs if self.rank else constants.tune_replay
        wanted = share if self.facts.base and self.facts.replay_bytes else 0.0
        self.replay = self.fixed.get("data.replay", wanted)

    def check(self) -> None:
        facts, least = self.facts, constants.least_bytes
        if facts.text_bytes < least:
            share = facts.own_share
            own = f" ({share:.0%} of the text found is your own)" if share < 0.995 else ""
            raise CorpusError(
                f"there are {facts.text_bytes:,} bytes of text to learn from{own}; a model needs at"
                f" least {least:,.0f}",
                hint="add texts; `ownwords ask` can already search and cite these",
            )
        of_the_base = [key for key in self.fixed if key.startswith("model.")]
        if facts.base and of_the_base:
            raise ConfigError(
                f"{of_the_base[0]} cannot be set: a fine-tuned model keeps its base's shape",
                hint="leave it out, or train a model from scratch",
            )

    def choose_vocabulary(self) -> None:
        facts = self.facts
        text = f"{size(facts.text_bytes)} of your own words"
        if facts.own_share < 0.995:
            text += f" ({facts.own_share:.0%} of the text found)"
        if facts.base:
            vocabulary = facts.base.shape.vocabulary
            self.choose("model.vocab_size", vocabulary, "that of the base", "the base")
        else:
            wanted = constants.vocabulary(facts.text_bytes)
            why = (
                f"{text} is too little to learn longer tokens from: each byte is a token"
                if not wanted
                else f"{text} supports about this many tokens: more would be too rare to learn"
            )
            wanted = self.choose("model.vocab_size", wanted, why, f"{LOG}; {ESTIMATE}")
            vocabulary = facts.vocabulary or (wanted or 256 + _SPECIAL)
        self.vocabulary = vocabulary
        guessed = facts.text_bytes / constants.bytes_per_token(vocabulary)
        self.tokens = facts.tokens or max(1, round(guessed) + 2 * facts.documents)
        self.bytes_per_token = facts.text_bytes / self.tokens

    def choose_rank(self) -> int:
        """The rank of the LoRA; 0: all weights are trained."""
        base = self.facts.base
        if base is None:
            return 0
        wanted = 0
        why = f"all {number(base.parameters)} weights can be trained"
        if base.is_lora:
            is_long = self.facts.text_bytes >= constants.lora_text
            wanted = int(constants.lora_rank * (4 if is_long else 1))
            why = (
                "a LoRA beside every matrix of the blocks has room for one author's text; training"
                f" all {number(base.parameters)} weights would take 1.5 times as long and three"
                " times the memory"
            )
        wanted = self.choose("lora.rank", wanted, why, "thinkingmachines.ai/blog/lora")
        if wanted:
            self.choose("lora.alpha", 2.0 * wanted, "twice the rank, as measured")
        return wanted

    def choose_context(self) -> int:
        """The number of tokens per row, at most the model's context."""
        wanted, why = self.wanted_context()
        while wanted > 16 and wanted * 8 > self.tokens:
            wanted //= 2
            why = f"a row must be a small part of {number(self.tokens)} tokens"
        key, base = "train.sequence_length", self.facts.base
        if base:
            limit = base.shape.context
            self.choose("model.context_length", limit, "that of the base", "the base")
            if wanted > limit:
                wanted, why = limit, "the base's context is not longer than this"
        else:
            rows = self.fixed.get(key, wanted)
            limit = self.choose("model.context_length", rows, "the length of the training rows")
            if limit != wanted:
                wanted, why = limit, "the context of the model"
        wanted = self.choose(key, wanted, why)
        if wanted > limit:
            raise ConfigError(
                f"{key} is {wanted:,}, but the context of the model is only {limit:,} tokens",
                hint=f"set {key} to at most {limit}",
            )
        return wanted

    def wanted_context(self) -> tuple[int, str]:
        facts = self.facts
        if facts.speeds.kind != "cpu":
            return 1024, "long enough for a post, and long rows keep a GPU busy"
        if self.rank:
            post = self.tokens / max(1, facts.documents)
            rounded_up = 2 ** math.ceil(math.log2(max(post, 1)))
            wanted = min(int(constants.lora_context), max(256, rounded_up))
            return wanted, f"the average post has {number(post)} tokens"
        if facts.base:
            return int(constants.tune_context), "the base was trained on rows of this length"
        if self.seconds < 150:
            return 128, "a short run learns more from more, shorter rows"
        if self.seconds > 4 * 3600 and facts.text_bytes > 3e7:
            return 512, "long enough to learn whole passages from much text"
        return 256, "long enough for a paragraph; longer rows cost more than they teach"

    # --- the model ------------------------------------------------------------------------------

    def size_of_base(self, base: BaseModelInfo) -> SizedRun:
        self.choose("model.parameters", base.parameters, "that of the base", "the base")
        self.check_memory(base.shape, base.parameters)
        return self.sized_run(base.shape, base.parameters)

    def check_memory(self, shape: ModelConfig, parameters: int) -> None:
        """Raise ConfigError if there is too little memory to train with one row at a time."""
        needed = self.training_bytes(shape, parameters, 1)
        if needed <= self.memory_budget:
            return
        what, hint = "a model", "set a smaller model.parameters, or close other programs"
        if self.rank:
            what, hint = "a LoRA of a base", "use a smaller base, or close other programs"
        elif self.facts.base:
            what = "all weights of a base"
            hint = "train a LoRA instead (--lora), or use a smaller base"
        raise ConfigError(
            f"training {what} of {parameters:,} parameters takes {size(needed)} of memory; only"
            f" {size(self.memory_budget)} of the {size(self.facts.memory_bytes)} that are free may"
            " be used",
            hint,
        )

    def choose_size(self) -> SizedRun:
        key = "model.parameters"
        if key in self.fixed:
            wanted = self.fixed[key]
            given = config_for_budget(wanted, self.vocabulary, self.context)
            run = self.sized_run(given, parameter_count(given))
        else:
            wanted, run = self.best_size()
        self.choose(
            key,
            wanted,
            f"the lowest expected loss ({run.bits:.2f} bits per byte) of all sizes that this"
            f" machine can train in {duration(max(self.train_s, 0))}: {run.shape.layers} layers of"
            f" width {run.shape.width}, {run.size:,} parameters",
            f"arXiv 2203.15556, 2305.16264, refitted: {LOG}",
        )
        self.check_memory(run.shape, run.size)
        return run

    def best_size(self) -> tuple[int, SizedRun]:
        """The smallest parameter budget whose expected loss is near the lowest, and its run."""
        runs: list[tuple[int, SizedRun]] = []
        for exponent in range(_SIZES):
            budget = round(float(f"{_MIN_SIZE * _SIZE_STEP**exponent:.2g}"))
            shape = shape_of(budget, self.vocabulary, self.context)
            if shape is None:
                continue
            parameters = parameter_count(shape)
            if self.training_bytes(shape, parameters, 1) > self.memory_budget:
                break
            run = self.sized_run(shape, parameters)
            is_too_large = run.size > _MAX_PARAMETERS_PER_TOKEN * run.tokens + 1e6
            if runs and (run.steps < constants.least_steps or is_too_large):
                break
            runs.append((budget, run))
        if not runs:
            raise ConfigError(
                f"no model fits into {size(self.facts.memory_bytes)} of memory with a"
                f" vocabulary of {self.vocabulary:,} tokens and a context of {self.context:,}",
                hint="close other programs, or set a smaller model.vocab_size or"
                " model.context_length",
            )
        lowest = min(run.bits for _, run in runs)
        return next(each for each in runs if each[1].bits <= lowest * (1 + constants.enough))

    def sized_run(self, shape: ModelConfig, parameters: int) -> SizedRun:
        """The run of a model of this shape in the available time."""
        fixed, base = self.fixed, self.facts.base
        epochs = constants.tune_epochs if base else constants.epochs_limit
        limit = (constants.lora_epochs if self.rank else epochs) * self.tokens
        limit /= 1 - self.replay
        read = 64.0 * self.context
        rows = steps = useful = 0
        for _ in range(4):  # the batch depends on how much is read, and the speed on the batch
            rows = fixed.get("train.batch_size") or self.rows_for(read)
            precision, step_s = self.speed(shape, rows)
            time_s = max(0.0, self.train_s) * (1 - self.eval_share)
            useful = math.ceil(limit / (rows * self.context))
            useful = fixed.get("train.max_steps", useful)
            steps = fixed.get("train.steps", min(int(time_s / step_s), useful))
            read = float(max(1, steps) * rows * self.context)
        if base:
            bits = base.bits_per_byte or constants.bits_per_byte(
                parameters, 20 * parameters, 20 * parameters
            )
            # Only the text that is read improves the loss.
            own = steps * rows * self.context * (1 - self.replay) * self.bytes_per_token
            bits *= constants.tuned_share(min(self.facts.text_bytes, own))
        else:
            # The scaling law counts the parameters of the blocks, without embedding and head.
            blocks = parameters - shape.vocabulary * shape.width * (1 if shape.tied else 2)
            bits = constants.bits_per_byte(
                blocks, read * self.bytes_per_token, self.facts.text_bytes
            )
        most = steps if self.steps_are_fixed else useful
        return SizedRun(shape, parameters, rows, steps, most, step_s, int(read), precision, bits)

    def rows_for(self, read: float) -> int:
        """The batch size, in rows, for a run that reads `read` tokens."""
        batch = constants.lora_batch if self.rank else constants.batch_tokens(read)
        # Many small steps learn more than a few large ones.
        least = constants.lora_steps if self.rank else constants.steps_least
        while batch / 2 >= constants.batch_min and read / batch < least:
            batch /= 2
        return max(self.facts.processes, round(batch / self.context))

    def speed(self, shape: ModelConfig, rows: int) -> tuple[Precision, float]:
        speeds = self.facts.speeds
        fastest = speeds.fastest(shape, rows, self.context, self.rank)
        precision = self.fixed.get("train.precision", fastest)
        step_time = speeds.step_times.get(precision) or next(iter(speeds.step_times.values()))
        in_each = math.ceil(rows / self.facts.processes)
        return precision, step_time.step_s(shape, in_each, self.context, self.rank)

    def training_bytes(self, shape: ModelConfig, parameters: int, rows: int) -> float:
        bf16 = self.facts.base is not None and self.facts.base.bf16
        return constants.training_bytes(shape, parameters, rows, self.context, self.rank, bf16=bf16)

    @property
    def steps_are_fixed(self) -> bool:
        return "train.steps" in self.fixed

    # --- settings that depend on the model and its number of steps --------------------------------

    def choose_steps(self, run: SizedRun) -> None:
        facts, tokens = self.facts, run.rows * self.context
        self.choose(
            "train.batch_size",
            run.rows,
            f"{number(tokens)} tokens per step suit a run of {number(run.tokens)} tokens",
            LOG if self.rank else "arXiv 2503.04715",
        )
        self.epochs = run.tokens / self.tokens * (1 - self.replay)
        fills = "fills the time"
        if run.steps * run.step_s < 0.9 * self.train_s * (1 - self.eval_share):
            fills = "takes part of the time (more would only memorise)"
        if self.train_s > self.seconds - facts.spent_s:
            fills = "takes longer than asked (fewer steps teach nothing)"
        read = times(self.epochs)
        rate = number(tokens / run.step_s)
        why = f"at {rate} tokens per second this {fills} and reads the text {read}"
        step_time = facts.speeds.step_times.get(run.precision)
        source = ESTIMATE
        origin: Origin = "plan"
        if step_time and step_time.is_measured:
            source, origin = MEASURED, "measured"
        self.choose("train.steps", run.steps, why, source, origin)
        most = times(run.max_steps * tokens / self.tokens * (1 - self.replay))
        why = f"the limit on any machine: reading the text more than {most} memorises it"
        if self.steps_are_fixed:
            why = "the steps that you set"
        self.choose("train.max_steps", run.max_steps, why)
        multiplied = run.precision if run.precision in ("float32", "int16") else "bfloat16"
        why = f"this device computes fastest in {multiplied}"
        if len(facts.speeds.step_times) > 1:
            rates = []
            for name, each in facts.speeds.step_times.items():
                step_s = each.step_s(run.shape, run.rows, self.context, self.rank)
                rates.append(f"{name} {number(tokens / step_s)}")
            why = f"the fastest of {', '.join(rates)} tokens per second"
        self.choose("train.precision", run.precision, why, source, origin)

    def choose_micro_batch(self, run: SizedRun) -> None:
        micro, room = run.rows, max(self.memory_budget, 0)
        if self.rank:
            room = min(room, constants.lora_memory)
        while micro > 1 and self.training_bytes(run.shape, run.size, micro) > room:
            micro = math.ceil(micro / 2)
        why = "all rows of a step fit into memory at once"
        if micro < run.rows:
            why = f"more rows at once do not fit into {size(room)} of memory"
        wanted = 0 if micro == run.rows else micro
        micro = self.choose("train.micro_batch_size", wanted, why, ESTIMATE)
        self.memory = self.training_bytes(run.shape, run.size, micro or run.rows)

    def choose_kind(self, kind: str, why: str, source: str = LOG) -> str:
        """Choose the optimizer; OwnwordsError if a setting of the user would have no effect."""
        kind = self.choose("optim.kind", kind, why, source)
        if self.rank and kind != "adamw":
            raise OwnwordsError("a LoRA is trained with AdamW", hint="leave out optim.kind")
        if kind == "adamw" and "optim.muon_lr" in self.fixed:
            raise OwnwordsError(
                "optim.muon_lr has no effect: this training uses AdamW for all weights",
                hint="leave it out, or set optim.learning_rate instead",
            )
        return kind

    def choose_lora_optimizer(self) -> None:
        self.choose_kind("adamw", "Muon does not suit thin matrices")
        self.choose(
            "optim.learning_rate",
            rounded(constants.lora_lr(self.epochs)),
            f"the best rate measured for reading the text {times(self.epochs)}; more often needs"
            " a lower one",
        )
        self.choose("optim.beta2", constants.lora_beta2, "as measured")
        self.choose("optim.weight_decay", 0.0, "the LoRA starts at zero and stays small")
        warmup = constants.lora_warmup_fraction
        self.choose_schedule(warmup, 1 - warmup, "a base needs no constant phase")

    def choose_schedule(self, warmup: float, decay: float, why: str) -> None:
        """Choose the warmup and decay fractions; a planned one shrinks to fit the user's."""
        warmup = min(warmup, 1 - self.fixed.get("schedule.decay_fraction", 0.0))
        warmup = self.choose("schedule.warmup_fraction", warmup, "a short warmup is enough")
        self.choose("schedule.decay_fraction", min(decay, 1 - warmup), why)

    def choose_optimizer(self, run: SizedRun) -> None:
        base = self.facts.base
        batch = run.rows * self.context
        kind, why, source = "muon", "it learns more from the same text than AdamW", LOG
        if base and base.kind != "muon":
            kind, why, source = "adamw", "the base was trained with it", "arXiv 2502.16982"
        kind = self.choose_kind(kind, why, source)
        adamw = constants.adamw_lr(run.size, run.tokens)
        source = LOG
        if base:
            share = constants.tune_lr_factor
            matrices = (base.muon_lr or constants.muon_lr) * share
            why = why_matrices = f"{share:g} of the base's peak, so that it forgets little"
            if base.kind == kind and base.learning_rate:
                rate = base.learning_rate * share
            else:
                factor = constants.tune_lr_factor_unknown
                rate = min(constants.tune_lr_max, adamw * factor)
                why = f"{factor:g} of the usual learning rate for a model of this size"
        else:
            matrices, rate = constants.muon_lr, constants.embedding_lr(run.shape.width)
            why, why_matrices = "for this width", "Muon's steps have the same size in every model"
            if kind == "adamw":
                rate, why, source = adamw, "for this size and length", "arXiv 2503.04715"
        if kind == "muon":
            matrices = self.choose("optim.muon_lr", rounded(matrices), why_matrices)
        rate = self.choose("optim.learning_rate", rounded(rate), why, source)
        self.choose(
            "optim.beta2",
            round(constants.beta2(batch, run.tokens), 5),
            f"a fixed half-life in tokens, at {number(batch)} per step",
            "arXiv 2507.07101",
        )
        decay, why = 0.1, "low, so that the base is not forgotten"
        if not base:
            steps_per_epoch = min(self.tokens / batch, float(max(1, run.steps)))
            decay = constants.weight_decay(matrices if kind == "muon" else rate, steps_per_epoch)
            why = f"for {number(steps_per_epoch)} steps per epoch"
        self.choose("optim.weight_decay", rounded(decay), why)
        is_short = run.steps < constants.short_steps
        down = constants.decay_fraction_short if is_short else constants.decay_fraction
        why = "a long decay to zero gains most, above all in a short run"
        if base:
            down, why = constants.tune_decay_fraction, "a base needs no constant phase"
        self.choose_schedule(constants.warmup_fraction, down, why)

    def choose_regularization(self) -> None:
        base = self.facts.base
        dropout, why = 0.0, f"the text is read {times(self.epochs)}"
        if self.epochs > constants.dropout_epochs:
            dropout, why = constants.dropout, f"{why}: without dropout it would be memorised"
        if base:
            dropout, why = 0.0, "so few epochs memorise nothing, and dropout costs quality"
        dropout = self.choose("train.dropout", dropout, why)
        decay, why = 0.0, "none is needed"
        if dropout and not base:
            decay = constants.embedding_weight_decay
            why = "as for the matrices, because the text is read often"
        self.choose("optim.embedding_weight_decay", decay, why)
        if not base:
            return
        share = f"{self.replay:.0%}"
        if self.replay and self.rank:
            why = f"{share} of the rows are notes with the text you wrote from them, for `draft`"
        elif self.replay:
            why = f"{share} of the rows are the base's own text, so that it forgets little"
        else:
            why = "the base comes without text to replay"
            why = "a LoRA forgets little" if self.rank else why
        self.choose("data.replay", self.replay, why)
        self.choose(
            "data.opening_weight",
            constants.tune_opening_weight,
            "so that it learns how your texts begin, and not only how they go on",
        )
        if not self.rank:
            self.choose(
                "optim.start_lr_scale",
                constants.tune_start_lr_scale,
                "so that texts without a prompt begin as yours do, and not as the base's",
            )

    def choose_evaluations(self, run: SizedRun) -> None:
        facts = self.facts
        share = constants.lora_reading_share if self.rank else constants.reading_share
        token_s = share * run.step_s / (run.rows * self.context)
        once = facts.validation_bytes / self.bytes_per_token * token_s
        free = constants.evaluate_share * max(self.train_s, 0.0)
        self.held_out = facts.validation_bytes
        fewest = 2 + constants.choosing
        if fewest * once > free > 0:
            self.held_out = math.ceil(self.held_out * free / (fewest * once))
            once = free / fewest
        evaluations, why = 0, "no text is held out"
        if facts.validation_bytes:
            most = int(free / max(once, 1e-9) - constants.choosing)
            evaluations = min(30, max(2, most), max(1, run.steps // 10))
            why = f"each reads {size(self.held_out)} in about {duration(once)}"
        evaluations = self.choose("train.evaluations", evaluations, why, ESTIMATE)
        self.evaluation_s = once
        self.choose(
            "train.patience",
            max(3, math.ceil(constants.patience * evaluations)),
            "most of the gain comes in the final decay, so a lack of progress before it is no"
            " reason to stop",
            ESTIMATE,
        )
        self.choose(
            "train.checkpoint_every_s",
            float(round(min(180.0, max(10.0, self.seconds / 8)))),
            "a power cut loses no more than this",
            ESTIMATE,
        )

    def forecast(self, run: SizedRun) -> Forecast:
        base = self.facts.base
        evaluations = self.reasons["train.evaluations"].value
        evaluate_s = (int(evaluations) + constants.choosing) * self.evaluation_s
        low, high = run.bits * constants.spread_low, run.bits * constants.spread_high
        if base and (before := base.bits_per_byte):
            gain, spread = before - run.bits, constants.tune_spread * before
            low = before - constants.tune_gain_high * gain - spread
            high = before - constants.tune_gain_low * gain + spread
        whole_s = run.steps * run.step_s + self.overhead_s + evaluate_s
        return Forecast(
            bits_low=round(low, 3),
            bits_high=round(high, 3),
            seconds=round(whole_s / (1 - constants.unforeseen), 1),
            tokens=run.steps * run.rows * self.context,
            epochs=round(self.epochs, 2),
            memory_bytes=round(self.memory),
            tokens_per_s=round(run.rows * self.context / run.step_s, 1),
            held_out_bytes=self.held_out,
            evaluation_s=round(self.evaluation_s, 2),
        )


def rounded(value: float) -> float:
    """Round to three significant figures."""
    return float(f"{value:.3g}")


@lru_cache(maxsize=4096)
def shape_of(budget: int, vocabulary: int, context: int) -> Qwen3Config | None:
    """The shape with about `budget` parameters; None if the vocabulary alone needs more."""
    try:
        return config_for_budget(budget, vocabulary, context)
    except ConfigError:
        return None


# --- the outcome compared with the forecast -------------------------------------------------------


def compare_forecast(
    expected: Forecast,
    bits: float | None,
    seconds: float,
    tokens: int,
    memory_bytes: int,
    *,
    stopped_early: bool = False,
) -> tuple[str, ...]:
    """Compare the forecast with the outcome, in one sentence per figure.

    `bits` (per byte) is None if no text was held out.
    """
    sentences = []
    low, high = expected.bits_low, expected.bits_high
    if bits is not None:
        if low <= bits <= high:
            judged = "as expected"
        elif bits < low:
            judged = f"better than expected, by {low - bits:.2f}"
        else:
            judged = f"worse than expected, by {bits - high:.2f}"
        sentences.append(f"Bits per byte: {bits:.3f}, expected {low:.2f} to {high:.2f}: {judged}.")
    off = _off(seconds, expected.seconds)
    sentences.append(f"Time: {duration(seconds)}, expected {duration(expected.seconds)} ({off}).")
    off = _off(tokens, expected.tokens)
    sentences.append(f"Tokens: {number(tokens)}, expected {number(expected.tokens)} ({off}).")
    if stopped_early:
        sentences.append("Training stopped early.")
    if memory_bytes:
        off, forecast = _off(memory_bytes, expected.memory_bytes), size(expected.memory_bytes)
        sentences.append(f"Memory: {size(memory_bytes)} at most, expected {forecast} ({off}).")
    return tuple(sentences)


def _off(real: float, expected: float) -> str:
    share = real / max(expected, 1e-9) - 1
    if abs(share) < 0.005:
        return "as expected"
    return f"{share:.0%} above" if share > 0 else f"{-share:.0%} below"
