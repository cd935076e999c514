"""The training, validation and test texts of an archive, and collections of such texts.

A document is its title on the first line, a blank line, then the author's own words in reading
order (prose, headings, lists, captions; no quotes, code, tables or logs). A capped text
consists of whole segments from the beginning.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self, get_args

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.selection import Side
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError
from ownwords.core.fingerprint import digest
from ownwords.core.text import count_words
from ownwords.tokenizers.text import TokenizerError, encode_utf8

# Larger texts are read from the archive again in each pass.
_MOST_IN_MEMORY = 200 << 20


@dataclass(frozen=True)
class TrainingText:
    """One document of training text."""

    id: str
    text: str

    def utf8(self) -> bytes:
        """The text in UTF-8; TokenizerError if it contains half a character (a lone surrogate)."""
        try:
            return encode_utf8(self.text)
        except TokenizerError as error:
            raise TokenizerError(f"in {self.id!r}, {error.message}", error.hint) from None


@dataclass(frozen=True)
class TextCollection:
    """Texts in their order, with their total size and a hash of their content."""

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
            data = text.utf8()
            hasher.update(bytes.fromhex(digest(text.id, data)))
            size += len(data)
            documents += 1
            if kept is not None:
                kept.append(text)
                if size > _MOST_IN_MEMORY and not is_iterator:
                    kept = None
        return cls(texts if kept is None else kept, documents, size, hasher.hexdigest())

    def __iter__(self) -> Iterator[TrainingText]:
        return iter(self.texts)

    def sample(self, max_bytes: int) -> "TextCollection":
        """A deterministic pseudorandom sample of at most `max_bytes`, and of at least one text."""
        if max_bytes >= self.bytes:
            return self
        sizes = {text.id: len(text.utf8()) for text in self.texts}
        chosen: set[str] = set()
        for id_ in sorted(sizes, key=digest):
            if chosen and sizes[id_] > max_bytes:
                break
            chosen.add(id_)
            max_bytes -= sizes[id_]
        return TextCollection.read([text for text in self.texts if text.id in chosen])


@dataclass(frozen=True)
class CorpusSplit:
    """The texts of one side of the split, read from the archive in each iteration."""

    archive: Archive
    words: dict[str, int]  # by document id: how many of its own words are used

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[TrainingText]:
        # By id, so that the order does not depend on dates, which may be corrected later.
        for id_ in sorted(self.words):
            for document in self.archive.documents([id_]):
                yield TrainingText(id_, training_text(document, self.words[id_]))


@dataclass(frozen=True)
class Corpus:
    """The training texts and the held-out texts; `key` changes with any of them."""

    train: CorpusSplit
    validation: CorpusSplit
    test: CorpusSplit
    own_share: float  # fraction of the words in the archive that are the author's own
    key: str


def load_corpus(archive: Archive) -> Corpus:
    """Load the split texts of an archive that `look` has filled.

    CorpusError if none of them is for training.
    """
    selection = archive.selection()
    parts: dict[str, dict[str, int]] = {side: {} for side in get_args(Side)}
    for id_, (decision, words, side) in selection.items():
        if decision != "leave out" and words and side in parts:
            parts[side][id_] = words
    if not parts["train"]:
        raise CorpusError(
            f"none of the {len(selection):,} texts in {archive.path} is for training",
            hint="report.html beside it says why; `ownwords ask` can still search them",
        )
    keys = archive.keys()
    entries = [f"{id_} {keys[id_]} {side} {n}" for side in parts for id_, n in parts[side].items()]
    return Corpus(
        train=CorpusSplit(archive, parts["train"]),
        validation=CorpusSplit(archive, parts["validation"]),
        test=CorpusSplit(archive, parts["test"]),
        own_share=_own_share(archive),
        key=digest(*sorted(entries)),
    )


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


def _own_share(archive: Archive) -> float:
    own = total = 0
    for document in archive.documents():
        for segment in document.segments:
            here = len(segment.text.split())
            total += here
            own += here if segment.kind in OWN_KINDS else 0
    return own / total if total else 1.0
