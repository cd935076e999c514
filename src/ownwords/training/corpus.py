"""The training, validation and test texts of an archive.

A document is its title on the first line, a blank line, then the author's own words in reading
order (prose, headings, lists, captions; no quotes, code, tables or logs). A capped text
consists of whole segments from the beginning.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.split import Side
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError
from ownwords.core.fingerprint import digest
from ownwords.core.text import count_words
from ownwords.training.shards import TrainingText


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
