"""A model with its tokenizer, as the Python API returns it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ownwords.core.errors import OwnwordsError
from ownwords.inference import copy_guard
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine, ForwardInput, Logits, WeightFormat
from ownwords.inference.engine_loader import load_with_tokenizer
from ownwords.inference.generation import GenerationRequest
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.text_generation import (
    DEFAULT_SAMPLING,
    TextGenerator,
    build_request,
    eos_token_ids,
    generate_texts,
    stream_request,
)
from ownwords.models import directory
from ownwords.models.directory import COPY_GUARD
from ownwords.models.gguf_cache import model_directory
from ownwords.tokenizers.tokenizer import Tokenizer


class Model:
    """A loaded model, from `ownwords.load`; `stop_ids` are added to the tokenizer's own."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        guard: CopyGuard | None = None,
        stop_ids: Iterable[int] = (),
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.guard = guard
        self.stop_ids = frozenset(stop_ids)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "auto",
        weights: WeightFormat = "stored",
        threads: int | None = None,
    ) -> "Model":
        """Load a model directory or GGUF file with the tokenizer saved in it.

        Its copy guard, if it has one, applies to everything the model writes.
        """
        folder = model_directory(folder)
        files, own_tokenizer, engine = load_with_tokenizer(
            folder, device=device, weights=weights, threads=threads
        )
        with directory.open_directory(folder) as readable:
            path = readable / COPY_GUARD
            fingerprint = files.fingerprint or own_tokenizer.fingerprint()
            guard = copy_guard.load(path, fingerprint) if path.exists() else None
        return cls(engine, own_tokenizer, guard, eos_token_ids(files.generation))

    def write(
        self,
        prompt: str,
        *,
        max_tokens: int = 400,
        seed: int = 1,
        stops: Sequence[str] = (),
        quote: bool = False,
        **sampling: Any,  # noqa: ANN401 - SamplingParams checks them
    ) -> TextGenerator:
        """Continue the prompt, yielding whole characters as they come, up to `max_tokens` tokens.

        The text ends earlier if the model ends the document, and before any of `stops`. The same
        seed gives the same text. `quote` disables the copy guard. `sampling` are fields of
        `inference.sampling.SamplingParams`, such as `temperature=0.5`.
        """
        request = self.request(
            prompt,
            max_tokens=max_tokens,
            seed=seed,
            sampling=replace(DEFAULT_SAMPLING, **sampling),
            quote=quote,
        )
        return stream_request(self.engine, self.tokenizer, request, stops)

    def write_several(
        self,
        prompt: str,
        *,
        seeds: Sequence[int],
        max_tokens: int = 400,
        stops: Sequence[str] = (),
        quote: bool = False,
        on_tokens: Callable[[int], object] = bool,
        **sampling: Any,  # noqa: ANN401 - as above
    ) -> list[str]:
        """Return a text for each seed, as `write` would, but generated in batches.

        `on_tokens` is called with the number of tokens of each step.
        """
        request = self.request(
            prompt,
            max_tokens=max_tokens,
            sampling=replace(DEFAULT_SAMPLING, **sampling),
            quote=quote,
        )
        requests = [replace(request, seed=seed) for seed in seeds]
        return generate_texts(self.engine, self.tokenizer, requests, stops, on_tokens=on_tokens)

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int,
        seed: int = 1,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        quote: bool = False,
        logprobs: int = 0,
    ) -> GenerationRequest:
        """Build the request that continues a prompt, for this model's engine or its scheduler."""
        return build_request(
            self.tokenizer,
            prompt,
            max_tokens=max_tokens,
            seed=seed,
            sampling=sampling,
            guard=None if quote else self.guard,
            extra_stop_ids=self.stop_ids,
            logprobs=logprobs,
        )

    def logits(self, ids: Sequence[int]) -> Logits:
        """Return the next-token logits after each of the ids, [ids, vocabulary].

        Raises OwnwordsError for ids outside the vocabulary and for more ids than the context.
        """
        if len(ids) > self.engine.context:
            raise OwnwordsError(
                f"{len(ids)} tokens do not fit the model's context ({self.engine.context})"
            )
        cache = self.engine.cache(1, max(1, len(ids)))
        try:
            return cache.forward([ForwardInput(0, ids)], all_positions=True)
        finally:
            cache.close()
