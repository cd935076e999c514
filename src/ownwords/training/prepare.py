"""What a run stands on, made once and found again: the survey of the texts, the tokenizer."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.models import atomic_dir
from ownwords.tokenizers import bpe, tokenizer
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.tokenizers.text import TokenizerError, encode_utf8
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.shards import TrainingText


@dataclass(frozen=True)
class CorpusStats:
    """How much text there is, and a key of all of it."""

    bytes: int
    documents: int
    key: str


def count_corpus(texts: Iterable[TrainingText]) -> CorpusStats:
    """Count the texts, which are gone through once."""
    hasher = hashlib.blake2b(digest_size=16)
    size = documents = 0
    for text in texts:
        data = text.utf8()
        hasher.update(bytes.fromhex(digest(text.id, data)))
        size += len(data)
        documents += 1
    return CorpusStats(size, documents, hasher.hexdigest())


def load_or_train_tokenizer(
    train: Iterable[TrainingText],
    survey: CorpusStats,
    vocabulary: int,
    root: Path,
    progress: Progress,
) -> Tokenizer:
    """The tokenizer of so many tokens learned from these texts, kept in `root`; 0: of bytes.

    Only training texts may be given: merges learned from held-out ones would flatter their score.
    """
    if not vocabulary:
        return ByteTokenizer()
    folder = root / f"tokenizer-{digest(survey.key, str(vocabulary))[:16]}"
    if atomic_dir.readable_dir(folder).exists():
        try:
            return tokenizer.load(atomic_dir.readable_dir(folder))
        except TokenizerError as error:
            progress.note(f"{error.message}; the tokenizer is learned again")
    with progress.stage("Learning a vocabulary", survey.documents, "texts") as stage:

        def texts() -> Iterator[str]:
            for text in train:
                yield text.text
                stage.advance()

        made = bpe.train(texts(), vocabulary)
    with atomic_dir.replace_dir(folder) as beside:
        for name, data in made.files().items():
            atomic_dir.write_file(beside / name, data)
    return made


@dataclass(frozen=True)
class TextSample:
    """As many of the texts as have so many bytes together: always the same, and of all kinds."""

    texts: Iterable[TrainingText]
    bytes: int

    def __iter__(self) -> Iterator[TrainingText]:
        sizes = {text.id: len(encode_utf8(text.text)) for text in self.texts}
        kept: set[str] = set()
        left = self.bytes
        for id_ in sorted(sizes, key=digest):
            if kept and sizes[id_] > left:
                break
            kept.add(id_)
            left -= sizes[id_]
        return (text for text in self.texts if text.id in kept)
