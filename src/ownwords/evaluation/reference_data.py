"""What texts are compared with: the words of many books, and how other authors write today.

`base/reference.py` at the root of the repository makes both files; no text is stored.
"""

import io
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ownwords.core.errors import OwnwordsError
from ownwords.evaluation.style import LENGTHS, Pairs, StyleVocabulary

REFERENCE = Path(__file__).parent / "reference"
WORDS_FILE, AUTHORS_FILE = "words.txt.xz", "voices.npz.xz"

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


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceAuthors:
    """Passages by others, in one language: which pairs of tokens each has, sorted."""

    vocabulary: StyleVocabulary
    topics: Mapping[str, int]  # other words, and how often in a million they write each
    sources: tuple[str, ...]
    passages: tuple[Pairs, ...]  # of `LENGTHS[0]` pairs, in sorted units
    source_of: tuple[int, ...]  # by passage

    @classmethod
    def load(cls, folder: Path = REFERENCE) -> "ReferenceAuthors":
        """Read the reference authors from the folder they were saved in."""
        packed = io.BytesIO(_unpacked(folder / AUTHORS_FILE))
        with np.load(packed, allow_pickle=False) as stored:
            pairs = np.cumsum(stored["steps"], axis=1, dtype=np.uint32)
            return cls(
                StyleVocabulary(_as_words(stored["vocabulary"])),
                dict(zip(_as_words(stored["topics"]), stored["per_million"].tolist(), strict=True)),
                _as_words(stored["sources"]),
                tuple(pairs.reshape(-1, LENGTHS[0])),
                tuple(stored["source_of"].tolist()),
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
