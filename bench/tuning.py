"""Fine-tuning a base to one author: the effect of replay, rates, length and interpolation.

    python bench/tuning.py BASE                                    the plan's settings, ten minutes
    python bench/tuning.py BASE --replay none shipped --seeds 3
    python bench/tuning.py BASE --minutes 2 --set train.dropout=0.2
    python bench/tuning.py BASE --blog PATH                        another author
    python bench/tuning.py BASE --notes                            with pairs of notes, as in `make`

Each line is `recipes.finetune` as users run it, on the columnist's training posts; the share of
interpolation between base and tuned weights is chosen on the validation posts. Prints bits per byte
of the test posts, sliding by half a context, each document's end included, and those of the base.
"shipped" is the replay that comes with the base; "books" are --books megabytes of what it was
trained on. With --notes, a second figure is the bits per byte of paragraphs of the test posts after
their notes.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import SHARED

if TYPE_CHECKING:
    from ownwords.archive.corpus import Corpus, TrainingText


def main() -> int:
    from ownwords.archive import corpus
    from ownwords.archive.look import look
    from ownwords.archive.store import Archive
    from ownwords.core.workspace import Workspace

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("base", type=Path)
    parser.add_argument("--blog", type=Path, default=SHARED / "columnist")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--replay", nargs="+", default=["shipped"])
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--notes", action="store_true")
    args = parser.parse_args()
    if not args.blog.exists():
        print(f"skipped: {args.blog} is not there")
        return 0
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as folder:
        workspace = Workspace(Path(folder) / "blog.ownwords")
        look([args.blog], workspace=workspace.root)
        with closing(Archive(workspace.archive)) as archive:
            texts = corpus.load_corpus(archive)
            print(f"base: {_score(args.base, texts.test):.4f}", flush=True)
            for replay in args.replay:
                rows = []
                for seed in range(1, args.seeds + 1):
                    rows.append(_tune(args, texts, Path(folder) / replay, replay, seed))
                if len(rows) > 1:
                    mean, spread = statistics.mean(rows), statistics.stdev(rows)
                    print(f"{replay}: {mean:.4f} ±{spread:.4f} ({len(rows)} seeds)", flush=True)
    return 0


def _tune(args: argparse.Namespace, texts: "Corpus", folder: Path, replay: str, seed: int) -> float:
    from ownwords.core.config import resolve, settings_of
    from ownwords.drafts import notes
    from ownwords.training.recipes import TrainRequest, plan_finetuning
    from ownwords.training.settings import Recipe

    wanted = {assignment.partition("=")[0] for assignment in args.sets}
    settings = settings_of(resolve(Recipe, sets=args.sets).settings)
    chosen: dict[str, object] = {
        setting.key: setting.default for setting in settings if setting.key in wanted
    }
    if replay == "none" and not args.notes:
        chosen["data.replay"] = 0.0
    work = TrainRequest(
        workspace=folder / str(seed),
        seconds=args.minutes * 60,
        fixed={**chosen, "train.seed": seed},
        own_share=texts.own_share,
        corpus=texts.key,
    )
    work.workspace.mkdir(parents=True)
    began = time.perf_counter()
    pairs, adapter = notes.lessons(args.base, texts.train) if args.notes else ([], None)
    trained = plan_finetuning(
        args.base,
        texts.train,
        texts.validation,
        work,
        pairs=pairs,
        adapter=adapter,
    ).train()
    bits = _score(trained.folder, texts.test)
    given = f" ({_given_notes(trained.folder, texts.test):.4f} given notes)" if args.notes else ""
    print(
        f"{replay} {' '.join(args.sets)} seed {seed}: {bits:.4f}{given}"
        f" at {trained.share:g} of the way"
        f" (validation {trained.before or 0:.4f} -> {trained.bits_per_byte or 0:.4f};"
        f" best after {trained.outcome.best_step} of {trained.outcome.steps} steps,"
        f" {trained.outcome.tokens / 1e3:,.0f}k tokens; {time.perf_counter() - began:.0f} s)",
        flush=True,
    )
    return bits


def _score(model: Path, texts: "Iterable[TrainingText]") -> float:
    from ownwords.evaluation import bits_per_byte
    from ownwords.models import bundle
    from ownwords.tokenizers import tokenizer

    loaded = bundle.load(model)
    held_out_texts = [text.text for text in texts]
    read = tokenizer.Tokenizer(loaded.tokenizer_files)
    return bits_per_byte.score(loaded.model.float(), read, held_out_texts).bits_per_byte


def _given_notes(folder: Path, texts: "Iterable[TrainingText]") -> float:
    from ownwords.drafts import notes
    from ownwords.inference.model import Model

    pairs = [pair for text in texts for pair in notes.pairs(text)]
    random.Random(1).shuffle(pairs)
    model = Model.load(folder)
    bits = sum(model.score(pair.prompt, [pair.text])[0] for pair in pairs[:60])
    return bits / sum(pair.bytes for pair in pairs[:60])


if __name__ == "__main__":
    sys.exit(main())
