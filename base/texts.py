"""The texts of the base: read, cleaned, split into chapters, and kept apart from held-out ones.

A file holds documents that begin with the character U+001C and their name on a line.
"""

import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ownwords.archive import corpus
from ownwords.archive.corpus import TrainingText
from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.store import Archive
from ownwords.core.workspace import write_atomically, writing_atomically

DIVIDER = "\x1c"
SHORTEST = 1200  # characters of a chapter; shorter ones are read with what follows
# Letters: about 13 words, as in the GPT-3 paper's check for contamination (arXiv 2005.14165, C).
SHINGLE = 64
# Tuning is tested on books by these authors.
HELD_OUT_AUTHORS = (
    "Chesterton",
    "Thoreau",
    "Emerson",
    "Bierce",
    "Jerome K",
    "Charles Lamb",
    "Hazlitt",
)
_SHARED = 3  # shingles in common with held-out texts, about 90 letters: such a text is not read
_REPEATS = 4  # documents with the same paragraph: boilerplate
_PROSE_SHARE = 0.5  # of a document's characters, at least
_WORDS = 60  # of a document, at least
# Headings that number and do not name: "CHAPTER 1", "Book II", "XIV."
_NUMBER = re.compile(r"(?i)(chapter|book|part|act|scene|section|volume|canto)?[\s.\divxlc]*")
_ENDS = tuple(".!?…\"'”’)")
# "... looks like this:" before code that the texts no longer have.
_DANGLING = re.compile(
    r"(?i)\b(like (this|so)|as follows|as below|(following|this) (code|command|commands|snippet"
    r"|output|query|example|configuration|line|lines)|the output|which (gives|returns|prints)|run)"
    r"\s*:$"
)
_VACANCY = re.compile(
    r"(?i)\b(hiring|job (posting|post|ad|opening|openings|description)|vacanc(y|ies)|join our team"
    r"|open positions?|now recruiting|position available)\b"
)
_BLANK = re.compile(r"\n\s*\n")
_NO_LETTERS = bytes(code for code in range(256) if not 97 <= code <= 122)
_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(int(_BASE), -1, 1 << 64))


def documents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a file's documents, xz-packed or not, without held-out authors."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        joined = file.read().decode("utf-8")
    for document in filter(str.strip, joined.split(DIVIDER)):
        name, _, text = document.partition("\n")
        if not any(author in name for author in HELD_OUT_AUTHORS):
            yield name.strip(), text


def write(path: Path, texts: Iterable[TrainingText]) -> None:
    """Write texts as documents that begin with U+001C and a name."""
    with writing_atomically(path) as file:
        for text in texts:
            file.write(f"{DIVIDER}{text.id}\n{text.text}".encode())


def read(path: Path) -> Iterator[TrainingText]:
    """Yield the texts that `write` wrote."""
    for name, text in documents(path):
        yield TrainingText(name, text)


def split_into_files(path: Path, folder_beside: Path) -> Path:
    """Return the folder of a file's documents, with a text file for each."""
    if path.is_dir():
        return path
    folder = folder_beside / path.name.partition(".")[0]
    folder.mkdir(parents=True, exist_ok=True)
    names: Counter[str] = Counter()
    for name, text in documents(path):
        title = re.sub(r"[^\w' ,.;()-]+", " ", Path(name).stem)
        names[title] += 1
        number = f" {names[title]}" if names[title] > 1 else ""
        write_atomically(folder / f"{title}{number}.md", text)
    return folder


@dataclass(frozen=True)
class Chapters:
    """The chapters of a part's documents, each a text of its own under its heading."""

    archive: Archive
    part: corpus.TextCollection

    def __iter__(self) -> Iterator[TrainingText]:
        for book in self.part:
            for document in self.archive.documents([book.id]):
                for number, text in enumerate(chapters(document)):
                    yield TrainingText(f"{book.id}#{number:04d}", text)


def chapters(document: Document) -> Iterable[str]:
    """Return a document's own words, split at headings that are far enough apart."""
    title, paragraphs, size = document.title, [], 0
    for segment in document.segments:
        if segment.kind not in OWN_KINDS:
            continue
        if segment.kind == "heading" and (not paragraphs or size >= SHORTEST):
            if paragraphs:
                yield "\n\n".join([title, *paragraphs])
            named = _NUMBER.fullmatch(segment.text) is None
            title, paragraphs, size = segment.text if named else document.title, [], 0
            continue
        paragraphs.append(segment.text)
        size += len(segment.text)
    if paragraphs:
        yield "\n\n".join([title, *paragraphs])


@dataclass
class Cleaner:
    """Removes boilerplate from modern texts that are already plain.

    `counts` has the number of characters removed for each reason.
    """

    counts: Counter[str] = field(default_factory=Counter)

    def cleaned(self, texts: Iterable[tuple[str, str]]) -> Iterator[TrainingText]:
        """Yield each document's title and paragraphs, joined as `ownwords make` joins a post's."""
        split = [(name, _paragraphs(text)) for name, text in texts]
        often = Counter(line for _, parts in split for line in set(parts[1:]) if len(line) > 20)
        boilerplate = {line for line, count in often.items() if count >= _REPEATS}
        for name, (title, *parts) in split:
            size = len(title) + sum(map(len, parts))
            if _VACANCY.search(title):
                self.counts["vacancies"] += size
                continue
            paragraphs = list(self._without_boilerplate(parts, boilerplate))
            long = sum(len(line) for line in paragraphs if _is_prose(line))
            if long < _PROSE_SHARE * (sum(map(len, paragraphs)) or 1):
                self.counts["lists and tables"] += size
            elif sum(len(line.split()) for line in paragraphs) < _WORDS:
                self.counts["too short"] += size
            else:
                self.counts["kept"] += len(title) + sum(map(len, paragraphs))
                yield TrainingText(name, "\n\n".join([title, *paragraphs]))

    def _without_boilerplate(self, parts: list[str], boilerplate: set[str]) -> Iterator[str]:
        for paragraph, following in pairwise([*parts, ""]):
            if paragraph in boilerplate:
                self.counts["boilerplate"] += len(paragraph)
                continue
            is_last = not following
            # Before a list, what the colon announces is there; before prose, the code is missing.
            if paragraph.endswith(":") and (
                is_last or (_DANGLING.search(paragraph) and _is_prose(following))
            ):
                end = max(paragraph.rfind(mark) for mark in (". ", "? ", "! ")) + 1
                self.counts["dangling"] += len(paragraph) - end
                paragraph = paragraph[:end]  # noqa: PLW2901 - without its last sentence
                if not paragraph:
                    continue
            yield paragraph


def _paragraphs(text: str) -> list[str]:
    return [paragraph.strip() for paragraph in _BLANK.split(text.strip())] or [""]


def _is_prose(paragraph: str) -> bool:
    return len(paragraph.split()) >= 12 and paragraph.endswith(_ENDS)


class HeldOutCheck:
    """Finds texts that share passages with texts that are held out.

    Passages are runs of SHINGLE letters, whatever their case, spaces and punctuation. An eighth of
    them is checked, chosen by their hashes, so that the same ones are checked in every text.
    """

    def __init__(self, held_out: Iterable[str]) -> None:
        shingles = [self._shingles(text) for text in held_out]
        self._held_out = np.unique(np.concatenate([*shingles, np.zeros(1, np.uint64)]))

    def shared(self, text: str) -> int:
        """Return how many of the text's shingles occur in a held-out text."""
        here = np.unique(self._shingles(text))
        places = np.searchsorted(self._held_out, here)
        nearest = self._held_out[np.minimum(places, len(self._held_out) - 1)]
        return int((nearest == here).sum())

    def is_clean(self, text: str) -> bool:
        return self.shared(text) < _SHARED

    def _shingles(self, text: str) -> npt.NDArray[np.uint64]:
        letters = text.lower().encode("ascii", "ignore").translate(None, _NO_LETTERS)
        codes = np.frombuffer(letters, np.uint8).astype(np.uint64)
        if len(codes) < SHINGLE:
            return np.empty(0, np.uint64)
        # Modulo 2^64: the sum of code * base^i over a window, times base^-(its start).
        sums = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(codes * _powers(_BASE, len(codes)))]
        )
        windows = sums[SHINGLE:] - sums[:-SHINGLE]
        windows *= _powers(_INVERSE, len(windows))
        windows ^= windows >> np.uint64(32)  # the low bits of a sum of odd multiples are not random
        windows *= _BASE
        return windows[windows >> np.uint64(61) == 0]


@lru_cache(maxsize=4)
def _all_powers(base: int, count: int) -> npt.NDArray[np.uint64]:
    table = np.full(count, base, np.uint64)
    table[0] = 1
    return np.multiply.accumulate(table)


def _powers(base: np.uint64, count: int) -> npt.NDArray[np.uint64]:
    """Return 1, base, base^2 ... modulo 2^64."""
    return _all_powers(int(base), 1 << max(16, (count - 1).bit_length()))[:count]
