"""The search over trainings, with a fake one; and once with real, tiny ones."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")

from fake_training import FakeTraining, score_of
from ownwords.archive import corpus
from ownwords.archive.corpus import Corpus, TextCollection, TrainingText
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.core.errors import ConfigError, CorpusError, InUseError, OwnwordsError
from ownwords.core.progress import Event, Progress
from ownwords.make import result as searches
from ownwords.models import bundle
from ownwords.models.directory import PROVENANCE
from ownwords.training import throughput
from ownwords.training.recipes import TrainRequest
from ownwords.tune.tuning import TuneRequest, TuneResult, tune

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"
ORDER = TuneRequest(minutes=0.3, each_s=1.0)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    workspace = tmp_path_factory.mktemp("blog") / "w"
    look([BLOG], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as opened:
        yield opened


@pytest.fixture
def texts(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """The texts of the sample blog; reading a test post is an error."""
    loaded = corpus.load_corpus(archive)
    assert len(loaded.test)
    return replace(loaded, test=replace(loaded.test, texts=Unreadable()))


class Unreadable:
    """Test posts, which the search must not look at."""

    def __iter__(self) -> Iterator[TrainingText]:
        raise AssertionError("a test post is read")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    monkeypatch.setattr("os.fsync", lambda _: None)  # there are many files
    return FakeTraining(monkeypatch)


def run_tuning(
    folder: Path,
    texts: Corpus,
    play: FakeTraining,
    order: TuneRequest = ORDER,
    fixed: Mapping[str, object] = {},
    base: Path | None = None,
    progress: Progress | None = None,
) -> TuneResult:
    folder.mkdir(exist_ok=True)
    work = TrainRequest(
        folder,
        order.trial_s,
        fixed,
        progress or Progress(),
        device="cpu",
        corpus=texts.key,
        began=play.now,
    )
    return tune(texts, work, order, base=base)


# --- what is trained ------------------------------------------------------------------------------


def test_trial_1_is_exactly_the_plan(tmp_path: Path, texts: Corpus, play: FakeTraining) -> None:
    result = run_tuning(tmp_path, texts, play, fixed={"train.batch_size": 4, "train.seed": 9})
    assert play.works[0].fixed == {"train.batch_size": 4, "train.seed": 9}
    assert play.works[0].seconds == ORDER.trial_s == 1.0
    assert result.trials[0].kind == "plan"
    assert result.trials[0].figures["settings"] == {}
    repeats = [
        work for work in play.works[1:] if work.fixed.keys() == {"train.batch_size", "train.seed"}
    ]
    assert [work.fixed["train.seed"] for work in repeats] == [10, 11, 12]
    assert all(work.fixed["train.batch_size"] == 4 for work in play.works)


def test_steps_that_a_trial_sets_must_fit_its_time_and_the_users_own_need_not(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    run_tuning(tmp_path / "one", texts, play)
    assert play.works
    assert all(work.ends_in_time for work in play.works)
    play.works.clear()
    run_tuning(tmp_path / "two", texts, play, fixed={"train.steps": 50})
    assert play.works
    assert not any(work.ends_in_time for work in play.works)


def test_test_posts_are_never_read(texts: Corpus, tmp_path: Path, play: FakeTraining) -> None:
    """`texts` fails if one is read; this asserts that the others are."""
    run_tuning(tmp_path, texts, play)
    assert {text.id for text in play.texts} == {text.id for text in texts.train}
    assert {text.id for text in play.held_out} == {text.id for text in texts.validation}
    with pytest.raises(AssertionError, match="a test post is read"):
        list(texts.test)


def test_the_winner_becomes_the_workspace_s_model_and_other_files_are_deleted(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    result = run_tuning(tmp_path, texts, play)
    verdict = result.verdict
    assert verdict.kind == "better"
    assert result.model == tmp_path / "model"
    scores = [
        trial.score
        for trial in result.trials
        if verdict.winner in (trial.number, trial.repeats) and trial.score is not None
    ]
    assert score_of(tmp_path / "model") == min(scores)
    tune_record = json.loads((tmp_path / "model" / PROVENANCE).read_text())["tune"]
    assert tune_record["outcome"].endswith(" fewer bits per byte than the plan")
    assert sorted(path.suffix for path in tmp_path.glob("tune/*")) == ["", ".json"]
    assert list(tmp_path.glob("runs/*/checkpoints")) == []
    assert len(list(tmp_path.glob("runs/*/plan.toml"))) == len(result.trials)
    assert "rate" in result.toml
    assert result.settings["optim.muon_lr"] == pytest.approx(0.04, rel=0.6)
    assert json.dumps(dict(result.settings))


def test_if_the_plan_was_best_its_model_is_kept(
    tmp_path: Path, texts: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = FakeTraining(monkeypatch, best=0.02)
    result = run_tuning(tmp_path, texts, play)
    assert result.verdict.kind == "plan"
    assert result.toml == ""
    assert score_of(tmp_path / "model") == pytest.approx(2.0, abs=0.001)


def test_the_winner_can_be_kept_apart(tmp_path: Path, texts: Corpus, play: FakeTraining) -> None:
    result = run_tuning(tmp_path, texts, play, TuneRequest(minutes=0.3, each_s=1.0, keep=True))
    assert not (tmp_path / "model").exists()
    assert result.model.parent.parent == tmp_path / "tune"
    assert score_of(result.model) < 2.2
    assert len(list(tmp_path.glob("tune/*/*/config.json"))) == 1


def test_a_better_model_of_the_same_texts_stays(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    model = tmp_path / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / PROVENANCE).write_text(json.dumps({"corpus": texts.key, "score": 1.0}))
    result = run_tuning(tmp_path, texts, play)
    assert score_of(model) == 1.0
    assert "is better (1.000 bits per byte" in result.note
    assert result.model is not None and result.model != model
    # Of other texts it says nothing about these.
    (model / PROVENANCE).write_text(json.dumps({"corpus": "others", "score": 1.0}))
    request = TuneRequest(minutes=0.3, each_s=1.1)
    assert run_tuning(tmp_path, texts, play, request).model == model
    assert score_of(model) > 1.9


def test_other_files_are_not_replaced(tmp_path: Path, texts: Corpus, play: FakeTraining) -> None:
    (tmp_path / "model").mkdir(parents=True)
    (tmp_path / "model" / "thesis.txt").write_text("mine")
    with pytest.raises(OwnwordsError, match="is not replaced, as it holds files"):
        run_tuning(tmp_path, texts, play)
    assert (tmp_path / "model" / "thesis.txt").read_text() == "mine"


def test_an_impossible_training_is_a_failed_trial(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    play.refuses = "train.dropout"
    result = run_tuning(tmp_path, texts, play)
    failed = [trial for trial in result.trials if trial.state == "failed"]
    assert failed
    assert failed[0].error == "too large for this machine"
    assert result.model == tmp_path / "model"
    assert list(tmp_path.glob("runs/*/checkpoints")) == []


def test_if_every_trial_fails_the_reason_is_reported(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    play.refuses = "train.seed"
    with pytest.raises(OwnwordsError, match="none of 8 trials could be trained: too large"):
        run_tuning(tmp_path, texts, play)


def test_without_held_out_posts_tuning_is_refused(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    none = Corpus(texts.train, TextCollection.read([]), texts.test, 1.0, "k")
    with pytest.raises(CorpusError, match="no post is held out"):
        run_tuning(tmp_path, none, play)


def test_with_every_setting_fixed_tuning_is_refused(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    fixed = {
        "optim.learning_rate": 0.1,
        "optim.weight_decay": 0.1,
        "train.dropout": 0.1,
        "model.parameters": 100_000,
    }
    with pytest.raises(ConfigError, match="your settings leave nothing to search"):
        run_tuning(tmp_path, texts, play, fixed=fixed)


# --- what is written ------------------------------------------------------------------------------


def test_the_table_and_the_page_are_updated_after_each_trial(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    rows: list[int] = []

    def watch(event: Event) -> None:
        if event.kind == "note" and event.message.startswith("Trial "):
            with (tmp_path / "trials.csv").open() as file:
                rows.append(len(list(csv.DictReader(file))))
            assert "The search is running" in (tmp_path / "trials.html").read_text()

    result = run_tuning(tmp_path, texts, play, progress=Progress(watch))
    assert rows[:5] == [1, 2, 3, 4, 5]
    assert len(rows) == len(result.trials)
    with (tmp_path / "trials.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["tokens"] for row in table] == ["1000"] * len(rows)
    page = (tmp_path / "trials.html").read_text()
    assert result.verdict.sentences()[0] in page


def test_the_same_command_reports_the_same_result(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    result = run_tuning(tmp_path, texts, play)
    count = len(play.works)
    second = run_tuning(tmp_path, texts, play)
    assert len(play.works) == count
    assert second.verdict == result.verdict
    assert second.model == result.model
    assert second.note == ""
    # Other minutes are another search.
    run_tuning(tmp_path, texts, play, TuneRequest(minutes=0.3, each_s=1.1))
    assert len(play.works) > count


def test_a_base_with_other_weights_gets_its_own_search(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    """Name and file sizes do not tell: those of any retrained base are the same."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text("{}")
    for weights, searches_there in ((b"one weight", 1), (b"two weight", 2), (b"one weight", 2)):
        (base / "model.safetensors").write_bytes(weights)
        run_tuning(tmp_path / "w", texts, play, base=base)
        assert len(list((tmp_path / "w" / "tune").glob("*.json"))) == searches_there


def test_one_process_searches_in_a_workspace_at_a_time(
    tmp_path: Path, texts: Corpus, play: FakeTraining
) -> None:
    def search_too(event: Event) -> None:
        if event.message.startswith("Trial 1 "):
            with pytest.raises(InUseError):
                run_tuning(tmp_path, texts, play)

    run_tuning(tmp_path, texts, play, progress=Progress(search_too))


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
    order = TuneRequest(minutes=20, each_s=60.0, trials=2)
    work = TrainRequest(tmp_path, 60.0, fixed, device="cpu", corpus="key")
    result = tune(small_corpus, work, order)
    tried = result.trials
    assert [trial.state for trial in tried] == ["done"] * 8
    assert [trial.kind for trial in tried] == ["plan", "search", *["again"] * 6]
    # The same on the same seed again, and something else with another.
    scores = {(trial.repeats or trial.number, trial.seed): trial.score for trial in tried}
    assert len(set(scores.values())) == 8
    assert tried[0].figures["steps"] == 6
    model = bundle.load(tmp_path / "model")
    assert model.provenance["tune"]
    assert result.verdict.kind in ("better", "plan")
    best = [
        trial.score for trial in tried if result.verdict.winner in (trial.number, trial.repeats)
    ]
    outcome = model.provenance["outcome"]
    assert isinstance(outcome, dict)
    measured = outcome["validation_bits_per_byte"]
    assert measured == pytest.approx(min(score for score in best if score), rel=1e-3)
    assert not list(tmp_path.glob("runs/*/checkpoints"))
    # `ownwords make` takes it for what it would have made of the same.
    wanted = {"texts": "key", "base": "", "settings": repr(sorted(fixed.items()))}
    there = searches.find_tuned_model(tmp_path / "model", wanted, posts=14)
    assert there is not None
    assert there.trained.bits_per_byte == measured
    assert there.trained.steps == 6
    assert (tmp_path / "runs" / there.trained.run).is_dir()
    for name in wanted:
        assert (
            searches.find_tuned_model(tmp_path / "model", {**wanted, name: "other"}, posts=14)
            is None
        )


def numbered(text: str, times: int, numbers: Iterable[int]) -> TextCollection:
    return TextCollection.read([TrainingText(f"t{i}", text.format(i) * times) for i in numbers])
