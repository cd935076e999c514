"""A model's settings among the metadata of a GGUF file: checked as they are asked for."""

import math
from collections.abc import Mapping

import numpy as np

from ownwords.models.gguf.container import Value
from ownwords.models.untrusted_files import ModelError

_OWN = "ownwords."  # keys of ours, which belong to no architecture


class ArchitectureMetadata:
    """The metadata of one architecture, each value checked as it is asked for."""

    def __init__(self, metadata: Mapping[str, Value]) -> None:
        self._metadata = metadata
        self.architecture = self._text("general.architecture")

    def count(self, key: str, default: int | None = None, most: int = 1 << 30) -> int:
        value = self._of(key, default)
        if type(value) is not int or not 1 <= value <= most:
            raise ModelError(f"the GGUF file's {self._full(key)} is no count up to {most:,}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self._of(key, default)
        if type(value) not in (int, float) or not 0 < float(value) < math.inf:  # type: ignore[arg-type]
            raise ModelError(f"the GGUF file's {self._full(key)} is no positive number")
        return _shortest(float(value))  # type: ignore[arg-type]

    def has(self, key: str) -> bool:
        return self._full(key) in self._metadata

    def text(self, key: str, default: str) -> str:
        return self._text(self._full(key), default)

    def _text(self, key: str, default: str | None = None) -> str:
        value = self._metadata.get(key, default)
        if not isinstance(value, str):
            raise ModelError(f"the GGUF file has no {key}, or one that is no text")
        return value

    def _of(self, key: str, default: float | None) -> Value:
        value = self._metadata.get(self._full(key), default)
        if value is None:
            raise ModelError(f"the GGUF file lacks {self._full(key)}")
        return value

    def _full(self, key: str) -> str:
        return full_key(self.architecture, key)


def full_key(architecture: str, key: str) -> str:
    """A setting's key in the file: within its architecture, unless it is of our own."""
    return key if key.startswith(_OWN) else f"{architecture}.{key}"


def _shortest(value: float) -> float:
    """The number that a 32-bit float was written from: 1e-6 rather than 9.99999997e-7."""
    return float(str(np.float32(value)))
