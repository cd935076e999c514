"""Stores the trials of a search with Optuna: in a file, or in a database that machines share."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, OptunaError, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from ownwords.core.errors import WorkspaceError
from ownwords.core.workspace import translate_os_errors
from ownwords.tune.axis import SearchAxis
from ownwords.tune.sampler import SPREAD, PlanThenTPESampler
from ownwords.tune.trial import FIRST_SEED, TrialRecord, TrialResult, TrialStatus

_STATES: Mapping[TrialState, TrialStatus] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "failed",
    TrialState.FAIL: "failed",
}
_ATTEMPTS = 5  # at opening a storage while other processes create its tables
_SQLITE_TIMEOUT_S = 60  # to wait for another process that is writing


def open_storage(where: str | Path) -> BaseStorage:
    """Open an SQLite file (a Path), a database (a URL) or a journal file (any other string).

    Raises WorkspaceError if it cannot be opened.
    """
    if isinstance(where, Path):
        # A file URI allows any character in the path.
        address = f"sqlite:///{where.absolute().as_uri()}?uri=true"
        return _database(address, str(where), {"connect_args": {"timeout": _SQLITE_TIMEOUT_S}})
    if "://" in where:
        return _database(where, where.partition("://")[0] + " storage", {})
    path = Path(where).expanduser()
    with translate_os_errors(path):
        lock = JournalFileOpenLock(str(path)) if sys.platform == "win32" else _Lock(path)
        try:
            return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        except (ValueError, KeyError) as error:
            raise WorkspaceError(
                f"{path} is not the journal of a search, or it is damaged",
                hint="give another file to --storage",
            ) from error


class _Lock(JournalFileOpenLock):
    """A file lock that is released when its process dies, unlike Optuna's own locks."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path.with_name(path.name + ".held")
        self._held: int | None = None

    def acquire(self) -> bool:
        import fcntl  # noqa: PLC0415 - not on Windows

        held = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except BaseException:
            os.close(held)
            raise
        self._held = held
        return True

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def _database(address: str, name: str, options: dict[str, object]) -> BaseStorage:
    for attempt in range(_ATTEMPTS):
        try:
            return RDBStorage(address, engine_kwargs=options)
        except ImportError as error:
            raise WorkspaceError(
                f"the {name} needs the Python package {error.name or 'of its driver'}, which is"
                " not installed",
                hint="install it, or give a journal file to --storage",
            ) from error
        except (SQLAlchemyError, OptunaError, RuntimeError) as error:
            is_last = attempt + 1 == _ATTEMPTS or isinstance(error, ArgumentError)
            if is_last:
                message = " ".join(str(error).split())[:200]
                raise WorkspaceError(
                    f"the record of the search ({name}) cannot be opened: {message}",
                    hint="give another one to --storage",
                ) from error
            time.sleep(0.2 * (attempt + 1))
    raise AssertionError


class Study:
    """The trials of one search, numbered from 1; several processes may use it at the same time.

    The storage assigns each trial number once, so two processes never create the same trial.
    """

    def __init__(
        self, stored: BaseStorage, name: str, axes: Sequence[SearchAxis], spread: int = SPREAD
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage, self.axes = stored, tuple(axes)
        self._sampler = PlanThenTPESampler(axes, spread)
        self._distributions: dict[str, BaseDistribution] = {**self._sampler.distributions()}
        self._study = _open_study(stored, name, self._sampler)
        self._id = stored.get_study_id_from_name(name)

    def trials(self) -> list[TrialRecord]:
        """All trials, by number."""
        return [self._record(trial) for trial in self._study.get_trials(deepcopy=False)]

    def next_trial(self, worker: str) -> int:
        """Take a waiting trial or create one that the worker owns; return its number."""
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not waiting:
            self._study.enqueue_trial({}, user_attrs={"begun": {"place": worker}})
        return self._study.ask(self._distributions).number + 1

    def enqueue_repetition(
        self,
        of: int,
        seed: int,
        settings: Mapping[str, float],
        finalists: Sequence[int],
        seeds: int,
    ) -> None:
        """Enqueue a repetition of trial `of` with another seed."""
        attributes = {
            "of": of,
            "seed": seed,
            "finalists": list(finalists),
            "seeds": seeds,
            "settings": dict(settings),
        }
        self._study.enqueue_trial(dict(settings), user_attrs=attributes)

    def start(self, trial: TrialRecord, worker: str) -> TrialRecord:
        """Record that the worker now runs the trial, and sample its missing settings."""
        id_ = self._trial_id(trial.number)
        if len(trial.settings) < len(self.axes):  # its process was killed while sampling
            unfinished = Trial(self._study, id_)
            for name, range_ in self._sampler.distributions().items():
                unfinished.suggest_float(name, range_.low, range_.high, log=range_.log)
        begun = {"place": worker, "times": trial.attempts + 1, "at": time.time()}
        self._note(trial.number, "begun", begun)
        return self._record(self._storage.get_trial(id_))

    def complete(self, number: int, result: TrialResult) -> bool:
        """Store the result of a trial; return False if another process has ended the trial."""
        ended = {"seconds": result.seconds, "kept": result.model, "told": dict(result.figures)}
        return self._note(number, "ended", ended) and self._end(
            number, TrialState.COMPLETE, result.score
        )

    def fail(
        self, number: int, error: str, seconds: float = 0.0, *, by_chance: bool = False
    ) -> bool:
        """Store that a trial failed; later trials avoid its settings unless `by_chance`."""
        # TPE ranks pruned trials below all scored ones, and ignores failed ones.
        state = TrialState.FAIL if by_chance else TrialState.PRUNED
        ended = {"why": error, "seconds": seconds}
        return self._note(number, "ended", ended) and self._end(number, state, None)

    def drop(self, number: int) -> bool:
        """Store that a trial is not needed and will not run."""
        return self._note(number, "dropped", True) and self._end(number, TrialState.FAIL, None)

    def agree_on(self, name: str, value: int) -> int:
        """Store a value unless one is stored under this name; return the stored value."""
        if name not in self._study.user_attrs:
            self._study.set_user_attr(name, value)
        return cast(int, self._study.user_attrs[name])

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number - 1)

    def _note(self, number: int, key: str, value: object) -> bool:
        try:
            self._storage.set_trial_user_attr(self._trial_id(number), key, value)
        except RuntimeError:  # another process has finished the trial
            return False
        return True

    def _end(self, number: int, state: TrialState, score: float | None) -> bool:
        try:
            self._study.tell(number - 1, score, state=state)
        except (ValueError, RuntimeError):
            return False
        return True

    def _record(self, trial: FrozenTrial) -> TrialRecord:
        attrs = trial.user_attrs
        begun, ended = attrs.get("begun", {}), attrs.get("ended", {})
        settings = attrs.get("settings") or trial.params
        return TrialRecord(
            number=trial.number + 1,
            state="dropped" if "dropped" in attrs else _STATES[trial.state],
            kind="again" if "of" in attrs else self._sampler.kind(trial.number),
            seed=attrs.get("seed", FIRST_SEED),
            settings={
                axis.name: settings[axis.name] for axis in self.axes if axis.name in settings
            },
            score=trial.value if trial.state == TrialState.COMPLETE else None,
            seconds=ended.get("seconds", 0.0),
            model=ended.get("kept", ""),
            figures=ended.get("told", {}),
            error=ended.get("why", ""),
            worker=begun.get("place", ""),
            attempts=begun.get("times", 0),
            started_at=begun.get("at"),
            repeats=attrs.get("of", 0),
            finalists=tuple(attrs.get("finalists", ())),
            seeds=attrs.get("seeds", 0),
        )


def _open_study(stored: BaseStorage, name: str, sampler: PlanThenTPESampler) -> OptunaStudy:
    for attempt in range(_ATTEMPTS):
        try:
            return optuna.create_study(
                storage=stored, study_name=name, sampler=sampler, load_if_exists=True
            )
        except (DuplicatedStudyError, StorageInternalError):  # another process creates it
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(0.1)
    raise AssertionError
