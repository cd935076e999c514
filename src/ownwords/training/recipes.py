"""Recipes from texts to a model directory: pretrain from scratch, or fine-tune a model.

Both prepare (encode the texts), plan (and measure), train, and save within the given seconds, and
resume when the same command runs again.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from ownwords.archive.corpus import TextCollection, TrainingText
from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, duration
from ownwords.core.workspace import write_atomically
from ownwords.inference import copy_guard
from ownwords.inference.text_generation import generation_config
from ownwords.models import bundle, fused, lora
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.llama import config_for_budget
from ownwords.models.decoder import CausalLM, build
from ownwords.models.directory import BaseLicense, model_fingerprint
from ownwords.models.model_library import ModelLibrary
from ownwords.native import bindings
from ownwords.tokenizers import bpe
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import metrics, step_time, throughput, token_dataset, trained_model
from ownwords.training.batches import Batches
from ownwords.training.checkpoint import Run
from ownwords.training.device import choose
from ownwords.training.distributed import SINGLE_PROCESS, World
from ownwords.training.loop import TrainJob, TrainOutcome
from ownwords.training.loop import train as run_training_loop
from ownwords.training.metrics import LossModule
from ownwords.training.plan import (
    BaseModelInfo,
    Plan,
    PlanInputs,
    compare_forecast,
    make_plan,
    read_plan,
)
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import Recipe, settings_key
from ownwords.training.step_time import DeviceSpeeds
from ownwords.training.token_dataset import TokenDataset, build_dataset
from ownwords.training.trained_model import TrainedModel

_PLAN = "plan.toml"  # of a run
_SAMPLE_BYTES = 160
_SUSPICIOUS = 1.5  # a step this many times slower than usual for the processor is timed again
_SAMPLE_TIME_SHARE = 0.01  # maximum share of the training time for samples
# Larger texts get no copy guard, which takes twice their memory, and 30 times as much to build.
_MAX_GUARDED_BYTES = 32 << 20

Shape = Callable[[Recipe], ModelConfig]


@dataclass(frozen=True)
class TrainRequest:
    """What a training run is asked to do: where, for how long, with which settings."""

    workspace: Path
    seconds: float  # from `began` to the saved model
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's settings
    progress: Progress = field(default_factory=Progress)
    device: str | None = None
    world: World = SINGLE_PROCESS  # the processes that train together
    own_share: float = 1.0  # fraction of the words in the archive that are the author's own
    corpus: str = ""  # key of the archive's texts
    out: Path | None = None  # the model's folder; default: `model` in the workspace
    base_title: str = ""  # the base's display name, for the card; default: its folder's name
    began: float | None = None  # time.perf_counter() at which the user began to wait

    @property
    def folder(self) -> Path:
        return self.out or self.workspace / "model"


@dataclass(frozen=True)
class PlannedTraining:
    """A planned training run; `train` starts or resumes it."""

    plan: Plan
    run: Run
    train: Callable[[], TrainedModel]
    spent_s: float = 0.0  # seconds used until the plan was made; the forecast includes them


def plan_pretraining(
    texts: Iterable[TrainingText], held_out: Iterable[TrainingText], request: TrainRequest
) -> PlannedTraining:
    """Plan to train a model from scratch on these texts; OwnwordsError if that is impossible."""
    session = TrainingSession(request, texts, held_out)
    rough = session.rough_plan()
    vocab_size = rough.recipe.model.vocab_size
    tokenizer = train_tokenizer(session.texts, vocab_size, session.progress)
    session.prepare(tokenizer, "pretrain", str(vocab_size))

    def shape(recipe: Recipe) -> ModelConfig:
        size, context = recipe.model.parameters, recipe.model.context_length
        return config_for_budget(size, tokenizer.vocabulary_size, context)

    plan = session.plan(rough, shape)

    def train() -> TrainedModel:
        model = build(shape(plan.recipe), device=session.device.torch_device)
        model.init_weights(plan.recipe.train.seed)
        outcome = session.train(plan, model)
        return session.save(model, plan, outcome, "pretrain", "trained", bits=outcome.bits_per_byte)

    return PlannedTraining(plan, session.run, train, session.spent_s)


def plan_finetuning(
    base: Path,
    texts: Iterable[TrainingText],
    held_out: Iterable[TrainingText],
    request: TrainRequest,
    *,
    pairs: Iterable[TrainingText] = (),
    adapter: Path | None = None,
    by_lora: bool | None = None,
) -> PlannedTraining:
    """Plan to fine-tune the model of a directory on these texts: all weights, or a LoRA.

    The plan chooses which, unless `by_lora` does. The base's replay text is mixed in, so that the
    model forgets less; a LoRA forgets little, so it learns `pairs` (notes and the text written from
    them) instead. `adapter` is merged into the base before training. The saved weights interpolate
    between the base's and the trained ones, at the point that scores best on the held-out texts. A
    LoRA is saved both merged and as a separate file, together with `adapter`.
    """
    if base.resolve() == request.folder.resolve():
        raise ConfigError(
            f"the tuned model would replace its base {base}", hint="give another folder for it"
        )
    session = TrainingSession(request, texts, held_out)
    loaded = bundle.load(base, device=str(session.device.torch_device))
    tokenizer = tokenizers.Tokenizer(loaded.tokenizer_files)
    loaded.check_tokenizer(tokenizer)
    model, config = loaded.model, loaded.model.config
    dtype = next(model.parameters()).dtype
    if adapter:
        lora.merge_stored(model, adapter)
    fingerprint = model_fingerprint(base) + (digest(adapter.read_bytes()) if adapter else "")
    kind = "lora" if by_lora else "finetune"
    session.prepare(tokenizer, kind, fingerprint, pairs)

    info = _base_info(loaded, model, by_lora, request.fixed.get("train.precision"))
    session.facts = replace(session.facts, base=info)
    rough = session.rough_plan()
    rank = rough.recipe.lora.rank
    model.to(dtype if rank and info.bf16 else torch.float32)
    before: dict[str, Tensor] = {}
    if not rank:
        before = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
        if request.fixed.get("data.replay") != 0:
            session.read_replay_text(base)
            rough = session.rough_plan()
    if not session.is_planned:
        max_bytes = rough.expected.held_out_bytes
        if rank:
            max_bytes = min(max_bytes, round(PLAN_CONSTANTS.glance_bytes))
        bits = session.bits_per_byte(model, rough.recipe, session.encode_held_out(max_bytes))
        session.facts = replace(session.facts, base=replace(info, bits_per_byte=bits))
    plan = session.plan(rough, lambda _: config, model)
    base_license = BaseLicense.of(base)  # the folder may be gone when the training ends

    def train() -> TrainedModel:
        recipe, author = plan.recipe, None
        if recipe.lora.rank:
            settings = lora.AdapterConfig(recipe.lora.rank, recipe.lora.alpha, recipe.train.dropout)
            author = lora.attach(model, settings, recipe.train.seed)
        outcome = session.train(plan, model)
        share, bits, base_bits = session.best_share(model, author, plan, outcome, before)
        stored: dict[str, Tensor] = {}
        if author:
            stored = lora.stored_tensors(author, adapter)
            author.merge()
            author.detach()
        notes = "the notes adapter of ownwords" if adapter else ""
        return session.save(
            model,
            plan,
            outcome,
            "lora" if rank else "finetune",
            f"fine-tuned from {request.base_title or base.name}"
            f"{notes and f' and {notes}'}{' through a LoRA' if rank else ''}",
            bits=bits,
            share=share,
            before=base_bits,
            dtype=dtype if rank else None,
            adapter=stored,
            license=base_license,
            provenance={
                "base_name": base.name,
                "base_is_trimmed": "trimmed" in loaded.provenance,
                "base_adapter": notes,
                # A base with the notes adapter can write from notes, whatever it learned since.
                "writes_from_notes": bool(notes)
                or (session.has_notes and recipe.data.replay > 0 and share > 0),
            },
        )

    return PlannedTraining(plan, session.run, train, session.spent_s)


def _base_info(
    loaded: bundle.Bundle, model: CausalLM, by_lora: bool | None, precision: object
) -> BaseModelInfo:
    """Return what the plan needs to know about a base; learning rates are in its provenance."""
    size = sum(parameter.numel() for parameter in model.parameters())
    # Frozen bfloat16 weights need no float32 copy; the compiled block widens them if need be.
    bf16 = precision in (None, "autocast") and fused.keeps_bf16(next(model.parameters()))
    recipe = loaded.provenance.get("recipe")
    optim = recipe.get("optim") if isinstance(recipe, dict) else None
    if not isinstance(optim, dict) or optim.get("kind") not in ("muon", "adamw"):
        return BaseModelInfo(model.config, size, lora=by_lora, bf16=bf16)
    # If the base was itself fine-tuned, the rate of its own base counts too: the last may be low.
    start = loaded.provenance.get("start")
    muon_rates = [optim.get("muon_lr"), isinstance(start, dict) and start.get("muon_lr")]
    known = [rate for rate in map(_learning_rate, muon_rates) if rate]
    return BaseModelInfo(
        model.config,
        size,
        kind=optim["kind"],
        muon_lr=max(known, default=None),
        learning_rate=_learning_rate(optim.get("learning_rate")),
        lora=by_lora,
        bf16=bf16,
    )


def _learning_rate(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 10 else None


class TrainingSession:
    """One training run: prepare, plan, train, save."""

    def __init__(
        self,
        request: TrainRequest,
        texts: Iterable[TrainingText],
        held_out: Iterable[TrainingText],
    ) -> None:
        self.request, self.world = request, request.world
        start = time.perf_counter() - PLAN_CONSTANTS.start_s
        self.began = start if request.began is None else request.began
        self.spent_s = 0.0  # seconds until the plan was made; the user may then take time to decide
        self.texts, self.held_out_texts = TextCollection.read(texts), TextCollection.read(held_out)
        self.device = choose(request.device, request.progress.note)
        if self.device.kind == "cpu" and (problem := bindings.library_problem()):
            request.progress.note(f"Training is slower than this processor allows: {problem}.")
        if self.world.size > 1 and self.device.kind in ("cuda", "rocm", "xpu"):
            name = f"{self.device.torch_device.type}:{self.world.local_rank}"
            self.device = replace(self.device, torch_device=torch.device(name))
        self.progress = request.progress if self.world.is_first else Progress()
        # The inputs of the plan; available memory is read before anything is loaded.
        self.facts = PlanInputs(
            self.texts.bytes,
            len(self.texts),
            throughput.assumed_speeds(self.device),
            memory_bytes=self.device.free_memory() or 2**33,
            validation_bytes=self.held_out_texts.bytes,
            own_share=request.own_share,
            processes=self.world.size,
        )
        self.replay: TokenDataset | None = None  # text of the base, or notes and the text from them
        self.has_notes = False
        self.held_out: TokenDataset | None = None
        self.tokenizer: Tokenizer
        self.dataset: TokenDataset
        self.run: Run

    # --- prepare ---------------------------------------------------------------------------------

    def prepare(
        self,
        tokenizer: Tokenizer,
        kind: str,
        origin: str,
        pairs: Iterable[TrainingText] = (),
    ) -> None:
        """Encode the texts, and open the run for these texts, time and settings.

        An interrupted run is resumed.
        """
        self.tokenizer, self._base_adds_start = tokenizer, tokenizer.adds_start
        # Documents begin with the start token, so prompts of the tuned model do too.
        tokenizer.adds_start = tokenizer.start is not None
        request = self.request
        self.dataset = self._encode(self.texts)
        if pairs:
            # Fewer tokens than the texts have might not fill a row, and would teach little.
            notes = self._encode(pairs)
            self.has_notes = notes.tokens >= self.dataset.tokens
            self.replay = notes if self.has_notes else None
        self.facts = replace(
            self.facts,
            tokens=self.dataset.tokens,
            vocabulary=self.dataset.vocabulary,
            replay_bytes=self.replay.text_bytes if self.replay else 0,
        )
        key = digest(
            kind,
            origin,
            self.dataset.key,
            self.held_out_texts.key,
            self.replay.key if self.replay else "",
            f"{float(request.seconds)} {settings_key(request.fixed)}",
        )
        self.run = Run.new(request.workspace / "runs", f"{kind}-{key[:12]}")

    def _encode(self, texts: Iterable[TrainingText], *, marks: bool = True) -> TokenDataset:
        return build_dataset(texts, self.tokenizer, marks=marks, progress=self.progress)

    def read_replay_text(self, base: Path) -> None:
        """Use the replay text in the base's folder, if there is any.

        Titles and the start and end tokens are left out: the author's texts teach those.
        """
        path = base / token_dataset.REPLAY
        if path.exists():
            texts = map(token_dataset.without_opening, token_dataset.read_replay(path))
            self.replay = self._encode(texts, marks=False)
            self.facts = replace(self.facts, replay_bytes=self.replay.text_bytes)

    def encode_held_out(self, max_bytes: int) -> TokenDataset | None:
        """Encode at most `max_bytes` of held-out texts for evaluations; None if there are none."""
        if not self.held_out_texts.bytes:
            return None
        return self._encode(self.held_out_texts.sample(max_bytes))

    # --- plan ------------------------------------------------------------------------------------

    @property
    def is_planned(self) -> bool:
        """Whether the run has a plan from an earlier process."""
        return self.world.broadcast((self.run.folder / _PLAN).exists())

    def rough_plan(self) -> Plan:
        """Make a plan from assumed speeds: it costs nothing, and refuses what cannot work."""
        return self._shared(lambda: self._make_plan(self._assumed_speeds()))

    def plan(self, rough: Plan, shape: Shape, base: CausalLM | None = None) -> Plan:
        """The stored plan of the run; for a new run, measure the machine's speed and make one.

        `base` is the model that gets a LoRA, if it is in memory.
        """
        path = self.run.folder / _PLAN

        def stored_or_new() -> Plan:
            if path.exists():
                return read_plan(path.read_text(encoding="utf-8"))
            plan = self._make_plan(self._measure_speeds(rough.recipe, shape, base))
            if plan.recipe.lora.rank and plan.expected.seconds > self.request.seconds:
                # The run follows the clock, so plan for the processor, not for its current load.
                longest_s, usual = plan.expected.seconds, self._make_plan(self._assumed_speeds())
                if usual.expected.seconds < longest_s:
                    plan = usual
                    self.progress.note(
                        "This machine is slower than expected at the moment. If it stays"
                        " slow, training takes longer than asked: up to"
                        f" {duration(longest_s)}."
                    )
            write_atomically(path, plan.to_toml())
            return plan

        plan = self._shared(stored_or_new)
        self.spent_s = time.perf_counter() - self.began
        return plan

    def _make_plan(self, speeds: DeviceSpeeds) -> Plan:
        facts = replace(self.facts, speeds=speeds, spent_s=time.perf_counter() - self.began)
        return make_plan(facts, self.request.seconds, self.request.fixed)

    def _shared(self, plan: Callable[[], Plan]) -> Plan:
        """The first process's plan: the others may measure another speed and amount of memory."""
        return cast(Plan, self.world.broadcast(plan() if self.world.is_first else None))

    def _assumed_speeds(self) -> DeviceSpeeds:
        base = self.facts.base
        return throughput.assumed_speeds(self.device, is_lora=base is not None and base.is_lora)

    def _measure_speeds(self, recipe: Recipe, shape: Shape, base: CausalLM | None) -> DeviceSpeeds:
        rank, timed = recipe.lora.rank, shape(recipe)
        context = recipe.train.sequence_length
        if rank:
            context = min(context, round(PLAN_CONSTANTS.timed_context))
        rows = max(1, recipe.train.batch_size // self.world.size)
        measure = partial(
            throughput.measure_speeds,
            self.device,
            timed,
            rows=rows,
            context=context,
            seconds=PLAN_CONSTANTS.measuring_s(self.request.seconds),
            optim=recipe.optim,
            base=base if rank else None,
            rank=rank,
        )

        def step_s(speeds: DeviceSpeeds) -> float:
            every = speeds.step_times.values()
            return min(each.step_s(timed, rows, context, rank) for each in every)

        speeds = measure()
        # Other processes must not skew the result: measure once more if it looks too slow.
        if step_s(speeds) > _SUSPICIOUS * step_s(self._assumed_speeds()):
            speeds = min(speeds, measure(), key=step_s)
        return speeds

    # --- train -----------------------------------------------------------------------------------

    def train(self, plan: Plan, model: CausalLM) -> TrainOutcome:
        """Train `model` as planned, or resume; afterwards it has the best weights."""
        self.held_out = self.encode_held_out(plan.expected.held_out_bytes)
        recipe, dataset, loop = plan.recipe, self.dataset, plan.recipe.train
        tokens_per_byte = max(1, dataset.tokens) / max(1, dataset.text_bytes)
        job = TrainJob(
            model=model,
            batches=Batches(
                dataset,
                rows=loop.batch_size,
                context=loop.sequence_length,
                seed=loop.seed,
                config=recipe.data,
                replay=self.replay,
                rank=self.world.rank,
                world=self.world.size,
            ),
            settings=recipe,
            run=self.run,
            device=self.device,
            validation=self.held_out,
            world=self.world,
            progress=self.progress,
            sample=metrics.SampleWriter(
                self.tokenizer,
                max(8, round(_SAMPLE_BYTES * tokens_per_byte)),
                _SAMPLE_TIME_SHARE * self.request.seconds,
            ),
            seconds=self._seconds_left(plan),
        )
        outcome = run_training_loop(job)
        base = self.facts.base
        is_telling = base is not None and base.parameters >= step_time.MIN_PARAMETERS
        if is_telling and self.device.kind == "cpu" and self.world.size == 1:
            step_time.remember(
                model.config,
                loop.batch_size,
                loop.sequence_length,
                recipe.lora.rank,
                outcome.tokens_per_s,
                PLAN_CONSTANTS.assumed_cpu_layer_s,
            )
        return outcome

    def _seconds_left(self, plan: Plan) -> float | None:
        """The seconds for training; None if the user set the steps instead."""
        if "train.steps" in self.request.fixed:
            return None
        constants, expected = PLAN_CONSTANTS, plan.expected
        seconds = max(self.request.seconds, expected.seconds) * (1 - constants.unforeseen)
        # The last evaluation and the choice of the weights come after the last step.
        closing_s = constants.close_s + (1 + constants.choosing) * expected.evaluation_s
        return max(1.0, seconds - self.spent_s - closing_s)

    def bits_per_byte(
        self, model: CausalLM, recipe: Recipe, held_out: TokenDataset | None, rows: int = 0
    ) -> float | None:
        if held_out is None:
            return None
        return metrics.bits_per_byte(
            LossModule(model),
            held_out,
            rows=rows or recipe.train.micro_batch_size or recipe.train.batch_size,
            context=recipe.train.sequence_length,
            device=self.device,
            precision=recipe.train.precision,  # as in training, so that the bits are comparable
            world=self.world,
        )

    # --- save ------------------------------------------------------------------------------------

    def best_share(
        self,
        model: CausalLM,
        adapter: lora.LoraAdapter | None,
        plan: Plan,
        outcome: TrainOutcome,
        before: Mapping[str, Tensor],
    ) -> tuple[float, float | None, float | None]:
        """Load the best interpolation of the base's and the trained weights into the model.

        Returns its position (0: the base, 1: trained), its bits per byte, and the base's. `before`
        holds the base's weights; it is unused with an adapter, which is scaled instead.
        """
        held_out = self.held_out
        if held_out is None:
            return 1.0, outcome.bits_per_byte, None
        if adapter:
            set_share = trained_model.scaling(adapter)
        else:
            set_share = trained_model.between(model.float(), before)
        rows = outcome.micro_batch_size  # known to fit into memory
        return trained_model.best_share(
            set_share,
            lambda: self.bits_per_byte(model, plan.recipe, held_out, rows) or 0.0,
            outcome.bits_per_byte,
        )

    def save(
        self,
        model: CausalLM,
        plan: Plan,
        outcome: TrainOutcome,
        kind: str,
        how: str,
        *,
        bits: float | None,
        share: float = 1.0,
        before: float | None = None,
        dtype: torch.dtype | None = None,
        adapter: Mapping[str, Tensor] | None = None,
        license: BaseLicense | None = None,
        provenance: Mapping[str, object] | None = None,
    ) -> TrainedModel:
        """Save the model directory, with a card that compares the forecast with the outcome.

        `how` completes "a model, ... with ownwords"; `adapter` is saved in the same directory.
        """
        request, texts = self.request, self.texts
        if not share:
            self.tokenizer.adds_start = self._base_adds_start
        judged = compare_forecast(
            plan.expected,
            bits,
            # Only the outcome counts earlier processes; only the other term counts preparation.
            max(time.perf_counter() - self.began, outcome.seconds),
            outcome.tokens,
            self.device.peak_memory(),
            stopped_early=outcome.stopped != "done",
        )
        made = TrainedModel(request.folder, self.run, plan, outcome, bits, judged, share, before)
        if self.world.is_first:
            library = ModelLibrary(request.workspace)
            kept = library.keep() if request.out is None else None
            name, corpus = request.workspace.name, request.corpus or texts.key
            bundle.save(
                request.folder,
                model,
                self.tokenizer,
                generation=generation_config(),
                card=trained_model.card(name, model, made, texts, how),
                provenance={
                    **trained_model.provenance(made, kind, corpus),
                    **(provenance or {}),
                },
                dtype=dtype,
                # Half the disk and faster writing; `export` restores bfloat16 (docs/log.md).
                int8=kind == "lora",
                copy_guard=self._copy_guard(),
                adapter=adapter or {},
                license=license or BaseLicense(),
            )
            if kept:
                library.forget_score()
                self.progress.note(f"The previous model is kept as {kept.name}.")
        self.world.close()
        return made

    def _copy_guard(self) -> bytes:
        """The copy guard of these texts, serialized; empty if they are too long for one."""
        if self.texts.bytes > _MAX_GUARDED_BYTES:
            return b""
        documents = (self.dataset.document(i) for i in range(self.dataset.documents))
        return copy_guard.build(documents, self.tokenizer).to_bytes()


def train_tokenizer(train: TextCollection, vocabulary: int, progress: Progress) -> Tokenizer:
    """Return a BPE tokenizer of `vocabulary` tokens for these texts; if 0, each byte is a token.

    Pass only training texts: merges learned from held-out texts would improve their score.
    """
    if not vocabulary:
        return ByteTokenizer()
    with progress.stage("Training a tokenizer", len(train), "texts") as stage:

        def texts() -> Iterator[str]:
            for text in train:
                yield text.text
                stage.advance()

        return bpe.train(texts(), vocabulary)
