"""The tokenizer that needs no training: a token is a byte."""

from collections.abc import Iterable, Sequence

import numpy as np

from ownwords.tokenizers.byte_level import ByteLevelTokenizer, Ids
from ownwords.tokenizers.text import END, SPECIAL, START, encode_utf8


class ByteTokenizer(ByteLevelTokenizer):
    """Ids 0 to 255 are the bytes of the text in UTF-8; the special tokens follow."""

    def __init__(
        self,
        tokens: Sequence[bytes] = (),
        *,
        special: Sequence[str] = SPECIAL,
        start: str | None = START,
        end: str | None = END,
        template: str | None = None,
    ) -> None:
        super().__init__((), special=special, start=start, end=end, template=template)

    def encode_batch(self, texts: Iterable[str], *, threads: int | None = None) -> list[Ids]:
        """The ids of each text; copying bytes is no work for threads."""
        return [np.frombuffer(encode_utf8(text), np.uint8).astype(np.uint32) for text in texts]

    def _encode(self, text: str) -> list[int]:
        return list(encode_utf8(text))
