"""`ownwords finetune`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.optional_packages import require_package
from ownwords.cli.options import DEFAULTS, CommonOptions
from ownwords.cli.parameters import SourcePath, described, flag
from ownwords.cli.training import TRAINING, TrainingOptions, train


def finetune(
    *paths: SourcePath,
    base: Annotated[
        str,
        described(
            "The model to start from, which is not changed: a directory, or a name that `ownwords"
            " base` lists. [default: the one in the box]"
        ),
    ] = "",
    replay: Annotated[
        Path | None,
        Parameter(
            help="Texts like those the base was trained on, mixed in so that it forgets less."
            " [default: none]"
        ),
    ] = None,
    lora: Annotated[
        bool,
        flag(
            "Train a small adapter instead of all weights, as the plan does by itself for a large"
            " base."
        ),
    ] = False,
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, plan, fine-tune the base, save the best mix of base and tuned weights."""
    from ownwords.base import catalogue

    require_package("torch", "training a model")
    from ownwords.training import recipes

    folder = catalogue.find(base)
    train(
        paths,
        common,
        options,
        lambda texts, held_out, request, base_text: recipes.plan_finetuning(
            folder, texts, held_out, request, replay=base_text, by_lora=lora or None
        ),
        kind="lora" if lora else "finetune",
        replay=replay,
    )
