"""Parts that all tokenizers share: special tokens, UTF-8 encoding, decoding by a token table."""

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from ownwords.core.errors import OwnwordsError

# Not "<|start|>": llama.cpp parses that name as a token even in ordinary text.
START, END = "<|document|>", "<|end|>"
TITLE, AUTHOR = "<|title|>", "<|author|>"  # precede the title and author of a document
TURN = "<|turn|>"  # precedes the speaker's role in a conversation
SPECIAL = (START, END, TITLE, AUTHOR, TURN)


class TokenizerError(OwnwordsError):
    """A tokenizer cannot be read, does not fit its model, or got input that has no tokens."""


def encode_utf8(text: str) -> bytes:
    """Encode a text as UTF-8; a lone surrogate is an error that gives its position."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character"
            f" {error.start}: half a character, which has no bytes and so no tokens",
            hint="it was decoded wrongly; read the source again as UTF-8, or remove it",
        ) from None


class TokenTable:
    """Decodes ids to bytes and text by a table; the base class of all tokenizers.

    `table[id]` holds the bytes of a token (for a special token, its name in UTF-8), or None if
    the id is unused. `special` maps the names of special tokens to their ids. `start` begins a
    document in training, and `adds_start` says whether a prompt begins with it, too. `row_start` is
    the id that every row of a training batch must begin with, if the model was pretrained so.
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
        self.adds_start = start is not None
        self.replaced = 0  # characters that the vocabulary has no tokens for

    @property
    def row_start(self) -> int | None:
        return None

    @property
    def vocabulary_size(self) -> int:
        return len(self.table)

    @cached_property
    def gaps(self) -> Sequence[int]:
        """The unused ids below the size of the vocabulary."""
        return [i for i, piece in enumerate(self.table) if piece is None]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of the tokens, special tokens as their names; an unknown id is an error."""
        return b"".join(self._pieces(ids))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens; bytes that are not valid UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def stream(self, ids: Iterable[int]) -> Iterator[str]:
        """Yield the text incrementally, in whole characters; joined, it equals `decode`."""
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
