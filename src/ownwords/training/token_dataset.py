"""Tokenized texts, named by a hash of their content.

Shapes: N tokens, D documents; D1 is D + 1.
"""

import lzma
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ownwords.archive.corpus import TextCollection, TrainingText
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress, Stage
from ownwords.models.untrusted_files import ModelError, read_bytes
from ownwords.tokenizers.text import TokenizerError, encode_utf8
from ownwords.tokenizers.tokenizer import Tokenizer

FORMAT = 3
# Characters encoded at a time: enough to use every core, few enough to need little memory.
_GROUP = 4 << 20
_NOTHING = np.zeros(0, np.uint32)

REPLAY = "replay.txt.xz"  # in a base's directory
DIVIDER = "\x1c"  # between its texts
_MAX_REPLAY_BYTES = 64 << 20  # 100 times the size of a base's replay text
_MAX_UNPACKER_BYTES = 128 << 20  # twice the memory that LZMA's largest preset needs


@dataclass(frozen=True, eq=False)
class TokenDataset:
    """Encoded documents; datasets with the same `key` have the same content."""

    key: str
    tokenizer: str  # its fingerprint
    vocabulary: int
    ids: npt.NDArray[Any]  # [N]: uint16, or uint32 for a large vocabulary
    offsets_D1: npt.NDArray[np.int64]
    text_bytes: int  # of the texts in UTF-8
    start: int | None = None  # the token that documents begin with; None: they have none
    end: int | None = None  # the token that documents end with
    row_start: int | None = None  # the id that every row begins with; None: any
    # The number of tokens at the start of each document that are not learned; None: none.
    prompts_D: npt.NDArray[np.int64] | None = None

    def learned(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if self.prompts_D is None:
            return np.ones(len(places), np.bool_)
        documents = np.searchsorted(self.offsets_D1, places, side="right") - 1
        return places >= (self.offsets_D1[:-1] + self.prompts_D)[documents]

    @property
    def documents(self) -> int:
        return len(self.offsets_D1) - 1

    @property
    def tokens(self) -> int:
        """The number of tokens, including those that start and end documents."""
        return len(self.ids)

    @property
    def pure_start(self) -> int | None:
        """`start`, unless documents also end with that token, as GPT-2's do."""
        return None if self.start == self.end else self.start

    def document(self, i: int) -> npt.NDArray[Any]:
        """The ids of one document: start, text, end."""
        return self.ids[self.offsets_D1[i] : self.offsets_D1[i + 1]]


def build_dataset(
    texts: Iterable[TrainingText],
    tokenizer: Tokenizer,
    *,
    marks: bool = True,
    progress: Progress | None = None,
) -> TokenDataset:
    """Encode documents.

    A document becomes its start token, the ids of its prompt and of its text, and its end token.
    Start and end are left out if the tokenizer has none or `marks` is false. The names of special
    tokens in a text are encoded as plain text.
    """
    progress = Progress() if progress is None else progress
    texts = TextCollection.read(texts)
    start, end = (tokenizer.start, tokenizer.end) if marks else (None, None)
    meaning: dict[str, Any] = {
        "tokenizer": tokenizer.fingerprint(),
        "vocabulary": tokenizer.vocabulary_size,
        "text_bytes": texts.bytes,
        "start": start,
        "end": end,
        "row_start": tokenizer.row_start,
    }
    key = digest(texts.key, repr((FORMAT, *meaning.values())))
    with progress.stage("encode", texts.bytes, "bytes") as stage:
        replaced = tokenizer.replaced
        ids, offsets_D1, prompts_D = _encode(texts, tokenizer, start, end, stage)
        if count := tokenizer.replaced - replaced:
            stage.note(
                f"The tokenizer has no tokens for {count:,} characters of the texts, such as"
                " control characters: they become U+FFFD."
            )
    prompts = prompts_D if prompts_D.any() else None
    return TokenDataset(key, ids=ids, offsets_D1=offsets_D1, prompts_D=prompts, **meaning)


def _encode(
    texts: Iterable[TrainingText],
    tokenizer: Tokenizer,
    start: int | None,
    end: int | None,
    stage: Stage,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the ids of all documents, their offsets, and the lengths of their prompts."""
    before = [] if start is None else [np.array([start], np.uint32)]
    after = [] if end is None else [np.array([end], np.uint32)]
    dtype = np.dtype("<u2" if tokenizer.vocabulary_size <= 65535 else "<u4")
    encoded, sizes, prompts = [np.zeros(0, dtype)], [0], list[int]()
    for group in _groups(texts):
        for text in group:
            try:
                encode_utf8(text.text)
            except TokenizerError as error:  # half a character
                raise TokenizerError(f"{text.id!r}: {error.message}", error.hint) from None
        prompted = [text.prompt for text in group]
        heads = tokenizer.encode_batch(prompted) if any(prompted) else [_NOTHING] * len(group)
        documents = tokenizer.encode_batch([text.text for text in group])
        parts = [(*before, *pair, *after) for pair in zip(heads, documents, strict=True)]
        prompts += [len(before) + len(head) if len(head) else 0 for head in heads]
        sizes += [sum(map(len, each)) for each in parts]
        ids = np.concatenate([part for each in parts for part in each])
        if ids.size and int(ids.max()) >= tokenizer.vocabulary_size:
            raise TokenizerError(
                f"the tokenizer made the id {int(ids.max())}, but has only"
                f" {tokenizer.vocabulary_size:,} tokens",
                hint="its files do not belong together; copy the model's directory again",
            )
        encoded.append(ids.astype(dtype))
        stage.advance(sum(text.bytes for text in group))
    return np.concatenate(encoded), np.cumsum(sizes, dtype=np.int64), np.array(prompts, np.int64)


def _groups(texts: Iterable[TrainingText]) -> Iterator[Sequence[TrainingText]]:
    group: list[TrainingText] = []
    characters = 0
    for text in texts:
        group.append(text)
        characters += len(text.text)
        if characters >= _GROUP:
            yield group
            group, characters = [], 0
    if group:
        yield group


# --- replay text of a base ------------------------------------------------------------------------


def read_replay(path: Path) -> list[TrainingText]:
    """Read the texts of a replay file; ModelError if it is damaged.

    The base generated these texts. Mixed into fine-tuning, they make the model forget less. The
    base's own training data is seldom available, and hundreds of times larger.
    """
    unpacker = lzma.LZMADecompressor(memlimit=_MAX_UNPACKER_BYTES)
    try:
        data = unpacker.decompress(read_bytes(path, _MAX_REPLAY_BYTES), _MAX_REPLAY_BYTES)
        joined = data.decode("utf-8") if unpacker.eof else None
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is damaged ({error})", hint="delete it") from error
    if joined is None:
        reason = f"it breaks off, or unpacks to more than {_MAX_REPLAY_BYTES >> 20} MiB"
        raise ModelError(f"{path} is damaged ({reason})", hint="delete it")
    texts = [text for text in joined.split(DIVIDER) if text.strip()]
    return [TrainingText(f"replay/{number:06d}", text) for number, text in enumerate(texts)]


def without_opening(text: TrainingText) -> TrainingText:
    """Remove the first paragraph of a text, its title, so that replay teaches no titles."""
    _, _, rest = text.text.partition("\n\n")
    return TrainingText(text.id, rest) if rest.strip() else text
