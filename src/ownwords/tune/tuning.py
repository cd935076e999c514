"""`ownwords tune`: search for better training settings, and install the winner's model."""

import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, duration
from ownwords.core.workspace import write_atomically
from ownwords.models.directory import CONFIG, PROVENANCE
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.model_library import ModelLibrary
from ownwords.models.untrusted_files import read_json
from ownwords.training import recipes
from ownwords.training.corpus import Corpus, TrainingText
from ownwords.training.plan import Plan
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.tune import trials_csv
from ownwords.tune.axis import SearchAxis
from ownwords.tune.search import SearchBudget, SearchResult, search
from ownwords.tune.search_space import SearchSpace, search_space, settings_toml, values_text
from ownwords.tune.study import Study, open_storage
from ownwords.tune.trainer import TrialTrainer
from ownwords.tune.trial import TrialRecord, scored_trials
from ownwords.tune.trials_page import trials_view
from ownwords.tune.verdict import TuneVerdict, winning_runs
from ownwords.view import html

RECORD, TABLE, PAGE = "trials.db", "trials.csv", "trials.html"
_FOLDER = "tune"
_TRIALS_PER_BUDGET = 30  # used if the length of a trial is not given
_EXTRA_TRIALS = 10  # added for the repetitions if the number of trials is given


@dataclass(frozen=True)
class TuneRequest:
    """The options of a search; without `each_s`, the minutes determine a trial's length."""

    minutes: float
    each_s: float | None = None
    trials: int | None = None
    storage: str | None = None  # journal file or database URL; None: in the workspace
    keep: bool = False  # leave the workspace's model in place

    @property
    def trial_s(self) -> float:
        """The length of one trial, in seconds."""
        if self.each_s is not None:
            return self.each_s
        count = _TRIALS_PER_BUDGET if self.trials is None else self.trials + _EXTRA_TRIALS
        return self.minutes * 60 / count


@dataclass(frozen=True)
class TuneResult:
    """The result of a search: the trials, the winner's settings, and the paths of its files."""

    search: SearchResult
    space: SearchSpace
    settings: Mapping[str, object]  # the winner's settings that differ from the plan
    toml: str  # the same settings, as lines of ownwords.toml
    model: Path | None  # the winner's model, if it is on this machine
    note: str  # a note about the model for the user, or ""
    table: Path
    page: Path

    @property
    def verdict(self) -> TuneVerdict:
        return self.search.verdict


def tune(
    texts: Corpus,
    train_request: TrainRequest,
    request: TuneRequest,
    *,
    base: Path | None = None,
    replay: Iterable[TrainingText] | None = None,
) -> TuneResult:
    """Search for better settings than the plan's, and install the winner's model.

    `train_request` is as for a single training; its seconds are ignored. Only the training and
    validation posts are read. Raises OwnwordsError if the search is impossible.
    """
    if not len(texts.validation):
        raise CorpusError(
            "no post is held out, so settings cannot be compared",
            hint="add posts: from a handful on, some are held out",
        )

    def plan_training(request: TrainRequest) -> PlannedTraining:
        if base is None:
            return recipes.plan_pretraining(texts.train, texts.validation, request)
        return recipes.plan_finetuning(base, texts.train, texts.validation, request, replay=replay)

    return _TuneRun(texts, plan_training, train_request, request, base).run()


def search_name(
    texts: str,
    base: Path | None,
    fixed: Mapping[str, object],
    trial_s: float,
    axes: Sequence[SearchAxis],
) -> str:
    """The name of a search, derived from its inputs so that the same inputs resume it."""
    fingerprint = model_fingerprint(base, provenance=True) if base else ""
    ranges = [repr((axis.name, axis.is_ratio)) for axis in axes]
    key = digest(texts, fingerprint, repr(sorted(fixed.items())), f"{trial_s}", *ranges)
    return f"{'finetune' if base else 'pretrain'}-{key[:12]}"


class _TuneRun:
    def __init__(
        self,
        texts: Corpus,
        plan_training: Callable[[TrainRequest], PlannedTraining],
        train_request: TrainRequest,
        request: TuneRequest,
        base: Path | None,
    ) -> None:
        self.texts, self.request, self.base = texts, request, base
        self.root, self.target = train_request.workspace, train_request.folder
        self.progress: Progress = train_request.progress
        began = train_request.began
        self.began = time.perf_counter() if began is None else began
        self.train_request = replace(train_request, seconds=request.trial_s)
        self.trainer = TrialTrainer(
            plan_training, texts.validation, self.train_request, self.root / _FOLDER
        )
        self.reported: set[int] = set()
        self.space: SearchSpace
        self.worker = "here"
        if request.storage is not None:  # the storage may be shared between machines
            self.worker = f"{socket.gethostname()}:{self.root.resolve()}"

    def run(self) -> TuneResult:
        request = self.request
        plan = self._plan()
        self.space = search_space(
            plan, self.train_request.fixed, request.trial_s, has_base=self.base is not None
        )
        if not self.space.axes:
            raise ConfigError(
                "your settings leave nothing to search for", hint="leave some of them to the plan"
            )
        name = search_name(
            self.texts.key, self.base, self.train_request.fixed, request.trial_s, self.space.axes
        )
        study = Study(open_storage(request.storage or self.root / RECORD), name, self.space.axes)
        self.trainer.folder = self.root / _FOLDER / name
        held_out = study.agree_on("held_out_bytes", plan.expected.held_out_bytes)
        self.trainer.search_in(self.space, held_out)
        self._compare_machines(study, plan.expected.tokens)
        budget = SearchBudget(
            budget_s=request.minutes * 60,
            each_s=request.trial_s,
            worker=self.worker,
            folder=self.trainer.folder / "locks",
            is_shared=request.storage is not None,
            max_trials=request.trials,
        )
        self.reported = {t.number for t in study.trials() if t.state in ("done", "failed")}
        result = search(
            self.trainer,
            study,
            budget,
            on_trial_end=self._on_trial_end,
            clock=time.perf_counter,
            began=self.began,
        )
        return self._finish(result, name)

    def _plan(self) -> Plan:
        try:
            return self.trainer.plan()
        except ConfigError as error:
            raise ConfigError(
                f"the plan's own trial cannot be trained: {error.message}",
                hint=f"{error.hint}; a trial has {duration(self.request.trial_s)} (--each)",
            ) from error

    def _compare_machines(self, study: Study, tokens: int) -> None:
        first = study.agree_on("tokens", tokens)
        if not 0.75 < tokens / max(first, 1) < 1.33:
            self.progress.note(
                f"This machine trains on {tokens:,} tokens per trial, the one that started the"
                f" search on {first:,}: settings found on one may not suit the other."
            )

    # --- during the search ------------------------------------------------------------------------

    def _on_trial_end(self, trials: Sequence[TrialRecord]) -> None:
        best = [t for t in scored_trials(trials) if t.kind in ("spread", "search")][:2]
        again = {trial.repeats for trial in trials if trial.kind == "again"}
        keep = {trial.number for trial in trials if {trial.number, trial.repeats} & {1, *again}}
        keep |= {trial.number for trial in best} if not again else set()
        self.trainer.tidy(trials, keep, self.worker)
        self._write(trials, None)
        for trial in trials:
            if trial.number not in self.reported and trial.state in ("done", "failed"):
                self.reported.add(trial.number)
                self._report(trial, trials)

    def _report(self, trial: TrialRecord, trials: Sequence[TrialRecord]) -> None:
        what = values_text(self.space.axes, trial.settings)
        if trial.kind == "again":
            what = f"trial {trial.repeats} again, seed {trial.seed}"
        elif trial.kind == "plan":
            what = "the plan's own settings"
        if trial.score is None:
            self.progress.note(f"Trial {trial.number} ({what}) failed: {trial.error}")
            return
        scored = [other for other in scored_trials(trials) if other.kind != "again"]
        best = "; the best so far" if scored[0].number == trial.number and len(scored) > 1 else ""
        self.progress.note(
            f"Trial {trial.number} ({what}): {trial.score:.4f} bits per byte after"
            f" {duration(trial.seconds)}{best}"
        )
        if trial.kind == "plan" and trial.seconds:
            left_s = self.request.minutes * 60 - (time.perf_counter() - self.began)
            self.progress.note(
                f"There is time for about {left_s / trial.seconds:.0f} more trials of that length;"
                " the best are then repeated with other seeds."
            )

    def _write(
        self, trials: Sequence[TrialRecord], verdict: TuneVerdict | None, toml: str = ""
    ) -> None:
        trials_csv.write(self.root / TABLE, self.space.axes, trials)
        name = self.root.name.removesuffix(".ownwords")
        page = html.document(trials_view(name, self.space.axes, trials, verdict, toml))
        write_atomically(self.root / PAGE, page)

    # --- at the end -------------------------------------------------------------------------------

    def _finish(self, result: SearchResult, name: str) -> TuneResult:
        verdict = result.verdict
        if verdict.kind == "nothing":
            why = next((t.error for t in result.trials if t.error), "there was no time")
            raise OwnwordsError(
                f"none of {len(result.trials)} trials could be trained: {why}",
                hint="try `ownwords pretrain` or `ownwords finetune` alone, which says more",
            )
        winner = next(trial for trial in result.trials if trial.number == verdict.winner)
        stored = winner.figures.get("settings")
        settings = stored if isinstance(stored, dict) else {}
        toml = settings_toml(settings)
        self._write(result.trials, verdict, toml)
        model, note = self._place_model(result, name)
        return TuneResult(
            search=result,
            space=self.space,
            settings=settings,
            toml=toml,
            model=model,
            note=note,
            table=self.root / TABLE,
            page=self.root / PAGE,
        )

    def _place_model(self, result: SearchResult, name: str) -> tuple[Path | None, str]:
        """Install the winner's model; return its folder (None if not here) and a user note."""
        runs = winning_runs(result.trials, result.verdict)
        folder = self.trainer.folder
        here = [t for t in runs if t.worker == self.worker and (folder / t.model / CONFIG).exists()]
        if not here:
            with suppress(OwnwordsError):
                noted = read_json(self.target / PROVENANCE).get("tune")
                if isinstance(noted, dict) and noted.get("search") == name:
                    return self.target, ""
            workers = sorted({trial.worker for trial in runs if trial.worker != self.worker})
            where = f"; it was trained at {workers[0]}" if workers else ""
            return None, f"The winner's model is not here{where}."
        best = here[0]
        self.trainer.tidy(result.trials, {best.number}, self.worker)
        if self.request.keep:
            return folder / best.model, "The workspace's own model is unchanged."
        assert best.score is not None
        better = self.trainer.better_score_of(self.target, self.space.plan, best.score)
        if better is not None:
            return (
                folder / best.model,
                f"The model in {self.target} is better ({better:.3f} bits per byte on the same"
                " posts) and stays. With the settings below and as much time, a new one may be"
                " better still.",
            )
        ModelLibrary(self.target.parent).keep()
        self.trainer.install(best, self._provenance(result, name, best), self.target)
        self.trainer.tidy(result.trials, set(), self.worker)
        if not any(trial.state == "running" for trial in result.trials):
            shutil.rmtree(folder, ignore_errors=True)
        return self.target, ""

    def _provenance(self, result: SearchResult, name: str, best: TrialRecord) -> dict[str, object]:
        verdict = result.verdict
        return {
            "search": name,
            "base": model_fingerprint(self.base, provenance=True) if self.base else "",
            "settings": repr(sorted(self.train_request.fixed.items())),
            "run": best.figures.get("run", ""),
            "trials": verdict.trials,
            "trial": verdict.winner,
            "verdict": verdict.kind,
            "gain": verdict.gain,
            "interval": [verdict.low, verdict.high],
            "seed_noise": verdict.noise,
        }
