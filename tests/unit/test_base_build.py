"""base/build.py: texts into chapters, and what was trained into the package."""

import importlib.util
import json
import math
import random
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import torch

import small_bases
from ownwords.archive.advice import MeasuredBase, measured_base
from ownwords.archive.look import look
from ownwords.archive.settings import SplitConfig
from ownwords.archive.store import Archive
from ownwords.base import checks
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress
from ownwords.core.workspace import Workspace
from ownwords.evaluation import scorecard
from ownwords.evaluation.scores import DocumentScore, Score
from ownwords.models import bundle, registry
from ownwords.models.decoder import build as built
from ownwords.models.safetensors_header import read_header
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer
from ownwords.training import corpus
from unit import sample_card

BASE = Path(__file__).resolve().parents[2] / "base"
if not BASE.exists():
    pytest.skip("base/ is not part of this copy", allow_module_level=True)

PROVENANCE: dict[str, Any] = {
    "kind": "pretrain",
    "recipe": {"optim": {"kind": "muon", "muon_lr": 0.02, "learning_rate": 0.01}},
    "plan": [
        {
            "key": "train.batch_size",
            "value": 4,
            "reason": "a|b",
            "source": "here",
            "origin": "plan",
        },
        {
            "key": "model.context_length",
            "value": 9,
            "reason": "as you",
            "source": "",
            "origin": "setting",
        },
    ],
    "outcome": {
        "steps": 200,
        "best_step": 200,
        "tokens": 20_000,
        "seconds": 3600.0,
        "validation_bits_per_byte": 1.75,
    },
}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BASE / f"{name}.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found  # dataclasses look there
    spec.loader.exec_module(found)
    return found


build, publishing = module("build"), module("publishing")


def evaluation(step: int, **values: float) -> str:
    bits = {f"{name}_bits_per_byte": value for name, value in values.items()}
    event = {"stage": "train", "kind": "metric", "values": {"step": step, **bits}}
    return json.dumps(event) + "\n"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace as training leaves it: texts read, a model, and what was measured on the way."""
    root = tmp_path_factory.mktemp("base") / "base.ownwords"
    root.mkdir()
    words = [
        "".join(random.Random(n).choices("abcdefghiklmnoprstuvwy", k=4 + n % 5)) for n in range(900)
    ]
    documents = ""
    for number in range(14):
        rng = random.Random(1000 + number)
        name = f"peps/pep-{number:04d}.rst" if number % 7 == 3 else f"Somebody/Book {number}.md"
        parts = [
            f"## Chapter {chapter}\n\n" + " ".join(rng.choices(words, k=260)) + ".\n"
            for chapter in range(3)
        ]
        documents += f"\x1c{name}\n" + "\n".join(parts)
    (root.parent / "books.txt").write_text(documents, encoding="utf-8")
    folder = build.parted(root.parent / "books.txt", root.parent / "texts")
    look([folder], workspace=root, split=SplitConfig(validation=0.15, test=0.25))
    config = registry.config_from_json(
        {**small_bases.model().config.to_hf(), "max_position_embeddings": 4096}
    )
    model = built(config)
    model.init_weights(3)
    bundle.save(
        root / "model", model, ByteTokenizer(), provenance=PROVENANCE, generation={"top_k": 5}
    )
    wrong, right = root / "runs" / "pretrain-a", root / "runs" / "pretrain-b"
    for run in (wrong, right):
        run.mkdir(parents=True)
    (wrong / "metrics.jsonl").write_text(evaluation(200, validation=1.9))
    (right / "metrics.jsonl").write_text(
        json.dumps({"stage": "train", "kind": "start"})
        + "\n"
        + evaluation(100, validation=2.5)
        + evaluation(150, validation=9.0)
        + evaluation(150, validation=2.0, averaged=1.9)  # after a step back
        + evaluation(200, validation=1.8, averaged=1.75)
        + '{"stage": "tr'  # where the power went
    )
    return Workspace(root)


def publish(workspace: Workspace, into: Path) -> int:
    with Archive(workspace.archive) as archive:
        texts = corpus.load_corpus(archive)
        test = list(build.Chapters(archive, texts.test))
        size: int = publishing.publish(workspace, texts, test, into, Progress())
    return size


def test_texts_come_apart_into_files_and_chapters(workspace: Workspace) -> None:
    names = {path.name for path in (workspace.root.parent / "texts" / "books").iterdir()}
    assert "Book 0.md" in names and "pep-0003.md" in names and len(names) == 14
    with Archive(workspace.archive) as archive:
        texts = list(build.Chapters(archive, corpus.load_corpus(archive).train))
    # "Chapter 1" names nothing: each stands under the name of its book.
    titles = {one.text.partition("\n")[0] for one in texts}
    assert not any("Chapter" in title for title in titles)
    assert {re.sub(r"\D", "", title) for title in titles} <= {*map(str, range(14)), "0003", "0010"}
    assert {one.id.rpartition("#")[2] for one in texts} == {"0000", "0001", "0002"}


def test_what_is_published_is_whole_and_says_what_is_so(
    workspace: Workspace, tmp_path: Path
) -> None:
    into = tmp_path / "shipped"
    size = publish(workspace, into)
    assert size == sum(path.stat().st_size for path in into.iterdir())
    assert checks.verify(into) == []
    assert not (into / "copy-guard.safetensors").exists()
    tensors = read_header(into / "model.safetensors").values()
    assert {each.dtype for each in tensors} == {"BF16"}
    said = json.loads((into / "ownwords.json").read_text(encoding="utf-8"))
    assert said["recipe"] == PROVENANCE["recipe"]  # what tuning takes its rates from

    # By hand: each chapter in one piece, its end included, under the rounded weights.
    model = bundle.load(into, dtype=torch.float32).model
    tokenizer = ByteTokenizer()
    nats, count = 0.0, 0
    with Archive(workspace.archive) as archive, torch.no_grad():
        part = corpus.load_corpus(archive).test
        for one in build.Chapters(archive, part):
            ids = torch.tensor([tokenizer.start, *one.text.encode(), tokenizer.end])
            logits = model.logits(model(ids[None, :-1]))[0].double()
            chances = torch.log_softmax(logits, -1)
            nats -= float(chances[torch.arange(len(ids) - 1), ids[1:]].sum())
            count += len(one.text.encode())
        assert said["held_out"]["texts"] == len(part) > 1
    figure = nats / math.log(2) / count
    assert said["held_out"]["bits_per_byte"] == pytest.approx(figure, rel=1e-4)
    assert said["held_out"]["bytes"] == count
    assert said["held_out"]["low"] <= figure <= said["held_out"]["high"]

    card = (into / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: mit\n")
    plain = " ".join(card.split())
    for words in (
        f"**{figure:.3f} bits per byte**",
        "12 books of the public domain",
        "and 2 of the Python Enhancement Proposals",
        "| 10,000 | 2.500 |",
        "| 15,000 | 1.900 |",
        "| 20,000 | 1.750 |",
        "| train.batch_size | 4 | a\\|b | here |",
        "| model.context_length | 9 | set for this model | |",
        "seeds 1 to 6",
        "It knows no facts.",
    ):
        assert words in plain
    assert "9.000" not in card and "1.9 |" not in card
    assert card.count("````text") == 6


def test_what_is_too_large_is_not_published(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "STORED_BYTES", 10_000)
    with pytest.raises(OwnwordsError, match=r"may take 0 MB"):
        publish(workspace, tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


def test_the_chapters_of_a_book_are_one_witness() -> None:
    parts = [("a#0000", 1.0, 10), ("a#0001", 2.0, 20), ("b#1#0000", 4.0, 40)]
    score = Score(tuple(DocumentScore(name, nats, size, 3) for name, nats, size in parts))
    books = publishing.by_book(score)
    assert [(one.name, one.nats, one.bytes, one.tokens) for one in books.documents] == [
        ("a", 3.0, 30, 6),
        ("b#1", 4.0, 40, 3),
    ]
    assert books.bits_per_byte == score.bits_per_byte


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    marks = [(n, float(n)) for n in range(100)]
    found = publishing.thinned(marks)
    assert (found[0], found[-1], len(found)) == (marks[0], marks[-1], publishing.CURVE_ROWS)
    assert publishing.thinned(marks[:5]) == marks[:5]


def test_what_the_advice_quotes_comes_from_a_scorecard(tmp_path: Path) -> None:
    path = tmp_path / "scorecard.json"
    card = sample_card.good()
    path.write_text(json.dumps(card.to_dict()), encoding="utf-8")
    found = json.loads(publishing.measured(path, tmp_path, 10_000_000))
    rows = {row.name: row.bits for row in card.bits if row.kind == "static"}
    assert (found["base"], found["from_nothing"]) == (rows[scorecard.BASE], rows[scorecard.SCRATCH])
    assert found["tuned"] in rows.values()
    assert found["training_words"] == card.about.training_words
    assert msgspec.convert(found, MeasuredBase)
    # Without a new one the figures stay those that were measured.
    assert json.loads(publishing.measured(None, tmp_path, 1)) == msgspec.to_builtins(
        measured_base()
    )
