"""The search space of a training: a few settings, each around the plan's own value.

A trial fixes some of the plan's numbers, as a user's settings would; the plan derives the rest.
Except for shares, values are multiples of the plan's own, so that machines of different speed can
search the same ranges.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ownwords.core.config import as_toml, settings_of
from ownwords.training.plan import Plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.planner import rounded, shape_of
from ownwords.training.settings import Recipe

TIMES = 4.0  # ratios range from 1/4 to 4 times the plan's value
_MOST_DROPOUT = 0.3
_MOST_REPLAY = 0.75  # more leaves too little of the author's text
_MOST_EPOCHS = 2.0  # times the plan's epochs; more would memorise the text
_LEAST_RANGE = 1.25  # minimum ratio of the upper limit to the plan; less is not worth searching
_RATE, _MEMORY, _SIZE = "rate", "memory", "size"
_DROP, _SHARE, _READ = "dropout", "replay", "readings"
# The settings that each axis sets; an axis is not searched if the user has set one of them.
_SETS: Mapping[str, tuple[str, ...]] = {
    _RATE: ("optim.muon_lr", "optim.learning_rate"),
    _MEMORY: ("optim.weight_decay",),
    _SIZE: ("model.parameters",),
    _DROP: ("train.dropout",),
    _SHARE: ("data.replay",),
    _READ: ("train.steps", "train.batch_size"),
}


@dataclass(frozen=True)
class SearchAxis:
    """A range of values that includes the plan's value; ratios use a logarithmic scale."""

    name: str
    low: float
    high: float
    plan: float
    is_ratio: bool
    means: str  # for the user: "learning rate, times the plan's"


@dataclass(frozen=True)
class SearchSpace:
    """The axes of a search; converts a trial's values into settings."""

    axes: tuple[SearchAxis, ...]
    plan: Plan
    has_base: bool
    seconds: float  # per trial

    def settings(self, values: Mapping[str, float]) -> dict[str, object]:
        """The settings that a trial's values stand for, without those that equal the plan's."""
        changed = {
            axis.name: values[axis.name]
            for axis in self.axes
            if axis.name in values and values[axis.name] != axis.plan
        }
        recipe, optim = self.plan.recipe, self.plan.recipe.optim
        settings: dict[str, object] = {}
        if _SIZE in changed:
            wanted = recipe.model.parameters * changed[_SIZE]
            settings["model.parameters"] = round(float(f"{wanted:.3g}"))
        if _RATE in changed:
            if optim.kind == "muon":
                settings["optim.muon_lr"] = rounded(optim.muon_lr * changed[_RATE])
            # The plan's learning rate depends on the model's size.
            rate = optim.learning_rate * changed[_RATE] * self._rate_of_size(settings)
            settings["optim.learning_rate"] = rounded(rate)
        # Weights remember 1 / (rate * decay) steps.
        times = changed.get(_RATE, 1.0) * changed.get(_MEMORY, 1.0)
        if times != 1.0 and any(axis.name == _MEMORY for axis in self.axes):
            least, most = PLAN_CONSTANTS.weight_decay_min, PLAN_CONSTANTS.weight_decay_max
            decay = min(most, max(least, optim.weight_decay / times))
            settings["optim.weight_decay"] = rounded(decay)
        if _DROP in changed:
            # A tiny dropout is set to 0, which also turns off what the plan couples to dropout.
            settings["train.dropout"] = round(changed[_DROP], 3) if changed[_DROP] >= 0.01 else 0.0
        replay = round(changed.get(_SHARE, recipe.data.replay), 3)
        if _SHARE in changed:
            settings["data.replay"] = replay
        if _READ in changed:
            # The author's own text is read the chosen number of times, whatever the replay.
            own = (1 - recipe.data.replay) / (1 - replay)
            steps = round(recipe.train.steps * changed[_READ] * own)
            settings["train.steps"] = max(1, min(steps, _most_steps(self.plan, self.seconds)))
            settings["train.batch_size"] = recipe.train.batch_size
        return settings

    def _rate_of_size(self, settings: Mapping[str, object]) -> float:
        recipe = self.plan.recipe
        size = settings.get("model.parameters")
        if not isinstance(size, int):
            return 1.0
        if recipe.optim.kind != "muon":
            return math.pow(size / recipe.model.parameters, PLAN_CONSTANTS.adamw_size_power)
        vocabulary, context = recipe.model.vocab_size or _BYTES, recipe.model.context_length
        before = shape_of(recipe.model.parameters, vocabulary, context)
        after = shape_of(size, vocabulary, context)
        if before is None or after is None:  # planning reports the reason
            return 1.0
        rate = PLAN_CONSTANTS.embedding_lr
        return rate(after.width) / rate(before.width)


_BYTES = 261  # vocabulary of the byte tokenizer


def search_space(
    plan: Plan, fixed: Mapping[str, object], seconds: float, *, has_base: bool
) -> SearchSpace:
    """Build the search space around this plan, without the settings that the user has fixed.

    From scratch: rate, memory, dropout, size. From a base: rate, dropout, replay, readings.
    """
    recipe = plan.recipe
    dropout = SearchAxis(
        _DROP, 0.0, max(_MOST_DROPOUT, recipe.train.dropout), recipe.train.dropout, False, "dropout"
    )
    axes = [SearchAxis(_RATE, 1 / TIMES, TIMES, 1.0, True, "learning rate, times the plan's")]
    if has_base:
        axes.append(dropout)
        if recipe.data.replay:
            most = max(_MOST_REPLAY, recipe.data.replay)
            share = "share of the rows that are the base's own text"
            axes.append(SearchAxis(_SHARE, 0.0, most, recipe.data.replay, False, share))
        most_times = _most_steps(plan, seconds) / recipe.train.steps
        most = min(_MOST_EPOCHS, most_times) if most_times >= _LEAST_RANGE else 1.0
        often = "readings of the text, times the plan's"
        axes.append(SearchAxis(_READ, 1 / TIMES, most, 1.0, True, often))
    else:
        memory = "readings that the weights remember, times the plan's"
        axes.append(SearchAxis(_MEMORY, 1 / TIMES, TIMES, 1.0, True, memory))
        axes.append(dropout)
        axes.append(SearchAxis(_SIZE, 1 / TIMES, TIMES, 1.0, True, "parameters, times the plan's"))
    free = tuple(axis for axis in axes if not any(key in fixed for key in _SETS[axis.name]))
    return SearchSpace(free, plan, has_base, seconds)


def settings_toml(settings: Mapping[str, object]) -> str:
    """Settings as lines of `ownwords.toml`; steps, which suit one length only, commented out."""
    keys = [setting.key for setting in settings_of(Recipe()) if setting.key in settings]
    sections: dict[str, list[str]] = {}
    for key in keys:
        section, _, name = key.partition(".")
        line = f"{name} = {as_toml(settings[key])}"
        if key in _SETS[_READ]:
            line = f"# {line}  # only for the --minutes of a trial"
        sections.setdefault(section, []).append(line)
    parts = ("\n".join([f"[{section}]", *those]) for section, those in sections.items())
    return "\n\n".join(parts)


def values_text(axes: Sequence[SearchAxis], values: Mapping[str, float]) -> str:
    """Format a trial's values on one line, such as "rate x1.7, dropout 0.12"."""
    parts = []
    for axis in axes:
        if axis.name in values:
            value = values[axis.name]
            parts.append(
                f"{axis.name} x{value:.2g}" if axis.is_ratio else f"{axis.name} {value:.2g}"
            )
    return ", ".join(parts)


def _most_steps(plan: Plan, seconds: float) -> int:
    """The maximum number of steps that fit into a trial's time."""
    train, expected = plan.recipe.train, plan.expected
    step_s = train.batch_size * train.sequence_length / max(expected.tokens_per_s, 1e-9)
    rest_s = seconds - expected.seconds
    return train.steps + max(0, int(rest_s * (1 - PLAN_CONSTANTS.unforeseen) / step_s))
