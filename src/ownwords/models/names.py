"""The names of a model's weights, ours and everybody's, and their shapes."""

from collections.abc import Iterator

from ownwords.models.configs.config import ModelConfig, WeightName


def hf_names(config: ModelConfig) -> list[tuple[str, str, bool]]:
    """(our name, the name in a Hugging Face directory, transposed) for every tensor stored.

    A tied head is the embedding, so it has no entry of its own.
    """
    return [
        (name.ours.replace("{i}", str(i)), name.theirs.replace("{i}", str(i)), name.transposed)
        for name, i in _each(config)
    ]


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Of every tensor, by our name for it, as it is used: not transposed."""
    return {
        name.ours.replace("{i}", str(i)): tuple(getattr(config, x) for x in name.shape.split())
        for name, i in _each(config)
    }


def _each(config: ModelConfig) -> Iterator[tuple[WeightName, int]]:
    for name in config.NAMES:
        if name.ours != "head.weight" or not config.tied:
            for layer in range(config.layers if "{i}" in name.ours else 1):
                yield name, layer
