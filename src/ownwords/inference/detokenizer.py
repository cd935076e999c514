"""Incremental detokenization: token ids to whole characters, up to a stop string."""

import codecs
from collections.abc import Sequence

from ownwords.core.errors import ConfigError
from ownwords.tokenizers.tokenizer import Tokenizer


class StopMatcher:
    """Ends a text where a stop string begins, regardless of token boundaries.

    The first stop string to be complete ends the text; of several that end at the same place, the
    one that began first. Only text that may still become a stop string is held back, so the output
    does not depend on how the text is split. `matched` is the stop string that ended it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or not all(stops):
            raise ConfigError(
                f"stop strings should be texts that are not empty, and are {[*stops]!r:.80}",
                hint="an empty one would end every text before it begins",
            )
        self.matched: str | None = None
        self._stops = tuple(dict.fromkeys(stops))
        self._pending = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return the text that is now final, nothing after the end."""
        if self.matched is not None:
            return ""
        text = self._pending + piece
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, begin, self.matched = min(ends)
            self._pending = ""
            return text[:begin]
        partial = max((_partial_match(text, stop) for stop in self._stops), default=0)
        self._pending = text[len(text) - partial :]
        return text[: len(text) - partial]

    def finish(self) -> str:
        """Return the text held back, when the text ended without a stop string."""
        pending, self._pending = self._pending, ""
        return pending


class IncrementalDetokenizer:
    """Decodes one text token by token; `prompt_ids` are the ids before the first one.

    The output does not depend on token boundaries. Only text that may still become a character or
    a stop string is held back; invalid bytes become U+FFFD. Special tokens that do not end a text
    appear by their names. Raises ConfigError for invalid stop strings.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], stops: Sequence[str] = ()
    ) -> None:
        self.characters = 0  # decoded so far, including those held back
        self._tokenizer = tokenizer
        self._stop_matcher = StopMatcher(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Some tokenizers (Llama 2's) drop the space before the first word of a text, so each token
        # is decoded together with the previous one, except at the beginning of a text.
        special = set(tokenizer.special.values())
        self._previous = (
            [prompt_ids[-1]] if len(prompt_ids) and prompt_ids[-1] not in special else []
        )

    @property
    def stop(self) -> str | None:
        """The stop string that ended the text, or None."""
        return self._stop_matcher.matched

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes that the token would add here."""
        known = len(self._tokenizer.decode_bytes(self._previous)) if self._previous else 0
        return self._tokenizer.decode_bytes([*self._previous, token])[known:]

    def feed(self, token: int) -> str:
        """Add a token; return the text that is now final, nothing after a stop string."""
        data = self.bytes_of(token)
        self._previous = [token]
        return self._feed_text(self._decoder.decode(data))

    def finish(self) -> str:
        """Return the text held back; call it when the text ended without a stop string.

        An incomplete character at the end becomes U+FFFD.
        """
        return self._feed_text(self._decoder.decode(b"", final=True)) + self._stop_matcher.finish()

    def _feed_text(self, text: str) -> str:
        self.characters += len(text)
        return self._stop_matcher.feed(text)


def _partial_match(text: str, stop: str) -> int:
    """Return the length of the longest suffix of the text that is a prefix of the stop string."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
