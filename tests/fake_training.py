"""A fake training for tests of the search: a model is a folder with a score in it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import pytest

from ownwords.archive.corpus import TrainingText
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import write_atomically
from ownwords.models.directory import CONFIG, PROVENANCE
from ownwords.training import recipes
from ownwords.training.checkpoint import Run
from ownwords.training.loop import TrainOutcome
from ownwords.training.plan import Forecast, Plan, PlannedValue
from ownwords.training.recipes import PlannedTraining, TrainedModel, TrainRequest
from ownwords.training.settings import Recipe
from ownwords.training.settings_search import SettingsSearch

EXPECTED = Forecast(
    bits_low=2.0,
    bits_high=2.5,
    seconds=50.0,
    tokens=100_000,
    epochs=8.0,
    memory_bytes=10**8,
    tokens_per_s=5000.0,
    held_out_bytes=3000,
)


def make_fake_plan(fixed: Mapping[str, object]) -> Plan:
    settings = {"optim.learning_rate": 0.005, "optim.muon_lr": 0.02, "train.steps": 100} | dict(
        fixed
    )
    reasons = tuple(
        PlannedValue(key, cast(float, value), "", "", "setting" if key in fixed else "plan")
        for key, value in settings.items()
    )
    from ownwords.core.config import resolve

    return Plan(resolve(Recipe, flags=settings).settings, reasons, EXPECTED)


class FakeTraining:
    """Scores are better the closer the rate is to `best`; every training takes `seconds`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, best: float = 0.04) -> None:
        self.best, self.seconds = best, 1.0
        self.works: list[TrainRequest] = []  # of trainings, not of plans
        self.bases: list[Path | None] = []
        self.texts: list[TrainingText] = []
        self.held_out: list[TrainingText] = []
        self.refuses = ""  # a setting above its plan's value that cannot be trained
        self.now = 1000.0
        monkeypatch.setattr(recipes, "plan_pretraining", self.pretrain)
        monkeypatch.setattr(recipes, "plan_finetuning", self.finetune)
        monkeypatch.setattr(SettingsSearch, "score", lambda _, folder: score_of(folder))
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def finetune(
        self,
        base: Path,
        train: Iterable[TrainingText],
        held_out: Iterable[TrainingText],
        work: TrainRequest,
    ) -> PlannedTraining:
        self.bases.append(base)
        return self.pretrain(train, held_out, work)

    def pretrain(
        self, train: Iterable[TrainingText], held_out: Iterable[TrainingText], work: TrainRequest
    ) -> PlannedTraining:
        if not self.texts:  # later trainings have the same
            self.texts, self.held_out = list(train), list(held_out)
        plan = make_fake_plan(work.fixed)
        run = Run.new(work.workspace / "runs", f"run-{abs(hash(plan.to_toml()))}")
        write_atomically(run.folder / "plan.toml", plan.to_toml())
        return PlannedTraining(plan, run, lambda: self.train(plan, run, work))

    def train(self, plan: Plan, run: Run, work: TrainRequest) -> TrainedModel:
        self.works.append(work)
        (run.checkpoints.folder / "step-1").mkdir(parents=True, exist_ok=True)
        rate = plan.recipe.optim.muon_lr
        self.now += self.seconds
        if self.refuses and self.refuses in work.fixed:
            raise ConfigError("too large for this machine")
        seed = plan.recipe.train.seed
        score = 2.0 + abs(rate - self.best) * 10 + 0.0001 * (seed * 7 % 3)
        work.folder.mkdir(parents=True, exist_ok=True)
        (work.folder / CONFIG).write_text("{}")
        provenance = {"corpus": work.corpus, "score": score}
        (work.folder / PROVENANCE).write_text(json.dumps(provenance))
        outcome = TrainOutcome(
            steps=plan.recipe.train.steps,
            stopped="done",
            best_step=1,
            bits_per_byte=score,
            evaluations=(),
            tokens=1000,
            seconds=self.seconds,
            rollbacks=0,
            micro_batch_size=1,
        )
        return TrainedModel(work.folder, run, plan, outcome, score, ())


def score_of(folder: Path) -> float:
    return float(json.loads((folder / PROVENANCE).read_text())["score"])
