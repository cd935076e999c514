"""The texts of an archive as a model is to read them: whose, in which order, how much of each.

A document is its title on the first line, a blank line, then its own words in reading order (prose,
headings, lists, captions; quotes, code, tables and logs are somebody else's, or a machine's). Of a
text that was capped the beginning is taken, in whole segments as far as they fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.features import count_words
from ownwords.archive.split import Side
from ownwords.archive.store import Archive
from ownwords.core.errors import CorpusError
from ownwords.core.fingerprint import digest
from ownwords.training.shards import TrainingText


@dataclass(frozen=True)
class CorpusSplit:
    """The texts of one side of the split, read from the archive each time they are gone through."""

    archive: Archive
    words: dict[str, int]  # by document: how many of its own words are learned from

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[TrainingText]:
        # By id, so that their order does not depend on dates that are put right later.
        for id_ in sorted(self.words):
            for document in self.archive.documents([id_]):
                yield TrainingText(id_, training_text(document, self.words[id_]))


@dataclass(frozen=True)
class Corpus:
    """All that can be learned from, and what is held out; `key` changes with any of it."""

    train: CorpusSplit
    validation: CorpusSplit
    test: CorpusSplit
    own_share: float  # of all words in the archive, those that are the author's own
    key: str


def load_corpus(archive: Archive) -> Corpus:
    """The texts of an archive that `look` has read.

    CorpusError if nothing in it is to be learned from.
    """
    selection = archive.selection()
    parts: dict[str, dict[str, int]] = {side: {} for side in get_args(Side)}
    for id_, (decision, words, side) in selection.items():
        if decision != "leave out" and words and side in parts:
            parts[side][id_] = words
    if not parts["train"]:
        raise CorpusError(
            f"{archive.path} holds {len(selection):,} texts, and none is to be learned from",
            hint="report.html beside it says what was left out and why; `ownwords ask` searches it",
        )
    keys = archive.keys()
    said = [f"{id_} {keys[id_]} {side} {n}" for side in parts for id_, n in parts[side].items()]
    return Corpus(
        train=CorpusSplit(archive, parts["train"]),
        validation=CorpusSplit(archive, parts["validation"]),
        test=CorpusSplit(archive, parts["test"]),
        own_share=_own_share(archive),
        key=digest(*sorted(said)),
    )


def training_text(document: Document, words: int) -> str:
    """A document as a model reads it, of its own words about so many at most."""
    kept: list[str] = []
    count = 0
    for segment in document.segments:
        if segment.kind not in OWN_KINDS:
            continue
        here = count_words(segment.text)
        if kept and count + here > words:
            break
        kept.append(segment.text)
        count += here
    title = " ".join(document.title.split())
    # Many texts begin with their own title as a heading.
    if kept and title and " ".join(kept[0].split()) == title:
        kept = kept[1:]
    return "\n\n".join([title, *kept] if title else kept)


def _own_share(archive: Archive) -> float:
    own = every = 0
    for document in archive.documents():
        for segment in document.segments:
            here = len(segment.text.split())
            every += here
            own += here if segment.kind in OWN_KINDS else 0
    return own / every if every else 1.0
