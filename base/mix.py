"""The base's training mix: old books and modern prose, each encoded once as a stream."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import texts
from ownwords.archive import corpus
from ownwords.archive.corpus import TextCollection, TrainingText
from ownwords.archive.look import look
from ownwords.archive.settings import LookSettings, SplitConfig
from ownwords.archive.store import Archive
from ownwords.core.errors import WorkspaceError
from ownwords.core.progress import Progress, Stage
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.models import atomic_dir
from ownwords.tokenizers import bpe
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.token_dataset import TokenDataset, build_dataset
from texts import Chapters, Cleaner, HeldOutCheck, documents, split_into_files
from token_files import open_dataset, store_dataset

HELD_OUT = SplitConfig(validation=0.006, test=0.006)  # of the books
_WATCHED_BYTES = 400_000  # of each held-out part, read at each evaluation
_TOKENIZER_BYTES = 40_000_000  # of each part, to train the tokenizer on
_MIX = "mix.json"
WATCHED = ("held-out books", "held-out modern")  # measured during training
TEST = ("test books", "held-out modern")  # measured of the published model
PARTS = ("books", "modern", *WATCHED)


@dataclass(frozen=True)
class Mix:
    """The encoded texts by name (keys of datasets in `tokens`), and what was counted on the way."""

    datasets: dict[str, str]
    counts: dict[str, dict[str, int]]

    def open(self, folder: Path, name: str) -> TokenDataset:
        return open_dataset(folder / "tokens" / self.datasets[name])


def load(folder: Path) -> Mix:
    """Return the result of `prepare`. Raises WorkspaceError if it has not run."""
    path = folder / _MIX
    if not path.exists():
        raise WorkspaceError(
            f"{folder} holds no encoded texts", hint="run `python base/build.py prepare` first"
        )
    return Mix(**json.loads(path.read_text(encoding="utf-8")))


def tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of the mix."""
    return tokenizers.load(folder / "tokenizer")


def prepare(
    folder: Path,
    *,
    books: Sequence[Path],
    modern: Sequence[Path],
    held_out: Path,
    apart: Sequence[Path],
    vocabulary: int,
    progress: Progress,
) -> Mix:
    """Clean the texts, remove what is held out, train a tokenizer, and encode them."""
    counts = cleaned(folder, books, modern, held_out, apart, progress)
    parts = {name: list(texts.read(folder / "texts" / f"{name}.txt")) for name in PARTS}
    watched = {
        name: TextCollection.read(parts.pop(name)).sample(_WATCHED_BYTES) for name in WATCHED
    }
    tokenizer = trained_tokenizer(folder / "tokenizer", parts, vocabulary, progress)
    datasets: dict[str, str] = {}
    for name, part in {**parts, **watched}.items():
        encoded = build_dataset(part, tokenizer, progress=progress)
        store_dataset(encoded, folder / "tokens")
        datasets[name] = encoded.key
        counts[name] = {
            **counts.get(name, {}),
            "texts": encoded.documents,
            "bytes": encoded.text_bytes,
            "tokens": encoded.tokens,
        }
    mixture = Mix(datasets, counts)
    write_atomically(folder / _MIX, json.dumps(asdict(mixture), indent=2))
    return mixture


def cleaned(
    folder: Path,
    books: Sequence[Path],
    modern: Sequence[Path],
    held_out: Path,
    apart: Sequence[Path],
    progress: Progress,
) -> dict[str, dict[str, int]]:
    """Write each part's texts into the folder, once; return what was counted."""
    done_marker = folder / "texts" / "counts.json"
    if done_marker.exists():
        counts: dict[str, dict[str, int]] = json.loads(done_marker.read_text(encoding="utf-8"))
        return counts
    done_marker.parent.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(folder / "books.ownwords")
    folders = [split_into_files(path, folder / "books.texts") for path in books]
    look(
        folders, workspace=workspace.root, settings=LookSettings(split=HELD_OUT), progress=progress
    )
    counts = {}
    with Archive(workspace.archive) as archive:
        split = corpus.load_corpus(archive)
        hidden = {
            "held-out books": list(Chapters(archive, split.validation)),
            "test books": list(Chapters(archive, split.test)),
            "held-out modern": list(read_texts(held_out)),
        }
        for name, part in hidden.items():
            texts.write(done_marker.parent / f"{name}.txt", part)
        with progress.stage("Reading what is held out"):
            check = HeldOutCheck(
                [text.text for part in hidden.values() for text in part]
                + [text for blog in apart for text in posts(blog)]
            )
        cleaner = Cleaner()
        pairs = (pair for path in modern for pair in documents(path))
        for name, part in (
            ("modern", cleaner.cleaned(pairs)),
            ("books", Chapters(archive, split.train)),
        ):
            with progress.stage(f"Cleaning: {name}", None, "texts") as stage:
                admissible = admit_texts(part, check, counts, name, stage)
                texts.write(done_marker.parent / f"{name}.txt", admissible)
    counts["cleaning, characters"] = dict(cleaner.counts)
    write_atomically(done_marker, json.dumps(counts, indent=2))
    return counts


def read_texts(path: Path) -> Iterator[TrainingText]:
    """Yield the documents of a file, unchanged."""
    for name, text in documents(path):
        yield TrainingText(name, text.strip())


def posts(blog: Path) -> list[str]:
    """Return the texts of a blog, whatever its format."""
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Workspace(Path(scratch) / "apart.ownwords")
        look([blog], workspace=workspace.root)
        with Archive(workspace.archive) as archive:
            split = corpus.load_corpus(archive)
            parts = (split.train, split.validation, split.test)
            return [text.text for part in parts for text in part]


def admit_texts(
    texts: Iterable[TrainingText],
    check: HeldOutCheck,
    counts: dict[str, dict[str, int]],
    name: str,
    stage: Stage,
) -> Iterator[TrainingText]:
    """Yield the texts that share no passages with held-out ones; count the others."""
    out: Counter[str] = Counter()
    for text in texts:
        stage.advance()
        if check.is_clean(text.text):
            yield text
        else:
            out["share passages with held-out texts"] += 1
    counts[name] = dict(out)


def trained_tokenizer(
    folder: Path, parts: dict[str, list[TrainingText]], vocabulary: int, progress: Progress
) -> Tokenizer:
    """Return a tokenizer trained on equal parts; the one in the folder if it has that size."""
    if atomic_dir.readable_dir(folder).exists():
        tokenizer = tokenizers.load(folder)
        if tokenizer.vocabulary_size == vocabulary:
            return tokenizer
    size = min(_TOKENIZER_BYTES, *(sum(len(text.text) for text in part) for part in parts.values()))
    sampled = [TextCollection.read(part).sample(size) for part in parts.values()]
    with progress.stage("Training a tokenizer", None, "texts"):
        tokenizer = bpe.train((text.text for part in sampled for text in part), vocabulary)
    with atomic_dir.replace_dir(folder) as new_folder:
        for name, data in tokenizer.files().items():
            atomic_dir.write_file(new_folder / name, data)
    return tokenizer
