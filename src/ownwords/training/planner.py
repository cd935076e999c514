"""The plan: from so much text, so many seconds and a measured speed to every setting of a run.

Each number has its reason and its source; each may be set by the user instead, and what depends on
it is then derived from that. The formulas and constants are in laws.py.
"""

import math
from collections.abc import Mapping
from typing import TypeVar, cast

from ownwords.core.config import resolve
from ownwords.core.errors import ConfigError, CorpusError
from ownwords.core.progress import duration
from ownwords.models.configs.qwen3 import Qwen3Config, config_for_budget, parameter_count
from ownwords.training.forecast import Forecast, number, size, times
from ownwords.training.model_sizing import ModelSizer, SizedRun
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

_SPECIAL = 5  # tokens that are no text, in every vocabulary of ours


def planned_vocab_size(
    text_bytes: int, fixed: Mapping[str, object], laws: PlanConstants = PLAN_CONSTANTS
) -> int:
    """The vocabulary for so much text; it must be known before there are tokens to count."""
    given = typed_settings(fixed).get("model.vocab_size")
    return laws.vocabulary(text_bytes) if given is None else int(cast(int, given))


def make_plan(
    facts: PlanInputs,
    seconds: float,
    fixed: Mapping[str, object],
    laws: PlanConstants = PLAN_CONSTANTS,
) -> Plan:
    """Every setting of a run that takes so many seconds from its start to the saved model.

    CorpusError if there is too little text to learn from, ConfigError if there is too little time
    or memory; each says how much there is, and how much it takes.
    """
    return Planner(facts, seconds, fixed, laws).made()


class Planner:
    """One plan under way: numbers are put down in the order in which they follow."""

    def __init__(
        self, facts: PlanInputs, seconds: float, fixed: Mapping[str, object], laws: PlanConstants
    ) -> None:
        self.facts, self.seconds, self.laws = facts, seconds, laws
        self.fixed = typed_settings(fixed)
        self.reasons: dict[str, PlannedValue] = {}
        self.room = facts.memory_bytes * laws.memory_share

    def put(self, key: str, value: T, reason: str, source: str, origin: Origin = "plan") -> T:
        """Note a number, or the user's own in its place; gives the one in force."""
        if key in self.fixed:
            value = cast(T, self.fixed[key])
            reason, source, origin = "as you set it", "setting", "setting"
        self.reasons[key] = PlannedValue(key, value, reason, source, origin)
        return value

    def made(self) -> Plan:
        facts, laws = self.facts, self.laws
        self.check_text()
        of_the_base = [key for key in self.fixed if key.startswith("model.")]
        if facts.base and of_the_base:
            raise ConfigError(
                f"{of_the_base[0]} cannot be set: the shape of a model that is tuned is its own",
                hint="leave it out, or train one from nothing",
            )
        self.train_s = self.seconds * (1 - laws.unforeseen) - facts.spent_s - laws.close_s
        self.eval_mode = min(laws.evaluate_share, 1.0) if facts.validation_bytes else 0.0
        self.words()
        self.context = self.look_back()
        self.sizing = ModelSizer(
            facts,
            laws,
            self.fixed,
            self.context,
            self.vocabulary,
            self.tokens,
            self.train_s,
            self.eval_mode,
            self.room,
        )
        length = self.tuned() if facts.base else self.from_nothing()
        self.batch(length)
        self.rates(length)
        self.against_memorising(length)
        self.rest(length)
        flags = {**{key: one.value for key, one in self.reasons.items()}, **self.fixed}
        for key in self.fixed:
            if key not in self.reasons:
                self.put(key, cast(int, self.fixed[key]), "", "")
        recipe = resolve(Recipe, flags=flags).settings
        return Plan(recipe, tuple(self.reasons.values()), self.expect(length))

    # --- the text -------------------------------------------------------------------------------

    def check_text(self) -> None:
        facts, least = self.facts, self.laws.least_bytes
        if facts.text_bytes < least:
            share = facts.own_share
            own = f", {share:.0%} of what was found being your own" if share < 0.995 else ""
            raise CorpusError(
                f"there are {facts.text_bytes:,} bytes of text to learn from{own}, and a model"
                f" takes {least:,.0f} at the very least",
                hint="add texts; what is there can be searched and cited as it is",
            )

    def words(self) -> None:
        facts, laws = self.facts, self.laws
        text = f"{size(facts.text_bytes)} of your own words"
        if facts.own_share < 0.995:
            text += f" ({facts.own_share:.0%} of what was found)"
        if facts.base:
            vocabulary = facts.base.shape.vocabulary
            self.put("model.vocab_size", vocabulary, "the base's own", "the base")
        else:
            wanted = laws.vocabulary(facts.text_bytes)
            why = (
                f"{text} is too little to learn longer tokens from: each byte is one"
                if not wanted
                else f"{text} pays for about so many tokens: more would be seen too rarely"
            )
            wanted = self.put(
                "model.vocab_size", wanted, why, f"{LOG}; {laws.source('bytes_below')}"
            )
            vocabulary = facts.vocabulary or (wanted or 256 + _SPECIAL)
        self.vocabulary = vocabulary
        guessed = facts.text_bytes / laws.bytes_per_token(vocabulary)
        self.tokens = facts.tokens or max(1, round(guessed) + 2 * facts.documents)

    def look_back(self) -> int:
        facts = self.facts
        if facts.speeds.kind != "cpu":
            wanted, why = 1024, "enough for a post, and long rows keep a GPU busy"
        elif facts.base:
            wanted, why = int(self.laws.tune_context), "what the base learned within rows this long"
        elif self.seconds < 150:
            wanted, why = 128, "in so short a run more is learned from more, shorter rows"
        elif self.seconds > 4 * 3600 and facts.text_bytes > 3e7:
            wanted, why = 512, "long enough for what much text teaches about whole passages"
        else:
            wanted, why = 256, "long enough for a paragraph; longer costs more than it teaches"
        while wanted > 16 and wanted * 8 > self.tokens:
            wanted //= 2
            why = f"a row must be a small part of {number(self.tokens)} tokens"
        if facts.base and wanted > facts.base.shape.context:
            wanted, why = facts.base.shape.context, "the base can look no farther back"
        wanted = self.put("train.sequence_length", wanted, why, LOG)
        if facts.base:
            if wanted > facts.base.shape.context:
                raise ConfigError(
                    f"train.sequence_length is {wanted:,}, and the base looks back"
                    f" {facts.base.shape.context:,} tokens at most"
                )
            self.put("model.context_length", facts.base.shape.context, "the base's own", "the base")
            return wanted
        model = self.put("model.context_length", wanted, "what it is trained on", LOG)
        if "model.context_length" in self.fixed and "train.sequence_length" not in self.fixed:
            wanted = self.put("train.sequence_length", model, "what the model looks back on", LOG)
        if wanted > model:
            raise ConfigError(
                f"train.sequence_length is {wanted:,}, and model.context_length only {model:,}",
                hint="set both, or model.context_length alone",
            )
        return wanted

    # --- the model ------------------------------------------------------------------------------

    def from_nothing(self) -> SizedRun:
        facts, laws = self.facts, self.laws
        key = "model.parameters"
        if key in self.fixed:
            wanted = int(cast(int, self.fixed[key]))
            shape = config_for_budget(wanted, self.vocabulary, self.context)
            chosen = self.sizing.length(shape, parameter_count(shape))
        else:
            wanted, chosen = self.sizing.best()
        shape, of = cast(Qwen3Config, chosen.shape), chosen.size
        self.put(
            key,
            wanted,
            f"of the sizes this machine can train in {duration(max(self.train_s, 0))} the one with"
            f" the lowest expected loss ({chosen.bits:.2f} bits a byte): {shape.layers} layers of"
            f" width {shape.width}, {of:,} parameters",
            f"arXiv 2203.15556, 2305.16264, refitted: {laws.source('size_scale')}",
        )
        held = laws.training_bytes(shape, of, 1, self.context)
        if held > self.room:
            raise ConfigError(
                f"a model of {of:,} parameters takes {size(held)} to train, and of the"
                f" {size(facts.memory_bytes)} of memory that are free {size(self.room)} can be had",
                hint="set a smaller model.parameters, or close other programs",
            )
        return chosen

    def tuned(self) -> SizedRun:
        base = cast(BaseModelInfo, self.facts.base)
        self.put("model.parameters", base.parameters, "the base's own", "the base")
        held = self.laws.training_bytes(base.shape, base.parameters, 1, self.context)
        if held > self.room and not base.lora:
            raise ConfigError(
                f"to train all {base.parameters:,} parameters of the base takes {size(held)}, and"
                f" {size(self.room)} of memory can be had",
                hint="train a LoRA instead, or take a smaller base",
            )
        return self.sizing.length(base.shape, base.parameters)

    # --- what follows from the model and its length -----------------------------------------------

    def batch(self, length: SizedRun) -> None:
        laws, facts = self.laws, self.facts
        least = laws.least_steps
        if length.steps < (1 if "train.steps" in self.fixed else least):
            needs = least * length.step_s / (1 - self.eval_mode) + facts.spent_s + laws.close_s
            enough = math.ceil(needs / (1 - laws.unforeseen) / 6) / 10
            raise ConfigError(
                f"{duration(self.seconds)} are too few: {duration(max(0, facts.spent_s))} go for"
                f" the start, {least:.0f} steps of the smallest model that helps take"
                f" {duration(least * length.step_s)}, and something is kept for looking how good"
                " it is, for saving, and for what cannot be foreseen",
                hint=f"give --minutes {enough:g} or more; fewer do if the machine is busy only now",
            )
        tokens = length.rows * self.context
        self.put(
            "train.batch_size",
            length.rows,
            f"{number(tokens)} tokens a step suit {number(length.tokens)} tokens in all",
            laws.source("batch_scale"),
        )
        self.epochs = length.tokens / self.tokens
        self.epochs *= 1 - self.sizing.replay
        rate = tokens / length.step_s
        fills = "fills the time, and reads "
        if length.steps * length.step_s < 0.9 * self.train_s * (1 - self.eval_mode):
            fills = "takes a part of the time; more would be learned by heart, as it reads "
        self.put(
            "train.steps",
            length.steps,
            f"at {number(rate)} tokens a second that {fills}the text {times(self.epochs)}",
            MEASURED if self.is_measured(length) else ESTIMATE,
            "measured" if self.is_measured(length) else "plan",
        )
        self.put(
            "train.precision",
            length.precision,
            f"the fastest of {self.token_rates(length)} tokens a second"
            if len(facts.speeds.step_times) > 1
            else "nothing faster was measured",
            MEASURED if self.is_measured(length) else ESTIMATE,
            "measured" if self.is_measured(length) else "plan",
        )
        self.put("train.compile", length.compiles, self.sizing.compile_why, SPEED)
        micro = length.rows
        while micro > 1 and laws.training_bytes(
            length.shape, length.size, micro, self.context
        ) > max(self.room, 0):
            micro = math.ceil(micro / 2)
        why = "all rows of a step at once fit the memory"
        if micro < length.rows:
            why = f"more rows at once would not fit {size(self.room)} of memory"
        micro = self.put(
            "train.micro_batch_size", 0 if micro == length.rows else micro, why, ESTIMATE
        )
        self.memory = laws.training_bytes(
            length.shape, length.size, micro or length.rows, self.context
        )

    def token_rates(self, length: SizedRun) -> str:
        """Tokens a second of each precision: "float32 4,100, autocast 7,300"."""
        tokens = length.rows * self.context
        return ", ".join(
            f"{name} {number(tokens / step_time.step_s(length.shape, length.rows, self.context))}"
            for name, step_time in self.facts.speeds.step_times.items()
        )

    def is_measured(self, length: SizedRun) -> bool:
        step_times = cast(Mapping[str, StepTimeModel], self.facts.speeds.step_times)
        return length.precision in step_times and step_times[length.precision].origin.startswith(
            MEASURED
        )

    def rates(self, length: SizedRun) -> None:
        laws, base = self.laws, self.facts.base
        batch = length.rows * self.context
        kind = "muon"
        why, source = "it learns more from the same text than AdamW", LOG
        if base and (base.lora or base.kind != "muon"):
            kind, why, source = "adamw", "the base was trained with it", "arXiv 2502.16982"
            if base.lora:
                why = "a LoRA's thin matrices are no work for Muon"
        kind = self.put("optim.kind", kind, why, source)
        adamw = laws.adamw_lr(length.size, length.tokens)
        if not base:
            matrices, source = laws.muon_lr, laws.source("muon_lr")
            rate = adamw if kind == "adamw" else laws.embedding_lr(length.shape.width)
            why = "in a model of this width" if kind == "muon" else "for this size and length"
            rate_source = laws.source("embedding_lr_at_256" if kind == "muon" else "adamw_scale")
            why_matrices = "Muon's steps have the same size whatever the model"
        else:
            share = laws.tune_lr_factor
            matrices = (base.muon_lr or laws.muon_lr) * share
            known = base.learning_rate if base.kind == kind else None
            rate = (
                known * share
                if known
                else min(laws.tune_lr_max, adamw * laws.tune_lr_factor_unknown)
            )
            if base.lora:
                rate *= laws.lora_lr_factor
            why = why_matrices = f"{share:g} of the base's own peak, so that it forgets little"
            if not known:
                why = (
                    f"{laws.tune_lr_factor_unknown:g} of what a model of this size is trained with"
                )
            source = rate_source = laws.source("tune_lr_factor")
        if kind == "muon":
            matrices = self.put("optim.muon_lr", _short(matrices), why_matrices, source)
        rate = self.put("optim.learning_rate", _short(rate), why, rate_source)
        self.put(
            "optim.beta2",
            round(laws.beta2(batch, length.tokens), 5),
            f"it forgets half within so many tokens, at {number(batch)} a step",
            laws.source("beta2_tokens"),
        )
        steps_per_epoch = min(self.tokens / batch, float(max(1, length.steps)))
        decay = laws.weight_decay(matrices if kind == "muon" else rate, steps_per_epoch)
        why = (
            f"the weights then forget at a pace that suits {number(steps_per_epoch)} steps a"
            " reading"
        )
        if base:
            decay, why = 0.01 if base.lora else 0.1, "the base should not be forgotten"
        self.put("optim.weight_decay", _short(decay), why, laws.source("tau"))
        self.put(
            "schedule.warmup_fraction",
            laws.warmup_fraction,
            "a short rise is enough",
            laws.source("warmup_fraction"),
        )
        short = length.steps < laws.short_steps
        down = laws.decay_fraction_short if short else laws.decay_fraction
        why = "a long fall to nothing gains most, and the more so in a short run"
        if base:
            down, why = laws.tune_decay_fraction, "the base needs no flat stretch: it only settles"
        self.put("schedule.decay_fraction", down, why, laws.source("decay_fraction"))

    def against_memorising(self, length: SizedRun) -> None:
        laws, base = self.laws, self.facts.base
        dropout, why = 0.0, f"the text is read {times(self.epochs)}"
        if self.epochs > laws.dropout_epochs:
            dropout, why = laws.dropout, f"{why}: without, it would be learned by heart"
        if base:
            dropout, why = (
                laws.tune_dropout,
                "in so few readings nothing is learned by heart, and it costs",
            )
        dropout = self.put("train.dropout", dropout, why, laws.source("dropout"))
        decay = laws.embedding_weight_decay if dropout and not base else 0.0
        why = (
            "as the matrices', where a text is read often" if decay else "it need not be held small"
        )
        self.put("optim.embedding_weight_decay", decay, why, laws.source("embedding_weight_decay"))
        if base:
            replay = laws.tune_replay if self.facts.replay_bytes else 0.0
            why = (
                f"{replay:.0%} of the rows are the base's own text, so that it forgets little"
                if replay
                else "there is no text of the base at hand (--replay)"
            )
            self.put("data.replay", replay, why, laws.source("tune_replay"))

    def rest(self, length: SizedRun) -> None:
        laws, facts = self.laws, self.facts
        half_life = laws.half_life if length.steps >= laws.half_life_steps else 0.0
        why = "an average of the last weights, taken if it is better on text held out"
        if not half_life:
            why = "so few steps leave nothing to average"
        half_life = self.put("train.ema_half_life", half_life, why, laws.source("half_life"))
        # A token costs a third of one that is trained on.
        token_s = length.step_s / (3 * length.rows * self.context)
        once = facts.validation_bytes / self.sizing.per_token * token_s
        once *= 2 if half_life else 1  # the average is read with as well
        free = laws.evaluate_share * max(self.train_s, 0.0)
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
        evaluations = self.put("train.evaluations", evaluations, why, ESTIMATE)
        self.evaluate_s = evaluations * once
        self.put(
            "train.patience",
            max(3, math.ceil(laws.patience * evaluations)),
            "the last stretch gains most, so a pause before it is no reason to stop",
            laws.source("patience"),
        )
        self.put(
            "train.checkpoint_every_s",
            float(round(min(180.0, max(10.0, self.seconds / 8)))),
            "no more than this is lost if the power goes",
            ESTIMATE,
        )
        self.put("data.shuffle", True, "texts come in a new order each time", LOG)
        self.put("data.document_masking", True, "a text says nothing about the one before it", LOG)

    def expect(self, length: SizedRun) -> Forecast:
        laws, facts = self.laws, self.facts
        compile_s = laws.compile_cpu_s if facts.speeds.kind == "cpu" else laws.compile_gpu_s
        other = facts.spent_s + laws.close_s + (compile_s if length.compiles else 0.0)
        other += self.evaluate_s
        taken = length.steps * length.step_s
        return Forecast(
            bits_low=round(length.bits * laws.spread_low, 3),
            bits_high=round(length.bits * laws.spread_high, 3),
            seconds=round((taken + other) / (1 - laws.unforeseen), 1),
            tokens=length.steps * length.rows * self.context,
            epochs=round(self.epochs, 2),
            memory_bytes=round(self.memory),
            tokens_per_s=round(length.rows * self.context / length.step_s, 1),
            held_out_bytes=self.held_out,
        )


def _short(value: float) -> float:
    """To three figures, as a person would set it."""
    return float(f"{value:.3g}")
