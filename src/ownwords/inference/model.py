"""A model and its tokenizer together, as the Python face hands them out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ownwords.core.errors import OwnwordsError
from ownwords.inference import guard
from ownwords.inference.engine import Engine, Feed, Scores, Weights
from ownwords.inference.generation import Request
from ownwords.inference.guard import Guard
from ownwords.inference.opening import opened
from ownwords.inference.sampling import Sampling
from ownwords.inference.speculate import Proposer
from ownwords.inference.writing import USUAL, ends_said, request, write_on, write_several
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
        guard: Guard | None = None,
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
        weights: Weights = "stored",
        threads: int | None = None,
    ) -> "Model":
        """The model of a directory, with the tokenizer it was saved with and no other.

        Where the directory has a copy guard it is used whenever text is written.
        """
        said, engine = opened(folder, device=device, weights=weights, threads=threads)
        its_own = tokenizer.from_files(said.tokenizer_files)
        said.check_tokenizer(its_own)
        with directory.open_directory(folder) as there:
            path = there / COPY_GUARD
            kept = guard.load(path, its_own.fingerprint()) if path.exists() else None
        return cls(engine, its_own, kept, ends_said(said.generation))

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
        chosen = replace(USUAL, **sampling)
        asked = self.request(prompt, tokens=tokens, seed=seed, sampling=chosen, quote=quote)
        return write_on(self.engine, self.tokenizer, asked, stops, proposer=proposer)

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
            prompt, tokens=tokens, sampling=replace(USUAL, **sampling), quote=quote
        )
        return write_several(self.engine, self.tokenizer, asked, stops, seeds=seeds)

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int,
        seed: int = 1,
        sampling: Sampling = USUAL,
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

    def logits(self, ids: Sequence[int]) -> Scores:
        """For each of the ids the scores of what follows it, [ids, vocabulary].

        Raises OwnwordsError for ids outside the vocabulary and for more than the context holds.
        """
        if len(ids) > self.engine.context:
            raise OwnwordsError(
                f"{len(ids)} tokens do not fit the model's context ({self.engine.context})"
            )
        cache = self.engine.cache(1, max(1, len(ids)))
        try:
            return cache.read([Feed(0, ids)], every=True)
        finally:
            cache.close()
