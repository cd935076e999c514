"""What a model can learn from one author's posts alone: bits per byte of whole held-out posts.

    python bench/data_efficiency.py                     nanoGPT over all sizes, ours
    python bench/data_efficiency.py --sizes 0.8M 1.8M   some of nanoGPT's sizes
    python bench/data_efficiency.py --ours small        one of our settings
    python bench/data_efficiency.py --quick             a few steps, to see that it runs

The columnist's posts are split by `ownwords look`. Models are trained on the training side and
measured on validation and test together, each post on its own, its end included. nanoGPT's recipe
stops where that very figure is best, an advantage that ours does not get: ours stops by the
validation side alone. Windows slide by half a context. Each run is a fresh process.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import SHARED, run

if TYPE_CHECKING:
    from bench.ours import Setting

    from ownwords.archive.corpus import TrainingText
    from ownwords.evaluation.intervals import Score

SITE = SHARED / "columnist"
BORDER = "\x1c"  # nanoGPT has no documents: this character ends each and begins the next
# Layers, heads, width, context; the second is its README's shape, the last its GPU's.
SIZES: dict[str, tuple[int, int, int, int]] = {
    "0.2M": (4, 4, 64, 128),
    "0.8M": (4, 4, 128, 64),
    "1.8M": (4, 6, 192, 128),
    "4.8M": (6, 4, 256, 256),
    "10.7M": (6, 6, 384, 256),
}
DROPOUTS = (0.0, 0.2)
PATIENCE = 4  # evaluations without improvement, 250 steps apart
QUICK_STEPS = 4


@dataclass(frozen=True)
class DataSplit:
    train: "list[TrainingText]"
    validation: "list[TrainingText]"
    test: "list[TrainingText]"

    @property
    def held_out(self) -> "list[TrainingText]":
        return [*self.validation, *self.test]


def recipes() -> "dict[str, Setting]":
    """Return our settings, from scratch on the same posts."""
    from bench.ours import Setting

    from ownwords.training.settings import LoopConfig, OptimConfig, ScheduleConfig

    loop = LoopConfig(
        steps=600,
        batch_size=8,
        sequence_length=256,
        precision="autocast",
        dropout=0.1,
        evaluations=6,
        patience=0,
        checkpoint_every_s=3600,
    )
    optim = OptimConfig(
        learning_rate=1e-2, beta2=0.99, weight_decay=2.0, embedding_weight_decay=1.0
    )
    schedule = ScheduleConfig(decay_fraction=0.7)
    small = {"width": 128, "layers": 4, "heads": 4, "head_dim": 32, "hidden": 352}
    large = {"width": 192, "layers": 5, "heads": 6, "head_dim": 32, "hidden": 512}
    return {
        "small": Setting(small, loop, 2048, optim, schedule),
        "large": Setting(large, loop, 2048, optim, schedule),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--dropouts", nargs="*", type=float, default=list(DROPOUTS))
    parser.add_argument("--steps", type=int, default=5000, help="nanoGPT's, at most")
    parser.add_argument("--ours", nargs="*", help="settings of ours; all unless given")
    parser.add_argument("--seeds", type=int, default=3, help="of ours, and of nanoGPT's best")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not SITE.exists():
        print("skipped: the columnist's site is not beside the repository")
        return 0
    if arguments.child:
        settings = json.loads(arguments.child)
        child = _ours if settings.pop("who") == "ours" else _nanogpt
        print(json.dumps(child(**settings)))
        return 0
    seeds, steps = (1, QUICK_STEPS) if arguments.quick else (arguments.seeds, arguments.steps)
    best: tuple[Score, str, float] | None = None
    for size in arguments.sizes[:1] if arguments.quick else arguments.sizes:
        for dropout in arguments.dropouts[:1] if arguments.quick else arguments.dropouts:
            run = _nanogpt_run(size, dropout, steps, 1)
            if best is None or run.bits_per_byte < best[0].bits_per_byte:
                best = run, size, dropout
    theirs = [best[0]] if best else []
    for seed in range(2, seeds + 1):
        if best:
            theirs.append(_nanogpt_run(best[1], best[2], steps, seed))
    for name in recipes() if arguments.ours is None else arguments.ours:
        ours = [_ours_run(name, seed, arguments.quick) for seed in range(1, seeds + 1)]
        if theirs:
            _compare(name, ours, theirs)
    if arguments.quick:
        print("a few steps only: these figures mean nothing")
    return 0


def _nanogpt_run(size: str, dropout: float, steps: int, seed: int) -> "Score":
    settings = {"who": "nanoGPT", "size": size, "dropout": dropout, "steps": steps, "seed": seed}
    ran = run("data_efficiency", "--child", json.dumps(settings))
    score = _score(ran.figures)
    note = f"best after {ran.figures['steps']} steps; seed {seed}; {ran.seconds:.0f} s"
    _print(f"nanoGPT {size}, dropout {dropout:g}", score, note)
    return score


def _ours_run(name: str, seed: int, quick: bool) -> "Score":
    settings = {"who": "ours", "name": name, "seed": seed, "quick": quick}
    ran = run("data_efficiency", "--child", json.dumps(settings))
    score, result = _score(ran.figures), ran.figures
    note = (
        f"{result['parameters'] / 1e6:.1f}M, best after {result['steps']} steps,"
        f" {result['stopped']};"
    )
    test = f"test alone {result['test']:.4f}"
    _print(f"ours {name}", score, f"{note} {test}; seed {seed}; {ran.seconds:.0f} s")
    return score


def _compare(name: str, ours: "list[Score]", theirs: "list[Score]") -> None:
    ours_mean, theirs_mean = (
        sum(score.bits_per_byte for score in scores) / len(scores) for scores in (ours, theirs)
    )
    gain = ours[0].advantage(theirs[0])
    sure = f", 95% of resampled posts {gain.low:.3f} to {gain.high:.3f} (seed 1)" if gain else ""
    print(
        f"ours {name}: {ours_mean:.4f} against {theirs_mean:.4f}, {1 - ours_mean / theirs_mean:.1%}"
        f" less{sure}"
    )


def _print(name: str, score: "Score", note: str) -> None:
    interval = score.interval()
    between = f" ({interval.low:.3f} to {interval.high:.3f})" if interval else ""
    print(f"{name:28} {score.bits_per_byte:.4f}{between}  {note}", flush=True)


def _score(figures: dict[str, Any]) -> "Score":
    from ownwords.evaluation.intervals import DocumentScore, Score

    return Score(tuple(DocumentScore(*row) for row in figures["documents"]))


def sides() -> DataSplit:
    from ownwords.archive import corpus
    from ownwords.archive.look import look
    from ownwords.archive.store import Archive

    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as folder:
        workspace = Path(folder) / "columnist.ownwords"
        look([SITE], workspace=workspace)
        with Archive(workspace / "archive.sqlite") as archive:
            loaded = corpus.load_corpus(archive)
            return DataSplit(list(loaded.train), list(loaded.validation), list(loaded.test))


def _nanogpt(size: str, dropout: float, steps: int, seed: int) -> dict[str, Any]:
    import torch
    from bench import nanogpt

    split = sides()
    training, held_out = ([text.text for text in side] for side in (split.train, split.held_out))
    characters = nanogpt.Characters([*training, *held_out, BORDER])
    ids_N = characters.encode(BORDER + BORDER.join(training) + BORDER)
    new = [characters.encode(BORDER + text + BORDER) for text in held_out]
    layers, heads, width, context = SIZES[size]
    shape = nanogpt.Shape(len(characters.all), context, layers, heads, width, dropout)
    recipe = nanogpt.Recipe(steps=steps, warmup=min(100, steps // 2), seed=1336 + seed)
    recipe = replace(recipe, evaluate_every=min(recipe.evaluate_every, max(1, steps // 2)))
    least, best_step, weights = float("inf"), 0, dict[str, torch.Tensor]()

    def look(model: nanogpt.NanoGPT, step: int) -> bool:
        nonlocal least, best_step, weights
        nats = sum(nanogpt.nats(model, ids) for ids in new)
        if nats < least:
            least, best_step = nats, step
            weights = {key: value.clone() for key, value in model.state_dict().items()}
        return step - best_step >= PATIENCE * recipe.evaluate_every

    trained = nanogpt.train(ids_N, torch.cat(new), shape, recipe, look)
    trained.model.load_state_dict(weights)
    rows = []
    for text, ids in zip(split.held_out, new, strict=True):
        nats = nanogpt.nats(trained.model, ids, context // 2)
        rows.append((text.id, nats, len(text.text.encode()), len(ids) - 1))
    return {"documents": rows, "steps": best_step}


def _ours(name: str, seed: int, quick: bool) -> dict[str, Any]:
    from dataclasses import astuple

    from bench.ours import make

    from ownwords.evaluation import bits_per_byte

    split = sides()
    setting = recipes()[name]
    setting = replace(setting, loop=replace(setting.loop, seed=seed))
    if quick:
        setting = replace(setting, loop=replace(setting.loop, steps=QUICK_STEPS, evaluations=2))
    trained = make(split.train, setting, split.validation)
    test, test_score = (
        bits_per_byte.score(
            trained.model,
            trained.tokenizer,
            [text.text for text in side],
            names=[text.id for text in side],
        )
        for side in (split.test, split.held_out)
    )
    return {
        "documents": [astuple(document) for document in test_score.documents],
        "test": test.bits_per_byte,
        "parameters": trained.parameters,
        "steps": trained.outcome.best_step,
        "stopped": trained.outcome.stopped,
    }


if __name__ == "__main__":
    sys.exit(main())
