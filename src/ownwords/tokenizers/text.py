"""What every tokenizer does at its borders: text that has bytes, ids that have bytes."""

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from ownwords.core.errors import OwnwordsError

# Not "<|start|>": llama.cpp takes that name for a token even where a text only says it.
START, END = "<|document|>", "<|end|>"
TITLE, AUTHOR = "<|title|>", "<|author|>"  # before what they name, at the head of a document
TURN = "<|turn|>"  # before the role of who speaks, in a conversation
SPECIAL = (START, END, TITLE, AUTHOR, TURN)


class TokenizerError(OwnwordsError):
    """A tokenizer cannot be read, does not fit its model, or was given what has no tokens."""


def encode_utf8(text: str) -> bytes:
    """The bytes of a text; a lone surrogate, which is no character, is an error that says where."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character"
            f" {error.start}: half a character, which has no bytes and so no tokens",
            hint="it was decoded wrongly; read the source again as UTF-8, or remove it",
        ) from None


class TokenTable:
    """Ids back to bytes and text, by a table; the half that all tokenizers share.

    `table[id]` are the bytes of a token, the text of a special one in UTF-8; None where the ids
    have a gap. `special` maps the texts of special tokens to their ids.
    """

    def __init__(
        self,
        table: Sequence[bytes | None],
        special: Mapping[str, int],
        start: int | None,
        end: int | None,
        template: str | None,
    ) -> None:
        self.table = table
        self.special = special
        self.start = start
        self.end = end
        self.template = template

    @property
    def vocabulary_size(self) -> int:
        return len(self.table)

    @cached_property
    def gaps(self) -> Sequence[int]:
        """The ids below the size of the vocabulary that stand for nothing."""
        return [i for i, piece in enumerate(self.table) if piece is None]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, special ones as their text; an unknown id is an error."""
        return b"".join(self._pieces(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are no UTF-8, as a model may write, become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of the tokens as they come, in whole characters; joined it equals `decode`."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in self._pieces(ids):
            if text := decoder.decode(piece):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def _pieces(self, ids: Iterable[int]) -> Iterator[bytes]:
        table, size = self.table, len(self.table)
        for i in ids:
            piece = table[i] if 0 <= i < size else None
            if piece is None:
                raise TokenizerError(
                    f"there is no token {i}: this tokenizer has {size:,}",
                    hint="the ids were made with another tokenizer",
                )
            yield piece
