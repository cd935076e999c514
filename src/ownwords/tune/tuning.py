"""`ownwords tune`: trains each trial, scores it on the validation posts, installs the winner."""

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.archive.corpus import Corpus, TextCollection, TrainingText
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, duration
from ownwords.core.workspace import locked, write_atomically
from ownwords.models import atomic_dir, bundle
from ownwords.models.directory import CONFIG, PROVENANCE, model_fingerprint
from ownwords.models.model_library import ModelLibrary
from ownwords.models.untrusted_files import ModelError, read_json
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import metrics, recipes
from ownwords.training.device import Device, choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.loop import TrainingError
from ownwords.training.metrics import LossModule
from ownwords.training.plan import Plan
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.run import CHECKPOINTS
from ownwords.training.settings import settings_key
from ownwords.training.token_dataset import build_dataset
from ownwords.tune.search import (
    FIRST_SEED,
    Search,
    SearchSpace,
    Study,
    TrialFailedError,
    TrialResult,
    open_storage,
    search_space,
    settings_toml,
)
from ownwords.tune.verdict import (
    SearchAxis,
    TrialRecord,
    TuneVerdict,
    best_trials,
    judge,
    scored_trials,
    trial_text,
    trials_csv,
    trials_view,
    winning_runs,
)
from ownwords.view import html
from ownwords.view.blocks import View

STORAGE, TABLE, PAGE = "trials.journal", "trials.csv", "trials.html"
_FOLDER = "tune"
_TRIALS_PER_BUDGET = 30  # used if the length of a trial is not given
_EXTRA_TRIALS = 10  # added for the repetitions if the number of trials is given
_SCORING_BATCH = 16  # does not change the score
_WARM_UP_SEED = 1_000_003  # not used by any trial


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

    trials: Sequence[TrialRecord]
    verdict: TuneVerdict
    space: SearchSpace
    settings: Mapping[str, object]  # the winner's settings that differ from the plan
    toml: str  # the same settings, as lines of ownwords.toml
    view: View
    model: Path | None  # the winner's model, if it is on this machine
    note: str  # a note about the model for the user, or ""
    table: Path
    page: Path


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

    with locked(
        train_request.workspace / _FOLDER / ".lock",
        f"another ownwords is searching in {train_request.workspace}",
        "wait for it to end, or give another folder to --workspace",
    ):
        return TuneRun(texts, plan_training, train_request, request, base).run()


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
    key = digest(texts, fingerprint, settings_key(fixed), f"{trial_s}", *ranges)
    return f"{'finetune' if base else 'pretrain'}-{key[:12]}"


class TuneRun:
    """One search in a workspace; the models of its trials stay in `folder` until `tidy`."""

    space: SearchSpace  # set before the first trial, and so are these
    name: str
    folder: Path
    held_out: TextCollection

    def __init__(
        self,
        texts: Corpus,
        plan_training: Callable[[TrainRequest], PlannedTraining],
        train_request: TrainRequest,
        request: TuneRequest,
        base: Path | None,
    ) -> None:
        self.texts, self.request, self.base = texts, request, base
        self.plan_training = plan_training
        self.root, self.target = train_request.workspace, train_request.folder
        self.progress = train_request.progress
        began = train_request.began
        self.began = time.perf_counter() if began is None else began
        self.train_request = replace(train_request, seconds=request.trial_s)
        # Trial 1 uses the user's seed, if one is set.
        self.first_seed = int(str(train_request.fixed.get("train.seed", FIRST_SEED)))
        self.reported: set[int] = set()
        self.worker = "here"
        if request.storage is not None:  # the storage may be shared between machines
            self.worker = f"{socket.gethostname()}:{self.root.resolve()}"

    def run(self) -> TuneResult:
        request, fixed = self.request, self.train_request.fixed
        plan = self.plan()
        self.space = search_space(plan, fixed, request.trial_s, has_base=self.base is not None)
        if not self.space.axes:
            raise ConfigError(
                "your settings leave nothing to search for", hint="leave some of them to the plan"
            )
        axes = self.space.axes
        self.name = search_name(self.texts.key, self.base, fixed, request.trial_s, axes)
        study = Study(open_storage(request.storage or self.root / STORAGE), self.name, axes)
        held_out = study.agree_on("held_out_bytes", plan.expected.held_out_bytes)
        self.folder = self.root / _FOLDER / self.name
        self.held_out = TextCollection.read(self.texts.validation).sample(held_out)
        self.reported = {trial.number for trial in study.trials() if trial.state != "running"}
        search = Search(
            self.run_trial,
            study,
            request.minutes * 60,
            request.trial_s,
            self.worker,
            request.trials,
            on_trial_end=self._on_trial_end,
            clock=time.perf_counter,
            began=self.began,
        )
        return self._finish(search.run())

    def plan(self) -> Plan:
        """Make the plan of trial 1, after preparing what all trials share."""
        try:
            # Token ids, speed measurements and replay text are prepared once: not in trial 1.
            warm_up = self.plan_training(self._request({}, _WARM_UP_SEED))
            shutil.rmtree(warm_up.run.folder, ignore_errors=True)
            return self.plan_training(self._request({}, FIRST_SEED)).plan
        except ConfigError as error:
            raise ConfigError(
                f"the plan's own trial cannot be trained: {error.message}",
                hint=f"{error.hint}; a trial has {duration(self.request.trial_s)} (--each)",
            ) from error

    # --- a trial ----------------------------------------------------------------------------------

    def run_trial(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
        """Plan and train a model, save it, and score it on the validation posts."""
        began = time.perf_counter()
        name = digest(repr(sorted(settings.items())), f"{seconds} {seed}")[:12]
        planned: PlannedTraining | None = None
        try:
            chosen = self.space.settings(settings)
            request = self._request(chosen, seed)
            planned = self.plan_training(
                replace(request, seconds=seconds, out=self.folder / name, began=began)
            )
            made = planned.train()
            score = self.score(made.folder, made.plan)
            if not score < float("inf"):
                raise TrainingError("the model's score is not a number")
        except (OwnwordsError, MemoryError, RuntimeError) as error:
            is_of_trial = isinstance(error, TrainingError | ConfigError | CorpusError | ModelError)
            if not is_of_trial and not Device.is_out_of_memory(error):
                raise
            if planned:
                shutil.rmtree(planned.run.folder / CHECKPOINTS, ignore_errors=True)
            _delete_model(self.folder / name)
            reason = error.message if isinstance(error, OwnwordsError) else "out of memory"
            raise TrialFailedError(reason) from error
        recipe, outcome = made.plan.recipe, made.outcome
        values = {number.key: number.value for number in made.plan.reasons}
        return TrialResult(
            score=score,
            seconds=max(time.perf_counter() - began, outcome.seconds),
            model=name,
            figures={
                "run": made.run.folder.name,
                "settings": {key: values.get(key, value) for key, value in chosen.items()},
                "parameters": recipe.model.parameters,
                "steps": outcome.steps,
                "tokens": outcome.tokens,
            },
        )

    def score(self, folder: Path, plan: Plan) -> float:
        """Measure the bits per byte of a saved model on the held-out texts."""
        loaded = bundle.load(folder)
        device = choose(self.train_request.device)
        tokenizer = tokenizers.Tokenizer(loaded.tokenizer_files)
        tokens = self.root / "tokens"
        shards = build_dataset(self.held_out, tokenizer, tokens, progress=Progress())
        model = loaded.model.float().to(device.torch_device).eval()
        return metrics.bits_per_byte(
            LossModule(model),
            shards,
            rows=_SCORING_BATCH,
            context=min(plan.recipe.train.sequence_length, loaded.config.context),
            isolate=plan.recipe.data.document_masking,
            device=device,
            precision="float32",
            world=SINGLE_PROCESS,
        )

    def _request(self, chosen: Mapping[str, object], seed: int) -> TrainRequest:
        seed += self.first_seed - FIRST_SEED
        return replace(
            self.train_request,
            fixed={**self.train_request.fixed, **chosen, "train.seed": seed},
            began=time.perf_counter(),
            # Steps chosen by the trial must fit its time; those fixed by the user need not.
            ends_in_time="train.steps" not in self.train_request.fixed,
        )

    def tidy(self, trials: Sequence[TrialRecord], keep: set[int]) -> None:
        """Delete the checkpoints of this worker's finished trials, and models not in `keep`."""
        for trial in trials:
            if trial.state == "done" and trial.worker == self.worker:
                run = self.root / "runs" / str(trial.figures.get("run", ""))
                shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
                if trial.number not in keep and trial.model:
                    _delete_model(self.folder / trial.model)

    def install(self, trial: TrialRecord, provenance: Mapping[str, object]) -> None:
        """Make a trial's model the workspace's, atomically; its provenance names the search."""
        source, target = self.folder / trial.model, self.target
        if target.exists() and any(target.iterdir()) and not (target / CONFIG).exists():
            raise ModelError(
                f"{target} holds files that are not a model's, and is not replaced",
                hint="move them away, or leave the model where it is with --keep",
            )
        with atomic_dir.replace_dir(target) as beside:
            for file in sorted(source.iterdir()):
                data = file.read_bytes()
                if file.name == PROVENANCE:
                    noted = {**json.loads(data), "tune": dict(provenance)}
                    data = json.dumps(noted, indent=2, ensure_ascii=False).encode() + b"\n"
                atomic_dir.write_file(beside / file.name, data)

    def better_score(self, score: float) -> float | None:
        """The score of the workspace's model if it beats `score` on the same texts, else None."""
        with suppress(OwnwordsError, ValueError, OSError):
            if read_json(self.target / PROVENANCE).get("corpus") == self.texts.key:
                present = self.score(self.target, self.space.plan)
                return present if present < score else None
        return None

    # --- during the search ------------------------------------------------------------------------

    def _on_trial_end(self, trials: Sequence[TrialRecord]) -> None:
        again = {trial.repeats for trial in trials if trial.kind == "again"}
        keep = {trial.number for trial in trials if {trial.number, trial.repeats} & {1, *again}}
        keep |= {trial.number for trial in best_trials(trials)[:2]} if not again else set()
        self.tidy(trials, keep)
        self._write(trials, None)
        for trial in trials:
            if trial.number not in self.reported and trial.state != "running":
                self.reported.add(trial.number)
                self._report(trial, trials)

    def _report(self, trial: TrialRecord, trials: Sequence[TrialRecord]) -> None:
        what = trial_text(self.space.axes, trial)
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
    ) -> View:
        name, axes = self.root.name.removesuffix(".ownwords"), self.space.axes
        view = trials_view(name, axes, trials, verdict, toml)
        write_atomically(self.root / TABLE, trials_csv(axes, trials))
        write_atomically(self.root / PAGE, html.document(view))
        return view

    # --- at the end -------------------------------------------------------------------------------

    def _finish(self, trials: Sequence[TrialRecord]) -> TuneResult:
        verdict = judge(trials)
        if verdict.kind == "nothing":
            why = next((trial.error for trial in trials if trial.error), "there was no time")
            raise OwnwordsError(
                f"none of {len(trials)} trials could be trained: {why}",
                hint="try `ownwords pretrain` or `ownwords finetune` alone, which says more",
            )
        stored = trials[verdict.winner - 1].figures.get("settings")
        settings = stored if isinstance(stored, dict) else {}
        toml = settings_toml(settings)
        view = self._write(trials, verdict, toml)
        model, note = self._place_model(trials, verdict)
        table, page = self.root / TABLE, self.root / PAGE
        return TuneResult(
            trials, verdict, self.space, settings, toml, view, model, note, table, page
        )

    def _place_model(
        self, trials: Sequence[TrialRecord], verdict: TuneVerdict
    ) -> tuple[Path | None, str]:
        """Install the winner's model; return its folder (None if not here) and a user note."""
        runs, folder = winning_runs(trials, verdict), self.folder
        # Another worker may have run the same trial: then the model of that name is this one's.
        own = (trial for trial in runs if trial.worker == self.worker)
        best = next((trial for trial in own if (folder / trial.model / CONFIG).exists()), None)
        if best is None:
            with suppress(OwnwordsError):
                noted = read_json(self.target / PROVENANCE).get("tune")
                if isinstance(noted, dict) and noted.get("search") == self.name:
                    return self.target, ""
            workers = sorted({trial.worker for trial in runs if trial.worker != self.worker})
            where = f"; it was trained at {workers[0]}" if workers else ""
            return None, f"The winner's model is not here{where}."
        self.tidy(trials, {best.number})
        if self.request.keep:
            return folder / best.model, "The workspace's own model is unchanged."
        better = self.better_score(best.score or 0.0)
        if better is not None:
            return (
                folder / best.model,
                f"The model in {self.target} is better ({better:.3f} bits per byte on the same"
                " posts) and stays. With these settings and as much time, a new one may be better"
                " still.",
            )
        ModelLibrary(self.target.parent).keep()
        self.install(best, self._provenance(verdict, best))
        self.tidy(trials, set())
        shutil.rmtree(folder, ignore_errors=True)
        return self.target, ""

    def _provenance(self, verdict: TuneVerdict, best: TrialRecord) -> dict[str, object]:
        return {
            "search": self.name,
            "base": model_fingerprint(self.base, provenance=True) if self.base else "",
            "settings": settings_key(self.train_request.fixed),
            "run": best.figures.get("run", ""),
            "trials": verdict.trials,
            "trial": verdict.winner,
            "verdict": verdict.kind,
            "gain": verdict.gain,
            "interval": [verdict.low, verdict.high],
            "seed_noise": verdict.noise,
        }


def _delete_model(model: Path) -> None:
    if model.exists():
        with suppress(OwnwordsError, OSError):  # such as when a file is open on Windows
            atomic_dir.delete_dir(model)
