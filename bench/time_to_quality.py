"""The time to nanoGPT's quality, and the quality in nanoGPT's time: Shakespeare, in one run.

    python bench/time_to_quality.py                 3 seeds each, in turn
    python bench/time_to_quality.py --seeds 1       one of each
    python bench/time_to_quality.py --ours target   one of our settings alone, beside nanoGPT
    python bench/time_to_quality.py --quick         a few steps, to see that it runs

nanoGPT uses its README's recipe for a computer without a GPU. Models are trained on the first 90%
of the text and measured on all the rest, in nats per character: in adjacent windows of each model's
own context and, as a second figure, in windows that slide by half a context. The wall time is that
of a fresh process, with imports, tokenizing and compilation, but without the final measurement.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import SHARED, run
from bench.machine import measuring

if TYPE_CHECKING:
    from bench.ours import Setting

TEXT = SHARED / "tinyshakespeare.txt"
QUICK_STEPS = 4


def recipes() -> "dict[str, Setting]":
    """Return our settings: the fastest to nanoGPT's loss, with subword tokens and with characters,
    and the best loss in its time."""
    from bench.ours import Setting

    from ownwords.training.settings import LoopConfig, OptimConfig, ScheduleConfig

    loop = LoopConfig(
        batch_size=16,
        sequence_length=128,
        precision="bf16",
        evaluations=0,
        patience=0,
        checkpoint_every_s=3600,
    )
    optim = OptimConfig(
        muon_lr=0.02, learning_rate=1e-2, beta2=0.99, momentum_warmup_steps=100, weight_decay=0.0
    )
    decaying = replace(optim, weight_decay=0.5)
    schedule = ScheduleConfig(warmup_fraction=0.0, decay_fraction=0.7)
    shallow = {"width": 128, "layers": 2, "heads": 4, "head_dim": 32, "hidden": 352}
    narrow = shallow | {"layers": 4}
    wide = {"width": 192, "layers": 4, "heads": 6, "head_dim": 32, "hidden": 512}
    return {
        "target": Setting(shallow, replace(loop, steps=44), 2048, optim, schedule),
        "target, bytes": Setting(narrow, replace(loop, steps=135), 0, optim, schedule),
        "same time": Setting(wide, replace(loop, steps=470, dropout=0.1), 2048, decaying, schedule),
    }


@measuring()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ours", action="append", help="a setting of ours; all unless given")
    parser.add_argument("--no-nanogpt", action="store_true", help="ours alone, without ratios")
    parser.add_argument("--quick", action="store_true", help="a few steps each")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not TEXT.exists():
        print(f"skipped: {TEXT.name} is not beside the repository")
        return 0
    if arguments.child:
        child = _nanogpt if arguments.child == "nanoGPT" else _ours
        print(json.dumps(child(arguments.child, arguments.seed, arguments.quick)))
        return 0
    names = arguments.ours or list(recipes())
    if not arguments.no_nanogpt:
        names = ["nanoGPT", *names]
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for seed in range(1, (1 if arguments.quick else arguments.seeds) + 1):
        for name in names:  # in turn, so that other processes slow all alike
            quick = ["--quick"] * arguments.quick
            ran = run("time_to_quality", "--child", name, "--seed", str(seed), *quick)
            seconds = ran.seconds - ran.figures["measuring_s"]
            rows[name].append(ran.figures | {"seconds": seconds, "peak_mb": ran.peak_mb})
            _print(f"{name}, seed {seed}", [rows[name][-1]])
    print()
    for name, figures in rows.items():
        _print(f"{name}, mean of {len(figures)}", figures)
    if not arguments.no_nanogpt:
        _ratios(rows)
    if arguments.quick:
        print("a few steps only: these figures mean nothing")
    return 0


def _print(label: str, figures: list[dict[str, float]]) -> None:
    mean = {key: statistics.mean(figure[key] for figure in figures) for key in figures[0]}
    spread = statistics.pstdev(figure["side_by_side"] for figure in figures)
    print(
        f"{label:28} {mean['side_by_side']:.4f} (±{spread:.4f}) nats/character,"
        f" sliding {mean['sliding']:.4f}; {mean['seconds']:6.1f} s;"
        f" {mean['parameters'] / 1e6:.2f}M, {mean['tokens'] / 1e3:,.0f}k tokens,"
        f" {mean['peak_mb']:.0f} MB",
        flush=True,
    )


def _ratios(rows: dict[str, list[dict[str, float]]]) -> None:
    theirs = {key: statistics.mean(r[key] for r in rows["nanoGPT"]) for key in rows["nanoGPT"][0]}
    for name, figures in rows.items():
        if name == "nanoGPT":
            continue
        seconds = statistics.mean(figure["seconds"] for figure in figures)
        reached = sum(figure["side_by_side"] <= theirs["side_by_side"] for figure in figures)
        gain = theirs["side_by_side"] - statistics.mean(
            figure["side_by_side"] for figure in figures
        )
        print(
            f"{name}: in 1/{theirs['seconds'] / seconds:.2f} of nanoGPT's time;"
            f" {reached} of {len(figures)} reach its {theirs['side_by_side']:.4f},"
            f" {gain:+.4f} nats/character better on average"
        )


def _texts() -> tuple[str, str]:
    text = TEXT.read_text(encoding="utf-8")
    border = int(len(text) * 0.9)
    return text[:border], text[border:]


def _nanogpt(_: str, seed: int, quick: bool) -> dict[str, Any]:
    from bench import nanogpt

    training, held_out = _texts()
    characters = nanogpt.Characters([training, held_out])
    ids_N, new_N = characters.encode(training), characters.encode(held_out)
    recipe = nanogpt.Recipe(seed=1336 + seed)
    if quick:
        recipe = replace(recipe, steps=QUICK_STEPS, warmup=1, evaluation_batches=1)
        new_N = new_N[:2000]
    trained = nanogpt.train(ids_N, new_N, nanogpt.Shape(len(characters.all)), recipe)
    began = time.perf_counter()
    targets = len(new_N) - 1
    context = trained.model.shape.context
    return {
        "side_by_side": nanogpt.nats(trained.model, new_N) / targets,
        "sliding": nanogpt.nats(trained.model, new_N, context // 2) / targets,
        "parameters": sum(p.numel() for p in trained.model.parameters()),
        "tokens": trained.steps * recipe.rows * context,
        "measuring_s": time.perf_counter() - began,
    }


def _ours(name: str, seed: int, quick: bool) -> dict[str, Any]:
    import numpy as np
    from bench.ours import make

    from ownwords.archive.corpus import TrainingText
    from ownwords.evaluation import bits_per_byte

    training, held_out = _texts()
    setting = recipes()[name]
    setting = replace(setting, loop=replace(setting.loop, seed=seed))
    if quick:
        setting = replace(setting, loop=replace(setting.loop, steps=QUICK_STEPS))
        held_out = held_out[:2000]
    trained = make([TrainingText("shakespeare", training)], setting)
    began = time.perf_counter()
    # The end of the text is not scored: it is no character, and nanoGPT has no such token.
    ids = np.array([trained.tokenizer.start, *trained.tokenizer.encode(held_out)])
    context = setting.loop.sequence_length
    bits = {
        figure: bits_per_byte.document_nats(trained.model, [ids], context, stride)[0]
        / len(held_out)
        for figure, stride in (("side_by_side", context), ("sliding", context // 2))
    }
    return bits | {
        "parameters": trained.parameters,
        "tokens": trained.outcome.tokens,
        "measuring_s": time.perf_counter() - began,
    }


if __name__ == "__main__":
    sys.exit(main())
