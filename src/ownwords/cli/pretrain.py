"""`ownwords pretrain`."""

from ownwords.cli.optional_packages import needs_torch
from ownwords.cli.options import DEFAULTS, Common
from ownwords.cli.training import TRAINING, Texts, TrainingOptions, train


def pretrain(
    *paths: Texts,
    options: TrainingOptions = TRAINING,
    common: Common = DEFAULTS,
) -> None:
    """Read the paths, plan, train from nothing, save the best model."""
    with needs_torch("training a model"):
        from ownwords.training import recipes

    train(
        paths,
        common,
        options,
        lambda texts, held_out, request, _: recipes.plan_pretraining(texts, held_out, request),
        kind="pretrain",
    )
