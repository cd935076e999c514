"""`ownwords tune` on the command line, with a fake training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")

from fake_training import FakeTraining
from ownwords.cli.main import main
from ownwords.training.checkpoint import Run
from ownwords.training.loop import TrainingInterrupted
from ownwords.training.plan import Plan
from ownwords.training.recipes import TrainedModel, TrainRequest

BLOG = str(Path(__file__).resolve().parents[2] / "examples" / "blog")
BARE = ["tune", BLOG, "--base", "none"]
TUNE = [*BARE, "--minutes", "0.3", "--each", "0.017"]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTraining:
    for name in [name for name in os.environ if name.startswith("OWNWORDS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return FakeTraining(monkeypatch)


def test_the_verdict_comes_first_and_the_settings_can_be_kept(
    play: FakeTraining, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(TUNE) == 0
    output = capsys.readouterr()
    text = " ".join(output.out.split())
    for words in (
        "is better than the plan",
        "95% interval",
        "the plan's own settings",
        "add to ownwords.toml in the workspace:",
        "[optim] muon_lr = ",
        "The model: blog.ownwords/model",
        "blog.ownwords/trials.html",
        "All trials: blog.ownwords/trials.csv",
    ):
        assert words in text
    assert max(map(len, output.out.splitlines())) <= 80
    assert "Trial 1 (the plan's own settings): 2." in output.err
    assert "There is time for about" in output.err
    assert "again, seed 2" in output.err
    # Kept as told, they are the user's own from then on.
    lines = [line.strip() for line in output.out.splitlines()]
    toml = "\n".join(line for line in lines if " = " in line or line.startswith("["))
    (tmp_path / "blog.ownwords" / "ownwords.toml").write_text(toml)
    assert main(["tune", BLOG, "--base", "none", "--quiet"]) == 2


def test_json_has_all_of_it(
    play: FakeTraining, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*TUNE, "--trials", "5", "--json", "--quiet", "--yes"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["verdict"]["kind"] == "better"
    assert len([trial for trial in figures["trials"] if trial["kind"] != "again"]) == 5
    assert figures["trials"][0]["kind"] == "plan"
    assert figures["settings"]["optim.muon_lr"] > 0.02
    assert "[optim]" in figures["toml"]
    assert Path(figures["model"]) == tmp_path / "blog.ownwords" / "model"
    assert Path(figures["table"]).exists()
    assert Path(figures["page"]).exists()
    assert figures["sentences"]
    assert {axis["name"] for axis in figures["ranges"]} == {"rate", "memory", "dropout", "size"}


def test_an_interrupt_says_how_to_resume(
    play: FakeTraining, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = play.train

    def interrupted(plan: Plan, run: Run, work: TrainRequest) -> TrainedModel:
        trained = train(plan, run, work)
        if len(play.works) == 3:
            raise TrainingInterrupted("stopped after step 7 of 9; everything is saved")
        return trained

    monkeypatch.setattr(play, "train", interrupted)
    assert main([*TUNE, "--quiet"]) == 130
    assert "everything is saved" in capsys.readouterr().err
    assert main([*TUNE, "--quiet"]) == 0
    assert play.works[2].fixed == play.works[3].fixed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune"], "ownwords tune needs a PATH"),
        (["tune", "nowhere", "--base", "none"], "nowhere"),
        ([*BARE, "--minutes", "0"], "--minutes should be more than 0, and is 0"),
        ([*BARE, "--minutes", "nan"], "--minutes should be more than 0, and is nan"),
        ([*BARE, "--minutes", "1e99"], "--minutes should be 10,000,000 at most"),
        ([*BARE, "--each", "0"], "--each should be more than 0, and is 0"),
        ([*BARE, "--each", "16"], "too few for two trials of 16 minutes"),
        ([*BARE, "--trials", "1"], "--trials should be 2 or more, and is 1"),
        (["tune", BLOG, "--base", "nobody"], "there is no base called nobody"),
        ([*BARE, "--set", "optim.learningrate=1"], "did you mean optim.learning_rate?"),
    ],
)
def test_impossible_requests_are_one_sentence(
    arguments: list[str], message: str, play: FakeTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, *([] if arguments == ["tune"] else ["--quiet"])]) == 2
    assert message in capsys.readouterr().err.splitlines()[0]


def test_a_damaged_record_is_reported(
    play: FakeTraining, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*TUNE, "--quiet"]) == 0
    (record,) = (tmp_path / "blog.ownwords" / "tune").glob("*.json")
    for damaged in ("Dear Sir,", '{"trials": [{"number": "one"}]}'):
        record.write_text(damaged)
        assert main([*TUNE, "--quiet"]) == 2
        assert str(record.relative_to(tmp_path)) in capsys.readouterr().err


@pytest.mark.parametrize(("missing", "extra"), [("torch", "train"), ("optuna", "train,tune")])
def test_a_missing_package_is_one_sentence(missing: str, extra: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from ownwords.cli.main import main; sys.exit(main({TUNE!r}))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert process.returncode == 2, process.stderr
    first, hint = process.stderr.splitlines()
    assert "which is not installed" in first
    assert hint == f'hint: pip install "ownwords[{extra}]"'
