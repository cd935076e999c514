"""`pretrain` and `finetune` on the command line, with a fake training."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import large_vocabulary
from ownwords.archive.corpus import TrainingText
from ownwords.base import trimming
from ownwords.cli.main import main
from ownwords.training import recipes
from ownwords.training.checkpoint import Run
from ownwords.training.loop import TrainOutcome
from ownwords.training.plan import Forecast, Plan, PlannedValue
from ownwords.training.recipes import PlannedTraining, TrainRequest
from ownwords.training.run import Evaluation
from ownwords.training.trained_model import TrainedModel

BLOG = str(Path(__file__).resolve().parents[2] / "examples" / "blog")

PLAN = Plan(
    reasons=(
        PlannedValue("train.steps", 333, "that fills the time", "measured here", "measured"),
        PlannedValue(
            "optim.learning_rate", 0.008, "in a model of this width", "docs/log.md", "plan"
        ),
        PlannedValue("train.gradient_checkpointing", False, "", "", "plan"),
        PlannedValue("train.batch_size", 4, "as you set it", "setting", "setting"),
    ),
    expected=Forecast(
        bits_low=2.0,
        bits_high=2.5,
        seconds=60.0,
        tokens=1000,
        epochs=8.0,
        memory_bytes=10**8,
        tokens_per_s=5000.0,
        held_out_bytes=3000,
    ),
)
OUTCOME = TrainOutcome(
    steps=300,
    stopped="early",
    best_step=200,
    bits_per_byte=2.25,
    evaluations=(
        Evaluation(100, 2.75),
        Evaluation(200, 2.25),
        Evaluation(300, 2.6),
    ),
    tokens=27,
    seconds=12.5,
    rollbacks=1,
    micro_batch_size=4,
)


class Play:
    """Stands in for the recipes and records their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work: TrainRequest
        self.texts: list[TrainingText] = []
        self.held_out: list[TrainingText] = []
        self.base: Path | None = None
        self.by_lora: bool | None = False
        self.pairs: Sequence[TrainingText] = ()
        monkeypatch.setattr(recipes, "plan_pretraining", self.pretrain)
        monkeypatch.setattr(recipes, "plan_finetuning", self.finetune)
        monkeypatch.setattr(
            "ownwords.cli.training._write_samples", lambda *_: ["It rained.\nAgain."]
        )

    def pretrain(
        self, train: Iterable[TrainingText], held_out: Iterable[TrainingText], work: TrainRequest
    ) -> PlannedTraining:
        self.work, self.texts, self.held_out = work, list(train), list(held_out)
        return PlannedTraining(PLAN, Run(work.workspace / "runs" / "r"), lambda: self.train(work))

    def train(self, work: TrainRequest, share: float = 1.0) -> TrainedModel:
        with work.progress.stage("train", 300, "steps") as stage:
            stage.advance(300)
            stage.metric(step=300, bits_per_byte=2.5)
        judged = ("Bits per byte: 2.250, expected 2.00 to 2.50: as expected.",)
        run = Run(work.workspace / "runs" / "r")
        return TrainedModel(work.folder, run, PLAN, OUTCOME, 2.25, judged, share)

    def finetune(
        self,
        base: Path,
        train: Iterable[TrainingText],
        held_out: Iterable[TrainingText],
        work: TrainRequest,
        *,
        pairs: Sequence[TrainingText],
        adapter: Path | None,
        by_lora: bool | None,
    ) -> PlannedTraining:
        self.base, self.by_lora, self.pairs = base, by_lora, pairs
        planned = self.pretrain(train, held_out, work)
        return replace(planned, train=lambda: self.train(work, share=0.7))


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    for name in [name for name in os.environ if name.startswith("OWNWORDS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "base").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "base" / name).touch()
    return Play(monkeypatch)


def test_the_plan_and_then_the_result_are_printed(
    play: Play, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["pretrain", BLOG]) == 0
    output = capsys.readouterr()
    for words in (
        "The plan",
        "that fills the time (measured here)",
        "as you set it",
        "2.00 to 2.50 bits per byte on held-out texts",
        "2.250 bits per byte on held-out posts",
        "as expected",
        "Training ended early: more steps no longer helped",
        "from step 200",
        "training went back to a checkpoint",
        "“It rained. Again.”",
        "blog.ownwords/model --to gguf",
    ):
        assert words in " ".join(output.out.split()) or words in output.out
    assert max(map(len, output.out.splitlines())) <= 80
    assert "training: 300 steps, done in" in output.err
    assert play.work.workspace == tmp_path / "blog.ownwords"
    assert play.work.seconds == 600
    assert play.work.fixed == {}


def test_training_and_held_out_texts_come_from_the_archive(play: Play) -> None:
    assert main(["pretrain", BLOG, "--workspace", "w", "--quiet"]) == 0
    assert len(play.texts) > 30
    assert len(play.held_out) > 3
    assert not {text.id for text in play.texts} & {text.id for text in play.held_out}
    assert 0.7 < play.work.own_share < 1
    assert play.work.corpus


def test_user_settings_are_fixed_whatever_their_source(play: Play, tmp_path: Path) -> None:
    (tmp_path / "ownwords.toml").write_text("[optim]\nlearning_rate = 0.001\n")
    arguments = ["--set", "train.batch_size=4", "--set", "archive.drafts=true", "--minutes", "0.5"]
    assert main(["pretrain", BLOG, "--quiet", "--device", "cpu", *arguments]) == 0
    assert play.work.fixed == {"train.batch_size": 4, "optim.learning_rate": 0.001}
    assert (play.work.seconds, play.work.device) == (30, "cpu")


def test_json_has_all_figures_in_one_object(
    play: Play, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["pretrain", BLOG, "--json", "--out", "mine"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bits_per_byte"] == 2.25
    assert figures["model"] == "mine"
    assert figures["outcome"]["evaluations"][1]["bits_per_byte"] == 2.25
    assert figures["plan"][0]["key"] == "train.steps"
    assert figures["expected"]["seconds"] == 60
    assert figures["recipe"]["optim"]["kind"] == "muon"
    assert figures["samples"] == ["It rained.\nAgain."]


def test_a_dry_run_trains_nothing(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", BLOG, "--plan"]) == 0
    output = capsys.readouterr()
    assert "What to expect" in output.out
    assert "training" not in output.err
    assert main(["pretrain", BLOG, "--plan", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {"plan", "recipe", "expected"}


def test_a_base_is_tuned(play: Play) -> None:
    arguments = ["finetune", BLOG, "--base", "./base", "--no-trim", "--quiet"]
    assert main(arguments) == 0
    assert play.base == Path("base")
    assert play.by_lora is None
    assert main([*arguments, "--lora"]) == 0
    assert play.by_lora


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_base_learns_to_write_from_notes(
    play: Play, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    monkeypatch.setattr("ownwords.base.catalogue.is_large", lambda _: is_large)
    assert main(["finetune", BLOG, "--base", "./base", "--no-trim", "--quiet"]) == 0
    assert bool(play.pairs) == is_large
    assert all(pair.prompt.endswith("Text:\n") for pair in play.pairs)


def test_a_base_with_a_large_vocabulary_is_trimmed(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "SMALL", 100)
    large_vocabulary.write(tmp_path / "large")
    arguments = ["finetune", BLOG, "--base", "./large", "--quiet", "--workspace", "w.ownwords"]
    assert main([*arguments, "--no-trim"]) == 0
    assert play.base == Path("large")
    assert main(arguments) == 0
    assert play.base == Path("w.ownwords/runs/trimmed/large")
    assert json.loads((play.base / "ownwords.json").read_bytes())["trimmed"]["tokens"] < 600


@pytest.mark.parametrize(
    ("rank", "local_rank", "reads"), [(0, 0, True), (1, 1, False), (8, 0, True)]
)
def test_of_several_processes_one_on_each_machine_reads_and_only_the_first_speaks(
    rank: int,
    local_rank: int,
    reads: bool,
    play: Play,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ownwords.archive import look
    from ownwords.training import distributed

    assert main(["look", BLOG, "--quiet"]) == 0
    capsys.readouterr()
    calls: list[object] = []
    monkeypatch.setattr(look, "look", lambda *_, **__: calls.append(1))
    for name in ("barrier", "close"):
        monkeypatch.setattr(distributed.World, name, lambda _: None)
    monkeypatch.setattr(distributed.World, "broadcast", lambda _, value: value)
    world = distributed.World(rank, 16, local_rank)
    monkeypatch.setattr(distributed, "init_distributed", lambda *_: world)
    assert main(["pretrain", BLOG]) == 0
    assert len(calls) == reads
    assert bool("".join(capsys.readouterr())) == (rank == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", BLOG, "--minutes", "0"], "--minutes must be more than 0, not 0"),
        (["finetune", BLOG, "--base", "bass"], "there is no base called bass"),
        (
            ["finetune", BLOG, "--base", "./base", "--set", "lora.rank=-1"],
            "lora.rank must be a whole number of at least 0",
        ),
    ],
)
def test_an_invalid_request_is_one_sentence(
    arguments: list[str], message: str, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err.splitlines()[0]
