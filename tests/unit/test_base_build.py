"""base/: texts are cleaned and held-out ones kept apart, runs resume, releases are complete."""

import csv
import importlib
import itertools
import json
import math
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ownwords.base import catalogue
from ownwords.core.errors import ConfigError
from ownwords.core.progress import Progress
from ownwords.evaluation import scorecard
from ownwords.inference.export import export
from ownwords.inference.model import Model
from ownwords.models import bundle
from ownwords.models.safetensors_header import read_header
from ownwords.tokenizers import tokenizer as tokenizers
from ownwords.training import token_dataset
from unit import sample_card

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "base").exists() or not (ROOT / "bench").exists():
    pytest.skip("base/ and bench/ are not part of this copy", allow_module_level=True)

sys.path[:0] = [str(ROOT), str(ROOT / "base")]
build, mix, pretraining, publishing, texts = (
    importlib.import_module(name) for name in ("build", "mix", "pretraining", "publishing", "texts")
)
del sys.path[:2]

OPEN: list[Any] = []  # runs to be closed
STEPS = 6
SMALL: dict[str, float] = {"parameters": 200_000, "context": 32, "rows": 4}
_RNG = random.Random(5)
WORDS = ["".join(_RNG.choices("abcdefghiklmnoprstuvwy", k=4 + n % 5)) for n in range(900)]


def prose(seed: int, words: int = 260) -> str:
    """Sentences whose words no other seed puts in this order."""
    chosen = random.Random(seed).choices(WORDS, k=words)
    return " ".join(" ".join(chosen[i : i + 20]) + "." for i in range(0, words, 20))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base's folder whose texts are prepared."""
    root = tmp_path_factory.mktemp("base")
    books = ""
    for number in range(14):
        name = f"peps/pep-{number:04d}.rst" if number % 7 == 3 else f"Somebody/Book {number}.md"
        parts = [f"## Chapter {part}\n\n{prose(10 * number + part)}\n" for part in range(3)]
        books += f"\x1c{name}\n" + "\n".join(parts)
    books += f"\x1cG. K. Chesterton/Tales.md\n{prose(900)}\n"
    held_out = "".join(f"\x1cnobody/{n}\nHeld {n}\n\n{prose(500 + n)}" for n in range(5))
    modern = "".join(f"\x1csomeone/{n}\nPost {n}\n\n{prose(300 + n)}" for n in range(12))
    modern += f"\x1cthief/0\nStolen\n\n{prose(1000)}\n\n{prose(502)}\n\n{prose(1001)}"
    for name, text in (("books", books), ("modern", modern), ("held-out", held_out)):
        (root / f"{name}.txt").write_text(text, encoding="utf-8")
    (root / "blog").mkdir()
    (root / "blog" / "post.md").write_text(f"# Mine\n\n{prose(301)}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mix, "HELD_OUT", mix.SplitConfig(validation=0.15, test=0.25))
        mix.prepare(
            root / "run",
            books=[root / "books.txt"],
            modern=[root / "modern.txt"],
            held_out=root / "held-out.txt",
            apart=[root / "blog"],
            vocabulary=300,
            progress=Progress(),
        )
    return root / "run"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pretraining, "_STEPS", STEPS)
    monkeypatch.setattr(pretraining, "_WARMUP", 2)
    monkeypatch.setattr(pretraining, "_EVALUATE", 256)  # two steps
    monkeypatch.setattr(publishing, "REPLAY_TOKENS", 400)
    yield
    while OPEN:
        OPEN.pop().close()


def run_in(folder: Path, into: Path) -> Any:  # noqa: ANN401
    """A run on the texts of `folder` with its own checkpoints."""
    into.mkdir(exist_ok=True)
    for name in ("tokens", "tokenizer", "texts", "mix.json"):
        if not (into / name).exists():
            (into / name).symlink_to(folder / name)
    run = pretraining.Pretraining(into, pretraining.settings(into, SMALL), Progress())
    OPEN.append(run)
    return run


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A base's folder with a model in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "_STEPS", STEPS)
        patch.setattr(pretraining, "_WARMUP", 2)
        patch.setattr(pretraining, "_EVALUATE", 256)
        into = tmp_path_factory.mktemp("finished")
        run = run_in(folder, into)
        run.train()
        run.finish(384.0, 0.75, 64)
        yield into


def test_books_are_split_into_files_and_chapters(folder: Path) -> None:
    names = {path.name for path in (folder / "books.texts" / "books").iterdir()}
    assert "Book 0.md" in names and "pep-0003.md" in names
    assert len(names) == 14  # and nothing of Chesterton's
    read = [*texts.read(folder / "texts" / "books.txt")]
    read += texts.read(folder / "texts" / "test books.txt")
    # "Chapter 1" names nothing: each stands under the name of its book.
    assert not any("Chapter" in text.text.partition("\n")[0] for text in read)
    assert {text.id.rpartition("#")[2] for text in read} == {"0000", "0001", "0002"}


def test_texts_that_share_passages_with_held_out_texts_are_left_out(folder: Path) -> None:
    modern = {text.id for text in texts.read(folder / "texts" / "modern.txt")}
    assert "thief/0" not in modern  # has a paragraph of nobody/2
    assert "someone/1" not in modern  # is on the blog that is kept apart
    assert modern == {f"someone/{n}" for n in range(12)} - {"someone/1"}
    counts = mix.load(folder).counts
    assert counts["modern"]["share passages with held-out texts"] == 2
    hidden = texts.HeldOutCheck(
        text.text
        for name in ("test books", "held-out books", "held-out modern")
        for text in texts.read(folder / "texts" / f"{name}.txt")
    )
    for name in ("books", "modern"):
        shards = mix.load(folder).open(folder, name)
        tokenizer = mix.tokenizer(folder)
        for i in range(shards.documents):
            assert hidden.shared(tokenizer.decode(shards.document(i)[1:-1])) == 0
    assert hidden.shared(prose(502).upper().replace(".", " --")) > 3


def test_boilerplate_is_removed() -> None:
    cleaner = texts.Cleaner()
    same = "Subscribe to our newsletter and never miss a post from us again."
    documents = [(f"a/{n}", f"Title {n}\n\n{prose(n)}\n\n{same}") for n in range(4)]
    documents += [
        ("b/0", f"We are hiring an engineer\n\n{prose(20)}"),
        ("b/1", "Menu\n\n" + "\n\n".join(f"Item {n}" for n in range(90))),
        ("b/2", "Short\n\nA few words that make a sentence, and that is all there is to it."),
        ("b/3", f"How\n\nFirst install it. Then start it like this:\n\n{prose(21)}\n\nSee also:"),
        ("b/4", f"Kept\n\nThere are three of them:\n\nOne\n\nTwo\n\n{prose(22)}"),
    ]
    cleaned = {text.id: text.text for text in cleaner.cleaned(documents)}
    assert set(cleaned) == {"a/0", "a/1", "a/2", "a/3", "b/3", "b/4"}
    assert cleaned["a/2"] == f"Title 2\n\n{prose(2)}"
    assert cleaned["b/3"] == f"How\n\nFirst install it.\n\n{prose(21)}"
    assert "There are three of them:\n\nOne" in cleaned["b/4"]
    assert set(cleaner.counts) == {
        "kept",
        "boilerplate",
        "vacancies",
        "lists and tables",
        "too short",
        "dangling",
    }


def test_an_interrupted_run_resumes_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    class PowerCutError(Exception):
        pass

    through, broken = tmp_path / "through", tmp_path / "broken"
    run_in(folder, through).train()
    run, calls = run_in(folder, broken), itertools.count()

    def cut() -> None:
        if next(calls) == 14:  # in a step or an evaluation after the first ones
            raise PowerCutError

    run._background.give_way = cut
    with pytest.raises(PowerCutError):
        run.train()
    run_in(folder, broken).train()
    uninterrupted, resumed = (
        pretraining.Run.new(folder_of_run / "runs", "flat").checkpoints.load(STEPS)
        for folder_of_run in (through, broken)
    )
    for group, tensors in uninterrupted.groups.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, resumed.groups[group][name])
    with pytest.raises(ConfigError, match="rows = 4, not 8"):
        pretraining.settings(broken, {"rows": 8})
    other = run_in(folder, broken)
    other.mix.datasets["modern"] = other.mix.datasets["books"]
    with pytest.raises(ConfigError, match="began with other texts"):
        other.train()


def test_the_rate_decays_from_that_of_the_flat_run(finished: Path, folder: Path) -> None:
    (name,) = (path.name for path in (finished / "runs").iterdir() if path.name != "flat")
    assert name == f"finish-{STEPS}-3-0.75-64"
    metrics = [
        json.loads(line)
        for run in ("flat", name)
        for line in (finished / "runs" / run / "metrics.jsonl").read_text().splitlines()
    ]
    rates = {
        event["values"]["step"]: event["values"]["rate"]
        for event in metrics
        if "rate" in event.get("values", {})
    }
    peak = 0.02
    expected = [peak / 2, *[peak] * 6, peak * 2 / 3, peak / 3]
    assert {STEPS, 9} <= rates.keys()
    for step, rate in rates.items():
        assert rate == pytest.approx(expected[int(step) - 1])
    model = bundle.load(finished / "model")
    assert model.config.context == 64
    outcome = model.provenance["outcome"]
    assert isinstance(outcome, dict) and outcome["steps"] == 9
    # Another finish from the same checkpoint leaves the flat run as it was.
    assert pretraining.Run.new(finished / "runs", "flat").checkpoints.steps()[-1] == STEPS
    assert "held-out" not in (table := pretraining.curve_table(finished)) and "flat | 2 |" in table


def test_a_run_begins_with_the_weights_of_a_model(
    finished: Path, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "same").mkdir()
    run_in(folder, tmp_path / "same")
    source = bundle.load(finished / "model")
    state = source.model.state_dict()
    parameters = sum(parameter.numel() for parameter in source.model.parameters())
    assert pretraining.start_from(tmp_path / "same", finished / "model") == parameters
    run = run_in(folder, tmp_path / "same")
    for name, tensor in run._model(run.settings).state_dict().items():
        assert torch.equal(tensor, state[name])
    run.train()
    provenance = json.loads((run.finish(128.0, None, None) / "ownwords.json").read_bytes())
    first: Any = source.provenance["outcome"]
    assert provenance["start"] == {
        **{name: first[name] for name in ("tokens", "seconds")},
        "muon_lr": 0.02,  # tuning takes its rate from the highest
    }
    # A deeper model begins as the same function.
    deep = tmp_path / "deep"
    deep.mkdir()
    run_in(folder, deep)
    assert pretraining.start_from(deep, tmp_path / "same" / "model", 5) > parameters
    run = run_in(folder, deep)
    before = bundle.load(tmp_path / "same" / "model").model
    after, ids = run._model(run.settings), torch.arange(30)[None]
    torch.testing.assert_close(after.logits(after(ids)), before.logits(before(ids)))

    with pytest.raises(ConfigError, match="begun already"):
        pretraining.start_from(finished, finished / "model")


def test_the_published_base_is_complete_and_correctly_described(
    finished: Path, tmp_path: Path
) -> None:
    into, table = tmp_path / "shipped", tmp_path / "sources.tsv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file, delimiter="\t")
        rows.writerow(["repository", "licence", "attribution", "use"])
        rows.writerow(["a/b", "CC BY 4.0", "Somebody, b.example", "train"])
        rows.writerow(["c/d", "CC BY 4.0", "Nobody, d.example", "held out"])
    size = publishing.publish(finished, into, Progress(), table)
    assert size == sum(path.stat().st_size for path in into.iterdir())
    catalogue.check_usable(into)
    kinds = {name: tensor.dtype for name, tensor in read_header(into / "model.safetensors").items()}
    assert kinds["embedding.packed"] == "I8"
    provenance = json.loads((into / "ownwords.json").read_text(encoding="utf-8"))
    assert provenance["recipe"]["optim"]["muon_lr"] == 0.02  # what tuning takes its rates from

    assert provenance["text_licenses"] == ["CC BY 4.0"]

    # By hand: each chapter in one piece, its end included, under the rounded weights.
    model = bundle.load(into).model.float()
    tokenizer = tokenizers.load(into)
    nats, count = 0.0, 0
    chapters = list(texts.read(finished / "texts" / "test books.txt"))
    with torch.no_grad():
        for chapter in chapters:
            ids = torch.tensor([tokenizer.start, *tokenizer.encode(chapter.text), tokenizer.end])
            for begin in range(0, len(ids) - 1, 32):  # windows of 64 that slide by half
                window = ids[max(0, begin - 32) : begin + 33]
                logits = model.logits(model(window[None, :-1]))[0].double()
                scored = min(32, len(ids) - 1 - begin)
                log_probs = torch.log_softmax(logits, -1)
                nats -= float(log_probs[torch.arange(len(window) - 1), window[1:]][-scored:].sum())
            count += len(chapter.text.encode())
    figure = nats / math.log(2) / count
    books = provenance["held_out"]["test books"]
    assert books["bits_per_byte"] == pytest.approx(figure, rel=0.02)
    assert books["bytes"] == count
    assert books["texts"] == len({chapter.id.rpartition("#")[0] for chapter in chapters}) > 1
    assert books["low"] is None  # of fewer than five documents no range is given

    card = (into / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlicense: mit\n")
    plain = " ".join(card.split())
    for words in (
        f"**{books['bits_per_byte']:.3f}**",
        "held-out modern: 5 texts",
        "| 1,1",  # tokens at the end
        "| muon_lr | 0.02 |",
        "seeds 1 to 6",
        "- Somebody, b.example (https://github.com/a/b, CC BY 4.0)",
    ):
        assert words in plain
    assert "d.example" not in card
    assert card.count("````text") == 6
    assert token_dataset.read_replay(into / token_dataset.REPLAY)

    # It opens elsewhere: what is exported has the values of the codes.
    exported = export(into, "hf", out=tmp_path / "hf").path
    ids = torch.arange(20)[None]
    plain_model = bundle.load(exported).model
    torch.testing.assert_close(
        plain_model.logits(plain_model(ids)).float(), model.logits(model(ids)), atol=1e-4, rtol=1e-3
    )
    assert len(Model.load(into).write_several("", seeds=[1, 2], max_tokens=5)) == 2


def test_the_card_shows_what_tuning_gives(tmp_path: Path) -> None:
    path = tmp_path / "scorecard.json"
    card = sample_card.good()
    path.write_text(json.dumps(card.to_dict()), encoding="utf-8")
    shutil.copytree(catalogue.shipped(), tmp_path / "shipped")
    other = tmp_path / "other.json"
    alone = replace(card, bits=(replace(card.bits[0], bits=2.5),))
    other.write_text(json.dumps(alone.to_dict()), encoding="utf-8")
    publishing.put_tuned(path, other, tmp_path / "shipped")
    catalogue.check_usable(tmp_path / "shipped")
    rows = {row.name: row.bits for row in card.bits}
    figures = f"| 2.500 | {rows[scorecard.BASE]:.3f} | **{rows[scorecard.OURS]:.3f}** |"
    shown = (tmp_path / "shipped" / "README.md").read_text(encoding="utf-8")
    assert shown.count(figures) == shown.count("## Tuned to an author") == 1
    assert shown.index(figures) < shown.index("## What it writes")
    publishing.put_tuned(path, other, tmp_path / "shipped")  # once more: replaced, not added
    assert (tmp_path / "shipped" / "README.md").read_text(encoding="utf-8") == shown
