"""Tokens as they come to text as it can be shown: whole characters, up to a stop string."""

import codecs
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ownwords.inference.generation import Drawn, Finished
from ownwords.inference.stopping import Stopping
from ownwords.serve.engine_thread import Written
from ownwords.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is final, and the tokens read for it; of the last of them some may be held back."""

    text: str
    drawn: tuple[Drawn, ...]


class Pieces:
    """The text of what is being written. ConfigError for stop strings that are none.

    `stop` is the stop string that ended it. Whoever leaves earlier leaves `Pen.write`, too.
    """

    def __init__(self, written: Written, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self.finished: Finished | None = None
        self._written = written
        self._stopping = Stopping(stops)
        self._decoding = Decoding(tokenizer, written.request.ids)

    @property
    def stop(self) -> str | None:
        return self._stopping.found

    @property
    def tokens(self) -> int:
        """How many were drawn, as far as they were read."""
        return self._written.tokens

    async def __aiter__(self) -> AsyncIterator[Piece]:
        stopping, unshown = self._stopping, list[Drawn]()
        async for several in self._written.together():
            text = ""
            for drawn in several:
                unshown.append(drawn)
                text += stopping.feed(self._decoding.feed(drawn.id))
                if stopping.found is not None:
                    break
            if text or stopping.found is not None:
                yield Piece(text, tuple(unshown))
                unshown.clear()
            if stopping.found is not None:
                self.finished = "stop"
                return
        text = stopping.feed(self._decoding.finish())
        if stopping.found is None:
            text += stopping.finish()
        self.finished = self._written.finished if stopping.found is None else "stop"
        if text or unshown:
            yield Piece(text, tuple(unshown))


class Decoding:
    """Tokens that follow others, one after the other, to whole characters."""

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Some tokenizers drop the space before the first word of a text: what follows other words
        # is looked at together with the last of them. At a text's beginning there are none.
        special = set(tokenizer.special.values())
        self._before = [after[-1]] if len(after) and after[-1] not in special else []

    def bytes_of(self, token: int) -> bytes:
        """What the token adds here."""
        known = len(self._tokenizer.decode_bytes(self._before)) if self._before else 0
        return self._tokenizer.decode_bytes([*self._before, token])[known:]

    def feed(self, token: int) -> str:
        """The characters that are whole with it."""
        data = self.bytes_of(token)
        self._before = [token]
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left is no character, and is shown as one that cannot be read."""
        return self._decoder.decode(b"", final=True)
