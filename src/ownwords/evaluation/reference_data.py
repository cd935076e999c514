"""What texts are compared with: the words of many books, and other authors' styles as counts.

`base/reference.py` at the root of the repository makes both files from public-domain books; no text
is stored. Counts are per unit of `unit_words` words; a stretch is `stretch` consecutive units.
"""

import io
import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import OwnwordsError
from ownwords.evaluation.passages import (
    TextPassage,
    character_ngrams,
    hashes_of,
    plain,
    word_counts,
)

REFERENCE = Path(__file__).parent / "reference"
WORDS_FILE, AUTHORS_FILE = "words.txt.xz", "voices.npz.xz"

Counts = npt.NDArray[np.float32]

# Minimum share of a text's words that are among the 400 most frequent of the language: 0.55 to 0.75
# in English prose of any kind, less than 0.1 in other European languages.
_MIN_FREQUENT = 0.35
_LOOKED_AT = 100_000  # characters of each text used to identify its language

# Letters with accents and inner apostrophes; `words_in` drops matches that contain a digit.
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S+@\S+")
_DIGIT = re.compile(r"\d")
_ENDING = re.compile(r"['’][^\W\d_]+$")  # the author's, he'd, they'll
_BEGINNING = re.compile(r"(?:^|[.!?…:\n])[^\w\n]*$")


def words_in(text: str) -> list[re.Match[str]]:
    """Find the words of a text as written, without addresses and anything that contains a digit."""
    cleared = _ADDRESS.sub(lambda match: " " * len(match[0]), text)
    return [match for match in _WORD.finditer(cleared) if not _DIGIT.search(match[0])]


def begins_sentence(word: re.Match[str]) -> bool:
    """Whether a word found in a text is the first of a sentence or line."""
    near = max(0, word.start() - 12)
    return _BEGINNING.search(word.string, near, word.start()) is not None


def folded(word: str) -> str:
    """Normalize a word to its form in the lexicon: case-folded, straight apostrophes."""
    return word.replace("’", "'").strip("_").casefold()


def is_in_the_language(texts: Sequence[str], frequent: Sequence[str]) -> bool:
    """Whether texts are in the language with these most frequent words; true without any words."""
    known = frozenset(frequent)
    is_known = [folded(word[0]) in known for text in texts for word in words_in(text[:_LOOKED_AT])]
    return not is_known or sum(is_known) / len(is_known) >= _MIN_FREQUENT


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A set of case-folded words, and the most frequent among them."""

    words: frozenset[str]
    frequent: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Lexicon":
        """Collect all words of some texts."""
        words = {folded(word[0]) for text in texts for word in words_in(text)}
        return cls(frozenset(words - {""}))

    def knows(self, word: str) -> bool:
        """Whether the lexicon has a word in any case, or the word without an ending like 's."""
        plain = folded(word)
        return plain in self.words or _ENDING.sub("", plain) in self.words

    @classmethod
    def load(cls, folder: Path = REFERENCE) -> "Lexicon":
        """Read words, one per line: the frequent ones, a blank line, the rest."""
        text = _unpacked(folder / WORDS_FILE).decode()
        frequent, _, others = f"\n{text}".partition("\n\n")
        first = tuple(frequent.split())
        return cls(frozenset([*first, *others.split()]), first)


# --- other authors --------------------------------------------------------------------------------


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
        packed = io.BytesIO(_unpacked(folder / AUTHORS_FILE))
        with np.load(packed, allow_pickle=False) as stored:
            words, ngrams = (np.ascontiguousarray(stored[name]) for name in ("words", "letters"))
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


def _unpacked(path: Path) -> bytes:
    try:
        return lzma.decompress(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise OwnwordsError(
            f"the reference data in {path} cannot be read: {error}",
            hint="install ownwords again, or make them with `python base/reference.py`",
        ) from error


def _as_words(stored: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(stored.tobytes().decode().split("\n"))
