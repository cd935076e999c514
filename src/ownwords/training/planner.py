"""Chooses every setting of a run from the amount of text, the time and the measured speed.

Each number has its reason and its source. The user may set any of them instead; the numbers that
depend on it follow from the user's. The formulas and constants are in plan_constants.py.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, cast

from ownwords.core.config import resolve
from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.progress import duration
from ownwords.models.configs.qwen3 import Qwen3Config, config_for_budget, parameter_count
from ownwords.training.forecast import Forecast, number, size, times
from ownwords.training.model_sizing import ModelSizer, SizedRun
from ownwords.training.optimizer_plan import OptimizerPlanner, lora_rank
from ownwords.training.plan import (
    BaseModelInfo,
    Origin,
    Plan,
    PlanInputs,
    PlannedValue,
    typed_settings,
)
from ownwords.training.plan_constants import ESTIMATE, LOG, PLAN_CONSTANTS, SPEED, PlanConstants
from ownwords.training.settings import Recipe
from ownwords.training.throughput import MEASURED, StepTimeModel

T = TypeVar("T", int, float, bool, str)

_SPECIAL = 5  # special tokens in each vocabulary trained here


def planned_vocab_size(
    text_bytes: int, fixed: Mapping[str, object], constants: PlanConstants = PLAN_CONSTANTS
) -> int:
    """The vocabulary size for `text_bytes` of text; needed before tokens can be counted."""
    given = typed_settings(fixed).get("model.vocab_size")
    return constants.vocabulary(text_bytes) if given is None else int(cast(int, given))


def make_plan(
    facts: PlanInputs,
    seconds: float,
    fixed: Mapping[str, object],
    constants: PlanConstants = PLAN_CONSTANTS,
) -> Plan:
    """Plan every setting of a run that takes `seconds` from its start to the saved model.

    CorpusError if there is too little text to learn from, ConfigError if there is too little time
    or memory; each says how much is available, and how much is needed.
    """
    return Planner(facts, seconds, fixed, constants).plan()


class Planner:
    """Chooses the numbers of a plan in order, each from the earlier ones."""

    def __init__(
        self,
        facts: PlanInputs,
        seconds: float,
        fixed: Mapping[str, object],
        constants: PlanConstants,
    ) -> None:
        self.facts, self.seconds, self.constants = facts, seconds, constants
        self.fixed = typed_settings(fixed)
        self.reasons: dict[str, PlannedValue] = {}
        self.memory_budget = facts.memory_bytes * constants.memory_share

    def choose(self, key: str, value: T, reason: str, source: str, origin: Origin = "plan") -> T:
        """Record a number with its reason, or the user's own instead; returns the one recorded."""
        if key in self.fixed:
            value = cast(T, self.fixed[key])
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
        self.eval_mode = min(constants.evaluate_share, 1.0) if facts.validation_bytes else 0.0
        self.choose_vocabulary()
        self.rank = self.choose_rank()
        self.context = self.choose_context()
        self.sizing = ModelSizer(
            facts,
            constants,
            self.fixed,
            self.context,
            self.vocabulary,
            self.tokens,
            self.train_s,
            self.eval_mode,
            self.memory_budget,
            self.rank,
        )
        length = self.size_of_base() if facts.base else self.choose_size()
        self.choose_batch(length)
        OptimizerPlanner(
            self.choose, constants, facts.base, length, self.context, self.tokens, self.epochs
        ).plan(self.rank)
        self.choose_regularization(length)
        self.choose_evaluations(length)
        flags = {**{key: number.value for key, number in self.reasons.items()}, **self.fixed}
        for key in self.fixed:
            if key not in self.reasons:
                self.choose(key, cast(int, self.fixed[key]), "", "")
        recipe = resolve(Recipe, flags=flags).settings
        return Plan(recipe, tuple(self.reasons.values()), self.forecast(length))

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
            wanted = self.choose(
                "model.vocab_size", wanted, why, f"{LOG}; {constants.source('bytes_below')}"
            )
            vocabulary = facts.vocabulary or (wanted or 256 + _SPECIAL)
        self.vocabulary = vocabulary
        guessed = facts.text_bytes / constants.bytes_per_token(vocabulary)
        self.tokens = facts.tokens or max(1, round(guessed) + 2 * facts.documents)

    def choose_rank(self) -> int:
        """The rank of the LoRA; 0: all weights are trained."""
        facts, base = self.facts, self.facts.base
        if base is None:
            return 0
        wanted = lora_rank(base, facts.text_bytes, self.constants)
        why = f"all weights of {number(base.parameters)} parameters can be trained"
        if wanted:
            why = (
                "a LoRA beside every matrix of the blocks has room for one author's text; all"
                f" {number(base.parameters)} weights would take half as long again and three times"
                " the memory"
            )
        wanted = self.choose("lora.rank", wanted, why, self.constants.source("lora_rank"))
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
            wanted, why = (
                int(self.constants.tune_context),
                "the base was trained on rows of this length",
            )
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
            wanted = int(cast(int, self.fixed[key]))
            shape = config_for_budget(wanted, self.vocabulary, self.context)
            chosen = self.sizing.length(shape, parameter_count(shape))
        else:
            wanted, chosen = self.sizing.best()
        shape, of = cast(Qwen3Config, chosen.shape), chosen.size
        self.choose(
            key,
            wanted,
            f"the lowest expected loss ({chosen.bits:.2f} bits per byte) of all sizes that this"
            f" machine can train in {duration(max(self.train_s, 0))}: {shape.layers} layers of"
            f" width {shape.width}, {of:,} parameters",
            f"arXiv 2203.15556, 2305.16264, refitted: {constants.source('size_scale')}",
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
        length = self.sizing.length(base.shape, base.parameters)
        if self.rank and length.steps < self.constants.least_steps and not self.steps_are_fixed:
            return replace(length, steps=0, tokens=0, bits=base.bits_per_byte or length.bits)
        return length

    @property
    def steps_are_fixed(self) -> bool:
        return "train.steps" in self.fixed

    # --- settings that depend on the model and its number of steps --------------------------------

    def choose_batch(self, length: SizedRun) -> None:
        constants, facts = self.constants, self.facts
        least = constants.least_steps
        if length.steps < (1 if self.steps_are_fixed else least) and not self.rank:
            needs = least * length.step_s / (1 - self.eval_mode) + facts.spent_s + constants.close_s
            enough = math.ceil(needs / (1 - constants.unforeseen) / 6) / 10
            raise ConfigError(
                f"{duration(self.seconds)} are too few: starting takes"
                f" {duration(max(0, facts.spent_s))}, {least:.0f} steps of the smallest useful"
                f" model take {duration(least * length.step_s)}, and evaluating, saving and delays"
                " need some time too",
                hint=f"give --minutes {enough:g} or more; fewer will do when the machine is less"
                " busy",
            )
        tokens = length.rows * self.context
        self.choose(
            "train.batch_size",
            length.rows,
            f"{number(tokens)} tokens a step suit a run of {number(length.tokens)} tokens",
            constants.source("lora_batch" if self.rank else "batch_scale"),
        )
        self.epochs = length.tokens / self.tokens
        self.epochs *= 1 - self.sizing.replay
        rate = tokens / length.step_s
        fills = "fills the time and reads "
        if length.steps * length.step_s < 0.9 * self.train_s * (1 - self.eval_mode):
            fills = "takes part of the time (more would only memorise) and reads "
        why = f"at {number(rate)} tokens a second this {fills}the text {times(self.epochs)}"
        if not length.steps:
            why = (
                f"{duration(self.seconds)} are too few to learn from: {least:.0f} steps take"
                f" {duration(least * length.step_s)} at {number(rate)} tokens a second, so the base"
                " stays as it is"
            )
        self.choose(
            "train.steps",
            length.steps,
            why,
            MEASURED if self.is_measured(length) else ESTIMATE,
            "measured" if self.is_measured(length) else "plan",
        )
        most = length.max_steps * tokens / self.tokens * (1 - self.sizing.replay)
        self.choose(
            "train.max_steps",
            length.max_steps,
            "those that you set"
            if self.steps_are_fixed
            else f"on a faster machine, too: reading the text more than {times(most)} memorises it",
            constants.source(
                "lora_epochs" if self.rank else "tune_epochs" if facts.base else "epochs_limit"
            ),
        )
        self.choose(
            "train.precision",
            length.precision,
            f"the fastest of {self.token_rates(length)} tokens a second"
            if len(facts.speeds.step_times) > 1
            else "nothing faster was measured",
            MEASURED if self.is_measured(length) else ESTIMATE,
            "measured" if self.is_measured(length) else "plan",
        )
        self.choose("train.compile", length.compiles, self.sizing.compile_why, SPEED)
        bf16 = facts.base is not None and facts.base.bf16 and length.precision == "autocast"

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
        tokens, run = (
            length.rows * self.context,
            (length.shape, length.rows, self.context, self.rank),
        )
        return ", ".join(
            f"{name} {number(tokens / step_time.step_s(*run))}"
            for name, step_time in self.facts.speeds.step_times.items()
        )

    def is_measured(self, length: SizedRun) -> bool:
        step_times = cast(Mapping[str, StepTimeModel], self.facts.speeds.step_times)
        return length.precision in step_times and step_times[length.precision].origin.startswith(
            MEASURED
        )

    def choose_regularization(self, length: SizedRun) -> None:
        constants, base = self.constants, self.facts.base
        dropout, why = 0.0, f"the text is read {times(self.epochs)}"
        if self.epochs > constants.dropout_epochs:
            dropout, why = constants.dropout, f"{why}: without dropout it would be memorised"
        if base:
            dropout, why = (
                constants.tune_dropout,
                "so few epochs memorise nothing, and dropout costs quality",
            )
        dropout = self.choose("train.dropout", dropout, why, constants.source("dropout"))
        decay = constants.embedding_weight_decay if dropout and not base else 0.0
        why = "as for the matrices, since the text is read often" if decay else "no need for any"
        self.choose(
            "optim.embedding_weight_decay", decay, why, constants.source("embedding_weight_decay")
        )
        if base:
            replay = constants.tune_replay if self.facts.replay_bytes else 0.0
            why = (
                f"{replay:.0%} of the rows are text of the base, so that it forgets little"
                if replay
                else "a LoRA forgets little"
                if self.rank
                else "no text of the base is available (--replay)"
            )
            self.choose("data.replay", replay, why, constants.source("tune_replay"))
            self.choose(
                "data.opening_weight",
                constants.tune_opening_weight,
                "so that it learns how your texts begin, and not only how they go on",
                constants.source("tune_opening_weight"),
            )
            if not self.rank:
                self.choose(
                    "optim.start_lr_scale",
                    constants.tune_start_lr_scale,
                    "so that texts without a prompt begin as yours do, and not as the base's",
                    constants.source("tune_start_lr_scale"),
                )

    def choose_evaluations(self, length: SizedRun) -> None:
        constants, facts = self.constants, self.facts
        half_life = constants.half_life if length.steps >= constants.half_life_steps else 0.0
        why = "an average of the last weights, used if it scores better on held-out text"
        if not half_life:
            why = "too few steps to average over"
        half_life = self.choose(
            "train.ema_half_life", half_life, why, constants.source("half_life")
        )
        # Evaluating a token costs a third of training on it.
        token_s = length.step_s / (3 * length.rows * self.context)
        once = facts.validation_bytes / self.sizing.per_token * token_s
        once *= 2 if half_life else 1  # the averaged weights are evaluated too
        free = constants.evaluate_share * max(self.train_s, 0.0)
        self.held_out = facts.validation_bytes
        if 2 * once > free > 0:
            self.held_out = math.ceil(self.held_out * free / (2 * once))
            once = free / 2
        evaluations = 0
        if facts.validation_bytes:
            evaluations = min(30, max(2, int(free / max(once, 1e-9))), max(1, length.steps // 10))
        why = f"each reads {size(self.held_out)} in about {duration(once)}"
        if not facts.validation_bytes:
            why = "no text is held out"
        evaluations = self.choose("train.evaluations", evaluations, why, ESTIMATE)
        self.evaluate_s = evaluations * once
        self.choose(
            "train.patience",
            max(3, math.ceil(constants.patience * evaluations)),
            "the final decay gains most, so no progress before it is no reason to stop",
            constants.source("patience"),
        )
        self.choose(
            "train.checkpoint_every_s",
            float(round(min(180.0, max(10.0, self.seconds / 8)))),
            "a power cut loses no more than this",
            ESTIMATE,
        )
        self.choose("data.shuffle", True, "texts come in a new order each epoch", LOG)
        self.choose("data.document_masking", True, "no text depends on the one before it", LOG)

    def forecast(self, length: SizedRun) -> Forecast:
        constants, facts = self.constants, self.facts
        compile_s = (
            constants.compile_cpu_s if facts.speeds.kind == "cpu" else constants.compile_gpu_s
        )
        other = facts.spent_s + constants.close_s + (compile_s if length.compiles else 0.0)
        other += self.evaluate_s
        taken = length.steps * length.step_s
        return Forecast(
            bits_low=round(length.bits * constants.spread_low, 3),
            bits_high=round(length.bits * constants.spread_high, 3),
            seconds=round((taken + other) / (1 - constants.unforeseen), 1),
            tokens=length.steps * length.rows * self.context,
            epochs=round(self.epochs, 2),
            memory_bytes=round(self.memory),
            tokens_per_s=round(length.rows * self.context / length.step_s, 1),
            held_out_bytes=self.held_out,
        )
