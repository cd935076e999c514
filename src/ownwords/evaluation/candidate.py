"""A model directory that is scored, and what is recorded of it."""

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.hardware import return_freed_memory
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import COPY_GUARD, PROVENANCE, base_name
from ownwords.models.fingerprint import model_fingerprint
from ownwords.models.safetensors_header import read_header
from ownwords.models.untrusted_files import read_json

if TYPE_CHECKING:
    from ownwords.evaluation.model_metrics import ModelMetrics


class Candidate:
    """A model directory and its role in the comparison."""

    def __init__(self, folder: Path, role: str, device: str = "auto") -> None:
        self.folder, self.role, self.device = folder, role, device

    @cached_property
    def key(self) -> str:
        """A fingerprint of everything that affects what the model writes."""
        return model_fingerprint(self.folder)

    @cached_property
    def weights_key(self) -> str:
        """The same fingerprint without the copy guard."""
        return model_fingerprint(self.folder, copy_guard=False)

    @cached_property
    def model(self) -> "ModelMetrics":
        from ownwords.evaluation.model_metrics import ModelMetrics  # noqa: PLC0415 - torch takes seconds

        return ModelMetrics(self.folder, self.device)

    def release(self) -> None:
        """Free the weights; the next figure loads them again."""
        self.__dict__.pop("model", None)
        return_freed_memory()

    @property
    def has_guard(self) -> bool:
        """Whether the directory holds a copy guard."""
        return (self._readable / COPY_GUARD).exists()

    @cached_property
    def parameters(self) -> int:
        """Number of parameters in its files."""
        stored = [
            tensor
            for path in sorted(self._readable.glob("*.safetensors"))
            if path.name != COPY_GUARD
            for tensor in read_header(path).values()
        ]
        return sum(math.prod(tensor.shape) for tensor in stored)

    @cached_property
    def trained_s(self) -> float | None:
        """Duration of its training, if recorded."""
        outcome = self._provenance.get("outcome")
        seconds = outcome.get("seconds") if isinstance(outcome, dict) else None
        return float(seconds) if isinstance(seconds, int | float) else None

    @cached_property
    def epochs(self) -> float | None:
        """How often it has read its training posts, if recorded."""
        outcome, expected = (self._provenance.get(name) for name in ("outcome", "expected"))
        if not isinstance(outcome, dict) or not isinstance(expected, dict):
            return None
        return float(expected["epochs"] * outcome["tokens"] / max(1, expected["tokens"]))

    @cached_property
    def plan_and_outcome(self) -> tuple[str, ...]:
        """Forecasts of its training and their outcome, one sentence each."""
        sentences = self._provenance.get("compared")
        return tuple(map(str, sentences)) if isinstance(sentences, list) else ()

    @property
    def corpus(self) -> str:
        """The key of the archive it was trained on, if recorded."""
        key = self._provenance.get("corpus")
        return key if isinstance(key, str) else ""

    @property
    def base(self) -> str:
        """The name of the base it was fine-tuned from; "" for one trained from scratch."""
        return base_name(self._provenance)

    @cached_property
    def _readable(self) -> Path:
        return readable_dir(self.folder)

    @cached_property
    def _provenance(self) -> dict[str, object]:
        path = self._readable / PROVENANCE
        return read_json(path) if path.exists() else {}
