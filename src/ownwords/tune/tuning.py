"""`ownwords tune`: trains each trial, scores it on the validation posts, installs the winner."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.archive.corpus import Corpus, TextCollection, TrainingText
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import duration
from ownwords.core.workspace import locked, write_atomically
from ownwords.models import atomic_dir, bundle
from ownwords.models.directory import PROVENANCE, encode_json, model_fingerprint
from ownwords.models.model_library import ModelLibrary
from ownwords.models.untrusted_files import ModelError, read_json
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import metrics, recipes
from ownwords.training.device import Device, choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.loop import TrainingError
from ownwords.training.metrics import LossModule
from ownwords.training.plan import Plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.run import CHECKPOINTS
from ownwords.training.settings import settings_key
from ownwords.training.token_dataset import build_dataset
from ownwords.tune.search import (
    FIRST_SEED,
    Search,
    SearchSpace,
    TrialFailedError,
    TrialResult,
    search_space,
    settings_toml,
)
from ownwords.tune.verdict import (
    SearchAxis,
    TrialRecord,
    TuneVerdict,
    best_trials,
    judge,
    outcome,
    scored_trials,
    trial_text,
    trials_csv,
    trials_view,
    winning_runs,
)
from ownwords.view import html
from ownwords.view.blocks import View

TABLE, PAGE = "trials.csv", "trials.html"
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
    axes: tuple[SearchAxis, ...]
    settings: Mapping[str, object]  # the winner's settings that differ from the plan
    toml: str  # the same settings, as lines of ownwords.toml
    view: View
    model: Path  # the winner's
    note: str  # about the model for the user, or ""
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
    with locked(
        train_request.workspace / _FOLDER / ".lock",
        f"another ownwords is searching in {train_request.workspace}",
        "wait for it to end, or give another folder to --workspace",
    ):
        return TuneRun(texts, train_request, request, base, replay).run()


class TuneRun:
    """One search in a workspace; the models of its trials stay in `folder` until it ends."""

    def __init__(
        self,
        texts: Corpus,
        train_request: TrainRequest,
        request: TuneRequest,
        base: Path | None,
        replay: Iterable[TrainingText] | None,
    ) -> None:
        self.texts, self.request, self.base, self.replay = texts, request, base, replay
        self.root, self.target = train_request.workspace, train_request.folder
        self.progress = train_request.progress
        began = time.perf_counter() if train_request.began is None else train_request.began
        self.train_request = replace(train_request, seconds=request.trial_s)
        self.fixed = train_request.fixed
        plan = self._plan()
        self.space: SearchSpace = search_space(
            plan, self.fixed, request.trial_s, has_base=base is not None
        )
        if not self.space.axes:
            raise ConfigError(
                "your settings leave nothing to search for", hint="leave some of them to the plan"
            )
        self.base_key = model_fingerprint(base, provenance=True) if base else ""
        # The same inputs resume a search.
        name = digest(
            *(texts.key, self.base_key, settings_key(self.fixed), f"{request.trial_s}"),
            *(axis.name for axis in self.space.axes),
        )[:12]
        self.folder = self.root / _FOLDER / name
        self.search = Search(
            self.folder.with_suffix(".json"),
            self.space.axes,
            request.minutes * 60,
            request.trial_s,
            request.trials,
            clock=time.perf_counter,
            began=began,
        )
        record = self.search.record
        record.held_out_bytes = record.held_out_bytes or plan.expected.held_out_bytes
        self.held_out = TextCollection.read(texts.validation).sample(record.held_out_bytes)

    def run(self) -> TuneResult:
        """Run the trials, judge them, and install the winner's model."""
        self.search.run(self._run_trial, self._on_trial_end)
        trials = self.search.trials
        verdict = judge(trials)
        if verdict.kind == "nothing":
            why = next((trial.error for trial in trials if trial.error), "there was no time")
            raise OwnwordsError(
                f"none of {len(trials)} trials could be trained: {why}",
                hint="try `ownwords pretrain` or `ownwords finetune` alone, which says more",
            )
        settings = trials[verdict.winner - 1].figures["settings"]
        toml = settings_toml(settings)
        view = self._write(verdict, toml)
        model, note = self._place_model(verdict)
        table, page = self.root / TABLE, self.root / PAGE
        axes = self.space.axes
        return TuneResult(trials, verdict, axes, settings, toml, view, model, note, table, page)

    # --- a trial ----------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        """Make the plan of trial 1, after preparing what all trials share."""
        try:
            # Token ids, speed measurements and replay text are prepared once: not in trial 1.
            warm_up = self._plan_training(self._train_request({}, _WARM_UP_SEED))
            shutil.rmtree(warm_up.run.folder, ignore_errors=True)
            plan = self._plan_training(self._train_request({}, FIRST_SEED)).plan
        except ConfigError as error:
            raise ConfigError(
                f"the plan's own trial cannot be trained: {error.message}",
                hint=f"{error.hint}; a trial has {duration(self.request.trial_s)} (--each)",
            ) from error
        is_shortest = plan.recipe.train.steps <= PLAN_CONSTANTS.least_steps
        if is_shortest and plan.expected.seconds > 1.02 * self.request.trial_s:
            raise ConfigError(
                f"a trial of {duration(self.request.trial_s)} is too short: its fewest useful steps"
                f" take {duration(plan.expected.seconds)}",
                hint="give trials more time with --each",
            )
        return plan

    def _plan_training(self, request: TrainRequest) -> PlannedTraining:
        texts = self.texts.train, self.texts.validation
        if self.base is None:
            return recipes.plan_pretraining(*texts, request)
        return recipes.plan_finetuning(self.base, *texts, request, replay=self.replay)

    def _train_request(self, chosen: Mapping[str, object], seed: int) -> TrainRequest:
        # Trial 1 uses the user's seed, if one is set.
        seed += int(str(self.fixed.get("train.seed", FIRST_SEED))) - FIRST_SEED
        return replace(
            self.train_request,
            fixed={**self.fixed, **chosen, "train.seed": seed},
            began=time.perf_counter(),
            # Steps chosen by the trial must fit its time; those fixed by the user need not.
            ends_in_time="train.steps" not in self.fixed,
        )

    def _run_trial(self, trial: TrialRecord) -> TrialResult:
        """Plan and train a model, save it, and score it on the validation posts."""
        began = time.perf_counter()
        chosen = self.space.settings(trial.settings)
        planned: PlannedTraining | None = None
        try:
            request = self._train_request(chosen, trial.seed)
            planned = self._plan_training(replace(request, out=self.folder / trial.name))
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
            _delete_model(self.folder / trial.name)
            reason = error.message if isinstance(error, OwnwordsError) else "out of memory"
            raise TrialFailedError(reason) from error
        values = {number.key: number.value for number in made.plan.reasons}
        figures = {
            "run": made.run.folder.name,
            "settings": {key: values.get(key, value) for key, value in chosen.items()},
            "parameters": made.plan.recipe.model.parameters,
            "steps": made.outcome.steps,
            "tokens": made.outcome.tokens,
        }
        seconds = max(time.perf_counter() - began, made.outcome.seconds)
        return TrialResult(score, seconds, figures)

    def score(self, folder: Path, plan: Plan) -> float:
        """Measure the bits per byte of a saved model on the held-out texts."""
        loaded = bundle.load(folder)
        device = choose(self.train_request.device)
        tokenizer = tokenizers.Tokenizer(loaded.tokenizer_files)
        model = loaded.model.float().to(device.torch_device).eval()
        return metrics.bits_per_byte(
            LossModule(model),
            build_dataset(self.held_out, tokenizer, self.root / "tokens"),
            rows=_SCORING_BATCH,
            context=min(plan.recipe.train.sequence_length, loaded.config.context),
            isolate=plan.recipe.data.document_masking,
            device=device,
            precision="float32",
            world=SINGLE_PROCESS,
        )

    def _on_trial_end(self, trial: TrialRecord) -> None:
        trials = self.search.trials
        repeated = {each.repeats for each in trials} - {0}
        wanted = {1, *(repeated or {best.number for best in best_trials(trials)[:2]})}
        self._tidy({each.number for each in trials if (each.repeats or each.number) in wanted})
        self._write(None)
        what = f"Trial {trial.number} ({trial_text(self.space.axes, trial)})"
        if trial.score is None:
            self.progress.note(f"{what} failed: {trial.error}")
            return
        choices = [each for each in scored_trials(trials) if each.kind != "again"]
        best = "; the best so far" if choices[0] is trial and choices[1:] else ""
        self.progress.note(
            f"{what}: {trial.score:.4f} bits per byte after {duration(trial.seconds)}{best}"
        )
        if trial.kind == "plan" and trial.seconds:
            self.progress.note(
                f"There is time for about {self.search.left_s / trial.seconds:.0f} more trials of"
                " that length; the best are then repeated with other seeds."
            )

    def _tidy(self, keep: set[int]) -> None:
        """Delete the checkpoints of finished trials, and the models that are not to `keep`."""
        for trial in self.search.trials:
            if trial.state == "done":
                run = self.root / "runs" / trial.figures["run"]
                shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
                if trial.number not in keep:
                    _delete_model(self.folder / trial.name)

    # --- the result -------------------------------------------------------------------------------

    def _write(self, verdict: TuneVerdict | None, toml: str = "") -> View:
        name, axes, trials = self.root.name, self.space.axes, self.search.trials
        view = trials_view(name.removesuffix(".ownwords"), axes, trials, verdict, toml)
        write_atomically(self.root / TABLE, trials_csv(axes, trials))
        write_atomically(self.root / PAGE, html.document(view))
        return view

    def _place_model(self, verdict: TuneVerdict) -> tuple[Path, str]:
        """Install the winner's model; return its folder and a note for the user."""
        best = winning_runs(self.search.trials, verdict)[0]
        made = self.folder / best.name
        if not made.exists():  # the same search has installed it before
            return self.target, ""
        self._tidy({best.number})
        if self.request.keep:
            return made, "The workspace's own model is unchanged."
        better = self._better_score(best.score or 0.0)
        if better is not None:
            return (
                made,
                f"The model in {self.target} is better ({better:.3f} bits per byte on the same"
                " posts) and stays. With these settings and as much time, a new one may be better"
                " still.",
            )
        bundle.check_replaceable(self.target)
        ModelLibrary(self.root).keep()
        provenance = {
            **read_json(made / PROVENANCE),
            "tune": {
                "base": self.base_key,
                "settings": settings_key(self.fixed),
                "run": best.figures["run"],
                "outcome": outcome(verdict),
            },
        }
        files = {file.name: file.read_bytes() for file in made.iterdir()}
        with atomic_dir.replace_dir(self.target) as beside:
            for name, data in (files | {PROVENANCE: encode_json(provenance)}).items():
                atomic_dir.write_file(beside / name, data)
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.target, ""

    def _better_score(self, score: float) -> float | None:
        """The score of the workspace's model if it beats `score` on the same texts, else None."""
        with suppress(OwnwordsError, ValueError, OSError):
            if read_json(self.target / PROVENANCE).get("corpus") == self.texts.key:
                present = self.score(self.target, self.space.plan)
                return present if present < score else None
        return None


def _delete_model(model: Path) -> None:
    if model.exists():
        with suppress(OwnwordsError, OSError):  # such as when a file is open on Windows
            atomic_dir.delete_dir(model)
