"""Byte-level BPE: trained by rustbpe, encoded by tiktoken, saved for every other tool."""

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

_JOB = 1 << 17  # characters that one thread takes at a time; small ones would wait for each other
# Texts go to the trainer in chunks, so many at a time: this bounds what it holds, 16 million
# characters, however long a text is, and leaves each thread enough to do.
_CHUNK, _CHUNKS = 1 << 14, 1 << 10

# A corpus with long runs of one character would spend its vocabulary on them. Longer tokens are
# dropped, which changes no other, as a token is made of shorter ones; spare ones take their place.
_LONGEST, _SPARE = 128, 256


class BPETokenizer(ByteLevelTokenizer):
    """`tokens` are the bytes of the merges in the order they were learned, from id 256 on.

    Lossless for any text. The name of a special token inside a text is text, unless
    `special=True` says that it was put there on purpose.
    """

    pattern = PATTERN

    def encode_batch(self, texts: Iterable[str], *, threads: int | None = None) -> list[Ids]:
        """The ids of each text, on all cores unless told; a long text is shared among them."""
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

        # tiktoken looks for special tokens that are not allowed too, and to look for none at all
        # is to find nothing at every character: a third slower than looking for one.
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
    """Learn a vocabulary of that many tokens in all, or fewer where the texts hold no more.

    The texts are read once, a little at a time; their order and the number of threads (of
    RAYON_NUM_THREADS, else all) change nothing. Ties go to the pair of lower ids.
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
    """Texts and parts of texts, each with the number of its text, in portions worth a thread."""
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
