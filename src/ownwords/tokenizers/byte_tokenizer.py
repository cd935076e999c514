"""A byte tokenizer: every UTF-8 byte is one token, so it needs no training."""

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
        """The ids of each text; `threads` is ignored, since copying bytes gains nothing by them."""
        return [np.frombuffer(encode_utf8(text), np.uint8).astype(np.uint32) for text in texts]

    def _encode(self, text: str) -> list[int]:
        return list(encode_utf8(text))
