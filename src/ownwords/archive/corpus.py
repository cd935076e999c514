"""The training, validation and test texts of an archive, as every model reads them.

A text is its title on the first line, a blank line, then the author's own words in reading
order (prose, headings, lists, captions; no quotes, code, tables or logs). A capped text
consists of whole segments from the beginning.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self, get_args

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.selection import Side
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError
from ownwords.core.fingerprint import digest
from ownwords.core.text import count_words

# Larger texts are read from the archive again in each pass.
_MAX_IN_MEMORY = 200 << 20


@dataclass(frozen=True)
class TrainingText:
    """A text as it is given to a model, title first, with its date and address."""

    id: str
    text: str
    title: str = ""
    day: str = ""  # ISO
    url: str = ""
    prompt: str = ""  # is read before the text, and not learned

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
    """Texts in their order, with their number, their total size and a hash of their content."""

    texts: Iterable[TrainingText]
    documents: int
    bytes: int
    key: str

    @classmethod
    def read(cls, texts: Iterable[TrainingText]) -> Self:
        """Read the texts once, into memory if they are not too large or come from an iterator."""
        if isinstance(texts, cls):
            return texts
        kept: list[TrainingText] | None = []
        is_iterator = iter(texts) is texts
        hasher = hashlib.blake2b(digest_size=16)
        size = documents = 0
        for text in texts:
            hasher.update(bytes.fromhex(text.key))
            size += text.bytes
            documents += 1
            if kept is not None:
                kept.append(text)
                if size > _MAX_IN_MEMORY and not is_iterator:
                    kept = None
        return cls(texts if kept is None else kept, documents, size, hasher.hexdigest())

    def __len__(self) -> int:
        return self.documents

    def __iter__(self) -> Iterator[TrainingText]:
        return iter(self.texts)

    def sample(self, max_bytes: int) -> "TextCollection":
        """A deterministic pseudorandom sample of at most `max_bytes`, and of at least one text."""
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
    sides: dict[str, list[TrainingText]] = {side: [] for side in get_args(Side)}
    entries: list[str] = []
    own = total = 0
    for document in archive.documents():
        for segment in document.segments:
            here = count_words(segment.text)
            total += here
            own += here if segment.kind in OWN_KINDS else 0
        id_ = document.id
        decision, words, side = selection.get(id_, ("leave out", 0, ""))
        if decision != "leave out" and words and side in sides:
            day = document.date.date().isoformat() if document.date else ""
            text = training_text(document, words)
            sides[side].append(TrainingText(id_, text, document.title, day, document.url))
            entries.append(f"{id_} {keys[id_]} {side} {words}")
    if not sides["train"]:
        raise CorpusError(
            f"none of the {len(selection):,} texts in {archive.path} is for training",
            hint="report.html beside it says why; `ownwords ask` can still search them",
        )
    # By id, so that the order does not depend on dates, which may be corrected later.
    train, validation, test = (
        TextCollection.read(sorted(texts, key=lambda text: text.id)) for texts in sides.values()
    )
    share = own / total if total else 1.0
    return Corpus(train, validation, test, own_share=share, key=digest(*sorted(entries)))


def read_corpus(path: Path) -> Corpus:
    """The texts of the archive in a file."""
    with Archive(path) as archive:
        return load_corpus(archive)


def training_text(document: Document, words: int) -> str:
    """A document as training text, with about `words` of its own words at most."""
    texts: list[str] = []
    count = 0
    for segment in document.segments:
        if segment.kind not in OWN_KINDS:
            continue
        here = count_words(segment.text)
        if texts and count + here > words:
            break
        texts.append(segment.text)
        count += here
    title = " ".join(document.title.split())
    # Many texts start with their own title as a heading.
    if texts and title and " ".join(texts[0].split()) == title:
        texts = texts[1:]
    return "\n\n".join([title, *texts] if title else texts)
