"""Which settings each trial gets: the plan's, points spread evenly, then by what came of those.

What a trial gets follows from its number and from what is known by then, so that processes which
share a record need not agree on anything else.
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

SPREAD = 8  # Sobol's points are evenly spread where their number is a power of two
_SCRAMBLED = 5  # the seed of their shift: any would do
_LEAST = 4  # trials with a score before they say anything


class PlanThenTPESampler(BaseSampler):
    """Optuna's sampler for trial 1, the plan; the `spread` after it; and TPE for all others.

    TPE (arXiv 2304.11127) asks where good trials lie more densely than bad ones; it does not mind
    that scores are noisy, and takes trials that others are at for bad ones meanwhile.
    """

    def __init__(self, axes: Sequence[SearchAxis], spread: int = SPREAD) -> None:
        self._axes, self._spread = tuple(axes), spread
        self._tpe = _tpe(0)

    def kind(self, index: int) -> TrialKind:
        """What a trial is, by its index from 0 on."""
        if index == 0:
            return "plan"
        return "spread" if index <= self._spread else "search"

    def distributions(self) -> dict[str, FloatDistribution]:
        """The ranges, as Optuna knows them."""
        return {
            axis.name: FloatDistribution(axis.low, axis.high, log=axis.is_ratio)
            for axis in self._axes
        }

    def infer_relative_search_space(
        self, study: OptunaStudy, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self.kind(trial.number) != "search":
            return {}
        self._tpe = _tpe(trial.number)  # its luck follows from the number, too
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
        # Optuna's own Sobol points take SciPy, which nothing else here does.
        from torch.quasirandom import SobolEngine  # noqa: PLC0415 - a second, of which few need

        made: Any = SobolEngine
        engine = made(len(self._axes), scramble=True, seed=_SCRAMBLED)
        points: list[list[float]] = engine.draw(self._spread).tolist()
        return points


def _tpe(seed: int) -> TPESampler:
    with warnings.catch_warnings():  # in Optuna 4 both options are called experimental
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(n_startup_trials=_LEAST, multivariate=True, constant_liar=True, seed=seed)
