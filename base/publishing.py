"""Publish the base model: scored on texts it has never seen, with a card, stored in the package."""

import csv
import json
import lzma
import math
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import mix
import texts
from ownwords.archive.corpus import TrainingText
from ownwords.base import catalogue
from ownwords.base.catalogue import Manifest
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress, duration
from ownwords.core.validation import decode
from ownwords.evaluation import bits_per_byte
from ownwords.evaluation.intervals import DocumentScore, Score
from ownwords.evaluation.scorecard import BASE, OURS, Scorecard
from ownwords.inference.generation import BatchScheduler, GenerationState
from ownwords.inference.model import Model
from ownwords.inference.sampling import SamplingParams
from ownwords.models import atomic_dir, bundle, directory
from ownwords.models.decoder import CausalLM
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.tokenizers.tokenizer import Tokenizer
from ownwords.training import token_dataset
from ownwords.view.format import number

STORED_BYTES = 25_000_000  # the most that every installation should have to download
SAMPLES, SAMPLE_TOKENS = 6, 160
REPLAY_TOKENS = 100_000  # of text by the base, replayed in fine-tuning
BATCH_SIZE = 32  # enough texts at once to keep the matrix units busy
CURVE_ROWS = 16  # of the card
_SAMPLES_HEADING, _TUNED_HEADING = "## What it writes", "## Tuned to an author"
_LICENCE = re.compile(r"CC BY \d\.\d|CC BY|CC0|MIT|OGL v\d\.\d|WTFPL|Unlicense|public domain")


def publish(
    folder: Path,
    into: Path,
    progress: Progress,
    sources: Path | None = None,
) -> int:
    """Score the folder's model on texts it has never seen, store it, and return its bytes.

    `sources` is a table of the modern texts, whose attributions the card carries.
    """
    credits = modern_sources(sources)
    base = bundle.load(folder / "model")
    if not {"settings", "outcome"} <= base.provenance.keys():
        raise OwnwordsError(
            f"{folder / 'model'} does not say how it was trained",
            hint="make it with `base/build.py finish`",
        )
    tokenizer = tokenizers.Tokenizer(base.tokenizer_files)
    base.check_tokenizer(tokenizer)
    parameters = sum(parameter.numel() for parameter in base.model.parameters())
    with tempfile.TemporaryDirectory() as scratch:
        # It is scored, and writes, with its weights rounded as stored.
        stored = Path(scratch) / "shipped"
        bundle.save(stored, base.model, tokenizer, generation=base.generation, int8=True)
        exact = bundle.load(stored).model.float()
        held_out = {}
        for name in mix.TEST:
            with progress.stage(f"Scoring it on {name}"):
                held_out[name] = figures(
                    exact, tokenizer, list(texts.read(folder / "texts" / f"{name}.txt"))
                )
        with progress.stage("Writing samples"):
            model = Model.load(stored)
            samples = model.write_several("", seeds=range(1, SAMPLES + 1), max_tokens=SAMPLE_TOKENS)
        replay = list(sample_texts(model, REPLAY_TOKENS, progress))
        provenance = dict(base.provenance) | {
            "held_out": held_out,
            "text_licenses": text_licenses(credits),
        }
        marks = curve(folder / "runs", provenance)
        bundle.save(
            stored,
            base.model,
            tokenizer,
            card=card(
                base,
                parameters,
                provenance,
                marks,
                samples,
                [attribution(source) for source in credits],
            ),
            provenance=provenance,
            generation=base.generation,
            int8=True,
        )
        catalogue.check_fits(stored)
        (stored / token_dataset.REPLAY).write_bytes(
            lzma.compress(token_dataset.DIVIDER.join(replay).encode())
        )
        return put(stored, into)


def sample_texts(model: Model, tokens: int, progress: Progress) -> Iterator[str]:
    """Sample unprompted texts from a model, with seeds from 1 on, up to about `tokens` tokens."""
    length = model.engine.context
    unchanged = SamplingParams(temperature=1.0)
    unprompted = model.request("", max_tokens=length, sampling=unchanged, quote=True)
    scheduler = BatchScheduler(model.engine, rows=BATCH_SIZE, length=length)
    ids: dict[GenerationState, list[int]] = {}
    seed = 0
    try:
        with progress.stage("Writing replay text", tokens, "tokens") as stage:
            while True:
                while len(ids) < BATCH_SIZE and stage.done < tokens:
                    seed += 1
                    ids[scheduler.submit(replace(unprompted, seed=seed))] = []
                for handle, token in scheduler.step():
                    if token is not None:
                        ids[handle].append(token)
                        stage.advance(1)
                    if handle.finish_reason:
                        yield model.tokenizer.decode(ids.pop(handle))
                if stage.done >= tokens:
                    break
        # Do not wait for the last texts: they would take as long as all the others.
        yield from (model.tokenizer.decode(row) for row in ids.values() if row)
    finally:
        scheduler.close()


def modern_sources(table: Path | None) -> list[dict[str, str]]:
    """Return the rows of the sources that the base has read."""
    if table is None:
        return []
    with table.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["use"] == "train"]


def attribution(source: Mapping[str, str]) -> str:
    """Return what the licence of a source requires the card to say."""
    return (
        f"{source['attribution']} (https://github.com/{source['repository']}, {source['licence']})"
    )


def text_licenses(sources: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the short names of the sources' licences, each once."""
    return sorted({name for source in sources for name in _LICENCE.findall(source["licence"])[:1]})


def put_tuned(tuned: Path, from_nothing: Path, into: Path) -> int:
    """Add to the card the scores of the base, tuned and not; return the base's bytes.

    The figures are from the scorecard.json of an `ownwords make` with this base, and of one
    without a base.
    """
    card, other = (
        decode(Scorecard, json.loads(path.read_bytes()), source=str(path))
        for path in (tuned, from_nothing)
    )
    bits = {row.name: row.bits for row in card.bits}
    from_nothing_bits = {row.name: row.bits for row in other.bits}
    if not {OURS, BASE} <= bits.keys() or from_nothing_bits.keys() != {OURS}:
        raise OwnwordsError(
            f"{tuned} does not compare a tuned model with its base, or {from_nothing} has a base",
            hint="run `ownwords make` on the same posts, with this base and with --base none",
        )
    row = f"{from_nothing_bits[OURS]:.3f} | {bits[BASE]:.3f} | **{bits[OURS]:.3f}**"
    with tempfile.TemporaryDirectory() as scratch:
        stored = Path(scratch) / "shipped"
        shutil.copytree(into, stored, ignore=shutil.ignore_patterns(catalogue.MANIFEST))
        shown = (stored / directory.CARD).read_text(encoding="utf-8")
        shown = _with_tuned(shown, card.about.training_words, row)
        (stored / directory.CARD).write_text(shown, encoding="utf-8")
        return put(stored, into)


def _with_tuned(card_text: str, words: int, bits: str) -> str:
    """Return the card with the results of tuning, before the base's samples."""
    scores, _, samples = card_text.partition(_SAMPLES_HEADING)
    scores = scores.partition(_TUNED_HEADING)[0]
    return f"""{scores}{_TUNED_HEADING}

Bits per byte of an author's posts that were held out, after `ownwords make` with the others;
docs/performance.md in the repository of ownwords has more blogs, and what was hoped for.

| author | from these texts alone | this base, untouched | tuned |
|---|---:|---:|---:|
| one columnist, {words:,} words to learn from | {bits} |

{_SAMPLES_HEADING}{samples}"""


def by_document(score: Score) -> Score:
    """Return the combined scores of each book's chapters, which are not independent."""
    books: dict[str, list[DocumentScore]] = {}
    for document in score.documents:
        books.setdefault(document.name.rpartition("#")[0] or document.name, []).append(document)
    return Score(
        tuple(
            DocumentScore(
                name,
                math.fsum(part.nats for part in parts),
                sum(part.bytes for part in parts),
                sum(part.tokens for part in parts),
            )
            for name, parts in books.items()
        )
    )


def figures(
    model: CausalLM, tokenizer: Tokenizer, held_out: Sequence[TrainingText]
) -> dict[str, object]:
    """Return the figures of a held-out part for ownwords.json."""
    contents = [text.text for text in held_out]
    names = [text.id for text in held_out]
    score = by_document(bits_per_byte.score(model, tokenizer, contents, names=names))
    joined = "\n".join(contents).encode()
    interval = score.interval()
    packed = len(lzma.compress(joined, preset=lzma.PRESET_EXTREME | 9))
    return {
        "bits_per_byte": score.bits_per_byte,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "texts": len(score.documents),
        "bytes": score.bytes,
        "tokens": score.tokens,
        "xz_bits_per_byte": packed * 8 / max(1, len(joined)),
    }


def put(stored: Path, into: Path) -> int:
    """Move a model directory into the package, with the checksums of its files."""
    files = sorted(path for path in stored.iterdir() if path.is_file())
    with atomic_dir.replace_dir(into) as new_folder:
        for path in files:
            atomic_dir.write_file(new_folder / path.name, path.read_bytes())
        Manifest("base/build.py").write(new_folder)
        size = sum(path.stat().st_size for path in new_folder.iterdir())
        if size > STORED_BYTES:
            raise OwnwordsError(
                f"the model takes {size / 1e6:.1f} MB, and may take {STORED_BYTES / 1e6:.0f} MB",
                hint="train a smaller one: --parameters",
            )
    return size


def curve(runs: Path, provenance: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return tokens and bits per byte of modern prose at each evaluation that led to the model."""
    last = provenance["run"]
    first = int(last.split("-")[1]) if "-" in last else 0
    tokens = provenance["outcome"]["tokens"] / max(1, provenance["outcome"]["steps"])
    marks: dict[int, float] = {}  # of a repeated step, the later one
    for name, begins, ends in (("flat", 0, first), (last, first, math.inf)):
        for step, bits in evaluations(runs / name / "metrics.jsonl"):
            if begins < step <= ends:
                marks[step] = bits
    return [(round(step * tokens), marks[step]) for step in sorted(marks)]


def evaluations(metrics: Path) -> Iterator[tuple[int, float]]:
    """Yield steps and bits per byte of a run's evaluations."""
    for line in metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else ():
        with suppress(ValueError):  # a line that was being written at a power failure
            event = json.loads(line)
            values = event.get("values", {}) if event["kind"] == "metric" else {}
            bits = values.get("validation_bits_per_byte")
            if bits is not None and event["stage"] == "train":
                yield int(values["step"]), bits


def card(
    model: bundle.Bundle,
    parameters: int,
    provenance: Mapping[str, Any],
    marks: Sequence[tuple[int, float]],
    samples: Sequence[str],
    credits: Sequence[str],
) -> str:
    """Return the model's README.md: what it is and is not, what it was made from, its scores."""
    config, outcome = model.config, provenance["outcome"]
    counts = provenance["texts"]
    summary = (
        f"A small language model that knows English: {number(parameters)} parameters"
        f" ({config.MODEL_TYPE}, {config.layers} layers of width {config.width},"
        f" {config.vocabulary:,} tokens, a context of {config.context:,}), trained from nothing"
        " with ownwords on old books and modern prose. It is there to be tuned to somebody's own"
        " writing, which alone would be too little to learn English from."
    )
    learned = (
        f"{counts['books']['bytes'] / 1e6:.0f} MB of books of the public domain, published in 1928"
        " or before (from the collection mlschmitt/classic-books-markdown), and of Python"
        " Enhancement Proposals, which are in the public domain, too;"
        f" {counts['modern']['bytes'] / 1e6:.0f} MB of prose written 1922 to 2026 under licences"
        " that allow it: blogs, essays, handbooks, textbooks, speeches. Nobody's private writing."
        " Books by G. K. Chesterton, H. D. Thoreau, R. W. Emerson, A. Bierce, J. K. Jerome, C. Lamb"
        " and W. Hazlitt were left out, so that ownwords can be tested on them, and whole sources"
        " were held out to test this model on; texts that share passages with any of these were"
        " not read."
    )
    trained = (
        f"{number(outcome['tokens'])} tokens in {outcome['steps']:,} steps,"
        f" {duration(outcome['seconds'])} of training."
    )
    if before := provenance["start"]:
        trained += (
            " It began with the weights of the base before it, which had read"
            f" {number(before['tokens'])} tokens in {duration(before['seconds'])}."
        )
    scores = "".join(score_row(name, scores) for name, scores in provenance["held_out"].items())
    samples_text = "".join(f"````text\n{sample.strip()}\n````\n\n" for sample in samples)
    chosen = "".join(
        f"| {name} | {str(value).replace('|', chr(92) + '|')} |\n"
        for section in (provenance["settings"], *provenance["recipe"].values())
        for name, value in section.items()
    )
    thanks = "".join(f"- {credit}\n" for credit in credits)
    return f"""---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
tags:
- ownwords
---

# The base of ownwords

{fill_lines(summary)}

## What it learned from

{fill_lines(learned)}

The weights are under the licence of ownwords, MIT. The texts are not part of the package.

## How good it is

Bits per byte of texts that it has never seen; fewer are better. The weights are those stored here,
in 8 bits, read in windows of {config.context:,} tokens. The interval is by whole texts.

| texts | bits per byte | 95% | the same packed with xz |
|---|---:|---|---:|
{scores}
{curve_section(marks)}{_SAMPLES_HEADING}

{len(samples)} texts begun from nothing, seeds 1 to {len(samples)}, as they came:

{samples_text}## What it is not

- It knows no facts. Names, dates and sums in what it writes are invented.
- It answers no questions and follows no instructions: it goes on with a text.
- Much of what it read is a century old, with the views and prejudices of that time.
- It is small: a sentence may hold where the thought does not.
- It knows English only.

## How it was trained

{fill_lines(trained)}

| setting | value |
|---|---|
{chosen}
`base/build.py` in the repository of ownwords makes it anew.
{f"{chr(10)}## Whose modern prose it read{chr(10)}{chr(10)}{thanks}" if thanks else ""}"""


def score_row(name: str, scores: Mapping[str, Any]) -> str:
    """Return a held-out part as a row of the card."""
    sure = "" if scores["low"] is None else f"{scores['low']:.3f} to {scores['high']:.3f}"
    size = f"{scores['texts']:,} texts, {scores['bytes'] / 1e6:.1f} MB"
    return (
        f"| {name}: {size} | **{scores['bits_per_byte']:.3f}** | {sure}"
        f" | {scores['xz_bits_per_byte']:.3f} |\n"
    )


def curve_section(marks: Sequence[tuple[int, float]]) -> str:
    """Return the section with the training curve, if it is known."""
    if not marks:
        return ""
    table = "".join(f"| {tokens:,} | {value:.3f} |\n" for tokens, value in thin_out(marks))
    head = "While it learned, on a part of the modern prose held out:"
    return f"{head}\n\n| tokens read | bits per byte |\n|---:|---:|\n{table}\n"


def fill_lines(paragraph: str) -> str:
    """Return a paragraph in lines of even length."""
    return textwrap.fill(paragraph, 98, break_long_words=False, break_on_hyphens=False)


def thin_out(marks: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return at most CURVE_ROWS of the marks, including the first and the last."""
    if len(marks) <= CURVE_ROWS:
        return list(marks)
    last = len(marks) - 1
    return [marks[round(i * last / (CURVE_ROWS - 1))] for i in range(CURVE_ROWS)]
