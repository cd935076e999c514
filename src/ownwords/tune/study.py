"""The record of a search, in Optuna's storage: one file, or a database that machines share."""

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
_TABLES_AT_ONCE = 5  # times two processes may get in each other's way while they make the tables
_WAIT_S = 60  # for another process that is writing to the same file


def storage(where: str | Path) -> BaseStorage:
    """A storage: a Path is an SQLite file, a text with "://" a database, any other a journal file.

    WorkspaceError if it cannot be opened.
    """
    if isinstance(where, Path):
        # As an address, in which every character of a path may stand.
        address = f"sqlite:///{where.absolute().as_uri()}?uri=true"
        return _database(address, str(where), {"connect_args": {"timeout": _WAIT_S}})
    if "://" in where:
        return _database(where, where.partition("://")[0] + " storage", {})
    path = Path(where).expanduser()
    with translate_os_errors(path):
        lock = JournalFileOpenLock(str(path)) if sys.platform == "win32" else _Lock(path)
        try:
            return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
        except (ValueError, KeyError) as error:
            raise WorkspaceError(
                f"{path} is no journal of a search, or it is damaged",
                hint="give another file to --storage",
            ) from error


class _Lock(JournalFileOpenLock):
    """Is let go when its process ends, however that ends: Optuna's own locks outlive a kill."""

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
    for attempt in range(_TABLES_AT_ONCE):
        try:
            return RDBStorage(address, engine_kwargs=options)
        except ImportError as error:
            raise WorkspaceError(
                f"the {name} takes the Python package {error.name or 'of its driver'}, which is"
                " not installed",
                hint="install it, or give a journal file to --storage",
            ) from error
        except (SQLAlchemyError, OptunaError, RuntimeError) as error:
            is_last = attempt + 1 == _TABLES_AT_ONCE or isinstance(error, ArgumentError)
            if is_last:
                said = " ".join(str(error).split())[:200]
                raise WorkspaceError(
                    f"the record of the search ({name}) cannot be opened: {said}",
                    hint="give another one to --storage",
                ) from error
            time.sleep(0.2 * (attempt + 1))
    raise AssertionError


class Study:
    """The trials of one search; several processes may write in it at the same time.

    Numbers of trials are from 1 on. What two processes could both do is decided by the numbers,
    which the storage gives out once.
    """

    def __init__(
        self, stored: BaseStorage, name: str, axes: Sequence[SearchAxis], spread: int = SPREAD
    ) -> None:
        # What Optuna says is said here in our own words.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage, self.axes = stored, tuple(axes)
        self._course = PlanThenTPESampler(axes, spread)
        self._distributions: dict[str, BaseDistribution] = {**self._course.distributions()}
        self._study = _study(stored, name, self._course)
        self._id = stored.get_study_id_from_name(name)

    def tried(self) -> list[TrialRecord]:
        """All trials there are, by number."""
        return [self._record(one) for one in self._study.get_trials(deepcopy=False)]

    def ask(self, place: str) -> int:
        """The number of a trial to be made: one that waits, else a new one.

        It has the name of its place from the first moment, so that none is without an owner.
        """
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not waiting:
            self._study.enqueue_trial({}, user_attrs={"begun": {"place": place}})
        return self._study.ask(self._distributions).number + 1

    def queue(
        self,
        of: int,
        seed: int,
        settings: Mapping[str, float],
        finalists: Sequence[int],
        seeds: int,
    ) -> None:
        """Let a trial be repeated with another seed."""
        attributes = {
            "of": of,
            "seed": seed,
            "finalists": list(finalists),
            "seeds": seeds,
            "settings": dict(settings),
        }
        self._study.enqueue_trial(dict(settings), user_attrs=attributes)

    def begin(self, one: TrialRecord, place: str) -> TrialRecord:
        """Note where a trial is made from now on; it then has all its settings."""
        id_ = self._trial_id(one.number)
        if len(one.settings) < len(self.axes):  # killed before all were chosen
            trial = Trial(self._study, id_)
            for name, range_ in self._course.distributions().items():
                trial.suggest_float(name, range_.low, range_.high, log=range_.log)
        begun = {"place": place, "times": one.times + 1, "at": time.time()}
        self._note(one.number, "begun", begun)
        return self._record(self._storage.get_trial(id_))

    def tell(self, number: int, result: TrialResult) -> bool:
        """Note what came of a trial; False if it was given up meanwhile."""
        told = {"seconds": result.seconds, "kept": result.kept, "told": dict(result.told)}
        noted = self._note(number, "ended", told)
        return noted and self._end(number, TrialState.COMPLETE, result.score)

    def fail(self, number: int, why: str, seconds: float = 0.0, *, by_chance: bool = False) -> bool:
        """Note that nothing came of a trial; later ones keep away from it, but not from chance."""
        # To TPE a pruned trial is worse than all with a score, and one that failed is none.
        state = TrialState.FAIL if by_chance else TrialState.PRUNED
        noted = self._note(number, "ended", {"why": why, "seconds": seconds})
        return noted and self._end(number, state, None)

    def drop(self, number: int) -> bool:
        """Note that a trial was not wanted after all."""
        return self._note(number, "dropped", True) and self._end(number, TrialState.FAIL, None)

    def agreed(self, name: str, value: int) -> int:
        """A number that whoever came first has said."""
        if name not in self._study.user_attrs:
            self._study.set_user_attr(name, value)
        return cast(int, self._study.user_attrs[name])

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number - 1)

    def _note(self, number: int, key: str, value: object) -> bool:
        try:
            self._storage.set_trial_user_attr(self._trial_id(number), key, value)
        except RuntimeError:  # another process has ended it
            return False
        return True

    def _end(self, number: int, state: TrialState, score: float | None) -> bool:
        try:
            self._study.tell(number - 1, score, state=state)
        except (ValueError, RuntimeError):
            return False
        return True

    def _record(self, one: FrozenTrial) -> TrialRecord:
        said = one.user_attrs
        begun, ended = said.get("begun", {}), said.get("ended", {})
        settings = said.get("settings") or one.params
        return TrialRecord(
            number=one.number + 1,
            state="dropped" if "dropped" in said else _STATES[one.state],
            kind="again" if "of" in said else self._course.kind(one.number),
            seed=said.get("seed", FIRST_SEED),
            settings={
                axis.name: settings[axis.name] for axis in self.axes if axis.name in settings
            },
            score=one.value if one.state == TrialState.COMPLETE else None,
            seconds=ended.get("seconds", 0.0),
            kept=ended.get("kept", ""),
            told=ended.get("told", {}),
            why=ended.get("why", ""),
            place=begun.get("place", ""),
            times=begun.get("times", 0),
            begun=begun.get("at"),
            of=said.get("of", 0),
            finalists=tuple(said.get("finalists", ())),
            seeds=said.get("seeds", 0),
        )


def _study(stored: BaseStorage, name: str, course: PlanThenTPESampler) -> OptunaStudy:
    for attempt in range(_TABLES_AT_ONCE):
        try:
            return optuna.create_study(
                storage=stored, study_name=name, sampler=course, load_if_exists=True
            )
        except (DuplicatedStudyError, StorageInternalError):  # made by another at this moment
            if attempt + 1 == _TABLES_AT_ONCE:
                raise
            time.sleep(0.1)
    raise AssertionError
