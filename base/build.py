"""Train the base model: the one that knows English before it reads a word of yours.

    python base/build.py books-1.txt.xz books-2.txt.xz --minutes 600
    python base/build.py --publish

Each file holds documents that begin with the character U+001C and their name on a line; folders of
texts, as `ownwords look` takes them, may be given instead. Whole books are held out; what is read
are their chapters, since those are as long as what people write. The same command goes on where it
was ended.

Publishing scores the model on books it has never seen, writes its card, and stores both in the
package.
"""

import argparse
import lzma
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ownwords.archive.document import OWN_KINDS, Document
from ownwords.archive.look import look
from ownwords.archive.settings import SplitConfig
from ownwords.archive.store import Archive
from ownwords.cli.options import DEFAULTS
from ownwords.cli.training_view import watching
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.core.workspace import Workspace, write_atomically
from ownwords.training import corpus, recipes
from ownwords.training.shards import TrainingText

DIVIDER = "\x1c"
HELD_OUT = SplitConfig(validation=0.006, test=0.006)
SHORTEST = 1200  # characters of a chapter; shorter ones are read with what follows
SHIPPED = Path(__file__).resolve().parents[1] / "src" / "ownwords" / "base" / "shipped"
# Headings that number and do not name: "CHAPTER 1", "Book II", "XIV."
_NUMBER = re.compile(r"(?i)(chapter|book|part|act|scene|section|volume|canto)?[\s.\divxlc]*")


def main() -> int:
    """Read the texts, train for the minutes given, say where the model is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--workspace", type=Path, default=Path("base.ownwords"))
    parser.add_argument("--parameters", type=int, default=0, help="0: what the plan chooses")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--steps", type=int, default=0, help="0: as many as the minutes allow")
    parser.add_argument("--publish", action="store_true", help="store what was trained")
    parser.add_argument("--into", type=Path, default=SHIPPED)
    parser.add_argument("--scorecard", type=Path, help="of a blog that was tuned from this base")
    given = parser.parse_args()
    workspace = Workspace(given.workspace)
    if given.publish:
        import publishing  # noqa: PLC0415 - beside this file; training does without it

        with watching(DEFAULTS) as (progress, _, _), Archive(workspace.archive) as archive:
            texts = corpus.load_corpus(archive)
            test = list(Chapters(archive, texts.test))
            size = publishing.publish(workspace, texts, test, given.into, progress, given.scorecard)
        print(f"{given.into}: {size / 1e6:.1f} MB")
        return 0
    if not given.texts:
        parser.error("the texts to train on are missing")
    folders = [parted(path, given.workspace.with_suffix(".texts")) for path in given.texts]
    fixed: dict[str, object] = {
        "model.vocab_size": given.vocabulary,
        "model.context_length": given.context,
        "train.sequence_length": given.context,
    }
    if given.parameters:
        fixed["model.parameters"] = given.parameters
    if given.steps:
        fixed["train.steps"] = given.steps
    with watching(DEFAULTS) as (progress, _, _):
        look(folders, workspace=workspace.root, split=HELD_OUT, progress=progress)
        made = trained(workspace, seconds=given.minutes * 60, fixed=fixed, progress=progress)
    print(f"{made.folder}: {made.bits_per_byte} bits per byte on held-out books")
    return 0


def trained(
    workspace: Workspace,
    *,
    seconds: float,
    fixed: Mapping[str, object],
    progress: Progress,
    out: Path | None = None,
) -> recipes.TrainedModel:
    """A model of the chapters in the workspace's archive."""
    with Archive(workspace.archive) as archive:
        texts = corpus.load_corpus(archive)
        return recipes.plan_pretraining(
            Chapters(archive, texts.train),
            Chapters(archive, texts.validation),
            recipes.TrainRequest(
                workspace=workspace.root,
                seconds=seconds,
                fixed=fixed,
                progress=progress,
                corpus=texts.key,
                out=out,
            ),
        ).train()


def parted(path: Path, beside: Path) -> Path:
    """The folder of a file's documents, one text file each."""
    if path.is_dir():
        return path
    folder = beside / path.name.partition(".")[0]
    folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        documents = file.read().decode("utf-8").split(DIVIDER)
    names: Counter[str] = Counter()
    for document in filter(str.strip, documents):
        name, _, text = document.partition("\n")
        title = re.sub(r"[^\w' ,.;()-]+", " ", Path(name.strip()).stem)
        names[title] += 1
        number = f" {names[title]}" if names[title] > 1 else ""
        write_atomically(folder / f"{title}{number}.md", text)
    return folder


@dataclass(frozen=True)
class Chapters:
    """The chapters of a part's documents, each a text of its own under its heading."""

    archive: Archive
    part: corpus.CorpusSplit

    def __iter__(self) -> Iterator[TrainingText]:
        for id_ in sorted(self.part.words):
            for document in self.archive.documents([id_]):
                for number, text in enumerate(chapters(document)):
                    yield TrainingText(f"{id_}#{number:04d}", text)


def chapters(document: Document) -> Iterable[str]:
    """A document's own words, from one heading to the next that is far enough away."""
    title, kept, size = document.title, [], 0
    for segment in document.segments:
        if segment.kind not in OWN_KINDS:
            continue
        if segment.kind == "heading" and (not kept or size >= SHORTEST):
            if kept:
                yield "\n\n".join([title, *kept])
            named = _NUMBER.fullmatch(segment.text) is None
            title, kept, size = segment.text if named else document.title, [], 0
            continue
        kept.append(segment.text)
        size += len(segment.text)
    if kept:
        yield "\n\n".join([title, *kept])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt as stopped:  # training says what it has saved, and how to go on
        sys.exit(f"interrupted: {stopped}")
    except OwnwordsError as error:
        sys.exit(str(error))
