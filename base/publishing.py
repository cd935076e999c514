"""Publish the base model: scored on books it has never seen, with a card, stored in the package."""

import json
import math
import re
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch

from ownwords.archive.advice import MEASURED, MeasuredBase
from ownwords.base import catalogue, checks, manifest
from ownwords.base.checks import sha256_of
from ownwords.base.manifest import Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress, duration
from ownwords.core.workspace import Workspace
from ownwords.evaluation import bits_per_byte
from ownwords.evaluation.baselines import xz_bytes
from ownwords.evaluation.scorecard import BASE, SCRATCH, Scorecard
from ownwords.evaluation.scores import DocumentScore, Score
from ownwords.inference.model import Model
from ownwords.models import atomic_dir, bundle
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training.corpus import Corpus
from ownwords.training.forecast import number
from ownwords.training.shards import TrainingText

STORED_BYTES = 40_000_000  # the most that everybody who installs ownwords should have to carry
SAMPLES, SAMPLE_TOKENS = 6, 160
CURVE_ROWS = 16  # of the card
PEP = re.compile(r"\bpep-\d{4}\b")


def publish(
    workspace: Workspace,
    texts: Corpus,
    test: Sequence[TrainingText],
    into: Path,
    progress: Progress,
    scorecard: Path | None = None,
) -> int:
    """Score the model of a workspace on the texts of `test`, store it; the bytes it takes.

    `test` are parts of whole texts, called after them: "book.md#0001".
    """
    found = bundle.load(workspace.root / "model")
    if not {"plan", "outcome"} <= found.provenance.keys():
        raise OwnwordsError(
            f"{workspace.root / 'model'} does not say how it was trained",
            hint="train it with this script first",
        )
    tokenizer = tokenizers.from_files(found.tokenizer_files)
    found.check_tokenizer(tokenizer)
    with tempfile.TemporaryDirectory() as scratch:
        # As it is stored, rounded, it is scored and writes.
        rounded, stored = Path(scratch) / "rounded", Path(scratch) / "shipped"
        bundle.save(rounded, found.model, tokenizer, dtype=torch.bfloat16)
        with progress.stage("Scoring it on books it has never seen"):
            exact = bundle.load(rounded, dtype=torch.float32).model
            names = [one.id for one in test]
            score = bits_per_byte.score(exact, tokenizer, [one.text for one in test], names=names)
            joined = "\n".join(one.text for one in test).encode()
            xz = xz_bytes(joined) * 8 / max(1, len(joined))
        with progress.stage("Writing samples"):
            model = Model.load(rounded)
            seeds = range(1, SAMPLES + 1)
            samples = model.write_several("", seeds=seeds, max_tokens=SAMPLE_TOKENS)
        said = dict(found.provenance) | {"held_out": figures(by_book(score), xz)}
        bundle.save(
            stored,
            found.model,
            tokenizer,
            card=card(found, said, curve(workspace.runs, said), texts, samples),
            provenance=said,
            generation=found.generation,
            dtype=torch.bfloat16,
        )
        checks.check_fits(stored)
        count = sum(parameter.numel() for parameter in found.model.parameters())
        (stored / MEASURED).write_text(measured(scorecard, into, count), encoding="utf-8")
        return put(stored, into)


def measured(scorecard: Path | None, into: Path, parameters: int) -> str:
    """What the advice of `ownwords look` quotes: the base on an author's posts, tuned and not.

    From the scorecard.json of an `ownwords make` with this base; without one, as it was.
    """
    if scorecard is None:
        former = into if (into / MEASURED).exists() else catalogue.shipped()
        return (former / MEASURED).read_text(encoding="utf-8")
    card = Scorecard.from_dict(json.loads(scorecard.read_bytes()))
    rows = {row.name: row.bits for row in card.bits if row.kind == "static"}
    ours = next((row.bits for row in card.bits if row.is_ours and row.kind == "static"), None)
    if ours is None or BASE not in rows or SCRATCH not in rows:
        raise OwnwordsError(
            f"{scorecard} does not compare a tuned model with its base and with one from nothing",
            hint="run `ownwords make` with this base for three minutes or more",
        )
    found = MeasuredBase(
        author="one columnist",
        training_bytes=card.about.training_bytes,
        training_words=card.about.training_words,
        base_parameters=parameters,
        from_nothing=rows[SCRATCH],
        base=rows[BASE],
        tuned=ours,
    )
    return json.dumps(msgspec.to_builtins(found), indent=2) + "\n"


def by_book(score: Score) -> Score:
    """The chapters of a book are no independent witnesses: their scores, put together again."""
    books: dict[str, list[DocumentScore]] = {}
    for one in score.documents:
        books.setdefault(one.name.rpartition("#")[0], []).append(one)
    return Score(
        tuple(
            DocumentScore(
                name,
                math.fsum(one.nats for one in parts),
                sum(one.bytes for one in parts),
                sum(one.tokens for one in parts),
            )
            for name, parts in books.items()
        )
    )


def figures(score: Score, xz: float) -> dict[str, object]:
    """What ownwords.json says of the books held out."""
    interval = score.interval()
    return {
        "bits_per_byte": score.bits_per_byte,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "level": interval.level if interval else None,
        "texts": len(score.documents),
        "bytes": score.bytes,
        "tokens": score.tokens,
        "xz_bits_per_byte": xz,
    }


def put(stored: Path, into: Path) -> int:
    """Move a model directory into the package, with the checksums of its files."""
    files = sorted(path for path in stored.iterdir() if path.is_file())
    sums = {path.name: sha256_of(path) for path in files}
    known = Manifest("base/build.py", "", sums).to_bytes()
    size = sum(path.stat().st_size for path in files) + len(known)
    if size > STORED_BYTES:
        raise OwnwordsError(
            f"the model takes {size / 1e6:.1f} MB, and may take {STORED_BYTES / 1e6:.0f} MB",
            hint="train a smaller one: --parameters",
        )
    with atomic_dir.replace_dir(into) as beside:
        for path in files:
            atomic_dir.write_file(beside / path.name, path.read_bytes())
        atomic_dir.write_file(beside / manifest.FILE, known)
    return size


def curve(runs: Path, said: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Tokens read and bits per byte at each evaluation of the run that the model is of."""
    outcome = said["outcome"]
    tokens_per_step = outcome["tokens"] / max(1, outcome["steps"])
    for metrics in sorted(runs.glob("pretrain-*/metrics.jsonl")):
        marks: dict[int, float] = {}  # of a step that was gone back to, the later one
        for line in metrics.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # of a line that was being written when the power went
                event = json.loads(line)
                values = event.get("values", {}) if event["kind"] == "metric" else {}
                found = [values.get(f"{kind}_bits_per_byte") for kind in ("validation", "averaged")]
                known = [value for value in found if value is not None]
                if known and event["stage"] == "train":
                    marks[int(values["step"])] = min(known)
        if marks.get(outcome["best_step"]) == outcome["validation_bits_per_byte"]:
            return [(round(step * tokens_per_step), marks[step]) for step in sorted(marks)]
    return []


def card(
    found: bundle.Bundle,
    said: Mapping[str, Any],
    marks: Sequence[tuple[int, float]],
    texts: Corpus,
    samples: Sequence[str],
) -> str:
    """The model's README.md: what it is and is not, what it was made from, how good it is."""
    config, held_out, outcome = found.config, said["held_out"], said["outcome"]
    count = sum(parameter.numel() for parameter in found.model.parameters())
    parts = (texts.train, texts.validation, texts.test)
    peps = sum(bool(PEP.search(id_)) for part in parts for id_ in part.words)
    books = sum(len(part) for part in parts) - peps
    held = len(texts.validation) + len(texts.test)
    words = number(sum(texts.train.words.values()))
    what = (
        f"A small language model that knows English: {number(count)} parameters"
        f" ({config.MODEL_TYPE}, {config.layers} layers of width {config.width},"
        f" {config.vocabulary:,} tokens, a context of {config.context:,}), trained from nothing"
        " with ownwords on books and technical prose. It is there to be tuned to somebody's own"
        " writing, which alone would be too little to learn English from."
    )
    learned = (
        f"{books:,} books of the public domain, published in 1928 or before (from the collection"
        f" mlschmitt/classic-books-markdown), and {peps:,} of the Python Enhancement Proposals,"
        f" which are in the public domain, too: {words} words to learn from. Nothing else: no web"
        " pages, no conversations, nobody's private writing. Books by G. K. Chesterton,"
        " H. D. Thoreau, R. W. Emerson, A. Bierce, J. K. Jerome, C. Lamb and W. Hazlitt were left"
        f" out, so that ownwords can be tested on them; {held} of the texts were held out whole, to"
        " test this model on."
    )
    sure = (
        f", and lies between {held_out['low']:.3f} and {held_out['high']:.3f} with other texts of"
        f" the kind ({held_out['level']:.0%} interval, by whole texts)"
        if held_out["low"] is not None
        else ""
    )
    good = (
        f"**{held_out['bits_per_byte']:.3f} bits per byte** on {held_out['texts']:,} whole texts it"
        f" has never seen, {held_out['bytes'] / 1e6:.1f} MB{sure}. Fewer is better; the same texts"
        f" take {held_out['xz_bits_per_byte']:.3f} packed with xz, all at once. The figure is that"
        " of the weights as they are stored here, rounded to bfloat16, read in windows of"
        f" {config.context:,} tokens."
    )
    trained = (
        f"{number(outcome['tokens'])} tokens in {outcome['steps']:,} steps,"
        f" {duration(outcome['seconds'])} of training. The recipe, as the plan derived it or it"
        " was set:"
    )
    told = "".join(f"````text\n{sample.strip()}\n````\n\n" for sample in samples)
    return f"""---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
tags:
- ownwords
---

# The base of ownwords

{filled(what)}

## What it learned from

{filled(learned)}

The weights are under the licence of ownwords, MIT. The texts are free of copyright in the United
States; they are not part of the package.

## How good it is

{filled(good)}

{progressed(marks, len(texts.validation))}## What it writes

{len(samples)} texts begun from nothing, seeds 1 to {len(samples)}, as they came:

{told}## What it is not

- It knows no facts. Names, dates and sums in what it writes are invented.
- It answers no questions and follows no instructions: it goes on with a text.
- It writes as books did a century ago, with the views and prejudices they had.
- It is small: a sentence may hold where the thought does not.
- It knows English only.

## How it was trained

{filled(trained)}

| setting | value | why | source |
|---|---|---|---|
{"".join(row(one) for one in said["plan"])}
`base/build.py` in the repository of ownwords makes it anew.
"""


def progressed(marks: Sequence[tuple[int, float]], texts: int) -> str:
    """What it came to while it learned, where that is known."""
    if not marks:
        return ""
    table = "".join(f"| {tokens:,} | {value:.3f} |\n" for tokens, value in thinned(marks))
    said = (
        f"While it learned, on some of {texts:,} other texts held out, which also decided which"
        " weights were kept:"
    )
    return f"{filled(said)}\n\n| tokens read | bits per byte |\n|---:|---:|\n{table}\n"


def filled(paragraph: str) -> str:
    """A paragraph in lines of even length."""
    return textwrap.fill(paragraph, 98, break_long_words=False, break_on_hyphens=False)


def thinned(marks: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """About so many of them as a card may show, the first and the last among them."""
    if len(marks) <= CURVE_ROWS:
        return list(marks)
    last = len(marks) - 1
    return [marks[round(i * last / (CURVE_ROWS - 1))] for i in range(CURVE_ROWS)]


def row(one: Mapping[str, Any]) -> str:
    """A number of the plan as a row of the card."""
    why = (
        ("set for this model", "") if one["origin"] == "setting" else (one["reason"], one["source"])
    )
    cells = [str(cell).replace("|", "\\|") for cell in (one["key"], one["value"], *why)]
    return f"| {' | '.join(cells)} |\n"
