"""The training, validation and test texts of an archive, as every model reads them.

A text is its title on the first line, a blank line, then the author's own words in reading
order (prose, headings, lists, captions; no quotes, code, tables or logs). A capped text
consists of whole segments from the beginning.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Self, get_args

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.selection import Side
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError
from ownwords.core.fingerprint import digest
from ownwords.core.text import count_words


@dataclass(frozen=True)
class TrainingText:
    """A text as a model reads it, title first, with its date and address."""

    id: str
    text: str
    title: str = ""
    day: str = ""  # ISO
    url: str = ""
    prompt: str = ""  # read before the text, and not learned

    @cached_property
    def bytes(self) -> int:
        return len(self.text.encode("utf-8", "surrogatepass"))

    @cached_property
    def key(self) -> str:
        return digest(self.id, self.text, *([self.prompt] if self.prompt else []))

    @property
    def words(self) -> int:
        return len(self.text.split())

    @property
    def head_and_body(self) -> tuple[str, str]:
        """Return the title with the blank line below it, and the body."""
        head, gap, body = self.text.partition("\n\n")
        return (head + gap, body) if self.title and body else ("", self.text)


@dataclass(frozen=True)
class TextCollection:
    """Texts in order, with their total size and a hash of their content."""

    texts: Sequence[TrainingText]
    bytes: int
    key: str

    @classmethod
    def read(cls, texts: Iterable[TrainingText]) -> Self:
        """Read the texts into memory."""
        if isinstance(texts, cls):
            return texts
        texts = list(texts)
        keys = b"".join(bytes.fromhex(text.key) for text in texts)
        return cls(
            texts,
            sum(text.bytes for text in texts),
            hashlib.blake2b(keys, digest_size=16).hexdigest(),
        )

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[TrainingText]:
        return iter(self.texts)

    def sample(self, max_bytes: int) -> "TextCollection":
        """Return a deterministic sample of at most `max_bytes`, and of at least one text."""
        if max_bytes >= self.bytes:
            return self
        sizes = {text.id: text.bytes for text in self.texts}
        chosen: set[str] = set()
        for id_ in sorted(sizes, key=digest):
            if chosen and sizes[id_] > max_bytes:
                break
            chosen.add(id_)
            max_bytes -= sizes[id_]
        return TextCollection.read([text for text in self.texts if text.id in chosen])


@dataclass(frozen=True)
class Corpus:
    """The training texts and the held-out texts; `key` changes with any of them."""

    train: TextCollection
    validation: TextCollection
    test: TextCollection
    own_share: float = 1.0  # fraction of the words in the archive that are the author's own
    key: str = ""  # models trained on it store it


def load_corpus(archive: Archive) -> Corpus:
    """Read the texts of an archive that `look` has filled, once, into memory.

    CorpusError if none of them is for training.
    """
    selection, keys = archive.selection(), archive.keys()
    own, total = dict[str, int](), 0
    for id_, features in archive.features():
        own[id_] = features.own_words
        total += features.all_words
    sides: dict[str, list[TrainingText]] = {side: [] for side in get_args(Side)}
    used = {
        id_: (words, side)
        for id_, (decision, words, side) in selection.items()
        if decision != "leave out" and words and side in sides
    }
    # By id, so that the order does not depend on dates, which may be corrected later.
    for document in archive.documents(used):
        words, side = used[document.id]
        text = training_text(document, words if words < own[document.id] else None)
        sides[side].append(
            TrainingText(document.id, text, document.title, document.day, document.url)
        )
    if not sides["train"]:
        raise CorpusError(
            f"all {len(selection):,} texts in {archive.path} are left out of training",
            hint="open report.html in the same folder to see why; `ownwords ask` can still search"
            " them",
        )
    train, validation, test = map(TextCollection.read, sides.values())
    entries = sorted(f"{id_} {keys[id_]} {side} {words}" for id_, (words, side) in used.items())
    share = sum(own.values()) / total if total else 1.0
    return Corpus(train, validation, test, own_share=share, key=digest(*entries))


def read_corpus(path: Path) -> Corpus:
    """Read the texts of the archive in a file."""
    with Archive(path) as archive:
        return load_corpus(archive)


def training_text(document: Document, max_words: int | None = None) -> str:
    """Return a document's own words as training text: all, or about `max_words` at most."""
    texts = [segment.text for segment in document.segments if segment.kind in OWN_KINDS]
    if max_words is not None:
        lengths = list(accumulate(map(count_words, texts)))
        texts = texts[: max(1, bisect_right(lengths, max_words))]
    title = " ".join(document.title.split())
    # Many texts start with their own title as a heading.
    if texts and title and " ".join(texts[0].split()) == title:
        texts = texts[1:]
    return "\n\n".join([title, *texts] if title else texts)
