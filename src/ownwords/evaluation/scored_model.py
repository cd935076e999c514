"""A model directory to score: its records, and the measurements on its weights.

PyTorch and the weights are loaded when the first measurement needs them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.hardware import return_freed_memory
from ownwords.evaluation.intervals import Score
from ownwords.evaluation.verbatim import Extraction
from ownwords.models import registry
from ownwords.models.atomic_dir import readable_dir
from ownwords.models.directory import (
    CONFIG,
    COPY_GUARD,
    PROVENANCE,
    model_fingerprint,
    times_read,
)
from ownwords.models.untrusted_files import read_json
from ownwords.models.weight_mapping import count_parameters

if TYPE_CHECKING:
    from ownwords.inference.model import Model
    from ownwords.models.decoder import CausalLM
    from ownwords.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """The prompt of a sample: empty, or the beginning of a held-out post."""

    prompt: str
    seed: int
    title: str = ""  # of that post


class ScoredModel:
    """A model directory, and its name in messages.

    Its bits are measured with `adapter` merged; it writes without the adapter.
    """

    def __init__(
        self, folder: Path, name: str, device: str = "auto", adapter: Path | None = None
    ) -> None:
        self.folder, self.name, self.device, self._adapter = folder, name, device, adapter

    # --- records ----------------------------------------------------------------------------------

    @cached_property
    def key(self) -> str:
        """A fingerprint of everything that affects what the model writes."""
        return model_fingerprint(self.folder)

    @cached_property
    def weights_key(self) -> str:
        """The same fingerprint without the copy guard, but with the adapter."""
        adapter = digest(self._adapter.read_bytes()) if self._adapter else ""
        return model_fingerprint(self.folder, copy_guard=False) + adapter

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """The record of its training; empty if there is none."""
        path = readable_dir(self.folder) / PROVENANCE
        return read_json(path) if path.exists() else {}

    @property
    def has_guard(self) -> bool:
        return (readable_dir(self.folder) / COPY_GUARD).exists()

    @property
    def parameters(self) -> int:
        config = read_json(readable_dir(self.folder) / CONFIG)
        return count_parameters(registry.config_from_json(config))

    @property
    def epochs(self) -> float | None:
        """The number of training epochs, if recorded."""
        return times_read(self.provenance)

    @property
    def tokens_read_per_s(self) -> float:
        """The expected tokens per second of its training; infinite if unknown."""
        expected = self.provenance.get("expected")
        return float(expected["tokens_per_s"]) if isinstance(expected, dict) else math.inf

    # --- measurements -----------------------------------------------------------------------------

    def score(self, texts: Sequence[str], names: Sequence[str]) -> Score:
        from ownwords.evaluation import bits_per_byte  # noqa: PLC0415 - torch takes seconds

        score = bits_per_byte.score(*self._weights, texts, names=names)
        if not math.isfinite(score.nats):
            raise OwnwordsError(
                f"the probabilities of {self.folder} are not finite: its weights are damaged",
                hint="copy the model's folder again, or train it again",
            )
        return score

    def extraction(
        self, training: Sequence[str], held_out: Sequence[str], samples: int
    ) -> Extraction:
        from ownwords.evaluation import memorisation  # noqa: PLC0415

        return memorisation.extraction(*self._weights, training, held_out, samples=samples)

    def write(
        self,
        prompts: Sequence[SamplePrompt],
        max_tokens: int,
        *,
        guarded: bool,
    ) -> tuple[str, ...]:
        """Return the texts that `ownwords write` would write for these prompts."""
        writer = self._writer
        requests = [
            writer.request(each.prompt, max_tokens=max_tokens, seed=each.seed, quote=not guarded)
            for each in prompts
        ]
        return tuple(writer.generate_texts(requests))

    def release(self) -> None:
        """Free the weights; the next figure loads them again."""
        for loaded in ("_weights", "_writer"):
            self.__dict__.pop(loaded, None)
        return_freed_memory()

    @cached_property
    def _writer(self) -> "Model":
        from ownwords.inference.model import Model  # noqa: PLC0415

        return Model.load(self.folder, device=self.device)

    @cached_property
    def _weights(self) -> "tuple[CausalLM, Tokenizer]":
        from ownwords.inference.model import choose_device  # noqa: PLC0415
        from ownwords.models import bundle, fused, lora  # noqa: PLC0415
        from ownwords.tokenizers.tokenizer import Tokenizer  # noqa: PLC0415

        loaded = bundle.load(self.folder, device=choose_device(self.device, self.folder))
        tokenizer = Tokenizer(loaded.tokenizer_files)
        loaded.check_tokenizer(tokenizer)
        model = loaded.model
        if self._adapter:
            lora.merge_stored(model, self._adapter)
        # bfloat16 takes a third of the time and hardly changes the bits. Measured: docs/log.md.
        if not fused.keeps_bf16(next(model.parameters())):
            model.float()
        return model, tokenizer
