"""Counts the texts and trains the tokenizer, which planning a run needs."""

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
    """The amount of text, and a hash of its content."""

    bytes: int
    documents: int
    key: str


def count_corpus(texts: Iterable[TrainingText]) -> CorpusStats:
    """Count and hash the texts in one pass."""
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
    """A BPE tokenizer of `vocabulary` tokens, trained on these texts and cached in `root`.

    If `vocabulary` is 0, each byte is a token. Pass only training texts: merges learned from
    held-out texts would improve their score.
    """
    if not vocabulary:
        return ByteTokenizer()
    folder = root / f"tokenizer-{digest(survey.key, str(vocabulary))[:16]}"
    if atomic_dir.readable_dir(folder).exists():
        try:
            return tokenizer.load(atomic_dir.readable_dir(folder))
        except TokenizerError as error:
            progress.note(f"{error.message}; the tokenizer is trained again")
    with progress.stage("Training a tokenizer", survey.documents, "texts") as stage:

        def texts() -> Iterator[str]:
            for text in train:
                yield text.text
                stage.advance()

        trained = bpe.train(texts(), vocabulary)
    with atomic_dir.replace_dir(folder) as beside:
        for name, data in trained.files().items():
            atomic_dir.write_file(beside / name, data)
    return trained


@dataclass(frozen=True)
class TextSample:
    """A deterministic pseudorandom sample of at most `bytes` bytes, and of at least one text."""

    texts: Iterable[TrainingText]
    bytes: int

    def __iter__(self) -> Iterator[TrainingText]:
        sizes = {text.id: len(encode_utf8(text.text)) for text in self.texts}
        chosen: set[str] = set()
        left = self.bytes
        for id_ in sorted(sizes, key=digest):
            if chosen and sizes[id_] > left:
                break
            chosen.add(id_)
            left -= sizes[id_]
        return (text for text in self.texts if text.id in chosen)
