"""`ownwords pretrain`."""

from ownwords.cli.optional_packages import require_package
from ownwords.cli.options import DEFAULTS, CommonOptions
from ownwords.cli.parameters import SourcePath
from ownwords.cli.training import TRAINING, TrainingOptions, train


def pretrain(
    *paths: SourcePath,
    options: TrainingOptions = TRAINING,
    common: CommonOptions = DEFAULTS,
) -> None:
    """Read the paths, plan, train from scratch, save the best model."""
    require_package("torch", "training a model")
    from ownwords.training import recipes

    train(
        paths,
        common,
        options,
        lambda texts, held_out, request, _: recipes.plan_pretraining(texts, held_out, request),
        kind="pretrain",
    )
