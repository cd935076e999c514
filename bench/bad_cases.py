"""Two deliberately bad models, and what their scorecards say.

    python bench/bad_cases.py                     some four minutes
    python bench/bad_cases.py --workspace FOLDER  keeps the models and their scorecards there

Both learn from 80 kB of the sample blog alone. One is trained for a minute, as by somebody who does
not know that a model needs far more text: it writes gibberish. The other reads the text again and
again without regularisation: it copies. Each is scored as `make` scores a model; any other verdict
is a failure.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import ROOT

if TYPE_CHECKING:
    from ownwords.evaluation.scorecard import Scorecard

BLOG = ROOT / "examples" / "blog"
BYTES = 80_000


@dataclass(frozen=True)
class Case:
    """How a model is spoilt, and the expected verdict."""

    name: str
    verdict: str
    minutes: float
    fixed: Mapping[str, object]


CASES = (
    Case("from-80-kB", "gibberish", 1.0, {}),
    Case(
        "by-heart",
        "copies you",
        3.0,
        {
            "model.parameters": 1_000_000,
            "model.context_length": 256,
            "train.steps": 1500,
            "train.batch_size": 8,
            "train.dropout": 0.0,
            "train.evaluations": 0,  # so that the last weights are kept, however bad
            "optim.weight_decay": 0.0,
            "optim.embedding_weight_decay": 0.0,
        },
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workspace", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as scratch:
        workspace = arguments.workspace or Path(scratch)
        blog = some_posts(workspace, BYTES)
        cards = [(case, card(case, blog, workspace)) for case in CASES]
    for case, scorecard in cards:
        print(f"\n{case.name}: {scorecard.verdict.sentence}")
        for sentence in scorecard.verdict.because:
            print(f"  {sentence}")
        print("  It writes: " + " ".join(scorecard.samples[0].tuned.split())[:300])
    wrong = [case.name for case, scorecard in cards if scorecard.verdict.kind != case.verdict]
    if wrong:
        print(f"\nnot what they are called: {', '.join(wrong)}")
    return len(wrong)


def some_posts(path: Path, most: int, source: Path = BLOG) -> Path:
    """Return a folder with enough posts of a blog for a number of bytes."""
    from ownwords.archive import corpus
    from ownwords.archive.look import look
    from ownwords.archive.store import Archive

    folder = path / "posts"
    look([source], workspace=path / "source.ownwords")
    with Archive(path / "source.ownwords" / "archive.sqlite") as archive:
        parts = corpus.load_corpus(archive)
        texts = [text.text for side in (parts.train, parts.validation, parts.test) for text in side]
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        title, _, body = text.partition("\n\n")
        most -= len(text.encode())
        if most < 0:
            break
        named = title.replace('"', "'")
        post = f'---\ntitle: "{named}"\ndate: 2020-01-{number % 28 + 1:02d}\n---\n\n{body}\n'
        (folder / f"{number:03d}.md").write_text(post, "utf-8")
    return folder


def card(case: Case, blog: Path, folder: Path) -> "Scorecard":
    """Return the scorecard of a model spoilt in this way."""
    from ownwords.make import pipeline
    from ownwords.make.stages import MakeRequest

    result = pipeline.make(
        MakeRequest(
            [blog],
            workspace=folder / f"{case.name}.ownwords",
            minutes=case.minutes,
            base="none",
            fixed=case.fixed,
        )
    )
    assert result.scorecard is not None
    print(
        f"{case.name}: {result.trained.steps} steps, read {result.trained.epochs:g} times",
        flush=True,
    )
    return result.scorecard


if __name__ == "__main__":
    sys.exit(main())
