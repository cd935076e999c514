"""The search: what is varied, and trials until the time is used up, independent of training.

Trial 1 has the plan's own settings; Optuna's TPE sampler suggests the others (arXiv 2304.11127).
Every trial has the full length, since the best settings depend on the length of a training. At the
end the plan and the best one or two trials are repeated with new seeds, and those scores decide.

A killed search resumes from its storage, which workers on several machines can share: each takes
what no other has begun, and at the end judges the trials that are there.
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import FloatDistribution
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.samplers import TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from ownwords.core.config import as_toml, settings_of
from ownwords.core.errors import ConfigError, OwnwordsError, WorkspaceError
from ownwords.core.workspace import translate_os_errors
from ownwords.training.plan import Plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.planner import rounded, shape_of
from ownwords.training.settings import Recipe
from ownwords.tune.verdict import SearchAxis, TrialRecord, TrialStatus, best_trials, scored_trials

FIRST_SEED = 1  # the seed of all trials except repetitions
_RANDOM_TRIALS = 8  # before TPE has enough scores to learn from
# (finalists, new seeds, minimum number of trials in the budget), the most thorough first.
_REPETITIONS = ((2, 3, 14), (1, 3, 9), (1, 2, 7))
_MAX_FAILURES = 8  # consecutive failures that end the search
_MAX_ATTEMPTS = 3  # per trial, if its process is killed each time
_LOCK_S = 5  # after which the lock of the journal, held for a line, is that of a killed process
# Of the search space:
TIMES = 4.0  # ratios range from 1/4 to 4 times the plan's value
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
# Except for shares, values are multiples of the plan's own, so that machines of different speed can
# search the same ranges.


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
    recipe = plan.recipe
    dropout = SearchAxis(
        _DROP, 0.0, max(_MAX_DROPOUT, recipe.train.dropout), recipe.train.dropout, False, "dropout"
    )
    axes = [SearchAxis(_RATE, 1 / TIMES, TIMES, 1.0, True, "learning rate, times the plan's")]
    if has_base:
        axes.append(dropout)
        if recipe.data.replay:
            most = max(_MAX_REPLAY, recipe.data.replay)
            share = "share of the rows that are the base's own text"
            axes.append(SearchAxis(_SHARE, 0.0, most, recipe.data.replay, False, share))
        most_times = _most_steps(plan, seconds) / recipe.train.steps
        most = min(_MAX_EPOCHS, most_times) if most_times >= _MIN_RANGE else 1.0
        often = "readings of the text, times the plan's"
        axes.append(SearchAxis(_READ, 1 / TIMES, most, 1.0, True, often))
    else:
        memory = "readings that the weights remember, times the plan's"
        axes.append(SearchAxis(_MEMORY, 1 / TIMES, TIMES, 1.0, True, memory))
        axes.append(dropout)
        axes.append(SearchAxis(_SIZE, 1 / TIMES, TIMES, 1.0, True, "parameters, times the plan's"))
    free = tuple(axis for axis in axes if not any(key in fixed for key in _SETS[axis.name]))
    return SearchSpace(free, plan, seconds)


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


def _most_steps(plan: Plan, seconds: float) -> int:
    """The maximum number of steps that fit into a trial's time."""
    train, expected = plan.recipe.train, plan.expected
    step_s = train.batch_size * train.sequence_length / max(expected.tokens_per_s, 1e-9)
    rest_s = seconds - expected.seconds
    return train.steps + max(0, int(rest_s * (1 - PLAN_CONSTANTS.unforeseen) / step_s))


# --- trials ---------------------------------------------------------------------------------------


class TrialFailedError(OwnwordsError):
    """A trial failed because of its settings; the search continues."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial; a lower score is better."""

    score: float
    seconds: float  # over all attempts
    model: str = ""  # name of the saved model
    figures: Mapping[str, object] = field(default_factory=dict)  # JSON values for the tables


# Runs a trial of some settings within about so many seconds, with a seed; resumes an interrupted
# one of the same arguments. After TrialFailedError the search continues, any other error ends it.
TrialFunction = Callable[[Mapping[str, float], float, int], TrialResult]


# --- the storage --------------------------------------------------------------------------------


def open_storage(where: str | Path) -> BaseStorage:
    """Open a journal file, or a database by its URL; WorkspaceError if that is not possible."""
    path, scheme = Path(where).expanduser(), str(where).partition("://")
    try:
        if scheme[1]:
            return RDBStorage(str(where))
        with translate_os_errors(path):
            lock = JournalFileOpenLock(str(path), grace_period=_LOCK_S)
            return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except (ImportError, SQLAlchemyError, OptunaError, RuntimeError, ValueError, KeyError) as error:
        name = f"{scheme[0]} storage" if scheme[1] else path
        message = " ".join(str(error).split())[:200]
        raise WorkspaceError(
            f"the record of the search ({name}) cannot be opened: {message}",
            hint="give the journal of a search to --storage, or install the database's driver",
        ) from error


class Study:
    """The trials of one search, numbered from 1; several processes may use it at the same time."""

    def __init__(self, storage: BaseStorage, name: str, axes: Sequence[SearchAxis]) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.axes = tuple(axes)
        self._storage = storage
        self._study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
        self._ranges = {a.name: FloatDistribution(a.low, a.high, log=a.is_ratio) for a in axes}

    def trials(self) -> list[TrialRecord]:
        """All trials, by number."""
        try:
            return [_record(trial) for trial in self._study.get_trials(deepcopy=False)]
        except (KeyError, TypeError) as error:
            raise WorkspaceError(
                f"the record of this search is of another version of ownwords: {error}",
                hint="search again from the beginning, with a new --storage",
            ) from error

    def suggest(self) -> dict[str, float]:
        """The settings to try next, which depend on the trials so far alone."""
        trials = self._study.get_trials(deepcopy=False)
        if not trials:
            return {axis.name: axis.plan for axis in self.axes}
        with warnings.catch_warnings():  # Optuna marks two of these options as experimental
            warnings.simplefilter("ignore", ExperimentalWarning)
            # Running trials count as bad ones until they end (constant_liar).
            sampler = TPESampler(
                n_startup_trials=_RANDOM_TRIALS,
                multivariate=True,
                constant_liar=True,
                seed=len(trials),
            )
        # Asked in memory: the trial is then stored whole, and a kill leaves no half of one.
        memory = optuna.create_study(sampler=sampler)
        memory.add_trials(trials)
        return memory.ask(dict(self._ranges)).params

    def add(
        self, worker: str, settings: Mapping[str, float], seed: int, repeats: int = 0
    ) -> TrialRecord:
        """Store a trial that the worker runs."""
        self._study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params=dict(settings),
                distributions=dict(self._ranges),
                user_attrs={"worker": worker, "seed": seed, "repeats": repeats},
            )
        )
        return [trial for trial in self.trials() if trial.worker == worker][-1]

    def note(self, number: int, **values: object) -> None:
        """Store values of a running trial."""
        study = self._storage.get_study_id_from_name(self._study.study_name)
        trial = self._storage.get_trial_id_from_study_id_trial_number(study, number - 1)
        for key, value in values.items():
            self._storage.set_trial_user_attr(trial, key, value)

    def end(
        self, number: int, state: TrialState, score: float | None = None, **values: object
    ) -> None:
        """End a trial. TPE ranks pruned ones below all scored ones."""
        self.note(number, **values)
        self._study.tell(number - 1, score, state=state)

    def agree_on(self, name: str, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Store a value unless one is stored under this name; return the stored value."""
        if name not in self._study.user_attrs and value is not None:
            self._study.set_user_attr(name, value)
        return self._study.user_attrs.get(name)


def _record(trial: FrozenTrial) -> TrialRecord:
    states: Mapping[TrialState, TrialStatus] = {
        TrialState.RUNNING: "running",
        TrialState.COMPLETE: "done",
    }
    return TrialRecord(
        number=trial.number + 1,
        state=states.get(trial.state, "failed"),
        kind="again" if trial.user_attrs["repeats"] else "search" if trial.number else "plan",
        settings=trial.params,
        score=trial.value if trial.state == TrialState.COMPLETE else None,
        **trial.user_attrs,
    )


# --- the loop -----------------------------------------------------------------------------------


@dataclass
class Search:
    """A search by one process; only one of each worker may search at a time."""

    run_trial: TrialFunction
    study: Study
    budget_s: float  # over all sessions of this worker
    each_s: float  # maximum length of one trial
    worker: str  # a name unique to this worker, the same when the search is resumed
    max_trials: int | None = None  # not counting repetitions
    on_trial_end: Callable[[Sequence[TrialRecord]], None] = lambda _: None  # with all trials
    clock: Callable[[], float] = time.monotonic
    began: float | None = None  # by `clock`; None: now

    def __post_init__(self) -> None:
        if self.budget_s < 2 * self.each_s:
            raise ConfigError(
                f"{self.budget_s / 60:g} minutes are too few for two trials of"
                f" {self.each_s / 60:g} minutes",
                hint="give more --minutes, or fewer to --each trial",
            )
        began = self.clock() if self.began is None else self.began
        own = [trial for trial in self.study.trials() if trial.worker == self.worker]
        self.ends = began + self.budget_s - sum(trial.seconds for trial in own)

    def run(self) -> list[TrialRecord]:
        """Run as many trials as the budget allows; returns those of all workers."""
        while self.step():
            self.on_trial_end(self.study.trials())
        return self.study.trials()

    @property
    def left_s(self) -> float:
        """Seconds left of the budget."""
        return self.ends - self.clock()

    def step(self) -> bool:
        """Run a trial; False when the search is over."""
        trials = self.study.trials()
        for trial in trials:  # a killed process of this worker has left it
            if trial.state == "running" and trial.worker == self.worker:
                return self.try_out(trial)
        chosen = self.study.agree_on("finalists", None)
        if chosen is None and self.may_search(trials):
            return self.try_out(self.study.add(self.worker, self.study.suggest(), FIRST_SEED))
        chosen = chosen or self.study.agree_on("finalists", self.choose_finalists(trials))
        if chosen is None:
            return False
        known = {(trial.repeats, trial.seed) for trial in trials}
        # Seed by seed, so that the finished repetitions are comparable when time runs out.
        for seed in range(FIRST_SEED + 1, FIRST_SEED + 1 + chosen["seeds"]):
            for number in chosen["trials"]:
                if (number, seed) not in known and self.left_s >= self.longest_s(trials):
                    settings = trials[number - 1].settings
                    return self.try_out(self.study.add(self.worker, settings, seed, number))
        return False

    def may_search(self, trials: Sequence[TrialRecord]) -> bool:
        """Whether there is time for another new trial and then for the repetitions."""
        if self.max_trials is not None and len(trials) >= self.max_trials:
            return False
        ended = [trial.state for trial in trials if trial.state != "running"]
        if ended[-_MAX_FAILURES:] == ["failed"] * _MAX_FAILURES:
            return False
        repetitions = next(((1 + best) * seeds for best, seeds in self.affordable(trials)), 0)
        return self.left_s >= ((1 + repetitions) * self.longest_s(trials) if trials else 0)

    def choose_finalists(self, trials: Sequence[TrialRecord]) -> dict[str, object] | None:
        """The numbers of the trials to repeat, as time allows, and the number of new seeds."""
        for finalists, seeds in self.affordable(trials):
            best = [trial.number for trial in best_trials(trials)[:finalists]]
            if best and self.left_s >= (1 + len(best)) * seeds * self.longest_s(trials):
                return {"trials": [1, *best], "seeds": seeds}
        return None

    def affordable(self, trials: Sequence[TrialRecord]) -> list[tuple[int, int]]:
        """The pairs (finalists, seeds) that the budget allows, the most thorough first."""
        count = self.budget_s / max(self.longest_s(trials), 1e-9)
        if self.max_trials is not None:
            count = float("inf")  # all time left after the requested trials goes to repetitions
        return [(best, seeds) for best, seeds, least in _REPETITIONS if count >= least]

    def longest_s(self, trials: Sequence[TrialRecord]) -> float:
        """The estimated seconds of a trial: the longest so far, or the maximum length."""
        seconds = (trial.seconds for trial in scored_trials(trials))
        return max(seconds, default=self.each_s)

    def try_out(self, trial: TrialRecord) -> bool:
        """Run a trial and store its result."""
        number = trial.number
        if trial.attempts >= _MAX_ATTEMPTS:
            error = f"its process was killed {trial.attempts} times"
            self.study.end(number, TrialState.PRUNED, error=error)
            return True
        self.study.note(number, attempts=trial.attempts + 1)
        began = self.clock()
        try:
            result = self.run_trial(trial.settings, self.each_s, trial.seed)
        except TrialFailedError as failed:
            seconds = self.clock() - began
            self.study.end(number, TrialState.PRUNED, error=failed.message, seconds=seconds)
            return True
        # Time that an earlier process spent on this trial counts against the budget, too.
        self.ends -= max(0.0, result.seconds - (self.clock() - began))
        self.study.end(
            number,
            TrialState.COMPLETE,
            result.score,
            seconds=result.seconds,
            model=result.model,
            figures=dict(result.figures),
        )
        return True
