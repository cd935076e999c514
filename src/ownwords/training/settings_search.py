"""`ownwords tune`: a search for better settings than the plan's, within a time budget.

Trial 1 has the plan's own settings; Optuna's TPE sampler suggests the others (arXiv 2304.11127).
Every trial is a whole training, since the best settings depend on how long it is. The best of many
scores is too good by chance: so the plan and the best trial are repeated at the end, and the
interval of their difference with new seeds decides.
"""

import csv
import io
import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from ownwords.archive.corpus import Corpus, TextCollection
from ownwords.core.config import as_toml, settings_of
from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import duration
from ownwords.core.version import __version__
from ownwords.core.workspace import locked, write_atomically
from ownwords.evaluation import bits_per_byte
from ownwords.evaluation.intervals import student_t
from ownwords.models import atomic_dir, bundle
from ownwords.models.directory import model_fingerprint
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import recipes
from ownwords.training.device import Device, choose
from ownwords.training.loop import TrainingError
from ownwords.training.plan import Plan
from ownwords.training.planner import rounded
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.settings import Recipe, settings_key
from ownwords.view import html
from ownwords.view.blocks import Code, Figure, Figures, Paragraph, Section, Table, View
from ownwords.view.format import plain

TABLE, PAGE = "trials.csv", "trials.html"
TRIALS = 30  # of `ownwords tune`, if each takes its whole time
REPETITIONS = 3  # of the plan and of the best trial
_FOLDER = "tune"
_FIRST_SEED = 1  # of all trials except repetitions
_WARM_UP_SEED = 1_000_003  # not used by any trial
_RANDOM_TRIALS = 8  # before TPE has enough scores to learn from
_MAX_FAILURES = 8  # consecutive failures that end the search
_TIMES = 4.0  # ratios range from 1/4 to 4 times the plan's value
_MAX_READINGS = 2.0  # times the plan's; more would memorise the text
_MAX_DROPOUT = 0.3
_MAX_REPLAY = 0.75  # more leaves too little of the author's text
_STEPS = "train.steps"
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)  # a failed trial counts as pruned


@dataclass(frozen=True)
class SearchAxis:
    """A range of values for some settings, or of ratios to the plan's, which is then 1."""

    name: str
    keys: tuple[str, ...]
    low: float = 1 / _TIMES
    high: float = _TIMES
    plan: float = 1.0
    is_ratio: bool = True


def search_axes(
    plan: Plan, fixed: Mapping[str, object], seconds: float, *, has_base: bool
) -> tuple[SearchAxis, ...]:
    """What is searched around this plan: not the settings that the user has fixed."""
    recipe = plan.recipe
    dropout, replay = recipe.train.dropout, recipe.data.replay
    rates = ("optim.muon_lr", "optim.learning_rate")
    share = partial(SearchAxis, low=0.0, is_ratio=False)
    axes = [
        SearchAxis("rate", rates if recipe.optim.kind == "muon" else rates[1:]),
        share("dropout", ("train.dropout",), high=max(_MAX_DROPOUT, dropout), plan=dropout),
    ]
    if has_base:
        most = max(1.0, min(_MAX_READINGS, seconds / plan.expected.seconds))
        axes.append(SearchAxis("readings", (_STEPS,), high=most))
    else:
        axes += [
            SearchAxis("decay", ("optim.weight_decay",)),
            SearchAxis("size", ("model.parameters",)),
        ]
    if replay:
        axes.append(share("replay", ("data.replay",), high=max(_MAX_REPLAY, replay), plan=replay))
    return tuple(axis for axis in axes if not any(key in fixed for key in axis.keys))


def settings_for(
    plan: Plan, axes: Sequence[SearchAxis], values: Mapping[str, float]
) -> dict[str, object]:
    """The settings that a trial's values stand for, without those that equal the plan's."""
    planned = {setting.key: setting.default for setting in settings_of(plan.recipe)}
    settings: dict[str, object] = {}
    for axis in axes:
        value = values[axis.name]
        for key in axis.keys if value != axis.plan else ():
            before = planned[key]
            assert isinstance(before, int | float)
            # A tiny dropout becomes 0, which also turns off what the plan couples to dropout.
            number = rounded(before * value) if axis.is_ratio else round(value, 2)
            settings[key] = max(1, round(number)) if isinstance(before, int) else number
    return settings


# --- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TuneVerdict:
    """Whether the best trial beats the plan; shares are of the plan's score, lower is better.

    `noise` is the standard deviation over seeds of the same settings. Gain and range are None where
    too few seeds were compared.
    """

    is_better: bool
    plan: float
    best: int = 0  # the trial's number
    score: float | None = None  # its mean over the new seeds
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    noise: float | None = None


def judge(plan: Sequence[float], best: int, scores: Sequence[float]) -> TuneVerdict:
    """Compare all scores of the plan with those of the best trial's repetitions."""
    mean, degrees = statistics.fmean(plan), len(plan) + len(scores) - 2
    if not scores or not degrees:
        return TuneVerdict(False, mean, best)
    score = statistics.fmean(scores)
    squares = sum(math.fsum((x - statistics.fmean(g)) ** 2 for x in g) for g in (plan, scores))
    noise = math.sqrt(squares / degrees)
    half_width = student_t(degrees) * noise * math.sqrt(1 / len(plan) + 1 / len(scores))
    gain = mean - score
    shares = (gain / mean, (gain - half_width) / mean, (gain + half_width) / mean, noise / mean)
    return TuneVerdict(gain > half_width, mean, best, score, *shares)


def sentences(verdict: TuneVerdict) -> list[str]:
    """The verdict in plain words, the most important first."""
    v = verdict
    if v.gain is None or v.low is None or v.high is None or v.noise is None:
        if not v.best:
            return ["Only the plan's own settings were tried, so they are kept."]
        return ["There was no time to tell a real gain from chance, so the plan is kept."]
    if v.is_better:
        first = f"Trial {v.best} is better than the plan: {v.gain:.1%} fewer bits per byte."
    elif v.gain > 0:
        first = f"The plan was already best: trial {v.best} gains no more than seeds differ."
    else:
        first = f"The plan was already best: trial {v.best}, repeated, is no better."
    return [
        first,
        f"The same settings differ by about {v.noise:.1%} from seed to seed. With new seeds the"
        f" gain lies between {v.low:.1%} and {v.high:.1%} (95% interval).",
    ]


# --- the search -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TuneResult:
    """The result of a search, and the paths of its files."""

    verdict: TuneVerdict
    settings: Mapping[str, object]  # the winner's that differ from the plan
    toml: str  # the same, as lines of ownwords.toml
    trials: Sequence[Mapping[str, object]]
    view: View
    table: Path
    page: Path


def tune(
    texts: Corpus, request: TrainRequest, seconds: float, *, base: Path | None = None
) -> TuneResult:
    """Search for better settings than the plan's for trainings like the requested one.

    `seconds` are for the whole search. Only the training and validation posts are read. The same
    call resumes a search that was stopped. Raises OwnwordsError if it is impossible.
    """
    if not len(texts.validation):
        raise CorpusError(
            "no post is held out, so settings cannot be compared",
            hint="add posts: from a handful on, some are held out",
        )
    with locked(
        request.workspace / _FOLDER / ".lock",
        f"another ownwords is searching in {request.workspace}",
        "wait for it to end, or give another folder to --workspace",
    ):
        return SettingsSearch(texts, request, seconds, base).run()


class SettingsSearch:
    """One search in a workspace; Optuna's journal is all that a stopped one leaves."""

    def __init__(
        self, texts: Corpus, request: TrainRequest, seconds: float, base: Path | None
    ) -> None:
        self.texts, self.request, self.base = texts, request, base
        self.root, self.fixed, self.progress = request.workspace, request.fixed, request.progress
        self._model = self.root / _FOLDER / "model"  # of the trial that runs
        self._ends = (request.began or time.perf_counter()) + seconds
        try:
            # Token ids and speed measurements are prepared once: not in trial 1.
            warm_up = self._planned({}, _WARM_UP_SEED)
        except ConfigError as error:
            raise ConfigError(
                f"the plan's own trial cannot be trained: {error.message}",
                hint=f"{error.hint}; a trial has {duration(request.seconds)}",
            ) from error
        shutil.rmtree(warm_up.run.folder, ignore_errors=True)
        self.plan = warm_up.plan
        self.axes = search_axes(self.plan, self.fixed, request.seconds, has_base=base is not None)
        if not self.axes:
            raise ConfigError(
                "your settings leave nothing to search for", hint="leave some of them to the plan"
            )
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        name = digest(
            *(texts.key, model_fingerprint(base, provenance=True) if base else ""),
            *(settings_key(self.fixed), f"{request.seconds}", *(axis.name for axis in self.axes)),
        )[:12]
        journal = str(self.root / _FOLDER / f"{name}.journal")
        self.study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(journal, JournalFileOpenLock(journal))),
            study_name=name,
            load_if_exists=True,
        )
        self._ends -= sum(trial.user_attrs["seconds"] for trial in self.trials)
        # The same in every trial.
        size = self.study.user_attrs.get("held_out_bytes", self.plan.expected.held_out_bytes)
        self.study.set_user_attr("held_out_bytes", size)
        self.held_out = [text.text for text in TextCollection.read(texts.validation).sample(size)]

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that have ended, the plan's own first."""
        return self.study.get_trials(deepcopy=False, states=_ENDED)

    @property
    def best(self) -> FrozenTrial | None:
        """The best trial but for the plan and the repetitions."""
        chosen = [trial for trial in self.trials[1:] if "repeats" not in trial.user_attrs]
        scored = [trial for trial in chosen if trial.value is not None]
        return min(scored, key=lambda trial: trial.value or 0.0, default=None)

    def run(self) -> TuneResult:
        """Run as many trials as there is time for, and judge them."""
        for stopped in self.study.get_trials(states=(TrialState.RUNNING,)):
            self.study.tell(stopped.number, state=TrialState.FAIL)
            self.study.enqueue_trial(stopped.params, user_attrs=stopped.user_attrs)
        ranges: dict[str, BaseDistribution] = {
            axis.name: FloatDistribution(axis.low, axis.high, log=axis.is_ratio)
            for axis in self.axes
        }
        while self._enqueue():
            seed = len(self.trials)  # so that a search that was stopped goes on as it would have
            self.study.sampler = TPESampler(n_startup_trials=_RANDOM_TRIALS, seed=seed)
            trial = self.study.ask(ranges)
            self._try_out(trial)
            self._tell(self.study.trials[trial.number])
        plan, best = self.trials[0], self.best
        scores = [trial.value or 0.0 for trial in self._repetitions(plan)]
        repeated = [trial.value or 0.0 for trial in self._repetitions(best)] if best else []
        verdict = judge([plan.value or 0.0, *scores], best.number + 1 if best else 0, repeated)
        settings = best.user_attrs["settings"] if best and verdict.is_better else {}
        toml = settings_toml(settings)
        view = self._write(verdict, toml)
        table, page = self.root / TABLE, self.root / PAGE
        return TuneResult(verdict, settings, toml, self._rows(), view, table, page)

    def _repetitions(self, of: FrozenTrial) -> list[FrozenTrial]:
        ended = [trial for trial in self.trials if trial.value is not None]
        return [trial for trial in ended if trial.user_attrs.get("repeats") == of.number]

    def _enqueue(self) -> bool:
        """Queue the next trial, unless the sampler is to choose it; False if there is none."""
        trials, best, left_s = self.trials, self.best, self._ends - time.perf_counter()
        if self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            return True
        if not trials:
            self.study.enqueue_trial({axis.name: axis.plan for axis in self.axes})
            return True
        longest_s = max(trial.user_attrs["seconds"] for trial in trials)
        repeated = {
            (trial.user_attrs["repeats"], trial.user_attrs["seed"])
            for trial in trials
            if "repeats" in trial.user_attrs
        }
        fails = all(trial.value is None for trial in trials[-_MAX_FAILURES:])
        later = 2 * REPETITIONS if best else 0  # without another choice there is nothing to repeat
        if not repeated and not fails and left_s >= (1 + later) * longest_s:
            return True
        # Seed by seed, so that the finished repetitions are comparable when time runs out.
        for seed in range(_FIRST_SEED + 1, _FIRST_SEED + 1 + REPETITIONS):
            for trial in (trials[0], best) if best else ():
                if (trial.number, seed) not in repeated and left_s >= longest_s:
                    settings = trial.user_attrs["settings"]
                    attributes = {"repeats": trial.number, "seed": seed, "settings": settings}
                    self.study.enqueue_trial(trial.params, user_attrs=attributes)
                    return True
        return False

    # --- a trial ----------------------------------------------------------------------------------

    def _planned(self, chosen: Mapping[str, object], seed: int) -> PlannedTraining:
        # The first trial has the user's seed, if one is set.
        seed += int(str(self.fixed.get("train.seed", _FIRST_SEED))) - _FIRST_SEED
        request = replace(
            self.request,
            fixed={**self.fixed, **chosen, "train.seed": seed},
            began=time.perf_counter(),
            # Steps chosen by the trial must fit its time; those fixed by the user need not.
            ends_in_time=_STEPS not in self.fixed,
            out=self._model,
        )
        texts = self.texts.train, self.texts.validation
        if self.base is None:
            return recipes.plan_pretraining(*texts, request)
        return recipes.plan_finetuning(self.base, *texts, request)

    def _try_out(self, trial: optuna.Trial) -> None:
        """Train a model, score it on the validation posts, and delete it."""
        began, planned, score = time.perf_counter(), None, None
        settings = trial.user_attrs.get("settings") or settings_for(
            self.plan, self.axes, trial.params
        )
        trial.set_user_attr("settings", settings)
        try:
            planned = self._planned(settings, trial.user_attrs.get("seed", _FIRST_SEED))
            score = self.score(planned.train().folder)
            if not math.isfinite(score):
                raise TrainingError("the model's score is not a number")
        except (OwnwordsError, MemoryError, RuntimeError) as error:
            is_of_settings = isinstance(
                error, TrainingError | ConfigError | CorpusError | ModelError
            ) or Device.is_out_of_memory(error)
            if not is_of_settings or not self.trials:  # the plan's own trial has to succeed
                raise
            reason = error.message if isinstance(error, OwnwordsError) else "out of memory"
            trial.set_user_attr("error", reason)
            score = None
        trial.set_user_attr("seconds", time.perf_counter() - began)
        # TPE ranks pruned trials below all scored ones.
        state = TrialState.PRUNED if score is None else TrialState.COMPLETE
        self.study.tell(trial, score, state=state)
        if planned:
            shutil.rmtree(planned.run.folder, ignore_errors=True)
        with suppress(OwnwordsError, OSError):  # such as when a file is open on Windows
            atomic_dir.delete_dir(self._model)

    def score(self, folder: Path) -> float:
        """The bits per byte of a saved model on the held-out texts."""
        loaded = bundle.load(folder)
        model = loaded.model.float().to(choose(self.request.device).torch_device)
        tokenizer = Tokenizer(loaded.tokenizer_files)
        return bits_per_byte.score(model, tokenizer, self.held_out).bits_per_byte

    # --- what is shown ----------------------------------------------------------------------------

    def _tell(self, trial: FrozenTrial) -> None:
        self._write(None)
        what = f"Trial {trial.number + 1} ({self._describe(trial)})"
        if trial.value is None:
            self.progress.note(f"{what} failed: {trial.user_attrs['error']}")
            return
        took = duration(trial.user_attrs["seconds"])
        self.progress.note(f"{what}: {trial.value:.4f} bits per byte after {took}")

    def _describe(self, trial: FrozenTrial) -> str:
        """What a trial tries: "rate x1.7, dropout 0.12"."""
        if "repeats" in trial.user_attrs:
            seed = trial.user_attrs["seed"]
            return f"trial {trial.user_attrs['repeats'] + 1} again, seed {seed}"
        if not trial.user_attrs["settings"]:
            return "the plan's own settings"
        return ", ".join(
            f"{axis.name} {'x' if axis.is_ratio else ''}{trial.params[axis.name]:.2g}"
            for axis in self.axes
        )

    def _rows(self) -> list[dict[str, object]]:
        return [
            {
                "trial": trial.number + 1,
                "what": self._describe(trial),
                "bits_per_byte": trial.value,
                "seconds": round(trial.user_attrs["seconds"], 1),
                "settings": trial.user_attrs["settings"],
                "error": trial.user_attrs.get("error", ""),
            }
            for trial in self.trials
        ]

    def _write(self, verdict: TuneVerdict | None, toml: str = "") -> View:
        """Write the table and the page; without a verdict the search goes on."""
        rows, text = self._rows(), io.StringIO()
        table = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({**row, "settings": json.dumps(row["settings"])} for row in rows)
        write_atomically(self.root / TABLE, text.getvalue())
        view = trials_view(self.root.name.removesuffix(".ownwords"), rows, verdict, toml)
        write_atomically(self.root / PAGE, html.document(view))
        return view


def settings_toml(settings: Mapping[str, object]) -> str:
    """Settings as lines of `ownwords.toml`; steps, which suit one length only, commented out."""
    sections: dict[str, list[str]] = {}
    for key in [known.key for known in settings_of(Recipe()) if known.key in settings]:
        section, _, name = key.partition(".")
        line = f"{name} = {as_toml(settings[key])}"
        if key == _STEPS:
            line = f"# {line}  # only for the --minutes of a trial"
        sections.setdefault(section, [f"[{section}]"]).append(line)
    return "\n\n".join(map("\n".join, sections.values()))


def trials_view(
    name: str, rows: Sequence[Mapping[str, Any]], verdict: TuneVerdict | None, toml: str
) -> View:
    """The view of a search; `toml` are the settings to use from now on."""
    first, *others = sentences(verdict) if verdict else ["The search is running."]
    sections = []
    if toml:
        use = "To make models with these settings, add to ownwords.toml in the workspace:"
        sections.append(Section("settings", "Use them", [Paragraph(line=use), Code(text=toml)]))
    ordered = sorted(rows, key=lambda row: (row["bits_per_byte"] is None, row["bits_per_byte"]))
    table = Table(
        caption="All trials",
        heads=("Trial", "Bits per byte", "Settings", "Time"),
        rows=[
            [
                str(row["trial"]),
                "failed" if row["bits_per_byte"] is None else f"{row['bits_per_byte']:.4f}",
                ": ".join(filter(None, (row["what"], plain(row["error"], 200)))),
                duration(row["seconds"]),
            ]
            for row in ordered
        ],
    )
    how = (
        "Each trial is a whole training. Scores are bits per byte on the validation posts, lower"
        " is better; the test posts were not read. Settings with x are multiples of the plan's own."
    )
    sections.append(Section("table", "All trials", [Paragraph(line=how), table]))
    figures = [
        Figure(str(len(rows)), "trials"),
        Figure(duration(sum(row["seconds"] for row in rows)), "of training"),
    ]
    return View(
        kind="search",
        title=f"{plain(name, 120)}: the search for settings",
        kicker="The search for settings",
        heading=plain(name, 120),
        intro=(
            Paragraph(line=first, style="lede"),
            *(Paragraph(line=sentence, style="follow") for sentence in others),
            Figures(rows=figures),
        ),
        sections=sections,
        footer=[f"Made by ownwords {__version__}."],
    )
