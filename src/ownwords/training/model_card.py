"""Writes the model card (README.md) and the provenance (ownwords.json) of a trained model."""

import dataclasses
from collections.abc import Sequence

from ownwords.core.config import settings_of
from ownwords.models.decoder import CausalLM
from ownwords.training.loop import TrainOutcome
from ownwords.training.plan import Plan, number, size, times


def card(
    name: str,
    model: CausalLM,
    plan: Plan,
    outcome: TrainOutcome,
    bits: float | None,
    judged: Sequence[str],
    *,
    text_bytes: int,
    documents: int,
    how: str,
    before: float | None = None,
) -> str:
    """The text of the model's README: its training texts, quality and settings."""
    config = model.config
    count = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"# {name}",
        "",
        f"A language model of {number(count)} parameters ({config.MODEL_TYPE}, {config.layers}"
        f" layers of width {config.width}, {config.vocabulary:,} tokens, a context of"
        f" {config.context:,}), {how} with ownwords.",
        "",
        "## Training texts",
        "",
        f"{size(text_bytes)} of one author's own words, {documents:,} texts, read"
        f" {times(plan.expected.epochs_of(outcome.tokens))}.",
        "",
        "## Quality",
        "",
        "No text was held out, so there is no score."
        if bits is None
        else f"{bits:.3f} bits per byte on whole held-out texts, which also decided when to stop."
        + (f" The base had {before:.3f} on the same texts." if before is not None else ""),
        "",
        *(f"- {sentence}" for sentence in judged),
        "",
        "## Settings",
        "",
        "| setting | value | why | source |",
        "|---|---|---|---|",
        *(
            f"| {number.key} | {number.value} | {_cell(number.reason)} | {_cell(number.source)} |"
            for number in plan.reasons
        ),
        "",
    ]
    return "\n".join(lines)


def provenance(
    plan: Plan,
    outcome: TrainOutcome,
    bits: float | None,
    judged: Sequence[str],
    *,
    kind: str,
    corpus: str,
    base: str = "",
    share: float | None = None,
    before: float | None = None,
) -> dict[str, object]:
    """The same as data; fine-tuning this model reads its learning rates from it."""
    recipe: dict[str, dict[str, object]] = {}
    for setting in settings_of(plan.recipe):
        section, _, name = setting.key.rpartition(".")
        recipe.setdefault(section, {})[name] = setting.default
    return {
        "kind": kind,
        "corpus": corpus,
        "base_name": base,
        "share_of_tuned_weights": share,
        "recipe": recipe,
        "plan": [dataclasses.asdict(number) for number in plan.reasons],
        "expected": dataclasses.asdict(plan.expected),
        "outcome": {
            "steps": outcome.steps,
            "stopped": outcome.stopped,
            "best_step": outcome.best_step,
            "averaged": outcome.averaged,
            "tokens": outcome.tokens,
            "seconds": outcome.seconds,
            "validation_bits_per_byte": bits,
            "validation_bits_per_byte_before": before,
        },
        "compared": list(judged),
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
