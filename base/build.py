"""Train the base model, which knows English before it reads the author's posts.

    python base/build.py prepare --books books-1.txt.xz books-2.txt.xz --modern modern-1.txt.xz \\
        --held-out modern-held-out.txt.xz
    python base/build.py train          starts or resumes; Ctrl-C or a kill loses no checkpoint
    python base/build.py train --start-from MODEL      from its weights, not random ones
    python base/build.py train --start-from MODEL --layers 18      made deeper
    python base/build.py status         prints the learning curve so far
    python base/build.py finish         decays the rate to 0 and saves a model; `train` can go on
    python base/build.py publish        scores it, writes its card, stores both in the package
    python base/build.py measured TUNED.json NOTHING.json  adds results of tuning to its card

Everything is in one folder (`--folder`), which may move to another machine. The rate of `train`
stays constant (arXiv 2405.18392), so that each further hour helps; `finish` takes the newest
checkpoint and decays the rate over `--tokens` more, in a separate run. Training runs at the lowest
priority, and pauses while a benchmark of this repository measures.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

if __package__ in (None, ""):  # so that bench/ is found, and base/ shadows no library
    sys.path.append(str(Path(__file__).resolve().parents[1]))


import mix
import pretraining
import publishing
from ownwords.cli.options import DEFAULTS
from ownwords.core.errors import OwnwordsError

SHIPPED = Path(__file__).resolve().parents[1] / "src" / "ownwords" / "base" / "shipped"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the steps."""
    args = parser().parse_args(arguments)
    if hasattr(os, "nice"):
        os.nice(max(0, args.nice - os.nice(0)))
    steps = {
        "prepare": prepare,
        "train": train,
        "finish": finish,
        "status": status,
        "publish": publish,
        "measured": measured,
    }
    return steps[args.step](args)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    root_parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--folder", type=Path, default=Path("base.ownwords"))
    shared.add_argument("--nice", type=int, default=19)
    steps = root_parser.add_subparsers(dest="step", required=True)
    first = steps.add_parser("prepare", parents=[shared])
    first.add_argument("--books", type=Path, nargs="+", required=True)
    first.add_argument("--modern", type=Path, nargs="+", required=True)
    first.add_argument("--held-out", type=Path, required=True)
    first.add_argument("--apart", type=Path, nargs="*", default=[], help="blogs it is tested on")
    first.add_argument("--vocabulary", type=int, default=8192)
    long = steps.add_parser("train", parents=[shared])
    long.add_argument("--hours", type=float, help="end after so many; without it, when stopped")
    long.add_argument("--start-from", type=Path, help="a model directory, not random weights")
    long.add_argument("--layers", type=int, help="to which that model is deepened")
    for name, default, help_text in pretraining.OPTIONS:
        long.add_argument(
            f"--{name.replace('_', '-')}", type=float, help=f"{help_text} ({default})"
        )
    last = steps.add_parser("finish", parents=[shared])
    last.add_argument("--tokens", type=float, help="a quarter of those read unless given")
    last.add_argument("--modern-share", type=float)
    last.add_argument("--context", type=int)
    last.add_argument("--hours", type=float)
    steps.add_parser("status", parents=[shared])
    store = steps.add_parser("publish", parents=[shared])
    store.add_argument("--into", type=Path, default=SHIPPED)
    store.add_argument("--sources", type=Path, help="the table of modern texts, to be credited")
    figures = steps.add_parser("measured", parents=[shared])
    figures.add_argument("tuned", type=Path, help="scorecard of a blog tuned from this base")
    figures.add_argument("from_nothing", type=Path, help="scorecard of the same with --base none")
    figures.add_argument("--into", type=Path, default=SHIPPED)
    return root_parser


def prepare(args: argparse.Namespace) -> int:
    """Clean, check and encode the texts."""
    with DEFAULTS.watched() as (progress, _):
        mixture = mix.prepare(
            args.folder,
            books=args.books,
            modern=args.modern,
            held_out=args.held_out,
            apart=args.apart,
            vocabulary=args.vocabulary,
            progress=progress,
        )
    print(json.dumps(mixture.counts, indent=2))
    return 0


def train(args: argparse.Namespace) -> int:
    """Train at a flat rate until stopped."""
    changed = {name: getattr(args, name) for name, _, _ in pretraining.OPTIONS}
    if args.start_from:
        changed["parameters"] = pretraining.start_from(args.folder, args.start_from, args.layers)
    settings = pretraining.settings(
        args.folder, {name: value for name, value in changed.items() if value is not None}
    )
    stop_after(args.hours)
    with (
        DEFAULTS.watched() as (progress, _),
        closing(pretraining.Pretraining(args.folder, settings, progress)) as run,
    ):
        run.train()
    return 0


def finish(args: argparse.Namespace) -> int:
    """Decay the rate from the newest checkpoint; save the model in the folder."""
    stop_after(args.hours)
    with (
        DEFAULTS.watched() as (progress, _),
        closing(
            pretraining.Pretraining(args.folder, pretraining.settings(args.folder, {}), progress)
        ) as run,
    ):
        model = run.finish(args.tokens, args.modern_share, args.context)
    print(model)
    return 0


def status(args: argparse.Namespace) -> int:
    """Print the curve."""
    print(pretraining.curve_table(args.folder))
    return 0


def publish(args: argparse.Namespace) -> int:
    """Store the finished model in the package."""
    with DEFAULTS.watched() as (progress, _):
        size = publishing.publish(args.folder, args.into, progress, args.sources)
    print(f"{args.into}: {size / 1e6:.1f} MB")
    return 0


def measured(args: argparse.Namespace) -> int:
    """Add the results of tuning to the base's card."""
    size = publishing.put_tuned(args.tuned, args.from_nothing, args.into)
    print(f"{args.into}: {size / 1e6:.1f} MB")
    return 0


def stop_after(hours: float | None) -> None:
    """Save and stop after a number of hours, as with Ctrl-C."""
    if hours:
        timer = threading.Timer(hours * 3600, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt as stopped:  # the message says what is saved, and how to resume
        sys.exit(f"interrupted: {stopped}")
    except OwnwordsError as error:
        sys.exit(f"{error.message}\n{error.hint}".rstrip())
