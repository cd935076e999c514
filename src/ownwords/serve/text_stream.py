"""Tokens as they come to text as it can be shown: whole characters, up to a stop string."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ownwords.inference.detokenizer import IncrementalDetokenizer
from ownwords.inference.generation import FinishReason, GeneratedToken
from ownwords.serve.model_worker import GenerationStream
from ownwords.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text that is final, and the tokens read for it; of the last of them some may be held back."""

    text: str
    drawn: tuple[GeneratedToken, ...]


class TextStream:
    """The text of what is being written. ConfigError for stop strings that are none.

    `stop` is the stop string that ended it. Whoever leaves earlier leaves `ModelWorker.write`, too.
    """

    def __init__(
        self, written: GenerationStream, tokenizer: Tokenizer, stops: Sequence[str] = ()
    ) -> None:
        self.finished: FinishReason | None = None
        self._written = written
        self._decoding = IncrementalDetokenizer(tokenizer, written.request.ids, stops)

    @property
    def stop(self) -> str | None:
        return self._decoding.stop

    @property
    def tokens(self) -> int:
        """How many were drawn, as far as they were read."""
        return self._written.tokens

    async def __aiter__(self) -> AsyncIterator[TextChunk]:
        decoding, unshown = self._decoding, list[GeneratedToken]()
        async for several in self._written.together():
            text = ""
            for drawn in several:
                unshown.append(drawn)
                text += decoding.feed(drawn.id)
                if decoding.stop is not None:
                    self.finished = "stop"
                    break
            if text or self.finished:
                yield TextChunk(text, tuple(unshown))
                unshown.clear()
            if self.finished:
                return
        text = decoding.finish()
        self.finished = self._written.finished if decoding.stop is None else "stop"
        if text or unshown:
            yield TextChunk(text, tuple(unshown))
