"""A trained model: its weights, interpolated with the base's, its card and provenance."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from ownwords.archive.corpus import TextCollection
from ownwords.models.decoder import CausalLM
from ownwords.models.lora import LoraAdapter
from ownwords.training.checkpoint import Run
from ownwords.training.loop import TrainOutcome
from ownwords.training.plan import Plan
from ownwords.view.format import number, size, times

# Points tried between the base's weights (0) and the tuned ones (1).
_SHARES = (1.0, 0.85, 0.7, 0.5, 0.3)

SetShare = Callable[[float], None]


def best_share(
    set_share: SetShare, bits: Callable[[], float], tuned_bits: float | None = None
) -> tuple[float, float, float]:
    """Set the share with the fewest bits per byte; return it, its bits, and the base's.

    `tuned_bits` are the bits of share 1, if they are known.

    A tuned model has learned the author and forgotten other things; a point between the base and
    the tuned model is often better than either (Wortsman et al. 2021, arXiv 2109.01903). The bits
    fall from the base to the best point and rise after it, so the search ends at the first share
    that is worse than the one before.
    """
    set_share(0.0)
    base_bits = bits()
    best, best_bits = 0.0, base_bits
    before = float("inf")
    for share in _SHARES:
        if share == 1 and tuned_bits is not None:
            here = tuned_bits
        else:
            set_share(share)
            here = bits()
        if here < best_bits:
            best, best_bits = share, here
        if here > before:
            break
        before = here
    set_share(best)
    return best, best_bits, base_bits


def between(model: CausalLM, base: Mapping[str, Tensor]) -> SetShare:
    """Return a function that sets the weights between `base` and the model's current ones."""
    tuned = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}

    def set_share(share: float) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.lerp(base[name].float(), tuned[name].float(), share))

    return set_share


def scaling(adapter: LoraAdapter) -> SetShare:
    """Return a function that scales what an adapter adds to its model."""
    ups = {name: layer.up.detach().clone() for name, layer in adapter.layers.items()}

    def set_share(share: float) -> None:
        with torch.no_grad():
            for name, layer in adapter.layers.items():
                layer.up.copy_(share * ups[name])

    return set_share


# --- the model's folder ---------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainedModel:
    """A saved model: its folder, its plan, and the outcome of the training."""

    folder: Path
    run: Run
    plan: Plan
    outcome: TrainOutcome
    bits_per_byte: float | None  # on the held-out texts
    judged: tuple[str, ...]  # the plan's forecast compared with the outcome
    share: float = 1.0  # position between the base's weights (0) and the trained ones (1)
    before: float | None = None  # the base's own bits per byte on the held-out texts


def card(name: str, model: CausalLM, made: TrainedModel, texts: TextCollection, how: str) -> str:
    """The text of the model's README: its training texts, quality and settings."""
    config, plan = model.config, made.plan
    count = sum(parameter.numel() for parameter in model.parameters())
    quality = "No text was held out, so there is no score."
    if made.bits_per_byte is not None:
        quality = (
            f"{made.bits_per_byte:.3f} bits per byte on whole held-out texts, which also decided"
            " when to stop."
        )
        if made.before is not None:
            quality += f" The base had {made.before:.3f} on the same texts."
    lines = [
        f"# {name}",
        "",
        f"A language model of {number(count)} parameters ({config.MODEL_TYPE}, {config.layers}"
        f" layers of width {config.width}, {config.vocabulary:,} tokens, a context of"
        f" {config.context:,}), {how} with ownwords.",
        "",
        "## Training texts",
        "",
        f"{size(texts.bytes)} of one author's own words, {len(texts):,} texts, read"
        f" {times(plan.expected.epochs_of(made.outcome.tokens))}.",
        "",
        "## Quality",
        "",
        quality,
        "",
        *(f"- {sentence}" for sentence in made.judged),
        "",
        "## Settings",
        "",
        "| setting | value | why | source |",
        "|---|---|---|---|",
    ]
    for each in plan.reasons:
        cells = (each.key, each.value, each.reason, each.source)
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def provenance(made: TrainedModel, kind: str, corpus: str) -> dict[str, object]:
    """The card's facts as data; fine-tuning this model reads its learning rates from them."""
    plan, outcome = made.plan, made.outcome
    return {
        "kind": kind,
        "corpus": corpus,
        "share_of_tuned_weights": None if kind == "pretrain" else made.share,
        "recipe": asdict(plan.recipe),
        "plan": [asdict(number) for number in plan.reasons],
        "expected": asdict(plan.expected),
        "outcome": {
            "steps": outcome.steps,
            "stopped": outcome.stopped,
            "best_step": outcome.best_step,
            "tokens": outcome.tokens,
            "seconds": outcome.seconds,
            "validation_bits_per_byte": made.bits_per_byte,
            "validation_bits_per_byte_before": made.before,
        },
        "compared": list(made.judged),
    }
