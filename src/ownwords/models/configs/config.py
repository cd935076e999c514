"""The base class of model configs, and RoPE settings, as in config.json; does not import torch."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, get_type_hints

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import ConfigError
from ownwords.core.validation import Meta, decode
from ownwords.models.untrusted_files import ModelError

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Positive = Annotated[float, Meta(gt=0)]
REQUIRED: Final[Any] = object()
_KINDS: Mapping[Any, Any] = {int: Count, float: Positive, float | None: Positive, bool: bool}


@dataclass(frozen=True)
class WeightName:
    """The names of a weight: ours, Hugging Face's and llama.cpp's; "{i}" is the layer index.

    `shape` names the config properties that are its dimensions. `transposed`: Hugging Face stores
    it transposed. `gguf` omits the suffix .weight or .bias; it is empty if GGUF does not support
    the family.
    """

    ours: str
    theirs: str
    gguf: str
    shape: str
    transposed: bool = False


def weight_names(table: str, *, prefix: str = "") -> tuple[WeightName, ...]:
    """Parse a table of weight names: ours, Hugging Face's, llama.cpp's, shape, "T" if transposed.

    `prefix` is prepended to Hugging Face's names; if it has "{i}", the weights belong to a block.
    """
    ours, gguf = ("blocks.{i}.", "blk.{i}.") if "{i}" in prefix else ("", "")
    rows = [re.split("  +", line.strip()) for line in table.strip().splitlines()]
    return tuple(
        WeightName(ours + row[0], prefix + row[1], gguf + row[2], row[3], len(row) > 4)
        for row in rows
    )


class HFField(NamedTuple):
    """A field of config.json and its default."""

    name: str
    default: object = REQUIRED


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The config of a model; `kv_heads` 0 means `heads`, `head_dim` 0 means width / heads."""

    MODEL_TYPE: ClassVar[str]  # in config.json
    ARCHITECTURE: ClassVar[str]  # the class in transformers
    WEIGHTS: ClassVar[tuple[WeightName, ...]]
    HF_FIELDS: ClassVar[Mapping[str, HFField]]  # by our name
    # The implemented values of other fields; null is always accepted, other values are refused.
    HF_SUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]]
    GGUF_ARCHITECTURE: ClassVar[str] = ""
    GGUF_FIELDS: ClassVar[Mapping[str, str]] = {}  # by our name; without the architecture prefix
    GGUF_INTERLEAVED_ROPE: ClassVar[bool] = False  # llama.cpp rotates pairs (2i, 2i + 1)
    # Properties of the family's graph, which the C++ engine uses too.
    LAYER_NORM: ClassVar[bool] = False
    GELU: ClassVar[bool] = False
    NORM_OFFSET: ClassVar[float] = 0.0
    # Limits above any existing model: a config that exceeds them is damaged or malicious.
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
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        return self.q_width + 2 * self.kv_width

    @property
    def attention_scale(self) -> float:
        return float(self.head_dim**-0.5)

    @property
    def embedding_scale(self) -> float:
        return 1.0

    @property
    def logit_softcap(self) -> float | None:
        return None

    def windows(self) -> tuple[int | None, ...]:
        """Return each layer's attention window, in tokens including itself; None: unlimited."""
        return (None,) * self.layers

    def rope_specs(self) -> "tuple[tuple[float, RopeScaling | None], ...]":
        """Return the base and scaling of each RoPE that `rope_of_layers` indexes."""
        return ()

    def rope_of_layers(self) -> tuple[int, ...]:
        """Return the index of each layer's RoPE in `rope_specs`; -1 means none."""
        return (0 if self.rope_specs() else -1,) * self.layers

    @classmethod
    def from_hf(cls, data: Mapping[str, Any]) -> Self:
        """Read a parsed config.json; ConfigError names an invalid or missing field."""
        return cls(**cls.hf_values(data))

    @classmethod
    def hf_values(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        check_supported(data, cls.HF_SUPPORTED)
        kinds = get_type_hints(cls)
        return {
            ours: hf_value(data, field.name, _KINDS[kinds[ours]], field.default)
            for ours, field in cls.HF_FIELDS.items()
        }

    def to_hf(self) -> dict[str, object]:
        """Return the fields of a config.json that old and new loaders read, without the dtype."""
        return {
            "architectures": [self.ARCHITECTURE],
            "model_type": self.MODEL_TYPE,
            **{field.name: getattr(self, ours) for ours, field in self.HF_FIELDS.items()},
            **{name: values[0] for name, values in self.HF_SUPPORTED.items()},
            # Set explicitly: loaders' default ids may not exist in this vocabulary.
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }


def hf_value(
    data: Mapping[str, Any],
    name: str,
    kind: Any,  # noqa: ANN401 - whatever annotations can say
    default: object = REQUIRED,
    where: str = "config.json",
) -> Any:  # noqa: ANN401
    """Return the value of a field, checked to be of type `kind`; null counts as missing."""
    value = data.get(name)
    if value is None:
        if default is REQUIRED:
            raise ConfigError(f"{where} has no {name}")
        return default
    decoded = decode(kind, value, path=name, source=where)
    if isinstance(decoded, float) and math.isinf(decoded):
        raise ConfigError(f"{where}: {name} must be finite")
    return decoded


def hf_table(data: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the value of a field that is an object; None if it is missing, null or empty."""
    table: dict[str, Any] | None = hf_value(data, name, dict[str, Any], None)
    return table or None


def check_supported(
    data: Mapping[str, Any], supported: Mapping[str, tuple[object, ...]], where: str = "config.json"
) -> None:
    """Raise ConfigError for unsupported values of fields; missing or null fields are accepted."""
    for name, values in supported.items():
        value = data.get(name)
        if value is not None and value not in values:
            raise ConfigError(
                f"{where} has {name} = {value!r:.80}, which is not implemented",
                hint=f"supported: {name} = {' or '.join(map(repr, values))}",
            )


_ROPE_KINDS = ("default", "linear", "dynamic", "llama3")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """The scaling of RoPE frequencies that extends a model to longer contexts.

    "linear" divides every frequency; "llama3" only the low ones, by bands of wavelength. "dynamic"
    changes nothing within the context, and longer texts are refused anyway.
    """

    kind: str  # "linear" | "dynamic" | "llama3"
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    @classmethod
    def from_hf(cls, table: Mapping[str, Any] | None, context: int) -> Self | None:
        """Return the scaling from `rope_scaling`, or from `rope_parameters`, its newer name."""
        if table is None:
            return None
        where = "rope_scaling in config.json"
        name = "type" if table.get("rope_type") is None else "rope_type"
        check_supported(table, {"partial_rotary_factor": (1.0,), name: _ROPE_KINDS}, where)
        kind = table.get(name)
        if kind is None or kind == "default":
            return None
        factor = hf_value(table, "factor", Positive, where=where)
        if kind != "llama3":
            return cls(kind=str(kind), factor=factor)
        return cls(
            kind="llama3",
            factor=factor,
            low_freq_factor=hf_value(table, "low_freq_factor", Positive, where=where),
            high_freq_factor=hf_value(table, "high_freq_factor", Positive, where=where),
            original_context=hf_value(
                table, "original_max_position_embeddings", Count, context, where
            ),
        )

    def to_hf(self) -> dict[str, object]:
        table: dict[str, object] = {"rope_type": self.kind, "factor": self.factor}
        if self.kind == "llama3":
            table["low_freq_factor"] = self.low_freq_factor
            table["high_freq_factor"] = self.high_freq_factor
            table["original_max_position_embeddings"] = self.original_context
        return table


def read_rope(
    data: Mapping[str, Any], table: Mapping[str, Any] | None, context: int, base: float
) -> tuple[float, RopeScaling | None]:
    """Return the RoPE base and scaling; older files have the base outside the table."""
    base = hf_value(data, "rope_theta", Positive, base)
    if table is not None:
        base = hf_value(table, "rope_theta", Positive, base, "rope_parameters in config.json")
    return base, RopeScaling.from_hf(table, context)


def frequencies(
    head_dim: int, base: float, scaling: RopeScaling | None = None
) -> npt.NDArray[np.float32]:
    """Return the RoPE frequency of each pair of dimensions, in radians per position: [D / 2].

    `models.layers` computes the same except for the last bit, because PyTorch rounds differently.
    """
    steps = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    with np.errstate(over="ignore"):  # a damaged base gives infinity, and a frequency of 0
        powers = np.power(base, steps.astype(np.float64)).astype(np.float32)
    scaled: npt.NDArray[np.float32] = scale_frequencies(np.float32(1) / powers, scaling)
    return scaled


def scale_frequencies(plain: Any, scaling: RopeScaling | None) -> Any:  # noqa: ANN401
    """Scale the RoPE frequencies in an array or a tensor."""
    if scaling is None or scaling.kind == "dynamic":
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    # llama3: keep frequencies with many turns over the original context, divide those with few
    # turns by the factor, and interpolate those in between.
    turns = scaling.original_context / (2 * math.pi / plain)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clip(0.0, 1.0)
    return (1 - kept) * plain / scaling.factor + kept * plain


def check_size(size: int, config: ModelConfig, what: str) -> None:
    """Raise ModelError if the tokenizer has more tokens than the model, or fewer than half."""
    if not size <= config.vocabulary <= 2 * size:
        raise ModelError(
            f"{what} has {size:,} tokens, but the model {config.vocabulary:,} "
            "(vocab_size in config.json)",
            hint="a model works only with its own tokenizer",
        )
