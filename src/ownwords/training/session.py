"""A training session, from texts to a saved model: encode, plan, train, evaluate, save."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.core.hardware import torch_product
from ownwords.core.progress import Progress
from ownwords.core.workspace import cache_folder, write_atomically
from ownwords.evaluation.memorisation import extraction_rate
from ownwords.inference import copy_guard
from ownwords.inference.text_generation import generation_config
from ownwords.models import bundle, lora
from ownwords.models.base_license import BaseLicense
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.qwen3 import Qwen3Config, parameter_count
from ownwords.models.decoder import CausalLM
from ownwords.models.model_library import ModelLibrary
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import (
    model_card,
    planner,
    replay_text,
    shard_cache,
    throughput,
    validation,
    weight_mixing,
)
from ownwords.training.batches import Batches
from ownwords.training.device import Device, choose
from ownwords.training.distributed import World
from ownwords.training.forecast import ActualResult, compare_forecast
from ownwords.training.job import LossModule, TrainJob, TrainOutcome, next_token
from ownwords.training.loop import train as run_training_loop
from ownwords.training.plan import BaseModelInfo, Plan, PlanInputs, read_plan, typed_settings
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.prepare import CorpusStats, TextSample, count_corpus
from ownwords.training.request import TrainedModel, TrainRequest
from ownwords.training.run import Run
from ownwords.training.run_history import COMPARISON
from ownwords.training.sample_writer import SampleWriter
from ownwords.training.settings import Precision, Recipe
from ownwords.training.shards import Shards, TrainingText, build_shards

PLAN = "plan.toml"  # of a run
_REPLAY_TEXT = "replay.txt.xz"
_PASSAGE_BYTES = 200  # a passage of this length counts as memorised if it is recited verbatim
_SAMPLE_BYTES = 160
_SAMPLE_TIME_SHARE = 0.01  # of the training time, at most, for samples
# Larger texts get no copy guard: it takes twice their memory, thirty times that while built.
_GUARDED_BYTES = 32 << 20

NOT_TRAINED = TrainOutcome(
    steps=0,
    stopped="done",
    best_step=0,
    averaged=False,
    bits_per_byte=None,
    evaluations=(),
    tokens=0,
    seconds=0.0,
    setbacks=0,
    micro_batch_size=0,
)


@dataclass(frozen=True)
class TrainResult:
    """A finished training and its final plan; the model has the best weights."""

    model: CausalLM
    adapter: lora.LoraAdapter | None
    plan: Plan
    outcome: TrainOutcome


class TrainingSession:
    """The steps that pretraining and fine-tuning share, in the order in which they are called."""

    def __init__(
        self,
        request: TrainRequest,
        texts: Iterable[TrainingText],
        held_out: Iterable[TrainingText],
    ) -> None:
        self.request = request
        start = time.perf_counter() - PLAN_CONSTANTS.start_s
        self.began = start if request.began is None else request.began
        self.texts, self.held_out_texts = _repeatable(texts), _repeatable(held_out)
        self.tokens = request.workspace / "tokens"
        self.device: Device = choose(request.device, request.progress.note)
        self.world: World = request.world
        if self.world.size > 1 and self.device.kind in ("cuda", "rocm", "xpu"):
            name = f"{self.device.torch_device.type}:{self.world.local_rank}"
            self.device = replace(self.device, torch_device=torch.device(name))
        self.progress = request.progress if self.world.is_first else Progress()
        if self.world.note:
            self.progress.note(self.world.note)
        self.stats: CorpusStats = count_corpus(self.texts)
        self.held_out_stats = count_corpus(self.held_out_texts)
        self.base: BaseModelInfo | None = None
        self.base_license = BaseLicense()
        self.shards: Shards | None = None
        self.replay: Shards | None = None
        self.held_out: Shards | None = None
        # Read before anything is loaded, so that each plan gets the same value.
        self.memory_bytes = self.device.free_memory() or 2**33
        self.run: Run
        self.spent_s = 0.0  # up to the plan; the user may then think about it

    def encode(self, tokenizer: Tokenizer, replay: Iterable[TrainingText] | None = None) -> None:
        """Encode the texts into shards on the disk."""
        self.tokenizer, self._base_adds_start = tokenizer, tokenizer.adds_start
        # Documents begin with the start token, so prompts of the tuned model do, too.
        tokenizer.adds_start = tokenizer.start is not None
        with self.world.in_rank_order():
            self.shards = self._build_shards(self.texts)
            if replay is not None:
                self.replay = self._build_replay(replay)

    def _build_shards(self, texts: Iterable[TrainingText]) -> Shards:
        return build_shards(texts, self.tokenizer, self.tokens, progress=self.progress)

    def _build_replay(self, texts: Iterable[TrainingText]) -> Shards:
        """Encode replay text without titles, start and end: only the author's texts teach these."""
        return build_shards(
            map(replay_text.without_opening, texts),
            self.tokenizer,
            self.tokens,
            marks=False,
            progress=self.progress,
        )

    def open_run(self, kind: str, origin: str) -> None:
        """Open the run of these texts, time and settings; one that was interrupted is reused."""
        settings = repr(sorted(typed_settings(self.request.fixed).items()))
        assert self.shards is not None
        key = digest(
            kind,
            origin,
            self.shards.key,
            self.held_out_stats.key,
            self.replay.key if self.replay else "",
            f"{self.request.seconds} {settings}",
        )
        with self.world.in_rank_order():
            name = COMPARISON if self.request.is_comparison else kind
            self.run = Run.new(self.request.workspace / "runs", f"{name}-{key[:12]}")

    def write_replay_text(self, base: Path) -> None:
        """Use text that the base writes itself as replay text.

        The run keeps a copy, because it can only resume with the same text, and the cache may lose
        it.
        """
        path = self.run.folder / _REPLAY_TEXT
        with self.world.in_rank_order():
            if not path.exists():
                cached = replay_text.find_or_write(
                    base,
                    round(PLAN_CONSTANTS.replay_tokens),
                    PLAN_CONSTANTS.replay_time_share * self.request.seconds,
                    cache_folder(),
                    self.progress,
                    self.request.device or "auto",
                )
                write_atomically(path, cached.read_bytes())
            self.replay = self._build_replay(replay_text.read(path))

    # --- the plan --------------------------------------------------------------------------------

    def rough_plan(self) -> Plan:
        """A plan from assumed speeds: it costs nothing, and at once refuses what cannot work."""
        return self._shared(
            lambda: self._make_plan(throughput.assumed_speeds(self.device)).to_toml()
        )

    @property
    def is_planned(self) -> bool:
        """Whether the run has a plan from an earlier process."""
        return self.world.broadcast((self.run.folder / PLAN).exists())

    def _shared(self, plan: Callable[[], str]) -> Plan:
        """The first process's plan; the speed and the memory that others see may differ."""
        return read_plan(self.world.broadcast(plan() if self.world.is_first else ""))

    def _make_plan(self, speeds: throughput.DeviceSpeeds) -> Plan:
        """Make a plan for these speeds from all that is known so far."""
        shards = self.shards
        inputs = PlanInputs(
            text_bytes=self.stats.bytes,
            documents=self.stats.documents,
            speeds=speeds,
            memory_bytes=self.memory_bytes,
            validation_bytes=self.held_out_stats.bytes,
            own_share=self.request.own_share,
            tokens=shards.tokens if shards else None,
            vocabulary=shards.vocabulary if shards else None,
            spent_s=time.perf_counter() - self.began,
            replay_bytes=self.replay.text_bytes if self.replay else 0,
            base=self.base,
            processes=self.world.size,
        )
        return planner.make_plan(inputs, self.request.seconds, self.request.fixed)

    def plan(
        self, rough: Plan, shape: Callable[[Recipe], ModelConfig], base: CausalLM | None = None
    ) -> Plan:
        """The stored plan of the run; for a new run, measure the machine's speed and make one.

        `base` is the model that gets a LoRA, if it is in memory.
        """
        path = self.run.folder / PLAN

        def stored_or_new() -> str:
            if path.exists():
                return path.read_text(encoding="utf-8")
            plan = self._make_plan(self._measure_speeds(rough.recipe, shape, base))
            # With too little time nothing is trained; on a machine less busy there may be enough.
            if plan.recipe.train.steps:
                write_atomically(path, plan.to_toml())
            self.run.write_config(plan.resolved().to_toml())
            return plan.to_toml()

        plan = self._shared(stored_or_new)
        self.spent_s = time.perf_counter() - self.began
        return plan

    def _measure_speeds(
        self, recipe: Recipe, shape: Callable[[Recipe], ModelConfig], base: CausalLM | None
    ) -> throughput.DeviceSpeeds:
        rank, shapes = recipe.lora.rank, [shape(recipe)]
        if self.base is None:  # a smaller shape separates the cost per layer from arithmetic
            smaller = max(60_000, parameter_count(cast("Qwen3Config", shapes[0])) // 5)
            model = replace(recipe.model, parameters=smaller)
            with suppress(ConfigError):  # the embedding alone may exceed that size
                shapes.append(shape(replace(recipe, model=model)))
        return throughput.measure_speeds(
            self.device,
            shapes,
            rows=max(1, recipe.train.batch_size // self.world.size),
            context=min(
                recipe.train.sequence_length,
                round(PLAN_CONSTANTS.timed_context) if rank else recipe.train.sequence_length,
            ),
            seconds=PLAN_CONSTANTS.measuring_s(self.request.seconds),
            optim=recipe.optim,
            adapted=throughput.LoraToTime(base, rank) if base and rank else None,
        )

    def hold_out(self, max_bytes: int) -> Shards | None:
        """Encode at most `max_bytes` of held-out texts for evaluations; None if there are none."""
        total = self.held_out_stats.bytes
        if not total:
            return None
        texts = self.held_out_texts
        if max_bytes < total:
            texts = TextSample(texts, max_bytes)
        with self.world.in_rank_order():
            return self._build_shards(texts)

    # --- training --------------------------------------------------------------------------------

    def train(self, plan: Plan, model: CausalLM, adapter: lora.LoraAdapter | None) -> TrainResult:
        """Train an untrained model as planned, or resume; it then has the best weights."""
        if not plan.recipe.train.steps:
            self.held_out = self.hold_out(plan.expected.held_out_bytes)
            self.progress.note(f"Nothing is trained: {_reason(plan, 'train.steps')}.")
            return TrainResult(model, adapter, plan, NOT_TRAINED)
        return TrainResult(model, adapter, plan, self._train(model, plan, adapter))

    def _train(self, model: CausalLM, plan: Plan, adapter: lora.LoraAdapter | None) -> TrainOutcome:
        recipe, shards = plan.recipe, self.shards
        assert shards is not None
        self.held_out = self.hold_out(plan.expected.held_out_bytes)
        if self.world.is_first:
            used = (shards, self.replay, self.held_out)
            shard_cache.name_shards(self.run.folder, {each.key for each in used if each})
            shard_cache.prune(self.tokens, self.run.folder.parent)
        tokens_per_byte = max(1, shards.tokens) / max(1, shards.text_bytes)
        passage = max(
            1, min(recipe.train.sequence_length // 2, round(_PASSAGE_BYTES * tokens_per_byte))
        )

        def memorised(model: CausalLM) -> float:
            # A large base's own precision: in float32 this would take longer than the evaluation.
            precision = recipe.train.precision if recipe.lora.rank else "float32"
            with self.device.autocast(precision):
                return extraction_rate(model, shards, prefix=passage, length=passage)

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
            samples=SampleWriter(
                self.tokenizer,
                max(8, round(_SAMPLE_BYTES * tokens_per_byte)),
                _SAMPLE_TIME_SHARE * self.request.seconds,
            ),
            memorised=memorised,
            peak_flops=self._peak_flops(recipe.train.precision),
            row_limits=cache_folder() / "rows.json",
            seconds=self._seconds_left(),
        )
        return run_training_loop(job)

    def _seconds_left(self) -> float | None:
        """The seconds for training; None if the user set the steps instead."""
        if "train.steps" in self.request.fixed and not self.request.ends_in_time:
            return None
        # The last evaluation and the choice of the weights come after the last step.
        seconds = self.request.seconds * (1 - PLAN_CONSTANTS.unforeseen)
        return max(1.0, seconds - self.spent_s - PLAN_CONSTANTS.close_s)

    def _peak_flops(self, precision: Precision) -> float:
        """FLOP/s of large matrix products on this device, as the reference for training speed."""
        dtype = "float32" if precision == "float32" else "bfloat16"
        return torch_product(torch, self.device.kind, dtype).value * 1e9

    # --- the result ------------------------------------------------------------------------------

    def bits_per_byte(
        self, model: CausalLM, recipe: Recipe, held_out: Shards | None, rows: int = 0
    ) -> float | None:
        """Bits per byte of an unsharded model on held-out texts; None without texts."""
        if held_out is None:
            return None
        return validation.bits_per_byte(
            LossModule(model, next_token),
            held_out,
            rows=rows or recipe.train.micro_batch_size or recipe.train.batch_size,
            context=recipe.train.sequence_length,
            isolate=recipe.data.document_masking,
            device=self.device,
            # Float32 would take several times as long, for a large base minutes.
            precision=recipe.train.precision if recipe.lora.rank else "float32",
            world=self.world,
        )

    def best_share(
        self, result: TrainResult, before: Mapping[str, Tensor]
    ) -> tuple[float, float | None, float | None]:
        """Load the best weights between the base's and the trained ones into the model.

        Returns their position (0: the base, 1: trained), their bits per byte, and the base's.
        `before` holds the base's weights; it is not used with an adapter, which is scaled instead.
        """
        model, recipe, held_out = result.model, result.plan.recipe, self.held_out
        if held_out is None or self.world.is_sharded:
            return 1.0, result.outcome.bits_per_byte, None
        if not recipe.train.steps:
            bits = self.bits_per_byte(model, recipe, held_out)
            return 0.0, bits, bits
        if result.adapter:
            set_share = weight_mixing.scaling(result.adapter)
        else:
            set_share = weight_mixing.between(model.float(), before)
        rows = result.outcome.micro_batch_size  # so many fit into memory
        return weight_mixing.best_share(
            set_share, lambda: self.bits_per_byte(model, recipe, held_out, rows) or 0.0
        )

    def save(
        self,
        result: TrainResult,
        bits: float | None,
        kind: str,
        base: str = "",
        share: float = 1.0,
        before: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> TrainedModel:
        """Save the model directory, with a card that compares the forecast with the outcome."""
        request, plan, outcome = self.request, result.plan, result.outcome
        if not share:
            self.tokenizer.adds_start = self._base_adds_start
        actual = ActualResult(
            bits_per_byte=bits,
            # The outcome's seconds include earlier processes; the other term includes preparation.
            seconds=max(time.perf_counter() - self.began, outcome.seconds),
            tokens=outcome.tokens,
            memory_bytes=self.device.peak_memory(),
            stopped_early=outcome.stopped != "done",
        )
        judged = compare_forecast(plan.expected, actual)
        how = f"fine-tuned from {base}" if base else "trained"
        if kind == "lora":
            how += " through a LoRA"
        model = self.world.unsharded(result.model)
        if self.world.is_first:
            library = ModelLibrary(request.workspace)
            kept = library.keep() if request.out is None else None
            bundle.save(
                request.folder,
                model,
                self.tokenizer,
                generation=generation_config(),
                card=model_card.card(
                    request.workspace.name,
                    model,
                    plan,
                    outcome,
                    bits,
                    judged,
                    text_bytes=self.stats.bytes,
                    documents=self.stats.documents,
                    how=how,
                    before=before,
                ),
                provenance=model_card.provenance(
                    plan,
                    outcome,
                    bits,
                    judged,
                    kind=kind,
                    corpus=request.corpus or self.stats.key,
                    base=base,
                    share=share if base else None,
                    before=before,
                ),
                dtype=dtype,
                copy_guard=self._copy_guard(),
                license=self.base_license,
            )
            if kept:
                library.forget_score()
                self.progress.note(f"The model before this one is kept as {kept.name}.")
        self.world.close()
        return TrainedModel(request.folder, self.run, plan, outcome, bits, judged, share, before)

    def _copy_guard(self) -> bytes:
        """The copy guard of these texts, serialized; empty if they are too long for one."""
        assert self.shards is not None
        if self.stats.bytes > _GUARDED_BYTES:
            return b""
        documents = (self.shards.document(i) for i in range(self.shards.documents))
        return b"".join(copy_guard.build(documents, self.tokenizer).blocks())


def _reason(plan: Plan, key: str) -> str:
    return next(number.reason for number in plan.reasons if number.key == key)


def _repeatable(texts: Iterable[TrainingText]) -> Iterable[TrainingText]:
    """The texts as an iterable that can be read more than once."""
    return list(texts) if iter(texts) is texts else texts
