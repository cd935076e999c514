"""Byte-level BPE: trained by rustbpe, encoded by tiktoken, saved as a standard tokenizer.json."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ownwords.core.hardware import usable_cores
from ownwords.tokenizers.byte_level import BYTES, ByteLevelTokenizer, Ids
from ownwords.tokenizers.pre_tokenizer import LINEAR_PATTERN, PATTERN, split_chunks, split_segments
from ownwords.tokenizers.text import END, SPECIAL, START, TokenizerError, encode_utf8

if TYPE_CHECKING:
    from tiktoken import Encoding

_JOB = 1 << 17  # characters per thread job; smaller jobs would contend with each other
# Texts go to the trainer in batches of _CHUNKS chunks of _CHUNK characters: this bounds its memory
# to 16 million characters, however long a text is, and still keeps every thread busy.
_CHUNK, _CHUNKS = 1 << 14, 1 << 10

# A corpus with long runs of one character would waste its vocabulary on them. Longer tokens are
# dropped, which affects no other token, since tokens are merges of shorter ones; _SPARE additional
# merges are learned to replace them.
_LONGEST, _SPARE = 128, 256


class BPETokenizer(ByteLevelTokenizer):
    """Byte-level BPE; `tokens` are the merged tokens in the order learned, from id 256 on.

    Lossless for any text. The name of a special token inside a text is encoded as plain text
    unless `special=True`.
    """

    pattern = PATTERN

    def encode_batch(self, texts: Iterable[str], *, threads: int | None = None) -> list[Ids]:
        """The ids of each text, on `threads` threads (default: all cores); long texts are split."""
        found: list[list[Ids]] = []
        with ThreadPoolExecutor(threads or usable_cores()) as pool:
            jobs = list(_jobs(texts))
            for owners, arrays in pool.map(self._work, jobs):
                for owner, array in zip(owners, arrays, strict=True):
                    found += [[] for _ in range(owner + 1 - len(found))]
                    found[owner].append(array)
        return [arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for arrays in found]

    def _work(self, job: list[tuple[int, str]]) -> tuple[list[int], list[Ids]]:
        encode = self._encoding.encode_to_numpy
        owners: list[int] = []
        arrays: list[Ids] = []
        for owner, text in job:
            encode_utf8(text)
            for segment in split_segments(text):
                arrays.append(encode(segment, disallowed_special=()))
                owners.append(owner)
        return owners, arrays

    def _encode(self, text: str) -> list[int]:
        encode = self._encoding.encode_ordinary
        ids: list[int] = []
        for segment in split_segments(text):
            ids += encode(segment)
        return ids

    @cached_property
    def _encoding(self) -> "Encoding":
        from tiktoken import Encoding  # noqa: PLC0415 - only who encodes waits for it

        # tiktoken searches for disallowed special tokens too. With none defined, its empty pattern
        # is tried at every character, a third slower than searching for one: so define a dummy.
        one = {"\x00no text\x00": len(self.ranks)}
        return Encoding(
            "ownwords", pat_str=LINEAR_PATTERN, mergeable_ranks=self.ranks, special_tokens=one
        )


def train(
    texts: Iterable[str],
    vocabulary: int,
    *,
    special: Sequence[str] = SPECIAL,
    start: str | None = START,
    end: str | None = END,
    template: str | None = None,
) -> BPETokenizer:
    """Learn a vocabulary of `vocabulary` tokens in all, or fewer if the texts have no more merges.

    The texts are streamed once; their order and the number of threads (RAYON_NUM_THREADS, else
    all) do not change the result. Ties go to the pair with the lower ids.
    """
    least = len(BYTES) + len(special)
    if vocabulary < least:
        raise TokenizerError(
            f"a vocabulary of {vocabulary} has no room for the {len(BYTES)} bytes and"
            f" {len(special)} special tokens",
            hint=f"ask for {least} or more",
        )
    from rustbpe import Tokenizer as Trainer  # noqa: PLC0415

    trainer = Trainer()
    trainer.train_from_iterator(
        _for_training(texts), vocabulary - len(special) + _SPARE, _CHUNKS, LINEAR_PATTERN
    )
    ranked = sorted(trainer.get_mergeable_ranks(), key=lambda pair: int(pair[1]))
    tokens = [bytes(token) for token, _ in ranked[len(BYTES) :] if len(token) <= _LONGEST]
    return BPETokenizer(
        tokens[: vocabulary - least], special=special, start=start, end=end, template=template
    )


def _for_training(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for chunk in split_chunks(text, _CHUNK):
            encode_utf8(chunk)
            yield from split_segments(chunk)


def _jobs(texts: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Yield jobs for threads: lists of (text index, chunk), about `_JOB` characters each."""
    job: list[tuple[int, str]] = []
    size = 0
    for owner, text in enumerate(texts):
        for chunk in split_chunks(text, _JOB):
            job.append((owner, chunk))
            size += len(chunk)
            if size >= _JOB:
                yield job
                job, size = [], 0
    if job:
        yield job
