"""Runs a trial: plans and trains a model, saves it, and scores it on the validation posts."""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ownwords.core.errors import ConfigError, CorpusError, OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.models import atomic_dir, bundle
from ownwords.models.directory import CONFIG, PROVENANCE
from ownwords.models.untrusted_files import ModelError
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import metrics
from ownwords.training.corpus import TextCollection, TrainingText
from ownwords.training.device import Device, choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.job import LossModule, next_token
from ownwords.training.loop import TrainingError
from ownwords.training.plan import Plan
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.token_dataset import build_dataset
from ownwords.tune.search_space import SearchSpace
from ownwords.tune.trial import FIRST_SEED, TrialFailedError, TrialRecord, TrialResult

_CHECKPOINTS = "checkpoints"
_SCORING_BATCH = 16  # does not change the score
_WARM_UP_SEED = 1_000_003  # not used by any trial


class TrialTrainer:
    """Trains the trials of one search; their models stay in `folder` until `tidy` deletes them.

    `plan_training` is a planning function of `recipes` with its texts bound, `request` the part of
    the request that all trials share, `held_out` the validation posts.
    """

    def __init__(
        self,
        plan_training: Callable[[TrainRequest], PlannedTraining],
        held_out: Iterable[TrainingText],
        request: TrainRequest,
        folder: Path,
    ) -> None:
        self.plan_training, self.request, self.folder = plan_training, request, folder
        self.held_out = held_out
        self.space: SearchSpace | None = None
        # Trial 1 uses the user's seed, if one is set.
        self.first_seed = int(str(request.fixed.get("train.seed", FIRST_SEED)))

    def plan(self) -> Plan:
        """Make the plan of trial 1, after preparing what all trials share."""
        # Token ids, speed measurements and replay text are prepared once: keep that out of trial 1.
        warm_up = self.plan_training(self._request({}, _WARM_UP_SEED))
        shutil.rmtree(warm_up.run.folder, ignore_errors=True)
        return self.plan_training(self._request({}, FIRST_SEED)).plan

    def search_in(self, space: SearchSpace, held_out_bytes: int) -> None:
        """Set the search space, and the size of the held-out text that all trials are scored on."""
        self.space = space
        self.held_out = TextCollection.read(self.held_out).sample(held_out_bytes)

    def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
        assert self.space is not None
        began = time.perf_counter()
        name = digest(repr(sorted(settings.items())), f"{seconds} {seed}")[:12]
        planned: PlannedTraining | None = None
        try:
            chosen = self.space.settings(settings)
            request = replace(
                self._request(chosen, seed),
                seconds=seconds,
                out=self.folder / name,
                began=began,
            )
            planned = self.plan_training(request)
            made = planned.train()
            score = self.score(made.folder, made.plan)
        except (TrainingError, ConfigError, CorpusError, ModelError) as error:
            self._delete(name, planned)
            raise TrialFailedError(error.message, error.hint) from error
        except (MemoryError, RuntimeError) as error:
            if not Device.is_out_of_memory(error):
                raise
            self._delete(name, planned)
            raise TrialFailedError("out of memory") from error
        if not score < float("inf"):
            self._delete(name, planned)
            raise TrialFailedError("the model's score is not a number")
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
                "stopped": outcome.stopped,
                "setbacks": outcome.setbacks,
                "context": recipe.train.sequence_length,
            },
        )

    def score(self, folder: Path, plan: Plan) -> float:
        """Measure the bits per byte of a saved model on the held-out texts."""
        loaded = bundle.load(folder)
        device = choose(self.request.device)
        tokenizer = tokenizers.from_files(loaded.tokenizer_files)
        tokens = self.request.workspace / "tokens"
        shards = build_dataset(self.held_out, tokenizer, tokens, progress=Progress())
        model = loaded.model.float().to(device.torch_device).eval()
        return metrics.bits_per_byte(
            LossModule(model, next_token),
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
        fixed = {**self.request.fixed, **chosen, "train.seed": seed}
        return replace(
            self.request,
            fixed=fixed,
            began=time.perf_counter(),
            # Steps chosen by the trial must fit its time; those fixed by the user need not.
            ends_in_time="train.steps" not in self.request.fixed,
        )

    # --- models and checkpoints -------------------------------------------------------------------

    def tidy(self, trials: Sequence[TrialRecord], keep: set[int], place: str) -> None:
        """Delete the checkpoints of this worker's finished trials, and models not in `keep`."""
        for trial in trials:
            if trial.state == "done" and trial.worker == place:
                run = self.request.workspace / "runs" / str(trial.figures.get("run", ""))
                shutil.rmtree(run / _CHECKPOINTS, ignore_errors=True)
                if trial.number not in keep and trial.model:
                    _delete_model(self.folder / trial.model)

    def install(self, trial: TrialRecord, provenance: Mapping[str, object], target: Path) -> None:
        """Copy a trial's model to `target`, atomically, and add the search to its provenance."""
        source = self.folder / trial.model
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

    def better_score_of(self, target: Path, plan: Plan, score: float) -> float | None:
        """The score of the model in `target` if it beats `score` on the same texts, else None."""
        with suppress(OwnwordsError, ValueError, OSError):
            provenance = json.loads((target / PROVENANCE).read_bytes())
            if provenance.get("corpus") == self.request.corpus:
                present = self.score(target, plan)
                return present if present < score else None
        return None

    def _delete(self, name: str, planned: PlannedTraining | None) -> None:
        if planned:
            shutil.rmtree(planned.run.folder / _CHECKPOINTS, ignore_errors=True)
        _delete_model(self.folder / name)


def _delete_model(model: Path) -> None:
    if model.exists():
        with suppress(OwnwordsError, OSError):  # such as when a file is open on Windows
            atomic_dir.delete_dir(model)
