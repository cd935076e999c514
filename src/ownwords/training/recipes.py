"""Recipes from texts to a model directory: pretrain from scratch, or fine-tune a model.

Both plan, measure, train and save within the given seconds, and resume when the same command runs
again.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ownwords.core.config import RENAMED
from ownwords.core.errors import ConfigError
from ownwords.models import bundle, fused, lora, peft
from ownwords.models.base_license import BaseLicense
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.qwen3 import config_for_budget
from ownwords.models.decoder import CausalLM, build
from ownwords.models.fingerprint import model_fingerprint
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import planner
from ownwords.training.plan import BaseModelInfo
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.prepare import load_or_train_tokenizer
from ownwords.training.request import PlannedTraining, TrainedModel, TrainRequest
from ownwords.training.session import TrainingSession
from ownwords.training.settings import Recipe
from ownwords.training.shards import TrainingText

__all__ = [
    "PlannedTraining",
    "Recipe",
    "TrainRequest",
    "TrainedModel",
    "plan_finetuning",
    "plan_pretraining",
]


def plan_pretraining(
    texts: Iterable[TrainingText], held_out: Iterable[TrainingText], request: TrainRequest
) -> PlannedTraining:
    """Plan to train a model from scratch on these texts; OwnwordsError if it is not possible."""
    session = TrainingSession(request, texts, held_out)
    stats = session.stats
    vocab_size = planner.planned_vocab_size(stats.bytes, request.fixed)
    rough = session.rough_plan()
    with session.world.in_rank_order():
        tokenizer = load_or_train_tokenizer(
            session.texts, stats, vocab_size, session.tokens, session.progress
        )
    session.encode(tokenizer)
    session.open_run("pretrain", str(vocab_size))

    def shape(recipe: Recipe) -> ModelConfig:
        size, context = recipe.model.parameters, recipe.model.context_length
        return config_for_budget(size, tokenizer.vocabulary_size, context)

    plan = session.plan(rough, shape)

    def train() -> TrainedModel:
        model = build(shape(plan.recipe), device=session.device.torch_device)
        model.init_weights(plan.recipe.train.seed)
        result = session.train(plan, model, None)
        return session.save(result, result.outcome.bits_per_byte, "pretrain")

    return PlannedTraining(plan, session.run, train)


def plan_finetuning(
    base: Path,
    texts: Iterable[TrainingText],
    held_out: Iterable[TrainingText],
    request: TrainRequest,
    *,
    replay: Iterable[TrainingText] | None = None,
    by_lora: bool | None = None,
) -> PlannedTraining:
    """Plan to fine-tune the model of a directory on these texts: all weights, or a LoRA.

    The plan chooses which, unless `by_lora` does; with too little time it trains nothing.
    `replay` is text that the base was trained on, mixed in so that it forgets less; without it the
    base writes some itself, unless `data.replay` is 0 or a LoRA is trained, which forgets little.
    The saved weights lie between the base's and the trained ones, where they score best on the
    held-out texts. A LoRA is saved merged, and in PEFT's format in the workspace's `adapter`.
    """
    if base.resolve() == request.folder.resolve():
        raise ConfigError(
            f"the tuned model would replace its base {base}", hint="give another folder for it"
        )
    session = TrainingSession(request, texts, held_out)
    device = str(session.device.torch_device)
    loaded = bundle.load(base, device=device)
    tokenizer = tokenizers.from_files(loaded.tokenizer_files)
    loaded.check_tokenizer(tokenizer)
    model, config = loaded.model, loaded.model.config
    dtype = next(model.parameters()).dtype
    session.encode(tokenizer, replay)
    session.open_run("lora" if by_lora else "finetune", model_fingerprint(base))

    session.base_license = BaseLicense.of(base)
    session.base = _base_info(loaded, model, by_lora)
    rough = session.rough_plan()
    rank = rough.recipe.lora.rank
    in_bf16 = rank and session.base.bf16 and rough.recipe.train.precision == "autocast"
    in_training = dtype if in_bf16 else torch.float32
    model.to(in_training)
    before: dict[str, Tensor] = {}
    if not rank:
        before = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
        if replay is None and request.fixed.get("data.replay") != 0:
            session.write_replay_text(base)
            rough = session.rough_plan()
    if not session.is_planned:
        held_out_bytes = rough.expected.held_out_bytes
        if rank:
            held_out_bytes = min(held_out_bytes, round(PLAN_CONSTANTS.glance_bytes))
        shards = session.hold_out(held_out_bytes)
        bits = session.bits_per_byte(model, rough.recipe, shards)
        session.base = replace(session.base, bits_per_byte=bits)
    plan = session.plan(rough, lambda _: config, model)
    recipe = plan.recipe

    def train() -> TrainedModel:
        adapter = None
        if recipe.lora.rank and recipe.train.steps:
            settings = lora.AdapterConfig(recipe.lora.rank, recipe.lora.alpha, recipe.train.dropout)
            adapter = lora.attach(model, settings, recipe.train.seed)
        result = session.train(plan, model, adapter)
        share, bits, base_bits = session.best_share(result, before)
        if result.adapter:
            if session.world.is_first:
                peft.save(request.workspace / "adapter", result.adapter, base.name)
            result.adapter.merge()
            result.adapter.detach()
        kind, kept = ("lora", dtype) if rank else ("finetune", None)
        return session.save(result, bits, kind, base.name, share, base_bits, kept)

    return PlannedTraining(plan, session.run, train)


def _base_info(loaded: bundle.Bundle, model: CausalLM, by_lora: bool | None) -> BaseModelInfo:
    """What the plan needs to know of a base, including the learning rates in its provenance.

    Bases made before a setting was renamed store it under the old name, which is mapped.
    """
    size = sum(parameter.numel() for parameter in model.parameters())
    weight = next(model.parameters())
    # Frozen bfloat16 weights need no float32 copy where products are computed in bfloat16.
    bf16 = weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and fused.has_fast_bf16()
    recipe = loaded.provenance.get("recipe")
    optim = recipe.get("optim") if isinstance(recipe, dict) else None
    if not isinstance(optim, dict) or optim.get("kind") not in ("muon", "adamw"):
        return BaseModelInfo(model.config, size, lora=by_lora, bf16=bf16)
    rates = {RENAMED.get(f"optim.{name}", f"optim.{name}"): optim[name] for name in optim}
    # A base that was trained on from another counts the rate of that: the last one may be low.
    start = loaded.provenance.get("start")
    muon_rates = [rates.get("optim.muon_lr"), isinstance(start, dict) and start.get("muon_lr")]
    known = [rate for rate in map(_learning_rate, muon_rates) if rate]
    return BaseModelInfo(
        model.config,
        size,
        kind=optim["kind"],
        muon_lr=max(known, default=None),
        learning_rate=_learning_rate(rates.get("optim.learning_rate")),
        lora=by_lora,
        bf16=bf16,
    )


def _learning_rate(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 10 else None
