"""`ownwords score` on the command line."""

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import small_bases
from ownwords.archive.look import look
from ownwords.base import catalogue
from ownwords.cli.main import main
from ownwords.evaluation import scoring
from ownwords.evaluation.scorecard import read_scorecard
from ownwords.inference import model as inference_model
from ownwords.models import bundle
from ownwords.tokenizers.bpe import ByteTokenizer

SMALL = partial(scoring.ScoreConfig, passages=8, seeds=2, prompts=1, max_tokens=40, base_samples=1)


def save(folder: Path, **provenance: object) -> Path:
    network = small_bases.model(seed=len(provenance) + 1)
    bundle.save(folder, network, ByteTokenizer(), provenance=provenance)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that holds a model, in the current folder."""
    blog = tmp_path / "blog"
    blog.mkdir()
    for number in range(12):
        rng = random.Random(number)
        words = " ".join(f"word{rng.randrange(200)}" for _ in range(240))
        (blog / f"post{number}.md").write_text(f"# Post {number}\n\n{words}.\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scoring, "ScoreConfig", SMALL)
    monkeypatch.setattr(scoring, "Lexicon", SimpleNamespace(load=lambda: None, of=lambda _: None))
    foreign = SimpleNamespace(vocabulary=SimpleNamespace(words=("ja", "nein")))
    monkeypatch.setattr(scoring, "ReferenceAuthors", SimpleNamespace(of=lambda _: foreign))
    look([blog], workspace=tmp_path / "blog.ownwords")
    save(tmp_path / "blog.ownwords" / "model")
    return tmp_path


def test_the_card_is_written_and_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--quiet"]) == 0
    output = capsys.readouterr().out
    card = read_scorecard(here / "blog.ownwords")
    assert card is not None
    assert card.verdict.sentence in output
    assert "scorecard.html" in output
    assert "trained from scratch" in output
    page = (here / "blog.ownwords" / "scorecard.html").read_text("utf-8")
    assert card.verdict.sentence in page
    assert main(["score", "blog.ownwords", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdicts"][0]["kind"] == card.verdict.kind
    assert result["about"]["judged_posts"] > 0


def test_the_named_device_scores(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> bool:
        raise AssertionError("another device was chosen")

    monkeypatch.setattr(inference_model, "has_driver", never)
    assert main(["score", "--quiet", "--device", "cpu"]) == 0
    save(here / "blog.ownwords" / "model", another="model")
    assert main(["score", "--quiet", "--device", "cuda:99"]) == 2
    assert "no device 'cuda:99'" in capsys.readouterr().err


def test_the_model_is_compared_with_the_given_base_or_its_own(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save(here / "base", kind="pretrain")
    assert main(["score", "--base", str(base), "--json", "--quiet"]) == 0
    assert "Its base" in capsys.readouterr().out
    monkeypatch.setattr(catalogue, "_SHIPPED_FOLDER", base)
    save(here / "blog.ownwords" / "model", base_name="shipped", kind="finetune")
    assert main(["score", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["about"]["base"] == "the built-in model"
    assert main(["score", "--base", "none", "--json", "--quiet"]) == 0
    assert "Its base" not in capsys.readouterr().out


AGAIN = """
import sys
from functools import partial
from types import SimpleNamespace
from ownwords.cli.main import main
from ownwords.evaluation import scoring
scoring.ScoreConfig = partial(scoring.ScoreConfig, **{small!r})
scoring.Lexicon = SimpleNamespace(load=lambda: None)
scoring.ReferenceAuthors = SimpleNamespace(of=lambda _: None)
status = main(["score", "--quiet"])
sys.exit("torch was imported" if "torch" in sys.modules else status)
"""


def test_a_cached_card_is_shown_without_torch(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--quiet"]) == 0
    first = capsys.readouterr().out
    code = AGAIN.format(small=SMALL.keywords)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=here, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == first


def of_another_version(here: Path) -> None:
    with closing(sqlite3.connect(here / "blog.ownwords" / "archive.sqlite")) as database:
        database.execute("PRAGMA user_version = 2")


@pytest.mark.parametrize(
    ("prepare", "arguments", "sentence", "hint"),
    [
        (
            lambda here: (here / "blog.ownwords" / "archive.sqlite").unlink(),
            ["score"],
            "has no posts to score the model on",
            "--workspace",
        ),
        (
            lambda here: save(here / "blog.ownwords" / "model", base_name="elsewhere"),
            ["score"],
            "was fine-tuned from elsewhere, which is not installed",
            "--base none",
        ),
        (of_another_version, ["score"], "made by another version", "ownwords look PATH"),
        (lambda here: None, ["score", "--base", "shiped"], "no base called shiped", "base"),
        (lambda here: None, ["score", "nowhere"], "nowhere does not exist", "folder of a model"),
    ],
)
def test_obstacles_are_reported(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Path], object],
    arguments: list[str],
    sentence: str,
    hint: str,
) -> None:
    prepare(here)
    assert main([*arguments, "--quiet"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert sentence in error
    assert hint in error
