"""Chooses every setting of a run from the amount of text, the time and the measured speed.

Each number has its reason and its source. The user may set any of them instead; the numbers that
depend on it follow from the user's. The formulas and constants are in plan_constants.py.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from ownwords.core.config import resolve, settings_of
from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.progress import duration
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.llama import Qwen3Config, config_for_budget, parameter_count
from ownwords.training.plan import (
    BaseModelInfo,
    Forecast,
    Origin,
    Plan,
    PlanInputs,
    PlannedValue,
)
from ownwords.training.plan_constants import ESTIMATE, LOG, PLAN_CONSTANTS
from ownwords.training.settings import Precision, Recipe
from ownwords.training.step_time import MEASURED
from ownwords.view.format import number, size, times

T = TypeVar("T", int, float, bool, str)

_SPECIAL = 5  # special tokens in each vocabulary trained here
_SMALLEST, _STEP, _RUNGS = 60_000, 1.5, 32  # the ladder of model sizes, up to 17 billion
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
    precision: Precision
    bits: float


def planned_vocab_size(text_bytes: int, fixed: Mapping[str, object]) -> int:
    """The vocabulary size for `text_bytes` of text; needed before tokens can be counted."""
    return cast(int, fixed.get("model.vocab_size", PLAN_CONSTANTS.vocabulary(text_bytes)))


def make_plan(facts: PlanInputs, seconds: float, fixed: Mapping[str, object]) -> Plan:
    """Plan every setting of a run that takes `seconds` from its start to the saved model.

    It takes longer if fewer steps would teach nothing. CorpusError if there is too little text to
    learn from, ConfigError if there is too little memory; each says how much is needed.
    """
    return Planner(facts, seconds, fixed).plan()


class Planner:
    """Chooses the numbers of a plan in order, each from the earlier ones."""

    def __init__(self, facts: PlanInputs, seconds: float, fixed: Mapping[str, object]) -> None:
        self.facts, self.seconds, self.constants = facts, seconds, PLAN_CONSTANTS
        settings = resolve(Recipe, flags=fixed).settings
        self.fixed: dict[str, Any] = {
            each.key: each.default for each in settings_of(settings) if each.key in fixed
        }
        self.reasons: dict[str, PlannedValue] = {}
        self.memory_budget = facts.memory_bytes * self.constants.memory_share

    def choose(self, key: str, value: T, reason: str, source: str, origin: Origin = "plan") -> T:
        """Record a number with its reason, or the user's own instead; returns the one recorded."""
        if key in self.fixed:
            value = self.fixed[key]
            reason, source, origin = "as you set it", "setting", "setting"
        self.reasons[key] = PlannedValue(key, value, reason, source, origin)
        return value

    def plan(self) -> Plan:
        facts, constants = self.facts, self.constants
        self.check_text()
        of_the_base = [key for key in self.fixed if key.startswith("model.")]
        if facts.base and of_the_base:
            raise ConfigError(
                f"{of_the_base[0]} cannot be set: a fine-tuned model keeps its base's shape",
                hint="leave it out, or train a model from scratch",
            )
        self.train_s = self.seconds * (1 - constants.unforeseen) - facts.spent_s - constants.close_s
        self.eval_share = constants.evaluate_share if facts.validation_bytes else 0.0
        self.choose_vocabulary()
        self.rank = self.choose_rank()
        self.context = self.choose_context()
        share = constants.lora_pairs if self.rank else constants.tune_replay
        wanted = share if facts.base and facts.replay_bytes else 0.0
        self.replay = float(self.fixed.get("data.replay", wanted))
        length = self.size_of_base() if facts.base else self.choose_size()
        least = round(min(constants.least_steps, length.max_steps))
        if length.steps < least and not self.steps_are_fixed:
            # The machine may be busy only now: after the wait for its speed nothing is refused.
            self.train_s = least * length.step_s / (1 - self.eval_share)
            length = replace(length, steps=least, tokens=least * length.rows * self.context)
        self.choose_batch(length)
        if self.rank:
            self.choose_lora_optimizer()
        else:
            self.choose_optimizer(length)
        self.choose_regularization()
        self.choose_evaluations(length)
        for key in self.fixed:
            if key not in self.reasons:
                self.choose(key, self.fixed[key], "", "")
        return Plan.of(self.reasons.values(), self.forecast(length))

    # --- the text -------------------------------------------------------------------------------

    def check_text(self) -> None:
        facts, least = self.facts, self.constants.least_bytes
        if facts.text_bytes < least:
            share = facts.own_share
            own = f" ({share:.0%} of the text found is your own)" if share < 0.995 else ""
            raise CorpusError(
                f"there are {facts.text_bytes:,} bytes of text to learn from{own}; a model needs at"
                f" least {least:,.0f}",
                hint="add texts; `ownwords ask` can already search and cite these",
            )

    def choose_vocabulary(self) -> None:
        facts, constants = self.facts, self.constants
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
                else f"{text} supports about so many tokens: more would be too rare to learn"
            )
            wanted = self.choose("model.vocab_size", wanted, why, f"{LOG}; {ESTIMATE}")
            vocabulary = facts.vocabulary or (wanted or 256 + _SPECIAL)
        self.vocabulary = vocabulary
        guessed = facts.text_bytes / constants.bytes_per_token(vocabulary)
        self.tokens = facts.tokens or max(1, round(guessed) + 2 * facts.documents)
        self.bytes_per_token = facts.text_bytes / self.tokens

    def choose_rank(self) -> int:
        """The rank of the LoRA; 0: all weights are trained."""
        facts, base = self.facts, self.facts.base
        if base is None:
            return 0
        constants, wanted = self.constants, 0
        if base.parameters >= constants.lora_parameters if base.lora is None else base.lora:
            wanted = int(
                constants.lora_rank * (4 if facts.text_bytes >= constants.lora_text else 1)
            )
        why = f"all weights of {number(base.parameters)} parameters can be trained"
        if wanted:
            why = (
                "a LoRA beside every matrix of the blocks has room for one author's text; all"
                f" {number(base.parameters)} weights would take half as long again and three times"
                " the memory"
            )
        wanted = self.choose("lora.rank", wanted, why, "thinkingmachines.ai/blog/lora")
        if wanted:
            self.choose("lora.alpha", 2.0 * wanted, "twice the rank, as measured", LOG)
        return wanted

    def choose_context(self) -> int:
        facts = self.facts
        if facts.speeds.kind != "cpu":
            wanted, why = 1024, "long enough for a post, and long rows keep a GPU busy"
        elif self.rank:
            post = self.tokens / max(1, facts.documents)
            longest = int(self.constants.lora_context)
            wanted = min(longest, max(256, 2 ** math.ceil(math.log2(max(post, 1)))))
            why = f"a post has {number(post)} tokens"
        elif facts.base:
            wanted = int(self.constants.tune_context)
            why = "the base was trained on rows of this length"
        elif self.seconds < 150:
            wanted, why = 128, "a short run learns more from more, shorter rows"
        elif self.seconds > 4 * 3600 and facts.text_bytes > 3e7:
            wanted, why = 512, "long enough to learn whole passages from much text"
        else:
            wanted, why = 256, "long enough for a paragraph; longer rows cost more than they teach"
        while wanted > 16 and wanted * 8 > self.tokens:
            wanted //= 2
            why = f"a row must be a small part of {number(self.tokens)} tokens"
        if facts.base and wanted > facts.base.shape.context:
            wanted, why = facts.base.shape.context, "the base has no longer context"
        wanted = self.choose("train.sequence_length", wanted, why, LOG)
        if facts.base:
            if wanted > facts.base.shape.context:
                raise ConfigError(
                    f"train.sequence_length is {wanted:,}, but the base's context is only"
                    f" {facts.base.shape.context:,} tokens"
                )
            self.choose(
                "model.context_length", facts.base.shape.context, "that of the base", "the base"
            )
            return wanted
        model = self.choose("model.context_length", wanted, "the length of the training rows", LOG)
        if "model.context_length" in self.fixed and "train.sequence_length" not in self.fixed:
            wanted = self.choose("train.sequence_length", model, "the context of the model", LOG)
        if wanted > model:
            raise ConfigError(
                f"train.sequence_length is {wanted:,}, but model.context_length is only {model:,}",
                hint="set both, or model.context_length alone",
            )
        return wanted

    # --- the model ------------------------------------------------------------------------------

    def choose_size(self) -> SizedRun:
        facts, constants = self.facts, self.constants
        key = "model.parameters"
        if key in self.fixed:
            wanted = self.fixed[key]
            given = config_for_budget(wanted, self.vocabulary, self.context)
            chosen = self.sized_run(given, parameter_count(given))
        else:
            wanted, chosen = self.best_size()
        shape, of = chosen.shape, chosen.size
        self.choose(
            key,
            wanted,
            f"the lowest expected loss ({chosen.bits:.2f} bits per byte) of all sizes that this"
            f" machine can train in {duration(max(self.train_s, 0))}: {shape.layers} layers of"
            f" width {shape.width}, {of:,} parameters",
            f"arXiv 2203.15556, 2305.16264, refitted: {LOG}",
        )
        held = constants.training_bytes(shape, of, 1, self.context)
        if held > self.memory_budget:
            raise ConfigError(
                f"training a model of {of:,} parameters takes {size(held)} of memory; only"
                f" {size(self.memory_budget)} of the {size(facts.memory_bytes)} that are free may"
                " be used",
                hint="set a smaller model.parameters, or close other programs",
            )
        return chosen

    def best_size(self) -> tuple[int, SizedRun]:
        """The smallest parameter budget whose expected loss is near the lowest, and its run."""
        constants = self.constants
        runs: list[tuple[int, SizedRun]] = []
        for rung in range(_RUNGS):
            budget = round(float(f"{_SMALLEST * _STEP**rung:.2g}"))
            shape = shape_of(budget, self.vocabulary, self.context)
            if shape is None:
                continue
            of = parameter_count(shape)
            if constants.training_bytes(shape, of, 1, self.context) > self.memory_budget:
                break
            length = self.sized_run(shape, of)
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

    def sized_run(self, shape: ModelConfig, of: int) -> SizedRun:
        """The run of a model of this shape, with `of` parameters, in the available time."""
        constants, fixed = self.constants, self.fixed
        base = self.facts.base
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
            bits = base.bits_per_byte or constants.bits_per_byte(of, 20 * of, 20 * of)
            # What has not been read yet has not helped yet.
            own = steps * rows * self.context * (1 - self.replay) * self.bytes_per_token
            bits *= constants.tuned_share(min(self.facts.text_bytes, own))
        else:
            # The size in the scaling law is that of the blocks, without embedding and head.
            blocks = of - shape.vocabulary * shape.width * (1 if shape.tied else 2)
            bits = constants.bits_per_byte(
                blocks, read * self.bytes_per_token, self.facts.text_bytes
            )
        most = steps if "train.steps" in fixed else useful
        return SizedRun(shape, of, rows, steps, most, step_s, int(read), precision, bits)

    def rows_for(self, read: float) -> int:
        """The batch size in rows of a run that reads `read` tokens."""
        constants = self.constants
        batch = constants.lora_batch if self.rank else constants.batch_tokens(read)
        # Many small steps learn more than few large ones.
        least = constants.lora_steps if self.rank else constants.steps_least
        while batch / 2 >= constants.batch_min and read / batch < least:
            batch /= 2
        return max(self.facts.processes, round(batch / self.context))

    def speed(self, shape: ModelConfig, rows: int) -> tuple[Precision, float]:
        """The precision, and the seconds per step."""
        speeds = self.facts.speeds
        fastest = speeds.fastest(shape, rows, self.context, self.rank)
        precision = self.fixed.get("train.precision", fastest)
        step_time = speeds.step_times.get(precision) or next(iter(speeds.step_times.values()))
        in_each = math.ceil(rows / self.facts.processes)
        return precision, step_time.step_s(shape, in_each, self.context, self.rank)

    def size_of_base(self) -> SizedRun:
        base = cast(BaseModelInfo, self.facts.base)
        self.choose("model.parameters", base.parameters, "that of the base", "the base")
        held = self.constants.training_bytes(
            base.shape, base.parameters, 1, self.context, self.rank, bf16=base.bf16
        )
        if held > self.memory_budget:
            what = "a LoRA of the base's" if self.rank else "all"
            raise ConfigError(
                f"training {what} {base.parameters:,} parameters takes {size(held)} of"
                f" memory, and {size(self.memory_budget)} may be used",
                hint="use a smaller base, or close other programs"
                if self.rank
                else "train a LoRA instead (--lora), or use a smaller base",
            )
        return self.sized_run(base.shape, base.parameters)

    @property
    def steps_are_fixed(self) -> bool:
        return "train.steps" in self.fixed

    # --- settings that depend on the model and its number of steps --------------------------------

    def choose_batch(self, length: SizedRun) -> None:
        constants, facts = self.constants, self.facts
        tokens = length.rows * self.context
        self.choose(
            "train.batch_size",
            length.rows,
            f"{number(tokens)} tokens a step suit a run of {number(length.tokens)} tokens",
            LOG if self.rank else "arXiv 2503.04715",
        )
        self.epochs = length.tokens / self.tokens
        self.epochs *= 1 - self.replay
        rate = tokens / length.step_s
        fills = "fills the time"
        if length.steps * length.step_s < 0.9 * self.train_s * (1 - self.eval_share):
            fills = "takes part of the time (more would only memorise)"
        if self.train_s > self.seconds - facts.spent_s:
            fills = "takes longer than asked (fewer steps teach nothing)"
        read = times(self.epochs)
        why = f"at {number(rate)} tokens a second this {fills} and reads the text {read}"
        source = ESTIMATE
        origin: Origin = "plan"
        if self.is_measured(length):
            source, origin = MEASURED, "measured"
        self.choose("train.steps", length.steps, why, source, origin)
        most = length.max_steps * tokens / self.tokens * (1 - self.replay)
        self.choose(
            "train.max_steps",
            length.max_steps,
            "those that you set"
            if self.steps_are_fixed
            else f"on a faster machine, too: reading the text more than {times(most)} memorises it",
            LOG,
        )
        multiplied = "float32" if length.precision == "float32" else "bfloat16"
        self.choose(
            "train.precision",
            length.precision,
            f"the fastest of {self.token_rates(length)} tokens a second"
            if len(facts.speeds.step_times) > 1
            else f"this device multiplies {multiplied} fastest",
            source,
            origin,
        )
        bf16 = facts.base is not None and facts.base.bf16

        def held(rows: int) -> float:
            shape, context = length.shape, self.context
            return constants.training_bytes(shape, length.size, rows, context, self.rank, bf16=bf16)

        micro, room = length.rows, max(self.memory_budget, 0)
        if self.rank:
            room = min(room, constants.lora_memory)
        while micro > 1 and held(micro) > room:
            micro = math.ceil(micro / 2)
        why = "all rows of a step fit into memory at once"
        if micro < length.rows:
            why = f"more rows at once do not fit into {size(room)} of memory"
        micro = self.choose(
            "train.micro_batch_size", 0 if micro == length.rows else micro, why, ESTIMATE
        )
        self.memory = held(micro or length.rows)

    def token_rates(self, length: SizedRun) -> str:
        """Tokens a second of each precision: "float32 4,100, autocast 7,300"."""
        tokens = length.rows * self.context
        run = (length.shape, length.rows, self.context, self.rank)
        return ", ".join(
            f"{name} {number(tokens / step_time.step_s(*run))}"
            for name, step_time in self.facts.speeds.step_times.items()
        )

    def is_measured(self, length: SizedRun) -> bool:
        step_time = self.facts.speeds.step_times.get(length.precision)
        return step_time is not None and step_time.origin == MEASURED

    def choose_lora_optimizer(self) -> None:
        choose, constants = self.choose, self.constants
        choose("optim.kind", "adamw", "Muon does not suit thin matrices", LOG)
        rate = rounded(constants.lora_lr(self.epochs))
        why = f"the best measured where the text is read {times(self.epochs)}: less if more often"
        choose("optim.learning_rate", rate, why, LOG)
        choose("optim.beta2", constants.lora_beta2, "as measured", LOG)
        choose("optim.weight_decay", 0.0, "the LoRA starts at zero and stays small", LOG)
        warmup = constants.lora_warmup_fraction
        choose("schedule.warmup_fraction", warmup, "a short warmup is enough", LOG)
        choose("schedule.decay_fraction", 1 - warmup, "a base needs no constant phase", LOG)

    def choose_optimizer(self, length: SizedRun) -> None:
        choose, constants, base = self.choose, self.constants, self.facts.base
        batch = length.rows * self.context
        kind = "muon"
        why, source = "it learns more from the same text than AdamW", LOG
        if base and base.kind != "muon":
            kind, why, source = "adamw", "the base was trained with it", "arXiv 2502.16982"
        kind = choose("optim.kind", kind, why, source)
        adamw = constants.adamw_lr(length.size, length.tokens)
        if not base:
            matrices, source = constants.muon_lr, LOG
            rate = adamw if kind == "adamw" else constants.embedding_lr(length.shape.width)
            why = "for this width" if kind == "muon" else "for this size and length"
            rate_source = LOG if kind == "muon" else "arXiv 2503.04715"
            why_matrices = "Muon's steps have the same size in every model"
        else:
            share = constants.tune_lr_factor
            matrices = (base.muon_lr or constants.muon_lr) * share
            known = base.learning_rate if base.kind == kind else None
            rate = (
                known * share
                if known
                else min(constants.tune_lr_max, adamw * constants.tune_lr_factor_unknown)
            )
            why = why_matrices = f"{share:g} of the base's peak, so that it forgets little"
            if not known:
                factor = constants.tune_lr_factor_unknown
                why = f"{factor:g} of the usual learning rate for a model of this size"
            source = rate_source = LOG
        if kind == "muon":
            matrices = choose("optim.muon_lr", rounded(matrices), why_matrices, source)
        rate = choose("optim.learning_rate", rounded(rate), why, rate_source)
        choose(
            "optim.beta2",
            round(constants.beta2(batch, length.tokens), 5),
            f"a fixed half-life in tokens, at {number(batch)} a step",
            "arXiv 2507.07101",
        )
        steps_per_epoch = min(self.tokens / batch, float(max(1, length.steps)))
        decay = constants.weight_decay(matrices if kind == "muon" else rate, steps_per_epoch)
        why = f"a weight's memory that suits {number(steps_per_epoch)} steps an epoch"
        if base:
            decay, why = 0.1, "low, so that the base is not forgotten"
        choose("optim.weight_decay", rounded(decay), why, LOG)
        warmup = constants.warmup_fraction
        choose("schedule.warmup_fraction", warmup, "a short warmup is enough", LOG)
        short = length.steps < constants.short_steps
        down = constants.decay_fraction_short if short else constants.decay_fraction
        why = "a long decay to zero gains most, above all in a short run"
        if base:
            down, why = constants.tune_decay_fraction, "a base needs no constant phase"
        choose("schedule.decay_fraction", down, why, LOG)

    def choose_regularization(self) -> None:
        constants, base = self.constants, self.facts.base
        dropout, why = 0.0, f"the text is read {times(self.epochs)}"
        if self.epochs > constants.dropout_epochs:
            dropout, why = constants.dropout, f"{why}: without dropout it would be memorised"
        if base:
            dropout, why = 0.0, "so few epochs memorise nothing, and dropout costs quality"
        dropout = self.choose("train.dropout", dropout, why, LOG)
        decay = constants.embedding_weight_decay if dropout and not base else 0.0
        why = "as for the matrices, since the text is read often" if decay else "no need for any"
        self.choose("optim.embedding_weight_decay", decay, why, LOG)
        if base:
            why = (
                f"{self.replay:.0%} of the rows are notes and what you made of them, for `draft`"
                if self.replay and self.rank
                else f"{self.replay:.0%} of the rows are the base's, so that it forgets little"
                if self.replay
                else "a LoRA forgets little"
                if self.rank
                else "no text of the base is available (--replay)"
            )
            self.choose("data.replay", self.replay, why, LOG)
            self.choose(
                "data.opening_weight",
                constants.tune_opening_weight,
                "so that it learns how your texts begin, and not only how they go on",
                LOG,
            )
            if not self.rank:
                self.choose(
                    "optim.start_lr_scale",
                    constants.tune_start_lr_scale,
                    "so that texts without a prompt begin as yours do, and not as the base's",
                    LOG,
                )

    def choose_evaluations(self, length: SizedRun) -> None:
        constants, facts = self.constants, self.facts
        share = constants.lora_reading_share if self.rank else constants.reading_share
        token_s = share * length.step_s / (length.rows * self.context)
        once = facts.validation_bytes / self.bytes_per_token * token_s
        free = constants.evaluate_share * max(self.train_s, 0.0)
        self.held_out = facts.validation_bytes
        fewest = 2 + constants.choosing
        if fewest * once > free > 0:
            self.held_out = math.ceil(self.held_out * free / (fewest * once))
            once = free / fewest
        evaluations = 0
        if facts.validation_bytes:
            most = int(free / max(once, 1e-9) - constants.choosing)
            evaluations = min(30, max(2, most), max(1, length.steps // 10))
        why = f"each reads {size(self.held_out)} in about {duration(once)}"
        if not facts.validation_bytes:
            why = "no text is held out"
        evaluations = self.choose("train.evaluations", evaluations, why, ESTIMATE)
        self.evaluation_s = once
        self.evaluate_s = (evaluations + constants.choosing) * once
        self.choose(
            "train.patience",
            max(3, math.ceil(constants.patience * evaluations)),
            "the final decay gains most, so no progress before it is no reason to stop",
            ESTIMATE,
        )
        self.choose(
            "train.checkpoint_every_s",
            float(round(min(180.0, max(10.0, self.seconds / 8)))),
            "a power cut loses no more than this",
            ESTIMATE,
        )

    def forecast(self, length: SizedRun) -> Forecast:
        constants, facts = self.constants, self.facts
        other = facts.spent_s + constants.close_s + self.evaluate_s
        taken = length.steps * length.step_s
        low, high = length.bits * constants.spread_low, length.bits * constants.spread_high
        if facts.base and (before := facts.base.bits_per_byte):
            gain, spread = before - length.bits, constants.tune_spread * before
            low = before - constants.tune_gain_high * gain - spread
            high = before - constants.tune_gain_low * gain + spread
        return Forecast(
            bits_low=round(low, 3),
            bits_high=round(high, 3),
            seconds=round((taken + other) / (1 - constants.unforeseen), 1),
            tokens=length.steps * length.rows * self.context,
            epochs=round(self.epochs, 2),
            memory_bytes=round(self.memory),
            tokens_per_s=round(length.rows * self.context / length.step_s, 1),
            held_out_bytes=self.held_out,
            evaluation_s=round(self.evaluation_s, 2),
        )


def rounded(value: float) -> float:
    """Round to three significant figures, as a person would."""
    return float(f"{value:.3g}")


@lru_cache(maxsize=4096)
def shape_of(budget: int, vocabulary: int, context: int) -> Qwen3Config | None:
    """The shape with that many parameters; None if the vocabulary alone needs more."""
    try:
        return config_for_budget(budget, vocabulary, context)
    except ConfigError:
        return None
