"""What is said about a model that was made: its card to read, its provenance to compute with."""

import dataclasses
from collections.abc import Sequence

from ownwords.core.config import settings_of
from ownwords.models.decoder import CausalLM
from ownwords.training.forecast import number, size, times
from ownwords.training.job import TrainOutcome
from ownwords.training.plan import Plan


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
    """The model's README: what it learned from, how, and how good it is."""
    config = model.config
    count = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"# {name}",
        "",
        f"A language model of {number(count)} parameters ({config.MODEL_TYPE}, {config.layers}"
        f" layers of width {config.width}, {config.vocabulary:,} tokens, a context of"
        f" {config.context:,}), {how} with ownwords.",
        "",
        "## What it learned from",
        "",
        f"{size(text_bytes)} of one author's own words, {documents:,} texts, read"
        f" {times(outcome.tokens / max(plan.expected.tokens, 1) * plan.expected.epochs)}.",
        "",
        "## How good it is",
        "",
        "No text was held out, so nobody can say."
        if bits is None
        else f"{bits:.3f} bits a byte on texts held out whole, which also decided when to stop."
        + (f" The base had {before:.3f} on the same texts." if before is not None else ""),
        "",
        *(f"- {sentence}" for sentence in judged),
        "",
        "## How it was trained",
        "",
        "| setting | value | why | source |",
        "|---|---|---|---|",
        *(
            f"| {one.key} | {one.value} | {_cell(one.reason)} | {_cell(one.source)} |"
            for one in plan.reasons
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
    """The same for programs; a later run that tunes this model reads its rates here."""
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
        "plan": [dataclasses.asdict(one) for one in plan.reasons],
        "expected": dataclasses.asdict(plan.expected),
        "outcome": {
            "steps": outcome.steps,
            "stopped": outcome.stopped,
            "best_step": outcome.best_step,
            "averaged": outcome.averaged,
            "shortened": outcome.shortened,
            "tokens": outcome.tokens,
            "seconds": outcome.seconds,
            "validation_bits_per_byte": bits,
            "validation_bits_per_byte_before": before,
        },
        "compared": list(judged),
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
