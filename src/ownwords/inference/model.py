"""A model and its tokenizer together, as the Python face hands them out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ownwords.core.errors import OwnwordsError
from ownwords.inference import copy_guard
from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.engine import Engine, ForwardInput, Logits, WeightFormat
from ownwords.inference.engine_loader import load_directory_and_engine
from ownwords.inference.generation import Request
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.speculate import Proposer
from ownwords.inference.text_generation import (
    DEFAULT_SAMPLING,
    eos_token_ids,
    request,
    stream_request,
    write_several,
)
from ownwords.models import directory
from ownwords.models.directory import COPY_GUARD
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer


class Model:
    """A loaded model. Made by `ownwords.load`; `ends` end a text beside the tokenizer's own."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        guard: CopyGuard | None = None,
        ends: Iterable[int] = (),
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.guard = guard
        self.ends = frozenset(ends)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "auto",
        weights: WeightFormat = "stored",
        threads: int | None = None,
    ) -> "Model":
        """The model of a directory, with the tokenizer it was saved with and no other.

        Where the directory has a copy guard it is used whenever text is written.
        """
        said, engine = load_directory_and_engine(
            folder, device=device, weights=weights, threads=threads
        )
        its_own = tokenizer.from_files(said.tokenizer_files)
        said.check_tokenizer(its_own)
        with directory.open_directory(folder) as there:
            path = there / COPY_GUARD
            kept = copy_guard.load(path, its_own.fingerprint()) if path.exists() else None
        return cls(engine, its_own, kept, eos_token_ids(said.generation))

    def write(
        self,
        prompt: str,
        *,
        tokens: int = 400,
        seed: int = 1,
        stops: Sequence[str] = (),
        quote: bool = False,
        proposer: Proposer | None = None,
        **sampling: Any,  # noqa: ANN401 - Sampling checks them
    ) -> Iterator[str]:
        """What follows the prompt, in whole characters as they come, up to so many tokens.

        It ends earlier where the model ends the document, and before any of `stops`. The same seed
        writes the same text. With `quote` it may repeat what it was trained on. `sampling` are
        fields of `inference.sampling.Sampling`, such as `temperature=0.5`.
        """
        chosen = replace(DEFAULT_SAMPLING, **sampling)
        asked = self.request(prompt, tokens=tokens, seed=seed, sampling=chosen, quote=quote)
        return stream_request(self.engine, self.tokenizer, asked, stops, proposer=proposer)

    def write_several(
        self,
        prompt: str,
        *,
        seeds: Sequence[int],
        tokens: int = 400,
        stops: Sequence[str] = (),
        quote: bool = False,
        **sampling: Any,  # noqa: ANN401 - as above
    ) -> list[str]:
        """A text for each seed, as `write` would have it; written together, and sooner done."""
        asked = self.request(
            prompt, tokens=tokens, sampling=replace(DEFAULT_SAMPLING, **sampling), quote=quote
        )
        return write_several(self.engine, self.tokenizer, asked, stops, seeds=seeds)

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int,
        seed: int = 1,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        quote: bool = False,
        logprobs: int = 0,
    ) -> Request:
        """What to ask of its engine, or of a desk, for a text that begins so."""
        return request(
            self.tokenizer,
            prompt,
            tokens=tokens,
            seed=seed,
            sampling=sampling,
            guard=None if quote else self.guard,
            ends_too=self.ends,
            logprobs=logprobs,
        )

    def logits(self, ids: Sequence[int]) -> Logits:
        """For each of the ids the scores of what follows it, [ids, vocabulary].

        Raises OwnwordsError for ids outside the vocabulary and for more than the context holds.
        """
        if len(ids) > self.engine.context:
            raise OwnwordsError(
                f"{len(ids)} tokens do not fit the model's context ({self.engine.context})"
            )
        cache = self.engine.cache(1, max(1, len(ids)))
        try:
            return cache.read([ForwardInput(0, ids)], every=True)
        finally:
            cache.close()
