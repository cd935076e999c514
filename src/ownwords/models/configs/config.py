"""What the configs of all families share, and what a table of names is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ownwords.core.errors import ConfigError


@dataclass(frozen=True)
class WeightName:
    """One weight: our name, the name in a Hugging Face directory; "{i}" is the layer's number.

    `shape` names the sizes of a config that its dimensions have; it is stored `transposed` or not.
    """

    ours: str
    theirs: str
    shape: str
    transposed: bool = False


def per_layer(theirs: str, *names: WeightName) -> tuple[WeightName, ...]:
    """The names of a block's weights, given without what stands before each of them."""
    return tuple(
        replace(name, ours="blocks.{i}." + name.ours, theirs=theirs + name.theirs) for name in names
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model. `kv_heads` 0: as many as heads; `head_dim` 0: width / heads."""

    MODEL_TYPE: ClassVar[str]
    NAMES: ClassVar[tuple[WeightName, ...]]
    # Beyond any model there is: a config that asks for more is damaged or hostile.
    LIMITS: ClassVar[Mapping[str, int]] = {
        "vocabulary": 2**24,
        "context": 2**30,
        "width": 2**20,
        "layers": 2**10,
        "heads": 2**12,
        "kv_heads": 2**12,
        "head_dim": 2**14,
        "hidden": 2**22,
    }

    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    hidden: int
    norm_eps: float
    tied: bool

    def __post_init__(self) -> None:
        if self.kv_heads == 0:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.head_dim == 0:
            if self.heads < 1 or self.width % self.heads:
                raise ConfigError(f"heads ({self.heads}) must divide width ({self.width})")
            object.__setattr__(self, "head_dim", self.width // self.heads)
        for name, limit in self.LIMITS.items():
            value = getattr(self, name)
            if not 1 <= value <= limit:
                raise ConfigError(f"{name} ({value}) must be from 1 to {limit}")
        if self.heads % self.kv_heads:
            raise ConfigError(f"kv_heads ({self.kv_heads}) must divide heads ({self.heads})")
        if not 0 < self.norm_eps < 1:
            raise ConfigError(f"norm_eps ({self.norm_eps}) must be between 0 and 1")

    @property
    def queries(self) -> int:
        """The width of all queries together."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """The width of all keys together, and of all values."""
        return self.kv_heads * self.head_dim

    @property
    def queries_keys_values(self) -> int:
        """The width of the three, where one matrix makes them."""
        return self.queries + 2 * self.keys

    def windows(self) -> tuple[int | None, ...]:
        """For each layer how many tokens it sees, itself included; None: all of them."""
        return (None,) * self.layers

    @classmethod
    def from_hf(cls, data: Mapping[str, object]) -> Self:
        """From a parsed `config.json`; ConfigError names what is wrong, missing or refused."""
        raise NotImplementedError

    def to_hf(self) -> dict[str, object]:
        """A `config.json` that stock loaders read, old and new; the dtype is the directory's."""
        raise NotImplementedError
