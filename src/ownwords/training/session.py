"""One model under way: its texts encoded, its plan made or found, trained, scored, saved."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.speed import torch_product
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.memorisation import extraction_rate
from ownwords.inference import copy_guard
from ownwords.models import bundle, lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.qwen3 import Qwen3Config, parameter_count
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import model_card, planner, pruning, throughput, validation
from ownwords.training.batches import Batches
from ownwords.training.device import Device, choose
from ownwords.training.distributed import World, join
from ownwords.training.ema import interpolated
from ownwords.training.forecast import ActualResult, compared
from ownwords.training.job import TrainJob, TrainOutcome
from ownwords.training.loop import LAG
from ownwords.training.loop import train as trained
from ownwords.training.objective import LossModule, next_token
from ownwords.training.plan import BaseModelInfo, Plan, PlanInputs, read_plan, typed_settings
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.prepare import CorpusStats, TextSample, surveyed
from ownwords.training.replan import FASTER, ReplanMonitor, ReplanRequested
from ownwords.training.request import TrainedModel, TrainRequest, TrainResult
from ownwords.training.run import Run
from ownwords.training.samples import SampleWriter
from ownwords.training.settings import Precision, Recipe
from ownwords.training.shards import Shards, TrainingText
from ownwords.training.shards import build as encoded

PLAN = "plan.toml"
# Of the way from the base to the tuned weights; the best of these is taken.
_SHARES = (1.0, 0.85, 0.7, 0.5, 0.3, 0.0)
_PASSAGE_BYTES = 200  # what must come out word by word to count as learned by heart
_SAMPLE_BYTES = 160
# Its guard takes twice the room of a text, and thirty times that while it is made.
_GUARDED_BYTES = 32 << 20


class TrainingSession:
    """What training from nothing and tuning share, in the order in which it is called."""

    def __init__(
        self, work: TrainRequest, train: Iterable[TrainingText], held_out: Iterable[TrainingText]
    ) -> None:
        self.began = (
            time.perf_counter() - PLAN_CONSTANTS.start_s if work.began is None else work.began
        )
        self.work = work
        self.texts, self.held_out_texts = _lasting(train), _lasting(held_out)
        self.tokens = work.workspace / "tokens"
        self.device: Device = choose(work.device)
        self.world: World = join(self.device.torch_device, work.mode)
        if self.world.size > 1 and self.device.kind in ("cuda", "rocm", "xpu"):
            place = f"{self.device.torch_device.type}:{self.world.local_rank}"
            self.device = replace(self.device, torch_device=torch.device(place))
        self.progress = work.progress if self.world.is_first else Progress()
        if self.world.note:
            self.progress.note(self.world.note)
        self.survey: CorpusStats = surveyed(self.texts)
        self.held_out_survey = surveyed(self.held_out_texts)
        self.validation_bytes = self.held_out_survey.bytes
        self.base: BaseModelInfo | None = None
        self.shards: Shards | None = None
        self.replay: Shards | None = None
        self.held_out: Shards | None = None
        self.speeds: throughput.DeviceSpeeds | None = (
            None  # that the plan was made with, if it was made now
        )
        # What is free before anything is loaded: a second plan has as much.
        self.memory_bytes = self.device.free_memory() or 2**33
        self.run: Run

    def encode(self, tokenizer: Tokenizer, replay: Iterable[TrainingText] | None = None) -> None:
        """Turn the texts into ids on the disk."""
        self.tokenizer = tokenizer
        with self.world.in_turn():
            self.shards = encoded(self.texts, tokenizer, self.tokens, progress=self.progress)
            if replay is not None:
                self.replay = encoded(replay, tokenizer, self.tokens, progress=self.progress)

    def find_run(self, kind: str, of: str) -> None:
        """The run of just this: the same texts, time and settings find it again."""
        settings = repr(sorted(typed_settings(self.work.fixed).items()))
        assert self.shards is not None
        key = digest(
            kind,
            of,
            self.shards.key,
            self.held_out_survey.key,
            self.replay.key if self.replay else "",
            f"{self.work.seconds} {settings}",
        )
        with self.world.in_turn():
            self.run = Run.new(self.work.workspace / "runs", f"{kind}-{key[:12]}")

    @property
    def is_planned(self) -> bool:
        return self.world.share((self.run.folder / PLAN).exists())

    def facts(self, speeds: throughput.DeviceSpeeds) -> PlanInputs:
        """What the plan is made from, as far as it is known by now."""
        shards = self.shards
        return PlanInputs(
            text_bytes=self.survey.bytes,
            documents=self.survey.documents,
            speeds=speeds,
            memory_bytes=self.memory_bytes,
            validation_bytes=self.validation_bytes,
            own_share=self.work.own_share,
            tokens=shards.tokens if shards else None,
            vocabulary=shards.vocabulary if shards else None,
            spent_s=time.perf_counter() - self.began,
            replay_bytes=self.replay.text_bytes if self.replay else 0,
            base=self.base,
            processes=self.world.size,
        )

    def plan(self, rough: Plan, shape: Callable[[Recipe], ModelConfig]) -> Plan:
        """The plan kept with the run; without one, measure and make it."""
        text = ""
        if self.world.is_first:
            path = self.run.folder / PLAN
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if not text:
                plan = self._new_plan(rough, shape)
                text = self._keep(plan)
        return self._told(read_plan(self.world.share(text)))

    def _keep(self, plan: Plan) -> str:
        text = plan.to_toml()
        write_atomically(self.run.folder / PLAN, text)
        self.run.write_config(plan.resolved().to_toml())
        return text

    def _new_plan(self, rough: Plan, shape: Callable[[Recipe], ModelConfig]) -> Plan:
        work, recipe = self.work, rough.recipe
        shapes = [shape(recipe)]
        if self.base is None:  # a smaller one beside it tells the cost of a layer from arithmetic
            smaller = max(60_000, parameter_count(cast("Qwen3Config", shapes[0])) // 5)
            model = replace(recipe.model, parameters=smaller)
            with suppress(ConfigError):  # the vocabulary alone may take more than that
                shapes.append(shape(replace(recipe, model=model)))
        self.speeds = throughput.measured(
            self.device,
            shapes,
            rows=max(1, recipe.train.batch_size // self.world.size),
            context=recipe.train.sequence_length,
            seconds=PLAN_CONSTANTS.measuring_s(work.seconds),
            optim=recipe.optim,
        )
        return planner.make_plan(self.facts(self.speeds), work.seconds, work.fixed)

    def _told(self, plan: Plan) -> Plan:
        if self.work.planned:
            self.work.planned(plan)
        return plan

    def hold_out(self, bytes_: int) -> Shards | None:
        """The held-out texts that are read at each evaluation: so many bytes of them."""
        if not self.validation_bytes:
            return None
        some = bytes_ < self.validation_bytes
        texts = TextSample(self.held_out_texts, bytes_) if some else self.held_out_texts
        with self.world.in_turn():
            return encoded(texts, self.tokenizer, self.tokens, progress=self.progress)

    def train(
        self, plan: Plan, fresh: Callable[[Plan], tuple[CausalLM, lora.LoraAdapter | None]]
    ) -> TrainResult:
        """Train as planned, or go on with it; the model then holds the best weights.

        `fresh` gives a model as it is before the first step: once more where, after some steps, the
        plan proves to be one for another speed, and another takes its place.
        """
        while True:
            model, adapter = fresh(plan)
            try:
                return TrainResult(model, adapter, plan, self._outcome(model, plan, adapter))
            except ReplanRequested:
                del model, adapter  # before there is the next
            self.device.release_memory()
            first = self.world.is_first
            text = (self.run.folder / PLAN).read_text(encoding="utf-8") if first else ""
            plan = read_plan(self.world.share(text))

    def _outset(self, model: CausalLM, plan: Plan) -> ReplanMonitor | None:
        """Who watches whether the plan suits the speed; nobody where that could change nothing."""
        if plan.is_second or "train.steps" in self.work.fixed or not self.world.is_first:
            return None
        train, config = plan.recipe.train, model.config
        planned_s = train.batch_size * train.sequence_length / max(plan.expected.tokens_per_s, 1e-9)

        def plan_anew(step_s: float) -> bool:
            speeds, before_s = self.speeds, planned_s
            if speeds is None:  # the plan is one from before
                speeds = throughput.assumed(self.device)
                pace = next(iter(speeds.paces.values()))
                speeds = replace(speeds, paces={train.precision: pace})
                rows = math.ceil(train.batch_size / self.world.size)
                before_s = pace.step_s(config, rows, train.sequence_length)
            return self._plan_anew(plan, throughput.scaled(speeds, step_s / before_s))

        unseen = 1 + (LAG if self.device.is_asynchronous else 0)
        return ReplanMonitor(self.work.seconds, planned_s, plan_anew, unseen=unseen)

    def _plan_anew(self, before: Plan, speeds: throughput.DeviceSpeeds) -> bool:
        """Put a plan for these speeds in the place of the one there is, if it is much another.

        What was trained goes first: whatever happens, no checkpoint is of another plan.
        """
        try:
            found = planner.make_plan(self.facts(speeds), self.work.seconds, self.work.fixed)
        except ConfigError:  # too little time is left for any
            return False
        wanted, had = (one.recipe.model.parameters * one.expected.tokens for one in (found, before))
        if not max(wanted, had) >= FASTER * min(wanted, had):
            return False
        self.run.checkpoints.forget_after(-1)
        self._keep(replace(found, is_second=True))
        faster = found.expected.tokens_per_s > before.expected.tokens_per_s
        self.progress.note(
            f"The machine is {'faster' if faster else 'slower'} than when this was planned. It is"
            f" planned anew, and begins again: {found.recipe.train.steps:,} steps in place of"
            f" {before.recipe.train.steps:,}."
        )
        return True

    def _outcome(
        self, model: CausalLM, plan: Plan, adapter: lora.LoraAdapter | None
    ) -> TrainOutcome:
        recipe, shards = plan.recipe, self.shards
        assert shards is not None
        self.held_out = self.hold_out(plan.expected.held_out_bytes)
        if self.world.is_first:
            encoded_here = (shards, self.replay, self.held_out)
            pruning.keep(self.run.folder, {each.key for each in encoded_here if each})
            pruning.prune(self.tokens, self.run.folder.parent)
        per_token = shards.text_bytes / max(1, shards.tokens)
        passage = min(recipe.train.sequence_length // 2, round(_PASSAGE_BYTES / per_token))
        job = TrainJob(
            model=model,
            batches=Batches(
                shards,
                rows=recipe.train.batch_size,
                context=recipe.train.sequence_length,
                seed=recipe.train.seed,
                config=recipe.data,
                replay=self.replay,
                rank=self.world.rank,
                world=self.world.size,
            ),
            loop=recipe.train,
            optim=recipe.optim,
            schedule=recipe.schedule,
            run=self.run,
            device=self.device,
            tokenizer=self.tokenizer,
            validation=self.held_out,
            world=self.world,
            progress=self.progress,
            adapter=adapter,
            outset=self._outset(model, plan),
            samples=SampleWriter(
                self.tokenizer, max(8, round(_SAMPLE_BYTES / per_token)), self.work.seconds
            ),
            memorised=lambda net: extraction_rate(
                net, shards, prefix=max(1, passage), length=max(1, passage)
            ),
            peak_flops=self._peak_flops(recipe.train.precision),
            row_limits=throughput.cache_folder() / "rows.json",
            seconds=self._seconds_left(),
        )
        return trained(job)

    def _seconds_left(self) -> float | None:
        """What training may take; as long as it takes where the user has set the steps."""
        if "train.steps" in self.work.fixed and not self.work.ends_in_time:
            return None
        gone_s = time.perf_counter() - self.began + PLAN_CONSTANTS.close_s
        return max(1.0, self.work.seconds - gone_s)

    def _peak_flops(self, precision: Precision) -> float:
        """What matrix products reach here at best, which training is compared with."""
        dtype = "float32" if precision == "float32" else "bfloat16"
        return torch_product(torch, self.device.kind, dtype).value * 1e9

    def bits(self, model: CausalLM, recipe: Recipe, held_out: Shards | None) -> float | None:
        """Bits a byte of a whole model on held-out texts."""
        if held_out is None:
            return None
        return validation.bits_per_byte(
            LossModule(model, next_token),
            held_out,
            rows=recipe.train.micro_batch_size or recipe.train.batch_size,
            context=recipe.train.sequence_length,
            isolate=recipe.data.document_masking,
            device=self.device,
            precision="float32",
            world=self.world,
        )

    def best_share(
        self, course: TrainResult, before: Mapping[str, Tensor]
    ) -> tuple[float, float | None, float | None]:
        """Put the best weights between the base's and the tuned ones into the model.

        Their share of the way, their bits a byte, and the base's.
        """
        model, recipe = course.model, course.plan.recipe
        if self.held_out is None or self.world.is_sharded:
            return 1.0, course.outcome.bits_per_byte, None
        model.float()
        after = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
        scores: dict[float, float] = {}
        for share in _SHARES:
            fill(model, interpolated(before, after, share))
            scores[share] = self.bits(model, recipe, self.held_out) or 0.0
        best = min(scores, key=lambda share: scores[share])
        fill(model, interpolated(before, after, best))
        return best, scores[best], scores[0.0]

    def save(
        self,
        course: TrainResult,
        bits: float | None,
        kind: str,
        how: str,
        share: float = 1.0,
        before: float | None = None,
    ) -> TrainedModel:
        """Write the model directory, and say how right the plan was."""
        work, plan, outcome = self.work, course.plan, course.outcome
        happened = ActualResult(
            bits_per_byte=bits,
            # Steps count over all resumptions, what went before them only as of this process.
            seconds=max(time.perf_counter() - self.began, outcome.seconds),
            tokens=outcome.tokens,
            memory_bytes=self.device.peak_memory(),
            stopped_early=outcome.stopped != "done",
            shortened=outcome.shortened,
        )
        judged = compared(plan.expected, happened)
        whole = self.world.plain(course.model)
        if self.world.is_first:
            bundle.save(
                work.folder,
                whole,
                self.tokenizer,
                card=model_card.card(
                    work.workspace.name,
                    whole,
                    plan,
                    outcome,
                    bits,
                    judged,
                    text_bytes=self.survey.bytes,
                    documents=self.survey.documents,
                    how=how,
                    before=before,
                ),
                provenance=model_card.provenance(
                    plan,
                    outcome,
                    bits,
                    judged,
                    kind=kind,
                    corpus=work.corpus or self.survey.key,
                    base=None if kind == "pretrain" else how,
                    share=None if kind == "pretrain" else share,
                    before=before,
                ),
                copy_guard=self._copy_guard(),
            )
        self.world.leave()
        return TrainedModel(work.folder, self.run, plan, outcome, bits, judged, share, before)

    def _copy_guard(self) -> bytes:
        """What keeps the model from copying these texts; nothing where they are too long."""
        assert self.shards is not None
        if self.survey.bytes > _GUARDED_BYTES:
            return b""
        documents = (self.shards.document(i) for i in range(self.shards.documents))
        return b"".join(copy_guard.build(documents, self.tokenizer).blocks())


def fill(model: CausalLM, weights: Mapping[str, Tensor]) -> None:
    """Put weights into a model by name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _lasting(texts: Iterable[TrainingText]) -> Iterable[TrainingText]:
    """What can be gone through more than once."""
    return list(texts) if iter(texts) is texts else texts
