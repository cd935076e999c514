"""From texts to a model directory: train one from nothing, or tune one that is there.

The two differ in what they begin with. Both plan, measure, train and save within the seconds given,
and both go on where they were when the same command is given again.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ownwords.core.config import RENAMED
from ownwords.core.errors import ConfigError
from ownwords.models import bundle, lora, peft
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.qwen3 import config_for_budget
from ownwords.models.decoder import CausalLM, build
from ownwords.models.fingerprint import model_fingerprint
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import planner, throughput
from ownwords.training.plan import BaseModelInfo, Plan
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.prepare import made_tokenizer
from ownwords.training.replay_text import rehearsal
from ownwords.training.request import TrainedModel, TrainRequest
from ownwords.training.session import TrainingSession
from ownwords.training.settings import Recipe
from ownwords.training.shards import TrainingText

__all__ = ["Recipe", "TrainRequest", "TrainedModel", "finetune", "pretrain"]


def pretrain(
    train: Iterable[TrainingText], held_out: Iterable[TrainingText], work: TrainRequest
) -> TrainedModel:
    """Train a model on these texts alone. OwnwordsError says what stands in the way."""
    making = TrainingSession(work, train, held_out)
    survey = making.survey
    vocabulary = planner.planned_vocab_size(survey.bytes, work.fixed)
    # A plan on assumed speeds costs nothing, and says at once what is hopeless.
    rough = planner.make_plan(
        making.facts(throughput.assumed(making.device)), work.seconds, work.fixed
    )
    with making.world.in_turn():
        tokenizer = made_tokenizer(making.texts, survey, vocabulary, making.tokens, making.progress)
    making.encode(tokenizer)
    making.find_run("pretrain", str(vocabulary))

    def shape(recipe: Recipe) -> ModelConfig:
        size, context = recipe.model.parameters, recipe.model.context_length
        return config_for_budget(size, tokenizer.vocabulary_size, context)

    def fresh(plan: Plan) -> tuple[CausalLM, None]:
        model = build(shape(plan.recipe), device=making.device.torch_device)
        model.init_weights(plan.recipe.train.seed)
        return model, None

    course = making.train(making.plan(rough, shape), fresh)
    return making.save(course, course.outcome.bits_per_byte, "pretrain", "trained")


def finetune(
    base: Path,
    train: Iterable[TrainingText],
    held_out: Iterable[TrainingText],
    work: TrainRequest,
    *,
    replay: Iterable[TrainingText] | None = None,
    by_lora: bool = False,
) -> TrainedModel:
    """Tune the model of a directory to these texts: all weights, or a LoRA.

    `replay` is text of the base's own, read in between so that it forgets less; without it the base
    writes some itself, unless `data.replay` is set to 0.
    The weights saved are on the way from the base's to the tuned ones, where they do best on the
    held-out texts. A LoRA is saved merged, and in PEFT's format in the workspace's `adapter`.
    """
    if base.resolve() == work.folder.resolve():
        raise ConfigError(
            f"the tuned model would replace its base {base}", hint="give another folder for it"
        )
    making = TrainingSession(work, train, held_out)
    device = str(making.device.torch_device)
    found = bundle.load(base, device=device)
    tokenizer = tokenizers.from_files(found.tokenizer_files)
    found.check_tokenizer(tokenizer)
    model = found.model.float()
    config = model.config
    if replay is None and work.fixed.get("data.replay") != 0:
        with making.world.in_turn():
            replay = rehearsal(
                base,
                round(PLAN_CONSTANTS.replay_tokens),
                PLAN_CONSTANTS.replay_time_share * work.seconds,
                throughput.cache_folder(),
                making.progress,
            )
    making.encode(tokenizer, replay)
    making.find_run("lora" if by_lora else "finetune", model_fingerprint(base))
    before = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}

    making.base = _base(found, model, by_lora)
    rough = planner.make_plan(
        making.facts(throughput.assumed(making.device)), work.seconds, work.fixed
    )
    if not making.is_planned:
        shards = making.hold_out(rough.expected.held_out_bytes)
        bits = making.bits(model, rough.recipe, shards)
        making.base = replace(making.base, bits_per_byte=bits)
    plan = making.plan(rough, lambda recipe: config)
    loaded = [model]
    del found, model  # so that there is never more than one of them

    def fresh(plan: Plan) -> tuple[CausalLM, lora.LoraAdapter | None]:
        again = not loaded
        model = bundle.load(base, device=device).model.float() if again else loaded.pop()
        recipe = plan.recipe
        if not by_lora:
            return model, None
        settings = lora.AdapterConfig(recipe.lora.rank, recipe.lora.alpha, recipe.train.dropout)
        return model, lora.attach(model, settings, recipe.train.seed)

    course = making.train(plan, fresh)
    if course.adapter:
        if making.world.is_first:
            peft.save(work.workspace / "adapter", course.adapter, base.name)
        course.adapter.merge()
        course.adapter.detach()
    share, bits, was = making.best_share(course, before)
    how = f"tuned from {base.name}" + (" through a LoRA" if by_lora else "")
    return making.save(course, bits, "lora" if by_lora else "finetune", how, share, was)


def _base(found: bundle.Bundle, model: CausalLM, by_lora: bool) -> BaseModelInfo:
    """What the plan is told of a base; its own peak rates where it says so itself."""
    size = sum(parameter.numel() for parameter in model.parameters())
    recipe = found.provenance.get("recipe")
    optim = recipe.get("optim") if isinstance(recipe, dict) else None
    if not isinstance(optim, dict) or optim.get("kind") not in ("muon", "adamw"):
        return BaseModelInfo(model.config, size, lora=by_lora)
    # A model made before a setting was renamed stores its value under the old name.
    renamed = {RENAMED.get(f"optim.{name}", f"optim.{name}"): optim[name] for name in optim}
    return BaseModelInfo(
        model.config,
        size,
        kind=optim["kind"],
        muon_lr=_positive(renamed.get("optim.muon_lr")),
        learning_rate=_positive(renamed.get("optim.learning_rate")),
        lora=by_lora,
    )


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 10 else None
