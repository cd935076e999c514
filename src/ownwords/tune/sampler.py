"""Samples the settings of each trial: the plan's own, then Sobol points, then TPE.

The settings depend only on the trial's number and the results so far, so processes that share a
storage need no other coordination.
"""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial

from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialKind

SPREAD = 8  # a power of two: Sobol points are then evenly spread
_SOBOL_SEED = 5  # arbitrary
_TPE_STARTS_AFTER = 4  # scored trials


class PlanThenTPESampler(BaseSampler):
    """An Optuna sampler: the plan for trial 1, Sobol points for the next `spread`, then TPE.

    TPE (arXiv 2304.11127) samples where good trials are denser than bad ones. It tolerates noisy
    scores; running trials count as bad ones until they end (`constant_liar`).
    """

    def __init__(self, axes: Sequence[SearchAxis], spread: int = SPREAD) -> None:
        self._axes, self._spread = tuple(axes), spread
        self._tpe = _tpe(0)

    def kind(self, index: int) -> TrialKind:
        """The kind of a trial, by its index from 0."""
        if index == 0:
            return "plan"
        return "spread" if index <= self._spread else "search"

    def distributions(self) -> dict[str, FloatDistribution]:
        """The ranges of the axes as Optuna's distributions."""
        return {
            axis.name: FloatDistribution(axis.low, axis.high, log=axis.is_ratio)
            for axis in self._axes
        }

    def infer_relative_search_space(
        self, study: OptunaStudy, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self.kind(trial.number) != "search":
            return {}
        self._tpe = _tpe(trial.number)  # seeded by the trial's number
        return self._tpe.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: OptunaStudy, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._tpe.sample_relative(study, trial, search_space) if search_space else {}

    def sample_independent(
        self,
        study: OptunaStudy,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:  # noqa: ANN401 - as Optuna has it
        index = [axis.name for axis in self._axes].index(param_name)
        axis, kind = self._axes[index], self.kind(trial.number)
        if kind == "plan":
            return axis.plan
        if kind == "spread":
            return axis.at(self._points[trial.number - 1][index])
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)

    @cached_property
    def _points(self) -> list[list[float]]:
        # Optuna's own Sobol sampler needs SciPy, which is not a dependency.
        from torch.quasirandom import SobolEngine  # noqa: PLC0415 - takes a second

        untyped: Any = SobolEngine
        engine = untyped(len(self._axes), scramble=True, seed=_SOBOL_SEED)
        points: list[list[float]] = engine.draw(self._spread).tolist()
        return points


def _tpe(seed: int) -> TPESampler:
    with warnings.catch_warnings():  # Optuna 4 marks multivariate and constant_liar as experimental
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(
            n_startup_trials=_TPE_STARTS_AFTER, multivariate=True, constant_liar=True, seed=seed
        )
