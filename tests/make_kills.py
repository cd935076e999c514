"""`make` killed at many moments, in a process of its own that forks the killed children.

Started by tests/faults/test_make.py with the kind of base and a folder; prints JSON.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import large_vocabulary
import tiny_make
from base_kills import kill_on_call, kill_self, run_forked
from families import TINY
from ownwords.archive import look as looking
from ownwords.archive.analysis import ArchiveAnalysis
from ownwords.base import trimming
from ownwords.core.progress import Event, Progress
from ownwords.evaluation import scorecard_view, scoring
from ownwords.evaluation.scoring import MetricCache
from ownwords.make import pipeline
from ownwords.make.stages import MakeCallbacks, MakeResult, StageCache
from ownwords.models import atomic_dir, bundle, lora
from ownwords.models.directory import model_fingerprint
from ownwords.training import recipes, throughput, trained_model


def in_training(event: Event) -> None:
    """Die in the middle of the current training."""
    if event.stage == "train" and event.values.get("step", 0) >= 9:
        kill_self()


def stops_listening(_: str, pieces: Iterator[str]) -> None:
    """Die after the first letters."""
    next(pieces)
    kill_self()


def is_of(stage: str) -> Callable[..., bool]:
    """Whether a call of `StageCache.put` is of that stage."""
    return lambda _, name, *__: bool(name == stage)


# Each is arranged in a child, which then makes until it dies, a little farther each time.
MOMENTS: dict[str, Callable[[Progress, "KillingCallbacks"], object]] = {
    "while it reads": lambda *_: kill_on_call(ArchiveAnalysis, "fill"),
    "before the report is written": lambda *_: kill_on_call(looking, "report_view"),
    "when it is planned": lambda _, doomed: setattr(doomed, "on_planned", kill_self),
    "in training": lambda progress, _: progress.subscribers.append(in_training),
    "before the model is saved": lambda *_: kill_on_call(bundle, "save"),
    "while the model is put in its place": lambda *_: kill_on_call(
        atomic_dir, "_put", lambda _, folder: bool(folder.name == "model")
    ),
    "before that is noted": lambda *_: kill_on_call(StageCache, "put", is_of("train")),
    "when that is noted": lambda *_: kill_on_call(StageCache, "put", is_of("train"), after=True),
    "while it writes": lambda _, doomed: setattr(doomed, "on_writing", stops_listening),
    "while it scores": lambda *_: kill_on_call(
        MetricCache, "get_or_measure", lambda _, name, *__: bool(name.startswith("copied"))
    ),
    "between the scorecard's files": lambda *_: kill_on_call(scorecard_view, "scorecard_view"),
}


# Of a base with a large vocabulary, which is trimmed first and tuned through a LoRA: what happens
# before its model is saved.
LORA_MOMENTS: dict[str, Callable[[Progress, "KillingCallbacks"], object]] = {
    "while it trims": lambda *_: kill_on_call(trimming, "_files"),
    "while the trimmed base is put in its place": lambda *_: kill_on_call(
        atomic_dir, "_put", lambda _, folder: bool(folder.parent.name == trimming.TRIMMED)
    ),
    "when it is trimmed": lambda *_: kill_on_call(pipeline.MakeRun, "train"),
    "while the share is chosen": lambda *_: kill_on_call(trained_model, "scaling"),
    "when the adapter is stored": lambda *_: kill_on_call(lora, "stored_tensors", after=True),
    "when it is merged": lambda *_: kill_on_call(lora.LoraAdapter, "merge", after=True),
}
MOMENTS_OF_KIND = {"box": MOMENTS, "gemma": LORA_MOMENTS}


class KillingCallbacks(MakeCallbacks):
    """Callbacks that a moment replaces by a kill."""


def make_run(kind: str, folder: Path, workspace: str, moment: str = "") -> MakeResult:
    """Make, and die at the given moment."""
    progress, callbacks = Progress(), KillingCallbacks()
    if moment:
        MOMENTS_OF_KIND[kind][moment](progress, callbacks)
    more: dict[str, object] = {}
    if kind == "gemma":
        fixed = {**tiny_make.SMALL, "lora.rank": 4}
        more = {"base": str(folder / "gemma"), "fixed": fixed, "minutes": 2.0}
    request = tiny_make.make_request(folder, workspace=folder / workspace, **more)
    return pipeline.make(request, progress=progress, callbacks=callbacks)


def summary(result: MakeResult) -> dict[str, object]:
    """The parts of the result that must not depend on kills: all but times."""
    card = result.scorecard
    assert card
    return {
        "model": [model_fingerprint(result.model), result.trained.bits_per_byte],
        "paragraph": result.paragraph.text,
        "bits": [[row.name, row.bits, row.low, row.high] for row in card.bits],
        "samples": [sample.tuned for sample in card.samples],
        "pages": [result.report_page.exists(), result.scorecard_page.exists()],
    }


def main(kind: str, folder: Path) -> dict[str, Any]:
    tiny_make.write_blog(folder / "blog")
    if kind == "gemma":
        config = replace(TINY["gemma3"], layers=2, sliding=(True, False))  # type: ignore[call-arg]
        large_vocabulary.write(folder / "gemma", config=config)
    else:
        tiny_make.train_base(folder / "base")
    calm = summary(make_run(kind, folder, "calm"))
    statuses = {
        name: run_forked(partial(make_run, kind, folder, "killed", name))
        for name in MOMENTS_OF_KIND[kind]
    }
    return {"calm": calm, "statuses": statuses, "end": summary(make_run(kind, folder, "killed"))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Voice and fluency have tests of their own.
    vars(scoring)["Lexicon"] = SimpleNamespace(load=lambda: None)
    foreign = SimpleNamespace(vocabulary=SimpleNamespace(words=("ja", "nein")))
    vars(scoring)["ReferenceAuthors"] = SimpleNamespace(of=lambda _: foreign)
    vars(recipes)["_SAMPLE_BYTES"] = 8
    throughput.measure_speeds = lambda device, *_, **__: throughput.assumed_speeds(device)
    trimming.SMALL = 100  # so that a tiny vocabulary is trimmed, too
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
