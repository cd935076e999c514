"""A model and its tokenizer together, as the Python face hands them out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ownwords.core.errors import OwnwordsError
from ownwords.inference import guard
from ownwords.inference.engine import Engine, Feed, Scores, Weights
from ownwords.inference.guard import Guard
from ownwords.inference.opening import opened
from ownwords.inference.speculate import Proposer
from ownwords.inference.writing import USUAL, write
from ownwords.models import directory
from ownwords.models.directory import COPY_GUARD
from ownwords.tokenizers import tokenizer
from ownwords.tokenizers.tokenizer import Tokenizer


class Model:
    """A loaded model. Made by `ownwords.load`."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, guard: Guard | None = None) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.guard = guard

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
        with directory.reading(folder) as there:
            path = there / COPY_GUARD
            kept = guard.load(path, its_own.fingerprint()) if path.exists() else None
        return cls(engine, its_own, kept)

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
        return write(
            self.engine,
            self.tokenizer,
            prompt,
            tokens=tokens,
            seed=seed,
            sampling=replace(USUAL, **sampling),
            stops=stops,
            guard=None if quote else self.guard,
            proposer=proposer,
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
