"""`ownwords finetune`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.optional_packages import require_package
from ownwords.cli.options import DEFAULTS, CommonOptions
from ownwords.cli.parameters import SourcePath, described, flag
from ownwords.cli.training import TRAINING, TrainingOptions, train

if TYPE_CHECKING:
    from ownwords.cli.training import Texts
    from ownwords.training.recipes import PlannedTraining, TrainRequest


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
    no_trim: Annotated[
        bool,
        flag("Keep the whole vocabulary of a large base, not only what your texts need."),
    ] = False,
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, plan, fine-tune the base, save the best mix of base and tuned weights."""
    from ownwords.base import catalogue
    from ownwords.base.trimming import TRIMMED, trim

    require_package("torch", "training a model")
    from ownwords.training import recipes

    folder = catalogue.find(base)

    def plan(
        texts: "Texts", held_out: "Texts", request: "TrainRequest", base_text: "Texts | None"
    ) -> "PlannedTraining":
        start = folder
        if not (no_trim or int(os.environ.get("WORLD_SIZE", "1")) > 1):
            own, out = (text.text for text in texts), request.workspace / "runs" / TRIMMED
            start = trim(folder, own, out / folder.name, progress=request.progress).folder
        return recipes.plan_finetuning(
            start, texts, held_out, request, replay=base_text, by_lora=lora or None
        )

    train(
        paths,
        common,
        options,
        plan,
        kind="lora" if lora else "finetune",
        replay=replay,
    )
