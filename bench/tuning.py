"""A small base model of books, tuned to one author: what replay, rates and interpolation do.

    python bench/tuning.py                                        a base of 3 million parameters
    python bench/tuning.py --steps 400 --replay 0 0.5 --share 0.1 0.3

The base learns from the first megabytes of the books; then, from the same base each time, the
columnist's training posts are learned, a share of the rows being books again. Bits a byte of the
columnist's validation posts and of the last 40 books, sliding by half a context, for the tuned
weights and for those on the way to them from the base's.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # bench/tokenizers.py must not hide the library of that name
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import SHARED

from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.ours import Made
    from torch import Tensor

    from ownwords.training.shards import Text

BASE = LoopConfig(
    steps=1500,
    rows=16,
    context=256,
    precision="masters",
    evaluations=0,
    checkpoint_every_s=3600,
)
SHAPE = {"width": 192, "layers": 5, "heads": 6, "head_dim": 32, "hidden": 512}
VOCABULARY, MEGABYTES = 4096, 12
SHARES = (1.0, 0.85, 0.7, 0.5, 0.3)


def main() -> int:
    from bench import experiments
    from bench.ours import Setting, make

    from ownwords.evaluation import bits

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--base-steps", type=int, default=BASE.steps)
    parser.add_argument("--steps", type=int, default=200, help="of the tuning")
    parser.add_argument("--replay", type=float, nargs="*", default=[0.0, 0.5, 0.75])
    parser.add_argument("--share", type=float, nargs="*", default=[0.1, 0.3, 1.0])
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    if not SHARED.exists():
        print("skipped: the shared corpora are not beside the repository")
        return 0
    books, other_books = experiments.texts(
        experiments.Experiment(text="books", megabytes=MEGABYTES)
    )
    columns, other_columns = experiments.texts(experiments.Experiment())
    began = time.perf_counter()
    setting = Setting(
        SHAPE,
        replace(BASE, steps=arguments.base_steps),
        VOCABULARY,
        OptimConfig(matrix_rate=0.02, rate=6e-3, beta2=0.99),
        ScheduleConfig(warmdown=0.6),
    )
    base = make(books, setting)

    def score(texts: "list[Text]") -> float:
        said = [text.text for text in texts]
        return bits.score(base.model, base.tokenizer, said).bits_per_byte

    print(
        f"base, {base.parameters / 1e6:.1f}M parameters, {base.outcome.tokens / 1e6:.1f}M tokens:"
        f" columns {score(other_columns):.4f}, books {score(other_books):.4f}"
        f"  [{time.perf_counter() - began:.0f} s]",
        flush=True,
    )
    base.model.float()
    before = {name: p.detach().clone() for name, p in base.model.named_parameters()}
    for replay in arguments.replay:
        for share in arguments.share:
            for seed in range(1, arguments.seeds + 1):
                began = time.perf_counter()
                loop = replace(
                    setting.loop,
                    steps=arguments.steps,
                    seed=seed,
                    dropout=0.1,
                )
                optim = replace(
                    setting.optim,
                    matrix_rate=setting.optim.matrix_rate * share,
                    rate=setting.optim.rate * share,
                )
                _fill(base, before)
                _tune(base, columns, books, loop, optim, replay)
                after = {name: p.detach().clone() for name, p in base.model.named_parameters()}
                found = _on_the_way(base, before, after, partial(score, other_columns))
                _fill(base, after)
                print(
                    f"replay {replay:g}, {share:g} of the rates, seed {seed}: columns "
                    + ", ".join(f"{figure:.4f} at {part:g}" for part, figure in found.items())
                    + f"; books {score(other_books):.4f} at 1"
                    f"  [{time.perf_counter() - began:.0f} s]",
                    flush=True,
                )
    return 0


def _on_the_way(
    base: "Made",
    before: "dict[str, Tensor]",
    after: "dict[str, Tensor]",
    score: "Callable[[], float]",
) -> dict[float, float]:
    from ownwords.training.averaging import interpolated

    found = {}
    for share in SHARES:
        _fill(base, interpolated(before, after, share))
        found[share] = score()
    return found


def _fill(base: "Made", weights: "dict[str, Tensor]") -> None:
    import torch

    base.model.float()  # what was trained in bfloat16 comes back so
    with torch.no_grad():
        for name, parameter in base.model.named_parameters():
            parameter.copy_(weights[name])


def _tune(
    base: "Made",
    columns: "list[Text]",
    books: "list[Text]",
    loop: LoopConfig,
    optim: OptimConfig,
    replay: float,
) -> None:
    from ownwords.training import device
    from ownwords.training.batches import Batches
    from ownwords.training.job import Job
    from ownwords.training.loop import train
    from ownwords.training.run import Run
    from ownwords.training.shards import build

    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as folder:
        own, theirs = (build(texts, base.tokenizer, Path(folder)) for texts in (columns, books))
        train(
            Job(
                model=base.model,
                batches=Batches(
                    own,
                    rows=loop.rows,
                    context=loop.context,
                    seed=loop.seed,
                    config=DataConfig(replay=replay),
                    replay=theirs if replay else None,
                ),
                loop=loop,
                optim=optim,
                schedule=ScheduleConfig(warmdown=0.9),
                run=Run.new(Path(folder) / "runs", "bench"),
                device=device.choose("cpu"),
                tokenizer=base.tokenizer,
            )
        )


if __name__ == "__main__":
    sys.exit(main())
