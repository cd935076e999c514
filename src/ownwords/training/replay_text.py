"""Text that a base model has written, mixed into fine-tuning so that it forgets less.

The text that a base was trained on is seldom available, and hundreds of times its size. Text
sampled from its unchanged distribution has, on average, the same words in the same places.
"""

import lzma
from pathlib import Path

from ownwords.archive.corpus import TrainingText
from ownwords.models.untrusted_files import ModelError, read_bytes

SHIPPED = "replay.txt.xz"  # in a model directory
DIVIDER = "\x1c"
_MAX_BYTES = 64 << 20  # a hundred times what a base writes
_MAX_UNPACKER_BYTES = 128 << 20  # twice what LZMA's largest preset needs


def read(path: Path) -> list[TrainingText]:
    """Read the texts in a replay file; ModelError if it is damaged."""
    unpacker = lzma.LZMADecompressor(memlimit=_MAX_UNPACKER_BYTES)
    try:
        data = unpacker.decompress(read_bytes(path, _MAX_BYTES), _MAX_BYTES)
        joined = data.decode("utf-8") if unpacker.eof else None
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is damaged ({error})", hint="delete it") from error
    if joined is None:
        reason = f"it breaks off, or unpacks to more than {_MAX_BYTES >> 20} MiB"
        raise ModelError(f"{path} is damaged ({reason})", hint="delete it")
    texts = [text for text in joined.split(DIVIDER) if text.strip()]
    return [TrainingText(f"replay/{number:06d}", text) for number, text in enumerate(texts)]


def without_opening(text: TrainingText) -> TrainingText:
    """A text without its first paragraph, which is its title, so that replay teaches no titles."""
    _, _, rest = text.text.partition("\n\n")
    return TrainingText(text.id, rest) if rest.strip() else text
