"""`ownwords finetune`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.optional_packages import needs_torch
from ownwords.cli.options import DEFAULTS, Common
from ownwords.cli.training import TRAINING, Texts, TrainingOptions, train


def finetune(
    *paths: Texts,
    base: Annotated[
        str,
        Parameter(
            help="The model to begin with, which stays as it is: a directory, or a name that"
            " `ownwords base` lists. [default: the one in the box]",
            show_default=False,
        ),
    ] = "",
    replay: Annotated[
        Path | None,
        Parameter(
            help="Texts like those the base was trained on: read in between, it forgets less."
            " [default: none]"
        ),
    ] = None,
    lora: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Train a small adapter in place of all weights: less memory, and less is"
            " learned. [default: no]",
        ),
    ] = False,
    options: TrainingOptions = TRAINING,
    common: Common = DEFAULTS,
) -> None:
    """Read the paths, plan, tune the base to them, save the best between the two."""
    from ownwords.base import catalogue

    with needs_torch("training a model"):
        from ownwords.training import recipes

    folder = catalogue.find(base)
    train(
        paths,
        common,
        options,
        lambda texts, held_out, request, base_text: recipes.plan_finetuning(
            folder, texts, held_out, request, replay=base_text, by_lora=lora
        ),
        kind="lora" if lora else "finetune",
        replay=replay,
    )
