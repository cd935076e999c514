"""Chooses the optimizer, its learning rates and their schedule; and whether a LoRA is trained."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from ownwords.training.forecast import number, times
from ownwords.training.model_sizing import SizedRun
from ownwords.training.plan import BaseModelInfo
from ownwords.training.plan_constants import LOG, PlanConstants

T = TypeVar("T", int, float, bool, str)


class Choose(Protocol):
    """Records a planned number, or the user's own instead; returns the one recorded."""

    def __call__(self, key: str, value: T, reason: str, source: str) -> T: ...


def lora_rank(base: BaseModelInfo, text_bytes: float, constants: PlanConstants) -> int:
    """The rank of the LoRA to train for a base; 0: all its weights are trained."""
    wanted = base.parameters >= constants.lora_parameters if base.lora is None else base.lora
    if not wanted:
        return 0
    return int(constants.lora_rank * (4 if text_bytes >= constants.lora_text else 1))


@dataclass(frozen=True)
class OptimizerPlanner:
    """Chooses the settings of optimizer and schedule for a run of known length."""

    choose: Choose
    constants: PlanConstants
    base: BaseModelInfo | None
    length: SizedRun
    context: int
    tokens: int  # of the training texts
    epochs: float

    def plan(self, rank: int) -> None:
        """Choose them for a LoRA of that rank, or for all weights (0)."""
        if rank:
            self._lora()
        else:
            self._all_weights()

    def _lora(self) -> None:
        choose, constants = self.choose, self.constants
        choose(
            "optim.kind",
            "adamw",
            "Muon does not suit thin matrices",
            constants.source("lora_lr_once"),
        )
        rate = _short(constants.lora_lr(self.epochs))
        why = f"the best measured where the text is read {times(self.epochs)}: less if more often"
        choose("optim.learning_rate", rate, why, constants.source("lora_lr_once"))
        choose("optim.beta2", constants.lora_beta2, "as measured", constants.source("lora_beta2"))
        choose("optim.weight_decay", 0.0, "the LoRA starts at zero and stays small", LOG)
        warmup = constants.lora_warmup_fraction
        choose("schedule.warmup_fraction", warmup, "a short warmup is enough", LOG)
        choose("schedule.decay_fraction", 1 - warmup, "a base needs no constant phase", LOG)

    def _all_weights(self) -> None:
        choose, constants, base, length = self.choose, self.constants, self.base, self.length
        batch = length.rows * self.context
        kind = "muon"
        why, source = "it learns more from the same text than AdamW", LOG
        if base and base.kind != "muon":
            kind, why, source = "adamw", "the base was trained with it", "arXiv 2502.16982"
        kind = choose("optim.kind", kind, why, source)
        adamw = constants.adamw_lr(length.size, length.tokens)
        if not base:
            matrices, source = constants.muon_lr, constants.source("muon_lr")
            rate = adamw if kind == "adamw" else constants.embedding_lr(length.shape.width)
            why = "for this width" if kind == "muon" else "for this size and length"
            rate_source = constants.source(
                "embedding_lr_at_256" if kind == "muon" else "adamw_scale"
            )
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
            source = rate_source = constants.source("tune_lr_factor")
        if kind == "muon":
            matrices = choose("optim.muon_lr", _short(matrices), why_matrices, source)
        rate = choose("optim.learning_rate", _short(rate), why, rate_source)
        choose(
            "optim.beta2",
            round(constants.beta2(batch, length.tokens), 5),
            f"a fixed half-life in tokens, at {number(batch)} a step",
            constants.source("beta2_tokens"),
        )
        steps_per_epoch = min(self.tokens / batch, float(max(1, length.steps)))
        decay = constants.weight_decay(matrices if kind == "muon" else rate, steps_per_epoch)
        why = f"a weight's memory that suits {number(steps_per_epoch)} steps an epoch"
        if base:
            decay, why = 0.1, "low, so that the base is not forgotten"
        choose("optim.weight_decay", _short(decay), why, constants.source("tau"))
        choose(
            "schedule.warmup_fraction",
            constants.warmup_fraction,
            "a short warmup is enough",
            constants.source("warmup_fraction"),
        )
        short = length.steps < constants.short_steps
        down = constants.decay_fraction_short if short else constants.decay_fraction
        why = "a long decay to zero gains most, above all in a short run"
        if base:
            down, why = constants.tune_decay_fraction, "a base needs no constant phase"
        choose("schedule.decay_fraction", down, why, constants.source("decay_fraction"))


def _short(value: float) -> float:
    """Round to three significant figures, as a person would."""
    return float(f"{value:.3g}")
