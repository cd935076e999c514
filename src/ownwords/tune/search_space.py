"""What is searched over in a training: few things, each around what the plan says of it.

Nothing here is new to the plan: a trial is the plan with some of its numbers set, as a user would
set them, and the plan derives the rest. All but shares are multiples of the plan's own, so that
machines of different speed can search the same ranges.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ownwords.core.config import as_toml, settings_of
from ownwords.training.model_sizing import shape_of
from ownwords.training.plan import Plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import Recipe
from ownwords.tune.axis import SearchAxis

TIMES = 4.0  # the ranges reach from a fourth of the plan's to four times as much
_DROPOUT = 0.3  # more than that nobody has found of use
_REPLAY = 0.75  # of every four rows three: more leaves too little of the author's
_READINGS = 2.0  # more than twice as often as the plan reads, a text is learned by heart
_WORTH_IT = 1.25  # less room than that upwards is none
_RATE, _MEMORY, _SIZE = "rate", "memory", "size"
_DROP, _SHARE, _READ = "dropout", "replay", "readings"
# The settings that a thing searched over sets; where the user has set one, it is not searched.
_SETS: Mapping[str, tuple[str, ...]] = {
    _RATE: ("optim.muon_lr", "optim.learning_rate"),
    _MEMORY: ("optim.weight_decay",),
    _SIZE: ("model.parameters",),
    _DROP: ("train.dropout",),
    _SHARE: ("data.replay",),
    _READ: ("train.steps", "train.batch_size"),
}


@dataclass(frozen=True)
class SearchSpace:
    """The ranges, and how a trial's values become settings."""

    axes: tuple[SearchAxis, ...]
    plan: Plan
    has_base: bool
    seconds: float  # of a trial

    def settings(self, values: Mapping[str, float]) -> dict[str, object]:
        """What is set for a trial; nothing for the plan's own values."""
        changed = {
            axis.name: values[axis.name]
            for axis in self.axes
            if axis.name in values and values[axis.name] != axis.plan
        }
        made: dict[str, object] = {}
        self._size(changed, made)
        self._rates(changed, made)
        if _MEMORY in {axis.name for axis in self.axes}:
            self._decay(changed, made)
        if _DROP in changed:
            # Below that it is none, and what the plan joins to dropout should not come with it.
            made["train.dropout"] = round(changed[_DROP], 3) if changed[_DROP] >= 0.01 else 0.0
        if _SHARE in changed:
            made["data.replay"] = round(changed[_SHARE], 3)
        self._readings(changed, made)
        return made

    def _size(self, changed: Mapping[str, float], made: dict[str, object]) -> None:
        if _SIZE in changed:
            wanted = self.plan.recipe.model.parameters * changed[_SIZE]
            made["model.parameters"] = round(float(f"{wanted:.3g}"))

    def _rates(self, changed: Mapping[str, float], made: dict[str, object]) -> None:
        if _RATE not in changed:
            return
        optim = self.plan.recipe.optim
        if optim.kind == "muon":
            made["optim.muon_lr"] = _short(optim.muon_lr * changed[_RATE])
        # Another size has another rate of the plan's, which is then the one to multiply.
        made["optim.learning_rate"] = _short(
            optim.learning_rate * changed[_RATE] * self._rate_of_size(made)
        )

    def _rate_of_size(self, made: Mapping[str, object]) -> float:
        recipe = self.plan.recipe
        size = made.get("model.parameters")
        if not isinstance(size, int):
            return 1.0
        if recipe.optim.kind == "muon":
            vocabulary, context = recipe.model.vocab_size or _BYTES, recipe.model.context_length
            before = shape_of(recipe.model.parameters, vocabulary, context)
            after = shape_of(size, vocabulary, context)
            if before is None or after is None:  # the plan says why that cannot be
                return 1.0
            return PLAN_CONSTANTS.embedding_lr(after.width) / PLAN_CONSTANTS.embedding_lr(
                before.width
            )
        return math.pow(size / recipe.model.parameters, PLAN_CONSTANTS.adamw_size_power)

    def _decay(self, changed: Mapping[str, float], made: dict[str, object]) -> None:
        """Weights forget within so many readings: 1 / (rate * steps a reading * memory)."""
        times = changed.get(_RATE, 1.0) * changed.get(_MEMORY, 1.0)
        if times != 1.0:
            wanted = self.plan.recipe.optim.weight_decay / times
            made["optim.weight_decay"] = _short(
                min(PLAN_CONSTANTS.weight_decay_max, max(PLAN_CONSTANTS.weight_decay_min, wanted))
            )

    def _readings(self, changed: Mapping[str, float], made: dict[str, object]) -> None:
        """So many steps that the author's text, not all of it, is read that often."""
        if _READ not in changed:
            return
        recipe = self.plan.recipe
        replay = made.get("data.replay", recipe.data.replay)
        assert isinstance(replay, float)
        own = (1 - recipe.data.replay) / (1 - replay)
        wanted = recipe.train.steps * changed[_READ] * own
        made["train.steps"] = max(1, min(round(wanted), _most_steps(self.plan, self.seconds)))
        made["train.batch_size"] = recipe.train.batch_size


_BYTES = 261  # tokens of a vocabulary in which each byte is one


def space(
    plan: Plan, fixed: Mapping[str, object], seconds: float, *, has_base: bool
) -> SearchSpace:
    """What is searched over around this plan, but for what the user has set.

    From nothing: rate, memory, dropout, size. From a base: rate, dropout, replay, readings.
    """
    recipe = plan.recipe
    dropout = SearchAxis(
        _DROP, 0.0, max(_DROPOUT, recipe.train.dropout), recipe.train.dropout, False, "dropout"
    )
    axes = [SearchAxis(_RATE, 1 / TIMES, TIMES, 1.0, True, "learning rate, times the plan's")]
    if has_base:
        axes.append(dropout)
        if recipe.data.replay:
            most = max(_REPLAY, recipe.data.replay)
            share = "share of the rows that are the base's own text"
            axes.append(SearchAxis(_SHARE, 0.0, most, recipe.data.replay, False, share))
        room = _most_steps(plan, seconds) / recipe.train.steps
        most = min(_READINGS, room) if room >= _WORTH_IT else 1.0
        often = "readings of the text, times the plan's"
        axes.append(SearchAxis(_READ, 1 / TIMES, most, 1.0, True, often))
    else:
        memory = "readings that the weights remember, times the plan's"
        axes.append(SearchAxis(_MEMORY, 1 / TIMES, TIMES, 1.0, True, memory))
        axes.append(dropout)
        axes.append(SearchAxis(_SIZE, 1 / TIMES, TIMES, 1.0, True, "parameters, times the plan's"))
    kept = tuple(axis for axis in axes if not any(key in fixed for key in _SETS[axis.name]))
    return SearchSpace(kept, plan, has_base, seconds)


def lines(settings: Mapping[str, object]) -> str:
    """Settings as `ownwords.toml` has them; steps, which suit one length only, as a comment."""
    order = [one.key for one in settings_of(Recipe()) if one.key in settings]
    sections: dict[str, list[str]] = {}
    for key in order:
        section, _, name = key.partition(".")
        line = f"{name} = {as_toml(settings[key])}"
        if key in _SETS[_READ]:
            line = f"# {line}  # for as many --minutes as a trial had"
        sections.setdefault(section, []).append(line)
    parts = ("\n".join([f"[{section}]", *those]) for section, those in sections.items())
    return "\n\n".join(parts)


def shown(axes: Sequence[SearchAxis], values: Mapping[str, float]) -> str:
    """A trial's values in a line: "rate x1.7, dropout 0.12"."""
    said = []
    for axis in axes:
        if axis.name in values:
            value = values[axis.name]
            said.append(
                f"{axis.name} x{value:.2g}" if axis.is_ratio else f"{axis.name} {value:.2g}"
            )
    return ", ".join(said)


def _most_steps(plan: Plan, seconds: float) -> int:
    """Steps that fit a trial, where the plan's own take only a part of it."""
    train, expected = plan.recipe.train, plan.expected
    step_s = train.batch_size * train.sequence_length / max(expected.tokens_per_s, 1e-9)
    rest_s = seconds - expected.seconds
    return train.steps + max(0, int(rest_s * (1 - PLAN_CONSTANTS.unforeseen) / step_s))


def _short(value: float) -> float:
    return float(f"{value:.3g}")
