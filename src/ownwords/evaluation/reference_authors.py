"""Reference authors for style comparison, stored as counts of words and letters without any text.

`base/reference.py` at the root of the repository makes the file from public-domain books. Counts
are stored per unit of `unit_words` words; a stretch is `stretch` consecutive units of one text.
"""

import io
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import OwnwordsError
from ownwords.evaluation.lexicon import REFERENCE
from ownwords.evaluation.passages import (
    TextPassage,
    character_ngrams,
    hashes_of,
    plain,
    word_counts,
)

FILE = "voices.npz.xz"

Counts = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FeatureVocabulary:
    """The counted words, and the number of hash buckets for character n-grams."""

    words: tuple[str, ...]  # by frequency over all authors, most frequent first
    buckets: int

    def count(self, passages: Sequence[TextPassage]) -> "FeatureCounts":
        """Count the features of each passage."""
        vocabulary, widths = hashes_of(self.words), (len(self.words), self.buckets)
        words, ngrams = (np.zeros((len(passages), n), np.float32) for n in widths)
        for number, passage in enumerate(passages):
            words[number] = word_counts(passage.hashes, vocabulary)
            ngrams[number] = character_ngrams(plain(passage.text), self.buckets)
        return FeatureCounts(words, ngrams, tuple(passage.source for passage in passages))


@dataclass(frozen=True, slots=True, eq=False)
class FeatureCounts:
    """Feature counts with one row per passage, and the source of each passage."""

    words: Counts
    ngrams: Counts
    sources: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceAuthors:
    """Passages of other authors, in one language."""

    vocabulary: FeatureVocabulary
    authors: tuple[str, ...]
    unit_words: int
    stretch: int  # units
    unit_counts: npt.NDArray[np.uint8]
    unit_ngrams: npt.NDArray[np.uint8]
    author_of: npt.NDArray[np.uint16]  # by stretch

    @property
    def lengths(self) -> tuple[int, ...]:
        """The available passage lengths in words, shortest first."""
        parts = [n for n in range(1, self.stretch + 1) if self.stretch % n == 0]
        return tuple(self.unit_words * n for n in parts)

    def passages(self, words: int) -> FeatureCounts:
        """Sum the units to passages of `words` words; `sources` are the numbers of the authors."""
        if words not in self.lengths:
            raise ValueError(f"there are passages of {self.lengths} words, and none of {words}")
        together = words // self.unit_words
        counts, ngrams = (
            units.reshape(-1, together, units.shape[1]).sum(axis=1, dtype=np.float32)
            for units in (self.unit_counts, self.unit_ngrams)
        )
        authors = np.repeat(self.author_of, self.stretch // together)
        return FeatureCounts(counts, ngrams, tuple(authors.tolist()))

    @classmethod
    def load(cls, folder: Path = REFERENCE) -> "ReferenceAuthors":
        """Read the reference authors from the folder they were saved in."""
        path = folder / FILE
        try:
            packed = io.BytesIO(lzma.decompress(path.read_bytes()))
            with np.load(packed, allow_pickle=False) as stored:
                words, ngrams = (
                    np.ascontiguousarray(stored[name]) for name in ("words", "letters")
                )
                author_of = stored["author_of"]
                return cls(
                    FeatureVocabulary(_as_words(stored["vocabulary"]), ngrams.shape[1]),
                    _as_words(stored["authors"]),
                    int(stored["unit_words"][0]),
                    len(words) // len(author_of),
                    words,
                    ngrams,
                    author_of,
                )
        except (OSError, ValueError, LookupError, EOFError, lzma.LZMAError, BadZipFile) as error:
            raise OwnwordsError(
                f"the other authors' figures in {path} cannot be read: {error}",
                hint="install ownwords again, or make them with `python base/reference.py`",
            ) from error


def _as_words(stored: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(stored.tobytes().decode().split("\n"))
