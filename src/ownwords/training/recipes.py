"""From texts to a model directory: train one from nothing, or tune one that is there.

The two differ in what they begin with. Both plan, measure, train and save within the seconds given,
and both go on where they were when the same command is given again.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ownwords.core.errors import ConfigError
from ownwords.core.fingerprint import digest
from ownwords.models import bundle, lora, peft
from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.qwen3 import config_for_budget
from ownwords.models.decoder import CausalLM
from ownwords.models.family import build
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import measure
from ownwords.training import plan as planning
from ownwords.training.laws import LAWS
from ownwords.training.making import Making
from ownwords.training.planned import Base, Plan
from ownwords.training.preparing import made_tokenizer
from ownwords.training.rehearsal import rehearsal
from ownwords.training.settings import Recipe
from ownwords.training.shards import Text
from ownwords.training.work import Made, Work

__all__ = ["Made", "Recipe", "Work", "finetune", "pretrain"]


def pretrain(train: Iterable[Text], held_out: Iterable[Text], work: Work) -> Made:
    """Train a model on these texts alone. OwnwordsError says what stands in the way."""
    making = Making(work, train, held_out)
    survey = making.survey
    vocabulary = planning.vocabulary(survey.bytes, work.fixed)
    # A plan on assumed speeds costs nothing, and says at once what is hopeless.
    rough = planning.plan(making.facts(measure.assumed(making.device)), work.seconds, work.fixed)
    with making.world.in_turn():
        tokenizer = made_tokenizer(making.texts, survey, vocabulary, making.tokens, making.progress)
    making.encode(tokenizer)
    making.find_run("pretrain", str(vocabulary))

    def shape(recipe: Recipe) -> ModelConfig:
        size, context = recipe.model.parameters, recipe.model.context
        return config_for_budget(size, tokenizer.vocabulary_size, context)

    def fresh(plan: Plan) -> tuple[CausalLM, None]:
        model = build(shape(plan.recipe), device=making.device.torch_device)
        model.init_weights(plan.recipe.train.seed)
        return model, None

    course = making.train(making.plan(rough, shape), fresh)
    return making.save(course, course.outcome.bits_per_byte, "pretrain", "trained")


def finetune(
    base: Path,
    train: Iterable[Text],
    held_out: Iterable[Text],
    work: Work,
    *,
    replay: Iterable[Text] | None = None,
    by_lora: bool = False,
) -> Made:
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
    making = Making(work, train, held_out)
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
                round(LAWS.rehearsal_tokens),
                LAWS.rehearsal_share * work.seconds,
                measure.cache_folder(),
                making.progress,
            )
    making.encode(tokenizer, replay)
    making.find_run("lora" if by_lora else "finetune", _key_of(base, found))
    before = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}

    making.base = _base(found, model, by_lora)
    rough = planning.plan(making.facts(measure.assumed(making.device)), work.seconds, work.fixed)
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


def _key_of(base: Path, found: bundle.Bundle) -> str:
    """Of the base's weights, where that is cheap: a sum of each tensor, in order."""
    sums = [f"{name} {p.double().sum().item()!r}" for name, p in found.model.named_parameters()]
    return digest(base.name, repr(found.config), *sums)


def _base(found: bundle.Bundle, model: CausalLM, by_lora: bool) -> Base:
    """What the plan is told of a base; its own peak rates where it says so itself."""
    size = sum(parameter.numel() for parameter in model.parameters())
    recipe = found.provenance.get("recipe")
    optim = recipe.get("optim") if isinstance(recipe, dict) else None
    if not isinstance(optim, dict) or optim.get("kind") not in ("muon", "adamw"):
        return Base(model.config, size, lora=by_lora)
    return Base(
        model.config,
        size,
        kind=optim["kind"],
        matrix_rate=_positive(optim.get("matrix_rate")),
        rate=_positive(optim.get("rate")),
        lora=by_lora,
    )


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 10 else None
