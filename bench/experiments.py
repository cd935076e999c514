"""Experiments: a recipe with some settings changed, measured on held-out text over several seeds.

    python bench/experiments.py                                  the base recipe, one seed
    python bench/experiments.py --set optim.weight_decay=1 --seeds 3
    python bench/experiments.py --text shakespeare --set vocabulary=2048 --set train.steps=60
    python bench/experiments.py --set without=qk-norm            without a part of the model
    python bench/experiments.py --strides                        other strides of the windows, too
    python bench/experiments.py --seeds 4 --together             the ensemble of all seeds, too

`columnist` has the posts that `ownwords look` selects for training and validation (the test posts
are not used), `shakespeare` the first 90% of the characters and the rest, `books` the first
`megabytes` of the books and the last 40 MB. Bits per byte slide by half a context and include each
document's end; the weights are the last ones, so that the measured figure chooses nothing.
"""

import argparse
import lzma
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import SHARED

from ownwords.training.settings import DataConfig, LoopConfig, OptimConfig, ScheduleConfig

if TYPE_CHECKING:
    from bench.ours import TrainedModel

    from ownwords.archive.corpus import TrainingText
    from ownwords.models.decoder import CausalLM

HELD_OUT_BOOKS = 40


@dataclass(frozen=True)
class Experiment:
    """The base recipe: about a million parameters, eight readings of a small blog."""

    text: Literal["columnist", "shakespeare", "books"] = "columnist"
    megabytes: int = 5  # of the books
    vocabulary: int = 1024
    width: int = 128
    layers: int = 4
    heads: int = 4
    without: Literal["", "qk-norm", "zero-init"] = ""
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(learning_rate=1e-2, beta2=0.99, weight_decay=2.0)
    )
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(decay_fraction=0.7))
    train: LoopConfig = field(
        default_factory=lambda: LoopConfig(
            steps=300,
            batch_size=8,
            sequence_length=256,
            dropout=0.1,
            precision="autocast",
            evaluations=0,
            checkpoint_every_s=3600,
        )
    )


def main() -> int:
    from ownwords.core.config import resolve

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    parser.add_argument("--text", choices=["columnist", "shakespeare", "books"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--strides", action="store_true", help="other strides as well")
    parser.add_argument(
        "--together", action="store_true", help="the mean of the seeds' chances, too"
    )
    arguments = parser.parse_args()
    sets = arguments.sets + ([f"text={arguments.text}"] if arguments.text else [])
    experiment = resolve(Experiment, sets=sets).settings
    if not SHARED.exists():
        print("skipped: the shared corpora are not beside the repository")
        return 0
    training, held_out = texts(experiment)
    scores: list[float] = []
    models: list[CausalLM] = []
    began = time.perf_counter()
    for seed in range(1, arguments.seeds + 1):
        trained = _train(replace(experiment, train=replace(experiment.train, seed=seed)), training)
        scores.append(_score(trained, held_out))
        if arguments.strides:
            _print_strides(trained, held_out)
        if arguments.together:
            models.append(trained.model)
            together = _score(replace(trained, model=_together(models)), held_out)
            print(f"    {together:.4f} by {len(models)} together")
    spread = f" ±{statistics.stdev(scores):.4f} ({len(scores)} seeds)" if len(scores) > 1 else ""
    seconds = (time.perf_counter() - began) / len(scores)
    print(f"{statistics.mean(scores):.4f}{spread}  {' '.join(sets) or 'base'}  [{seconds:.0f} s]")
    return 0


def _train(experiment: Experiment, training: "list[TrainingText]") -> "TrainedModel":
    from bench.ours import Setting, make

    shape = {
        "width": experiment.width,
        "layers": experiment.layers,
        "heads": experiment.heads,
        "head_dim": experiment.width // experiment.heads,
        "hidden": 32 * round(experiment.width * 8 / 3 / 32),
    }
    setting = Setting(
        shape,
        experiment.train,
        experiment.vocabulary,
        experiment.optim,
        experiment.schedule,
        experiment.data,
    )
    return make(training, setting, prepare=_less(experiment.without))


def _score(trained: "TrainedModel", held_out: "list[TrainingText]", stride: int = 0) -> float:
    from ownwords.evaluation import bits_per_byte

    held_out_texts = [text.text for text in held_out]
    return bits_per_byte.score(
        trained.model, trained.tokenizer, held_out_texts, stride=stride
    ).bits_per_byte


def _print_strides(trained: "TrainedModel", held_out: "list[TrainingText]") -> None:
    for part in (1, 2, 4):
        stride = trained.model.config.context // part
        print(f"    {_score(trained, held_out, stride):.4f} sliding by {stride}")


def _together(models: "Sequence[CausalLM]") -> "CausalLM":
    """Return an ensemble that averages the predictions of the models."""
    import torch
    from torch import Tensor, nn

    class Together(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.models = nn.ModuleList(models)
            self.config = models[0].config
            self.final_norm = models[0].final_norm

        def forward(self, ids: Tensor) -> Tensor:
            return torch.cat([model(ids) for model in models], -1)

        def logits(self, hidden: Tensor) -> Tensor:
            parts = zip(models, hidden.chunk(len(models), -1), strict=True)
            logs = [model.logits(part).float().log_softmax(-1) for model, part in parts]
            return torch.stack(logs).logsumexp(0) - math.log(len(models))

    return cast("CausalLM", Together())


def _less(label: str) -> "Callable[[CausalLM], None] | None":
    """Return what removes a part of the model before it is trained."""
    import torch
    from torch import nn

    def change(model: "CausalLM") -> None:
        generator = torch.Generator().manual_seed(1)
        for name, module in model.named_modules():
            if label == "qk-norm" and name.endswith(("query_norm", "key_norm")):
                parent, _, child = name.rpartition(".")
                setattr(model.get_submodule(parent), child, None)
            if label == "zero-init" and name.endswith(("attention.output", "mlp.down")):
                assert isinstance(module, nn.Linear)
                with torch.no_grad():
                    module.weight.normal_(0, module.in_features**-0.5, generator=generator)

    return change if label else None


def texts(experiment: Experiment) -> "tuple[list[TrainingText], list[TrainingText]]":
    """Return training and held-out texts."""
    from ownwords.archive.corpus import TrainingText

    if experiment.text == "columnist":
        from bench.data_efficiency import sides

        split = sides()
        return split.train, split.validation
    if experiment.text == "shakespeare":
        text = (SHARED / "tinyshakespeare.txt").read_text(encoding="utf-8")
        border = int(len(text) * 0.9)
        return [TrainingText("first", text[:border])], [TrainingText("rest", text[border:])]
    books = list(_books(SHARED / "books-1.txt.xz"))
    training, size = [], 0
    for name, text in books[:-HELD_OUT_BOOKS]:
        training.append(TrainingText(name, text))
        size += len(text.encode())
        if size > experiment.megabytes * 1_000_000:
            break
    return training, [
        TrainingText(name, text[20_000:40_000]) for name, text in books[-HELD_OUT_BOOKS:]
    ]


def _books(path: Path) -> Iterator[tuple[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8", errors="replace") as file:
        for document in file.read().split("\x1c")[1:]:
            name, _, text = document.partition("\n")
            yield name, text


if __name__ == "__main__":
    sys.exit(main())
