"""Train the notes adapter: a LoRA with which SmolLM2 135M writes texts from notes.

    python base/notes_adapter.py prepare --modern MODERN... --held-out FILE
    python base/notes_adapter.py train --minutes M      or resumes; a kill loses three minutes
    python base/notes_adapter.py publish --sources modern-sources.tsv      into the package

Most of the training data are pairs of notes and their text, of which only the text is learned; the
rest is plain prose, so that the base continues texts as well as before. Half of the pairs have
notes made by rule, and half have notes that language models jotted down (`jotted/`): from notes by
rule alone a model does not learn to read a person's. `prepare --versions 0` leaves them out.
"""

import argparse
import json
import lzma
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):  # so that bench/ is found, and its modules hide no library
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import torch
from bench.machine import BackgroundWork
from torch import Tensor

import publishing
import texts
from ownwords.archive.corpus import TrainingText
from ownwords.base import catalogue
from ownwords.cli.progress_view import ProgressView
from ownwords.core.config import resolve, settings_of
from ownwords.core.fingerprint import digest
from ownwords.core.progress import Progress
from ownwords.core.text import sentences
from ownwords.core.workspace import write_atomically
from ownwords.drafts import notes
from ownwords.drafts.drafting import Notes
from ownwords.models import bundle, lora
from ownwords.models.decoder import CausalLM
from ownwords.models.directory import ADAPTER
from ownwords.models.weights import read_tensors, write_tensors
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training.batches import Batches
from ownwords.training.checkpoint import Run
from ownwords.training.device import Device, choose
from ownwords.training.distributed import SINGLE_PROCESS
from ownwords.training.loop import TrainJob, train
from ownwords.training.metrics import LossModule, bits_per_byte
from ownwords.training.settings import (
    DataConfig,
    LoopConfig,
    LoraSettings,
    OptimConfig,
    Recipe,
    ScheduleConfig,
)
from ownwords.training.token_dataset import TokenDataset, build_dataset
from token_files import open_dataset, store_dataset

BASE = "smollm2-135m"
# Blogs that drafting and scoring are evaluated on: the adapter has not read them.
JUDGES = frozenset({"rubenerd", "eevee", "mtlynch", "raphlinus"})
JOTTED = Path(__file__).with_name("jotted") / "notes.jsonl.xz"
JOTTED_HELD_OUT = frozenset(  # sources
    {
        *("civicactions_handbook", "openstax_writing_guide", "shorebird_handbook"),
        *("se_ernest_hemingway_the_sun_also_rises", "sirodoht", "todogroup"),
    }
)
_MOST = 500  # documents of a source, so that no single style dominates
_HELD_OUT = 25  # documents, of whole sources
_TOKENS = "tokens"  # the file with the number of learned tokens
_CONTEXT = 512
SETTINGS = Recipe(
    # Without the weight, the model would forget how texts begin: any token could follow the start.
    data=DataConfig(replay=0.3, opening_weight=20.0),
    optim=OptimConfig(kind="adamw", learning_rate=1e-3, beta2=0.99, weight_decay=0.0),
    schedule=ScheduleConfig(warmup_fraction=0.02, decay_fraction=0.8),
    train=LoopConfig(
        steps=1_000,  # a guess, for the warm-up of the rate; the time ends the run
        max_steps=1_000_000,
        batch_size=32,
        sequence_length=_CONTEXT,
        precision="autocast",  # if it is slower, give --set train.precision=float32
        patience=0,
        evaluations=8,
    ),
    lora=LoraSettings(rank=32, alpha=64.0),
)


def prepare(folder: Path, modern: Sequence[Path], held_out: Path, versions: int) -> None:
    """Encode pairs and plain texts of training sources and of held-out ones."""
    tokenizer = Tokenizer(bundle.load(catalogue.find(BASE)).tokenizer_files)
    documents = [document for path in modern for document in texts.documents(path)]
    jotted, jotted_held_out = _jotted(dict(documents), versions)
    cleaned = list(texts.Cleaner().cleaned(_sampled(documents)))
    hidden = list(texts.Cleaner().cleaned(texts.documents(held_out)))
    hidden = sorted(hidden, key=lambda text: digest(text.id))[:_HELD_OUT]
    for name, part in (("", cleaned), ("held-out ", hidden)):
        titled = [replace(text, title=text.text.partition("\n\n")[0]) for text in part]
        pairs = [pair for text in titled for pair in notes.pairs(text)]
        if not name and versions:
            pairs = [*random.Random(1).sample(pairs, min(len(pairs), len(jotted))), *jotted]
        for kind, chosen in (("pairs", pairs), ("plain", titled)):
            _encode(chosen, tokenizer, folder / f"{name}{kind}")
    _encode(jotted_held_out, tokenizer, folder / "held-out jotted")


def _encode(chosen: Sequence[TrainingText], tokenizer: Tokenizer, folder: Path) -> None:
    built = build_dataset(chosen, tokenizer)
    store_dataset(built, folder)
    print(f"{folder.name}: {built.documents:,} texts, {built.tokens:,} tokens")


def _jotted(
    documents: Mapping[str, str], versions: int
) -> tuple[list[TrainingText], list[TrainingText]]:
    """Return paragraphs with jotted notes: several versions to learn from, and the held-out ones.

    In the first version the notes are of the whole paragraph, in the others of some sentences.
    """
    learned, held_out = [], []
    for row in map(json.loads, lzma.decompress(JOTTED.read_bytes()).decode().split("\n")):
        document, begin = documents[row["document"]], row["offset"]
        paragraph = document[begin : begin + row["length"]]
        title, *earlier = document[:begin].strip().split("\n\n")
        before = notes.beginning_of(earlier[-1]) if earlier else ""
        is_held_out = row["document"].partition("/")[0] in JOTTED_HELD_OUT
        for number in range(1 if is_held_out else versions):
            rng = random.Random(digest(row["document"], str(begin), str(number)))
            part = _part_of(paragraph, row["notes"], rng) if number else None
            text, lines = part or (paragraph, row["notes"])
            prompt = notes.prompt_of(
                Notes.parse("\n".join(f"- {line}" for line, _ in lines)).lines,
                title if not part and rng.random() < 0.5 else "",
                before if not part and rng.random() < 0.6 else "",
            )
            key = f"{row['document']}/{begin}/{number}"
            (held_out if is_held_out else learned).append(TrainingText(key, text, prompt=prompt))
    return learned, held_out


def _part_of(
    paragraph: str, lines: Sequence[tuple[str, list[int]]], rng: random.Random
) -> tuple[str, Sequence[tuple[str, list[int]]]] | None:
    """Return some sentences in a row and their notes; None if they share notes with others."""
    if len(lines) < 3:
        return None
    spans, first = sentences(paragraph), rng.randrange(len(lines) - 1)
    last = rng.randrange(first + 2, len(lines) + 1)
    of = {number for _, numbers in lines[first:last] for number in numbers}
    rest = {number for _, numbers in (*lines[:first], *lines[last:]) for number in numbers}
    if of & rest or max(of) - min(of) + 1 != len(of) or max(of) > len(spans):
        return None
    return paragraph[spans[min(of) - 1][0] : spans[max(of) - 1][1]], lines[first:last]


def _sampled(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    sources: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, text in named:
        sources[name.partition("/")[0]].append((name, text))
    for source, documents in sources.items():
        if source not in JUDGES:
            yield from sorted(documents, key=lambda document: digest(document[0]))[:_MOST]


class NotesTraining:
    """The run in a folder, and the data that it reads."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self._background = BackgroundWork()

    def train(
        self, settings: Recipe, minutes: float, device: Device, seed: int, begin: Path | None
    ) -> None:
        """Train for some minutes, from the newest checkpoint if there is one; store the adapter."""
        model = bundle.load(catalogue.find(BASE)).model
        adapter = lora.attach(
            model, lora.AdapterConfig(settings.lora.rank, settings.lora.alpha), seed=1
        )
        if begin:
            for name, pair in _layers(begin).items():
                layer = adapter.layers[name]
                layer.down.detach().copy_(pair["down"])
                layer.up.detach().copy_(pair["up"] / layer.scale)
        loss = model.loss

        def after_others(*args: object, **more: object) -> object:
            self._background.give_way()  # to a benchmark that measures
            return loss(*args, **more)  # type: ignore[arg-type]

        model.loss = after_others  # type: ignore[method-assign, assignment]
        plain = self.dataset("held-out plain")

        def report(model: CausalLM) -> str:
            # So that something is left if the machine stops before the end.
            _store(self.folder / ADAPTER, lora.stored_tensors(adapter))
            return f"held-out plain texts: {self.bits(model, plain, device):.4f} bits per byte"

        outcome = train(
            TrainJob(
                model=model,
                batches=Batches(
                    self.dataset("pairs"),
                    rows=settings.train.batch_size,
                    context=_CONTEXT,
                    seed=seed,
                    config=settings.data,
                    replay=self.dataset("plain"),
                ),
                settings=settings,
                run=Run.new(self.folder / "runs", "notes"),
                device=device,
                validation=self.dataset("held-out pairs"),
                progress=self.progress,
                sample=report,
                seconds=60 * minutes,
            )
        )
        _store(self.folder / ADAPTER, lora.stored_tensors(adapter))  # of the best weights
        write_atomically(self.folder / _TOKENS, str(outcome.tokens))
        print(
            f"{outcome.steps:,} steps, {outcome.tokens:,} tokens in {outcome.seconds:.0f} s:"
            f" {outcome.bits_per_byte:.4f} bits per byte of held-out texts, given their notes"
        )

    def bits(self, model: CausalLM, dataset: TokenDataset, device: Device) -> float:
        """Return the bits per byte of held-out texts."""
        return bits_per_byte(
            LossModule(model),
            dataset,
            rows=2,
            context=_CONTEXT,
            device=device,
            precision="autocast" if device.has_fast_bf16 else "float32",
            world=SINGLE_PROCESS,
        )

    def dataset(self, name: str) -> TokenDataset:
        """Return the encoded texts of that name."""
        (folder,) = (self.folder / name).iterdir()
        return open_dataset(folder)


_CARD = """\
---
license: apache-2.0
language: en
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
tags:
- ownwords
- lora
---

# The notes adapter of ownwords

With it SmolLM2 135M writes texts from notes. `make` merges it into that base before it learns an
author's manner. It is a LoRA of rank {rank} in int8 with a scale a row, trained with ownwords
(`base/notes_adapter.py`) on {tokens:,} tokens of texts, their notes not counted{mean}

## How good it is

Bits per byte of texts of whole sources that it has never seen; fewer are better.

| | texts, given their notes | plain texts |
|---|---:|---:|
| SmolLM2 135M | {before[0]:.3f} | {before[1]:.3f} |
| with the adapter | **{after[0]:.3f}** | {after[1]:.3f} |

## What it learned from

Paragraphs of prose under licences that allow it, each after notes made of it by rule. The texts are
not part of the package. These blogs were left out, so that drafting can be judged with them:
{judges}. The others are by:

{credits}
"""


def _store(path: Path, matrices: Mapping[str, Tensor]) -> None:
    """Store an adapter's matrices in int8 with one scale per row, to keep the file small."""
    stored = {}
    for name, rows in matrices.items():
        scale = (rows.abs().amax(1) / 127).clamp(min=1e-8)
        stored[name] = (rows / scale[:, None]).round().to(torch.int8)
        stored[f"{name}.scale"] = scale
    path.unlink(missing_ok=True)
    write_tensors(path, stored)


def _layers(path: Path) -> dict[str, dict[str, Tensor]]:
    """Return the pairs of matrices of a stored adapter, by layer."""
    stored = read_tensors(path)
    names = sorted({name.removesuffix(".up") for name in stored if name.endswith(".up")})
    kinds = ("down", "up")
    return {
        name: {kind: lora.stored_matrix(stored, f"{name}.{kind}") for kind in kinds}
        for name in names
    }


def _mean(adapters: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of all adapters' updates as a pair of the first one's rank, by SVD."""
    rank = len(adapters[0]["down"])
    ups, r = torch.linalg.qr(torch.cat([each["up"] for each in adapters], 1) / len(adapters))
    downs, s = torch.linalg.qr(torch.cat([each["down"] for each in adapters]).T)
    u, values, v = torch.linalg.svd(r @ s.T)
    root = values[:rank].sqrt()
    return {"up": ups @ u[:, :rank] * root, "down": (root[:, None] * v[:rank]) @ downs.T}


def publish(folder: Path, sources: Path, beside: Sequence[Path] = ()) -> None:
    """Store the adapter in the package, and its card.

    With stored adapters `beside` it, the mean of all is stored, cut to the rank: the errors of
    separate trainings average out (model soups, Wortsman et al. 2022).
    """
    model = bundle.load(catalogue.find(BASE)).model
    layers = _layers(folder / ADAPTER)
    if beside:
        others = [_layers(path) for path in beside]
        layers = {
            name: _mean([pair, *(other[name] for other in others)]) for name, pair in layers.items()
        }
    out = catalogue.ADAPTERS / BASE / catalogue.NOTES
    out.parent.mkdir(parents=True, exist_ok=True)
    _store(
        out, {f"{name}.{kind}": matrix for name in layers for kind, matrix in layers[name].items()}
    )
    training = NotesTraining(folder, Progress())
    bits = []
    for stage in ("before", "after"):
        if stage == "after":
            lora.merge_stored(model, out)
        held_out = (training.dataset(f"held-out {kind}") for kind in ("pairs", "plain"))
        bits.append([training.bits(model, each, choose("cpu")) for each in held_out])
    credits = publishing.modern_sources(sources)
    card = _CARD.format(
        rank=SETTINGS.lora.rank,
        tokens=int((folder / _TOKENS).read_text("utf-8")),
        mean=f"; the mean of\n{1 + len(beside)} trainings." if beside else ".",
        before=bits[0],
        after=bits[1],
        judges=", ".join(sorted(JUDGES)),
        credits="\n".join(
            f"- {publishing.attribution(row)}" for row in credits if row["slug"] not in JUDGES
        ),
    )
    write_atomically(out.with_name("README.md"), card)
    print(f"{out.stat().st_size:,} bytes; bits per byte {bits}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=("prepare", "train", "publish"))
    parser.add_argument("--folder", type=Path, default=Path("notes-adapter"))
    parser.add_argument("--modern", type=Path, nargs="+")
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--versions", type=int, default=3, help="of each paragraph jotted down")
    parser.add_argument("--minutes", type=float, default=720.0, help="of training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=1, help="of the order; all begin alike")
    parser.add_argument("--begin", type=Path, help="with this stored adapter")
    parser.add_argument("--set", action="append", default=[], help="a setting, section.name=value")
    parser.add_argument(
        "--beside", type=Path, nargs="+", default=[], help="stored: the mean of all"
    )
    parser.add_argument("--sources", type=Path, help="the table of the texts and their licences")
    args = parser.parse_args(arguments)
    if args.step == "prepare":
        prepare(args.folder, args.modern, args.held_out, args.versions)
    elif args.step == "publish":
        publish(args.folder, args.sources, args.beside)
    else:
        if hasattr(os, "nice"):
            os.nice(max(0, 19 - os.nice(0)))
        changed = {each.partition("=")[0] for each in args.set}
        kept = {each.key: each.default for each in settings_of(SETTINGS) if each.key not in changed}
        settings = resolve(Recipe, sets=args.set, flags=kept).settings
        with closing(ProgressView()) as view:
            training = NotesTraining(args.folder, Progress(view))
            training.train(settings, args.minutes, choose(args.device), args.seed, args.begin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
