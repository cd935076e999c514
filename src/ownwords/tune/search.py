"""The search: what is varied, and trials until the time is used up, independent of training.

Trial 1 has the plan's own settings; Optuna's TPE sampler suggests the others (arXiv 2304.11127).
Every trial has the full length, since the best settings depend on the length of a training. At the
end the plan and the best one or two trials are repeated with new seeds, and those scores decide.
"""

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from ownwords.core.config import as_toml, settings_of
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import write_atomically
from ownwords.models.untrusted_files import read_json
from ownwords.training.plan import Plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.planner import rounded, shape_of
from ownwords.training.settings import Recipe
from ownwords.tune.verdict import SearchAxis, TrialKind, TrialRecord, best_trials, scored_trials

FIRST_SEED = 1  # the seed of all trials except repetitions
_RANDOM_TRIALS = 8  # before TPE has enough scores to learn from
# (finalists, new seeds, minimum number of trials in the budget), the most thorough first.
_REPETITIONS = ((2, 3, 14), (1, 3, 9), (1, 2, 7))
_MAX_FAILURES = 8  # consecutive failures that end the search
_MAX_ATTEMPTS = 3  # per trial, if its process is killed each time
# Of the search space:
_TIMES = 4.0  # ratios range from 1/4 to 4 times the plan's value
_MAX_DROPOUT = 0.3
_MAX_REPLAY = 0.75  # more leaves too little of the author's text
_MAX_EPOCHS = 2.0  # times the plan's epochs; more would memorise the text
_MIN_RANGE = 1.25  # minimum ratio of the upper limit to the plan; less is not worth searching
_BYTES = 261  # vocabulary of the byte tokenizer
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


# --- the search space -----------------------------------------------------------------------------
#
# A trial fixes some of the plan's numbers, as a user's settings would; the plan derives the rest.
# Except for shares, values are multiples of the plan's own.


@dataclass(frozen=True)
class SearchSpace:
    """The axes of a search; converts a trial's values into settings."""

    axes: tuple[SearchAxis, ...]
    plan: Plan
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


def search_space(
    plan: Plan, fixed: Mapping[str, object], seconds: float, *, has_base: bool
) -> SearchSpace:
    """Build the search space around this plan, without the settings that the user has fixed.

    From scratch: rate, memory, dropout, size. From a base: rate, dropout, replay, readings.
    """
    drop, replay = plan.recipe.train.dropout, plan.recipe.data.replay
    dropout = SearchAxis(_DROP, 0.0, max(_MAX_DROPOUT, drop), drop, False)
    if has_base:
        most = min(_MAX_EPOCHS, _most_steps(plan, seconds) / plan.recipe.train.steps)
        axes = [
            _ratio(_RATE),
            dropout,
            *([SearchAxis(_SHARE, 0.0, max(_MAX_REPLAY, replay), replay, False)] if replay else []),
            _ratio(_READ, most if most >= _MIN_RANGE else 1.0),
        ]
    else:
        axes = [_ratio(_RATE), _ratio(_MEMORY), dropout, _ratio(_SIZE)]
    free = tuple(axis for axis in axes if not any(key in fixed for key in _SETS[axis.name]))
    return SearchSpace(free, plan, seconds)


def _ratio(name: str, most: float = _TIMES) -> SearchAxis:
    return SearchAxis(name, 1 / _TIMES, most, 1.0, True)


def settings_toml(settings: Mapping[str, object]) -> str:
    """Settings as lines of `ownwords.toml`; steps, which suit one length only, commented out."""
    sections: dict[str, list[str]] = {}
    for key in [known.key for known in settings_of(Recipe()) if known.key in settings]:
        section, _, name = key.partition(".")
        line = f"{name} = {as_toml(settings[key])}"
        if key in _SETS[_READ]:
            line = f"# {line}  # only for the --minutes of a trial"
        sections.setdefault(section, [f"[{section}]"]).append(line)
    return "\n\n".join(map("\n".join, sections.values()))


def _most_steps(plan: Plan, seconds: float) -> int:
    """The maximum number of steps that fit into a trial's time."""
    train, expected = plan.recipe.train, plan.expected
    step_s = train.batch_size * train.sequence_length / max(expected.tokens_per_s, 1e-9)
    rest_s = seconds - expected.seconds
    return train.steps + max(0, int(rest_s * (1 - PLAN_CONSTANTS.unforeseen) / step_s))


# --- the loop -----------------------------------------------------------------------------------


class TrialFailedError(OwnwordsError):
    """A trial failed because of its settings; the search continues."""


class TrialResult(NamedTuple):
    """The result of a trial; a lower score is better."""

    score: float
    seconds: float  # over all attempts
    figures: dict[str, Any]  # JSON values for the tables


# Runs a trial; resumes one that was interrupted. After TrialFailedError the search continues, any
# other error ends it.
TrialFunction = Callable[[TrialRecord], TrialResult]


@dataclass
class SearchRecord:
    """What a search must not lose."""

    held_out_bytes: int = 0  # read by each evaluation, the same in every trial
    trials: list[TrialRecord] = field(default_factory=list)
    finalists: list[int] = field(default_factory=list)  # numbers of the trials to repeat
    seeds: int = 0  # how often


class Search:
    """A search whose record is a file: a killed one resumes from it, at the trial it was in."""

    def __init__(
        self,
        path: Path,
        axes: tuple[SearchAxis, ...],
        budget_s: float,  # over all sessions
        each_s: float,  # maximum length of one trial
        max_trials: int | None = None,  # not counting repetitions
        *,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,  # by `clock`; None: now
    ) -> None:
        if budget_s < 2 * each_s:
            raise ConfigError(
                f"{budget_s / 60:g} minutes are too few for two trials of {each_s / 60:g} minutes",
                hint="give more --minutes, or fewer to --each trial",
            )
        self.axes, self.each_s, self.max_trials, self._clock = axes, each_s, max_trials, clock
        self._path, self._budget_s = path, budget_s
        self.record = SearchRecord()
        if path.exists():
            self.record = decode(SearchRecord, read_json(path), source=str(path))
        used = sum(trial.seconds for trial in self.trials)
        self._ends = (clock() if began is None else began) + budget_s - used

    @property
    def trials(self) -> list[TrialRecord]:
        """All trials, by number."""
        return self.record.trials

    @property
    def left_s(self) -> float:
        """Seconds left of the budget."""
        return self._ends - self._clock()

    def run(
        self, run_trial: TrialFunction, on_trial_end: Callable[[TrialRecord], None] = lambda _: None
    ) -> None:
        """Run as many trials as the budget allows."""
        while trial := self._next():
            trial.attempts += 1
            self.save()
            self._try_out(trial, run_trial)
            self.save()
            on_trial_end(trial)

    def save(self) -> None:
        """Write the record."""
        write_atomically(self._path, json.dumps(encode(self.record), indent=1) + "\n")

    def _next(self) -> TrialRecord | None:
        """The next trial: what a killed process has left, another choice, or a repetition."""
        record = self.record
        if self.trials and self.trials[-1].state == "running":
            return self.trials[-1]
        if not record.finalists and self._may_search():
            return self._add("search" if self.trials else "plan", self._suggest())
        if not record.finalists:
            record.finalists, record.seeds = self._choose_finalists()
        known = {(trial.repeats, trial.seed) for trial in self.trials}
        # Seed by seed, so that the finished repetitions are comparable when time runs out.
        for seed in range(FIRST_SEED + 1, FIRST_SEED + 1 + record.seeds):
            for number in record.finalists:
                if (number, seed) not in known and self.left_s >= self._longest_s:
                    return self._add("again", self.trials[number - 1].settings, seed, number)
        return None

    def _add(
        self, kind: TrialKind, values: dict[str, float], seed: int = FIRST_SEED, repeats: int = 0
    ) -> TrialRecord:
        self.trials.append(TrialRecord(len(self.trials) + 1, kind, seed, values, repeats=repeats))
        return self.trials[-1]

    def _suggest(self) -> dict[str, float]:
        """The values to try next, which depend on the trials so far alone."""
        if not self.trials:
            return {axis.name: axis.plan for axis in self.axes}
        ranges: dict[str, BaseDistribution] = {
            axis.name: FloatDistribution(axis.low, axis.high, log=axis.is_ratio)
            for axis in self.axes
        }
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():  # Optuna marks this option as experimental
            warnings.simplefilter("ignore", ExperimentalWarning)
            seed = len(self.trials)
            sampler = TPESampler(n_startup_trials=_RANDOM_TRIALS, multivariate=True, seed=seed)
        study = optuna.create_study(sampler=sampler)
        for trial in self.trials:
            # TPE ranks pruned trials below all scored ones.
            state = TrialState.PRUNED if trial.score is None else TrialState.COMPLETE
            study.add_trial(
                create_trial(
                    state=state, value=trial.score, params=trial.settings, distributions=ranges
                )
            )
        return study.ask(ranges).params

    def _may_search(self) -> bool:
        """Whether there is time for another new trial and then for the repetitions."""
        if self.max_trials is not None and len(self.trials) >= self.max_trials:
            return False
        if [trial.state for trial in self.trials[-_MAX_FAILURES:]] == ["failed"] * _MAX_FAILURES:
            return False
        repetitions = next(((1 + best) * seeds for best, seeds in self._affordable()), 0)
        return self.left_s >= ((1 + repetitions) * self._longest_s if self.trials else 0)

    def _choose_finalists(self) -> tuple[list[int], int]:
        """The numbers of the trials to repeat, as time allows, and the number of new seeds."""
        for finalists, seeds in self._affordable():
            best = [trial.number for trial in best_trials(self.trials)[:finalists]]
            if best and self.left_s >= (1 + len(best)) * seeds * self._longest_s:
                return [1, *best], seeds
        return [], 0

    def _affordable(self) -> list[tuple[int, int]]:
        """The pairs (finalists, seeds) that the budget allows, the most thorough first."""
        count = self._budget_s / max(self._longest_s, 1e-9)
        if self.max_trials is not None:
            count = math.inf  # all time left after the requested trials goes to repetitions
        return [(best, seeds) for best, seeds, least in _REPETITIONS if count >= least]

    @property
    def _longest_s(self) -> float:
        """The estimated seconds of a trial: the longest so far, or the maximum length."""
        return max((trial.seconds for trial in scored_trials(self.trials)), default=self.each_s)

    def _try_out(self, trial: TrialRecord, run_trial: TrialFunction) -> None:
        """Run a trial and note its result."""
        if trial.attempts > _MAX_ATTEMPTS:
            trial.state, trial.error = "failed", f"its process was killed {_MAX_ATTEMPTS} times"
            return
        began = self._clock()
        try:
            trial.score, trial.seconds, trial.figures = run_trial(trial)
        except TrialFailedError as failed:
            trial.state, trial.error = "failed", failed.message
            trial.seconds = self._clock() - began
            return
        trial.state = "done"
        # Time that an earlier process spent on this trial counts against the budget, too.
        self._ends -= max(0.0, trial.seconds - (self._clock() - began))
