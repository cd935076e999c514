"""`ownwords tune`: the search over trainings, with a fake one; and once with real, tiny ones."""

import csv
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")

from fake_training import FakeTraining, make_fake_plan
from ownwords.archive import corpus
from ownwords.archive.corpus import Corpus, TextCollection, TrainingText
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.cli.main import main
from ownwords.core.errors import ConfigError, CorpusError, InUseError
from ownwords.core.progress import Event, Progress
from ownwords.training import throughput
from ownwords.training.checkpoint import Run
from ownwords.training.loop import TrainingInterrupted
from ownwords.training.plan import Plan
from ownwords.training.recipes import TrainedModel, TrainRequest
from ownwords.training.settings_search import (
    TuneResult,
    judge,
    search_axes,
    sentences,
    settings_for,
    settings_toml,
    trials_view,
    tune,
)
from ownwords.view import html

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"
BARE = ["tune", str(BLOG), "--base", "none"]
TUNE = [*BARE, "--minutes", "0.3"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    workspace = tmp_path_factory.mktemp("blog") / "w"
    look([BLOG], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as opened:
        yield opened


@pytest.fixture
def texts(archive: Archive) -> Corpus:
    """The texts of the sample blog; reading a test post is an error."""
    loaded = corpus.load_corpus(archive)
    assert len(loaded.test)
    return replace(loaded, test=replace(loaded.test, texts=Unreadable()))


class Unreadable:
    """Test posts, which the search must not look at."""

    def __iter__(self) -> Iterator[TrainingText]:
        raise AssertionError("a test post is read")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTraining:
    monkeypatch.setattr("os.fsync", lambda _: None)  # there are many files
    for name in [name for name in os.environ if name.startswith("OWNWORDS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return FakeTraining(monkeypatch)


def search(
    folder: Path,
    texts: Corpus,
    play: FakeTraining,
    fixed: Mapping[str, object] = {},
    seconds: float = 18.0,
    base: Path | None = None,
    progress: Progress | None = None,
) -> TuneResult:
    folder.mkdir(exist_ok=True)
    request = TrainRequest(
        folder, 1.0, fixed, progress or Progress(), "cpu", corpus=texts.key, began=play.now
    )
    return tune(texts, request, seconds, base=base)


def test_the_plan_comes_first_and_the_best_is_repeated_beside_it(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    fixed = {"train.batch_size": 4, "train.seed": 9}
    result = search(tmp_path / "w", texts, play, fixed)
    assert play.works[0].fixed == fixed
    assert [work.fixed["train.seed"] for work in play.works] == [9] * 12 + [10, 10, 11, 11, 12, 12]
    assert len(result.trials) == 18  # as many as there is time for
    again = [work.fixed for work in play.works[12:]]
    assert all(each.keys() == fixed.keys() for each in again[::2])
    assert again[1] == {**again[3], "train.seed": 10}
    best = play.works[result.verdict.best - 1].fixed
    assert again[1] == {**best, "train.seed": 10}
    assert result.verdict.is_better
    assert result.settings["optim.muon_lr"] == pytest.approx(0.04, rel=0.6)
    assert json.dumps(dict(result.settings))
    assert {text.id for text in play.texts} == {text.id for text in texts.train}
    assert {text.id for text in play.held_out} == {text.id for text in texts.validation}
    assert not list((tmp_path / "w" / "runs").iterdir())
    assert not (tmp_path / "w" / "model").exists()


def test_the_plan_wins_where_it_is_best(
    tmp_path: Path, texts: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = search(tmp_path / "w", texts, FakeTraining(monkeypatch, best=0.02))
    assert not result.verdict.is_better
    assert (result.settings, result.toml) == ({}, "")


def test_steps_that_a_trial_sets_must_fit_its_time_and_the_users_own_need_not(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    search(tmp_path / "one", texts, play)
    assert all(work.ends_in_time for work in play.works)
    play.works.clear()
    search(tmp_path / "two", texts, play, {"train.steps": 50})
    assert play.works
    assert not any(work.ends_in_time for work in play.works)


def test_a_stopped_search_ends_as_it_would_have(
    tmp_path: Path, texts: Corpus, play: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = search(tmp_path / "calm", texts, play)
    train, stops = play.train, [3, 14]
    count = 0

    def stopped(plan: Plan, run: Run, request: TrainRequest) -> TrainedModel:
        nonlocal count
        count += 1
        if count in stops:
            raise TrainingInterrupted("stopped")
        return train(plan, run, request)

    monkeypatch.setattr(play, "train", stopped)
    for _ in stops:
        with pytest.raises(TrainingInterrupted):
            search(tmp_path / "w", texts, play)
    result = search(tmp_path / "w", texts, play)
    assert result.verdict == replace(calm.verdict, best=result.verdict.best)
    assert result.settings == calm.settings
    assert [row["bits_per_byte"] for row in result.trials] == [
        row["bits_per_byte"] for row in calm.trials
    ]
    trained = len(play.works)
    assert search(tmp_path / "w", texts, play).verdict == result.verdict
    assert len(play.works) == trained


def test_an_impossible_training_is_a_failed_trial_and_the_plans_own_an_error(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    play.refuses = "train.dropout"
    result = search(tmp_path / "w", texts, play)
    errors = [row["error"] for row in result.trials]
    assert "too large for this machine" in errors
    assert not (tmp_path / "w" / "runs" / "x").exists()
    only = judge([2.0], 0, [])
    assert not only.is_better
    assert sentences(only)
    play.refuses = "train.seed"
    with pytest.raises(ConfigError, match="too large for this machine"):
        search(tmp_path / "other", texts, play)


def test_an_impossible_search_is_refused(tmp_path: Path, texts: Corpus, play: FakeTraining) -> None:
    none = Corpus(texts.train, TextCollection.read([]), texts.test, 1.0, "k")
    with pytest.raises(CorpusError, match="no post is held out"):
        search(tmp_path / "w", none, play)
    fixed = {
        "optim.learning_rate": 0.1,
        "optim.weight_decay": 0.1,
        "train.dropout": 0.1,
        "model.parameters": 100_000,
    }
    with pytest.raises(ConfigError, match="leave nothing to search"):
        search(tmp_path / "w", texts, play, fixed)


def test_a_base_with_other_weights_gets_its_own_search(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    """Name and file sizes do not tell: those of any retrained base are the same."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text("{}")
    for weights, searches_there in ((b"one weight", 1), (b"two weight", 2), (b"one weight", 2)):
        (base / "model.safetensors").write_bytes(weights)
        search(tmp_path / "w", texts, play, seconds=8, base=base)
        assert len(list((tmp_path / "w" / "tune").glob("*.journal"))) == searches_there


def test_the_table_and_the_page_are_written_after_each_trial(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    rows: list[int] = []

    def watch(event: Event) -> None:
        if event.kind == "note" and event.message.startswith("Trial "):
            with (tmp_path / "w" / "trials.csv").open() as file:
                rows.append(len(list(csv.DictReader(file))))
            assert "The search is running" in (tmp_path / "w" / "trials.html").read_text()
            if len(rows) == 1:
                with pytest.raises(InUseError):
                    search(tmp_path / "w", texts, play)

    result = search(tmp_path / "w", texts, play, progress=Progress(watch))
    assert rows == list(range(1, 19))
    assert sentences(result.verdict)[0] in result.page.read_text("utf-8")
    hostile = '<script>alert("x")</script>'
    row = {**result.trials[0], "error": hostile, "bits_per_byte": None}
    assert "<script" not in html.document(trials_view(hostile, [row], None, hostile))


# --- what is searched and how it is judged --------------------------------------------------------


def test_values_are_multiples_of_the_plans_or_shares() -> None:
    plan = make_fake_plan({"optim.weight_decay": 1.0, "model.parameters": 100_000})
    axes = search_axes(plan, {}, 60.0, has_base=False)
    assert [axis.name for axis in axes] == ["rate", "dropout", "decay", "size"]
    same = {axis.name: axis.plan for axis in axes}
    assert settings_for(plan, axes, same) == {}
    values = {**same, "rate": 2.0, "size": 0.5, "dropout": 0.123}
    assert settings_for(plan, axes, values) == {
        "optim.muon_lr": 0.04,
        "optim.learning_rate": 0.01,
        "model.parameters": 50_000,
        "train.dropout": 0.12,
    }
    replayed = make_fake_plan({"data.replay": 0.3, "train.steps": 100})
    tuned = search_axes(replayed, {"optim.muon_lr": 1.0}, 100.0, has_base=True)
    assert [axis.name for axis in tuned] == ["dropout", "readings", "replay"]
    assert tuned[1].high == 2.0  # twice the plan's 50 s fit
    values = {"dropout": 0.004, "readings": 0.3, "replay": 0.5}
    chosen = settings_for(replayed, tuned, values)
    assert chosen == {"train.dropout": 0.0, "train.steps": 30, "data.replay": 0.5}
    assert settings_toml(chosen).startswith("[data]")
    assert "\n# steps = 30" in settings_toml(chosen)


def test_false_gains_are_rare_and_large_ones_are_found() -> None:
    drawn = np.random.default_rng(5)
    found = {0.0: 0, 0.02: 0}
    for gain in found:
        for _ in range(400):
            plan = drawn.normal(1.5, 0.003, 4)
            best = drawn.normal(1.5 * (1 - gain), 0.003, 3)
            verdict = judge(plan.tolist(), 2, best.tolist())
            assert verdict.low is not None and verdict.high is not None
            assert verdict.low < statistics.fmean((verdict.low, verdict.high)) < verdict.high
            found[gain] += verdict.is_better
    assert found[0.0] < 20  # 2.5% by design
    assert found[0.02] == 400
    assert judge([1.5], 2, []).gain is None


# --- on the command line --------------------------------------------------------------------------


def test_the_settings_can_be_kept(
    play: FakeTraining, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(TUNE) == 0
    output = capsys.readouterr()
    text = " ".join(output.out.split())
    for words in ("95% interval", "[optim] muon_lr = ", "blog.ownwords/trials.csv"):
        assert words in text
    assert max(map(len, output.out.splitlines())) <= 80
    assert "Trial 1 (the plan's own settings): 2." in output.err
    lines = [line.strip() for line in output.out.splitlines()]
    toml = "\n".join(line for line in lines if " = " in line or line.startswith("["))
    trained = len(play.works)
    assert main([*TUNE, "--json", "--quiet", "--yes"]) == 0
    assert len(play.works) == trained
    figures = json.loads(capsys.readouterr().out)
    assert figures["sentences"]
    assert figures["trials"][0]["bits_per_byte"] > 1
    assert Path(figures["page"]).exists()
    assert figures["toml"].replace("\n\n", "\n") == toml
    # Kept as told, they are the user's own from then on, and leave nothing to search for.
    (tmp_path / "blog.ownwords" / "ownwords.toml").write_text(toml)
    assert main([*TUNE, "--quiet"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune"], "ownwords tune needs a PATH"),
        (["tune", "nowhere", "--base", "none"], "nowhere"),
        ([*BARE, "--minutes", "0"], "--minutes should be more than 0, and is 0"),
        (["tune", str(BLOG), "--base", "nobody"], "there is no base called nobody"),
    ],
)
def test_impossible_requests_are_one_sentence(
    arguments: list[str], message: str, play: FakeTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, *([] if arguments == ["tune"] else ["--quiet"])]) == 2
    assert message in capsys.readouterr().err.splitlines()[0]


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


# --- for once in earnest --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*lr_scheduler")
def test_real_trainings_can_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import families

    assert families.TINY  # one thread
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        throughput, "measure_speeds", lambda device, *_, **__: throughput.assumed_speeds(device)
    )
    fixed = {
        "model.parameters": 40_000,
        "model.context_length": 32,
        "train.batch_size": 8,
        "train.steps": 6,
        "train.evaluations": 2,
        "train.precision": "float32",
    }
    mat = "The cat number {} sat on the mat and sang. "
    small_corpus = Corpus(
        train=numbered(mat, 8, range(12)),
        validation=numbered(mat, 4, (40, 41)),
        test=numbered("", 0, ()),
        own_share=1.0,
        key="key",
    )
    request = TrainRequest(tmp_path, 3.0, fixed, device="cpu", corpus="key")
    result = tune(small_corpus, request, 24.0)
    scores = [row["bits_per_byte"] for row in result.trials]
    assert len(scores) >= 2  # more on a quiet machine
    assert len(set(scores)) == len(scores)
    assert all(1 < float(str(score)) < 9 for score in scores)


def numbered(text: str, times: int, numbers: Iterable[int]) -> TextCollection:
    return TextCollection.read([TrainingText(f"t{i}", text.format(i) * times) for i in numbers])
