"""Tokens as they come to text that can be shown: whole characters, up to a stop string."""

import codecs
from collections.abc import Sequence

from ownwords.inference.stopping import StopMatcher
from ownwords.tokenizers.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Follows one text, token by token; `after` are the ids that it goes on from.

    What is shown does not depend on where tokens divide it. Held back is only what may yet become a
    character or a stop string; bytes that are no text become U+FFFD. Special tokens that do not end
    a text stand in it by their names. ConfigError for stop strings that are none.
    """

    def __init__(
        self, tokenizer: Tokenizer, after: Sequence[int], stops: Sequence[str] = ()
    ) -> None:
        self.characters = 0  # of the text so far, those among them that are held back
        self._tokenizer = tokenizer
        self._stopping = StopMatcher(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Some tokenizers drop the space before the first word of a text: what follows other words
        # is looked at together with the last of them. At a text's beginning there are none.
        special = set(tokenizer.special.values())
        self._before = [after[-1]] if len(after) and after[-1] not in special else []

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text, None as long as none did."""
        return self._stopping.found

    def bytes_of(self, token: int) -> bytes:
        """What the token would add here."""
        known = len(self._tokenizer.decode_bytes(self._before)) if self._before else 0
        return self._tokenizer.decode_bytes([*self._before, token])[known:]

    def feed(self, token: int) -> str:
        """What can be shown now that this token has come; nothing after a stop string."""
        data = self.bytes_of(token)
        self._before = [token]
        return self._shown(self._decoder.decode(data))

    def finish(self) -> str:
        """What was held back, where the text ends otherwise than by a stop string.

        Half a character that is left is shown as one that cannot be read.
        """
        return self._shown(self._decoder.decode(b"", final=True)) + self._stopping.finish()

    def _shown(self, text: str) -> str:
        self.characters += len(text)
        return self._stopping.feed(text)
