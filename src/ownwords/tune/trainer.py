"""A trial is a whole training: planned, trained, saved, and scored on the validation posts."""

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
from ownwords.training import validation
from ownwords.training.device import choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.job import LossModule, next_token
from ownwords.training.loop import TrainingError
from ownwords.training.plan import Plan
from ownwords.training.prepare import TextSample
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.shards import TrainingText, build_shards
from ownwords.tune.search_space import SearchSpace
from ownwords.tune.trial import FIRST_SEED, TrialFailedError, TrialRecord, TrialResult

_CHECKPOINTS = "checkpoints"
_SCORED_ROWS = 16  # at once: the figure is the same for any number
_WARM_UP = 1_000_003  # a seed that no trial has


class TrialTrainer:
    """Makes trials of one search; the models lie in `folder` until they are tidied away.

    `make` is `plan_pretraining` or `plan_finetuning` with its texts; `work` what all trials have
    in common. `held_out` are the validation posts.
    """

    def __init__(
        self,
        make: Callable[[TrainRequest], PlannedTraining],
        held_out: Iterable[TrainingText],
        work: TrainRequest,
        folder: Path,
    ) -> None:
        self.make, self.work, self.folder = make, work, folder
        self.held_out = held_out
        self.space: SearchSpace | None = None
        # The user's seed, if there is one, is that of trial 1.
        self.first_seed = int(str(work.fixed.get("train.seed", FIRST_SEED)))

    def plan(self) -> Plan:
        """The plan of trial 1, which later is made of it; nothing is trained."""
        # What is prepared once (ids, speeds, text of the base's own) must not cost trial 1 alone.
        shutil.rmtree(self._planned(_WARM_UP).run.folder, ignore_errors=True)
        return self._planned(FIRST_SEED).plan

    def _planned(self, seed: int) -> PlannedTraining:
        return self.make(self._request({}, seed, began=time.perf_counter()))

    def search_in(self, space: SearchSpace, held_out_bytes: int) -> None:
        """From now on: what is searched, and how much of the held-out texts is read for a score.

        All trials are scored on the same texts, however slow their models are.
        """
        self.space = space
        self.held_out = TextSample(self.held_out, held_out_bytes)

    def __call__(self, settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
        assert self.space is not None
        began = time.perf_counter()
        name = digest(repr(sorted(settings.items())), f"{seconds} {seed}")[:12]
        planned: PlannedTraining | None = None
        try:
            chosen = self.space.settings(settings)
            request = self._request(chosen, seed, began=began)
            planned = self.make(replace(request, seconds=seconds, out=self.folder / name))
            made = planned.train()
            score = self.score(made.folder, made.plan)
        except (TrainingError, ConfigError, CorpusError, ModelError) as error:
            self._clear(name, planned)
            raise TrialFailedError(error.message, error.hint) from error
        except (MemoryError, RuntimeError) as error:
            if not choose(self.work.device).is_out_of_memory(error):
                raise
            self._clear(name, planned)
            raise TrialFailedError("out of memory") from error
        if not score < float("inf"):
            self._clear(name, planned)
            raise TrialFailedError("the model's score is not a number")
        if made.plan.is_second and seed == FIRST_SEED and not chosen:
            # The search is around what the plan came to, not what it was for a moment.
            self.space = replace(self.space, plan=made.plan)
        recipe, outcome = made.plan.recipe, made.outcome
        said = {one.key: one.value for one in made.plan.reasons}
        return TrialResult(
            score=score,
            seconds=max(time.perf_counter() - began, outcome.seconds),
            kept=name,
            told={
                "run": made.run.folder.name,
                "settings": {key: said.get(key, value) for key, value in chosen.items()},
                "parameters": made.plan.recipe.model.parameters,
                "steps": outcome.steps,
                "tokens": outcome.tokens,
                "stopped": outcome.stopped,
                "setbacks": outcome.setbacks,
                "context": recipe.train.sequence_length,
            },
        )

    def score(self, model: Path, plan: Plan) -> float:
        """Bits a byte of a saved model on the held-out texts."""
        found = bundle.load(model)
        device = choose(self.work.device)
        tokenizer = tokenizers.from_files(found.tokenizer_files)
        tokens = self.work.workspace / "tokens"
        shards = build_shards(self.held_out, tokenizer, tokens, progress=Progress())
        net = found.model.float().to(device.torch_device).eval()
        return validation.bits_per_byte(
            LossModule(net, next_token),
            shards,
            rows=_SCORED_ROWS,
            context=min(plan.recipe.train.sequence_length, found.config.context),
            isolate=plan.recipe.data.document_masking,
            device=device,
            precision="float32",
            world=SINGLE_PROCESS,
        )

    def _request(self, chosen: Mapping[str, object], seed: int, *, began: float) -> TrainRequest:
        seed += self.first_seed - FIRST_SEED
        fixed = {**self.work.fixed, **chosen, "train.seed": seed}
        # Steps that a trial sets must fit its time as the plan's do; the user's own need not.
        in_time = "train.steps" not in self.work.fixed
        return replace(self.work, fixed=fixed, began=began, ends_in_time=in_time)

    # --- what is kept ---------------------------------------------------------------------------

    def tidy(self, tried: Sequence[TrialRecord], worth: set[int], place: str) -> None:
        """Delete the checkpoints of what has ended here, and the models that nobody will want."""
        for one in tried:
            if one.state == "done" and one.place == place:
                run = self.work.workspace / "runs" / str(one.told.get("run", ""))
                shutil.rmtree(run / _CHECKPOINTS, ignore_errors=True)
                if one.number not in worth and one.kept:
                    _delete(self.folder / one.kept)

    def install(self, run: TrialRecord, provenance: Mapping[str, object], target: Path) -> None:
        """Put the model of a trial into a folder, whole or not at all."""
        source = self.folder / run.kept
        if target.exists() and any(target.iterdir()) and not (target / CONFIG).exists():
            raise ModelError(
                f"{target} holds files that are not a model's, and is not replaced",
                hint="move them away, or leave the model where it is with --keep",
            )
        with atomic_dir.replace_dir(target) as beside:
            for file in sorted(source.iterdir()):
                data = file.read_bytes()
                if file.name == PROVENANCE:
                    said = {**json.loads(data), "tune": dict(provenance)}
                    data = json.dumps(said, indent=2, ensure_ascii=False).encode() + b"\n"
                atomic_dir.write_file(beside / file.name, data)

    def is_better_already(self, target: Path, plan: Plan, score: float) -> float | None:
        """The score of a model of these very texts that stands there already, if it is better."""
        with suppress(OwnwordsError, ValueError, OSError):
            said = json.loads((target / PROVENANCE).read_bytes())
            if said.get("corpus") == self.work.corpus:
                standing = self.score(target, plan)
                return standing if standing < score else None
        return None

    def _clear(self, name: str, planned: PlannedTraining | None) -> None:
        if planned:
            shutil.rmtree(planned.run.folder / _CHECKPOINTS, ignore_errors=True)
        _delete(self.folder / name)


def _delete(model: Path) -> None:
    if model.exists():
        with suppress(OwnwordsError, OSError):  # as where Windows has one of its files open
            atomic_dir.delete_dir(model)
