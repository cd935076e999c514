"""`ownwords finetune`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ownwords.cli.options import DEFAULTS, Common
from ownwords.cli.torch_needed import torch_for
from ownwords.cli.training import TRAINING, Texts, TrainingOptions, train


def finetune(
    *paths: Texts,
    base: Annotated[Path, Parameter(help="The model directory to begin with; it stays as it is.")],
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
    with torch_for("training a model"):
        from ownwords.training import recipes

    train(
        paths,
        common,
        options,
        lambda texts, held_out, work, base_text: recipes.finetune(
            base, texts, held_out, work, replay=base_text, by_lora=lora
        ),
        kind="lora" if lora else "finetune",
        replay=replay,
    )
