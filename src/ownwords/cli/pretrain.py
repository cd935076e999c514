"""`ownwords pretrain`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ownwords.cli.options import DEFAULTS, Common
from ownwords.cli.torch_needed import torch_for
from ownwords.cli.training import TRAINING, TrainingOptions, train

if TYPE_CHECKING:
    from ownwords.training.recipes import Made, Work
    from ownwords.training.shards import Text


def pretrain(
    *paths: Annotated[
        Path,
        Parameter(
            name="PATH",
            required=True,
            help="A blog, an export, a feed or a folder of texts, as `ownwords look` takes them.",
        ),
    ],
    options: TrainingOptions = TRAINING,
    common: Common = DEFAULTS,
) -> None:
    """Read the paths, plan, train from nothing, save the best model."""
    with torch_for("training a model"):
        from ownwords.training import recipes

    def make(
        texts: "Iterable[Text]",
        held_out: "Iterable[Text]",
        work: "Work",
        _: "Iterable[Text] | None",
    ) -> "Made":
        return recipes.pretrain(texts, held_out, work)

    train(paths, common, options, make, kind="pretrain")
