"""A model is made stage by stage, and unchanged stages are not repeated."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ownwords
import tiny_make
from ownwords.archive.report import Report
from ownwords.base import catalogue
from ownwords.core import hardware
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.core.progress import Event, Progress
from ownwords.core.workspace import resolve_model
from ownwords.evaluation.scorecard import BASE, Scorecard
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.inference import model as inference_model
from ownwords.make import pipeline
from ownwords.make.stages import (
    FirstParagraph,
    MakeCallbacks,
    MakeRequest,
    MakeResult,
    TrainingSummary,
    find_base,
)
from ownwords.models.directory import model_fingerprint
from ownwords.training import recipes
from ownwords.training.plan import Plan


class Listener(MakeCallbacks):
    """Records the callbacks in order."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.text: list[str] = []

    def on_read(self, report: Report, seconds: float) -> None:
        self.messages.append("read")

    def on_notice(self, label: str, text: str) -> None:
        said = {"Language": "in a new language", "Scoring": "scores"}
        self.messages.append(said.get(label, text))

    def on_planned(self, plan: Plan, base: str) -> None:
        self.messages.append(f"planned from {base or 'nothing'}")

    def on_trained(self, trained: TrainingSummary, seconds: float | None) -> None:
        self.messages.append("trained" if seconds else "was trained")

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        self.text = list(pieces)
        self.messages.append("writes")

    def on_scored(self, card: Scorecard, seconds: float | None) -> None:
        self.messages.append("scored" if seconds else "was scored")


ALL = [
    "read",
    "planned from model",
    "trained",
    "writes",
    "scores",
    "scored",
]
NONE = ["read", "was trained", "writes", "was scored"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiny_make.skip_measurements(monkeypatch, tmp_path_factory.getbasetemp())


def never_asked() -> bool:
    raise AssertionError("a stage chooses a device of its own")


@pytest.fixture(scope="session")
def first_make(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], MakeResult]:
    """A blog, a base, and the result of making them once; read-only."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        tiny_make.skip_measurements(patch, tmp_path_factory.getbasetemp())
        tiny_make.write_blog(folder / "blog")
        tiny_make.train_base(folder / "base")
        # The device of the request is that of every stage.
        patch.setattr(inference_model, "has_driver", never_asked)
        patch.setattr(torch.cuda, "is_available", never_asked)
        listener = Listener()
        result = pipeline.make(tiny_make.make_request(folder), callbacks=listener)
    return folder, listener.messages, result


@pytest.fixture
def made_folder(first_make: tuple[Path, list[str], MakeResult], tmp_path: Path) -> Path:
    """A writable copy of `first_make`."""
    shutil.copytree(first_make[0], tmp_path / "made")
    return tmp_path / "made"


def make_again(folder: Path, **more: object) -> tuple[list[str], MakeResult]:
    listener = Listener()
    result = pipeline.make(tiny_make.make_request(folder, **more), callbacks=listener)
    return listener.messages, result


def without_training(patch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing was to be trained")

    patch.setattr(recipes, "plan_finetuning", never)
    patch.setattr(recipes, "plan_pretraining", never)


def test_every_stage_reports_and_writes_its_files(
    first_make: tuple[Path, list[str], MakeResult],
) -> None:
    folder, messages, result = first_make
    assert messages == ALL
    assert result.is_new
    workspace = folder / "w"
    assert result.model == workspace / "model"
    assert result.report_page.exists()
    assert result.scorecard_page.read_text("utf-8").lower().startswith("<!doctype html>")
    assert result.scorecard is not None
    assert result.scorecard.about.test_posts > 0
    assert result.scorecard.row(BASE)
    assert result.trained.before is not None
    assert result.trained.bits_per_byte is not None
    assert result.trained.bits_per_byte <= result.trained.before
    assert result.trained.steps == 16
    assert resolve_model(workspace, folder) == workspace / "model"


def test_the_paragraph_continues_a_title_the_model_never_read(
    first_make: tuple[Path, list[str], MakeResult],
) -> None:
    _, _, result = first_make
    title = result.paragraph.title
    (post,) = [post for post in result.report.posts if post.title == title]
    assert post.split == "test"
    text = "".join(ownwords.load(result.model).write(f"{title}\n\n", max_tokens=300, seed=1))
    assert result.paragraph.text
    assert text.strip().startswith(result.paragraph.text)


def test_a_second_make_does_nothing(made_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_training(monkeypatch)
    messages, result = make_again(made_folder)
    assert messages == NONE
    assert not result.is_new
    assert result.scorecard is not None
    assert result.to_dict()["paragraph"]["text"] == result.paragraph.text


def test_the_best_installed_base_is_chosen_and_kept(
    made_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_training(monkeypatch)
    folder = made_folder / "base" / "model"
    installed = catalogue.entry("gemma3-270m", folder)
    monkeypatch.setattr(catalogue, "entries", lambda: [installed])
    memory: dict[str, float] = {"available_bytes": 8e9}
    monkeypatch.setattr(hardware, "read_memory", lambda: SimpleNamespace(**memory))
    messages, result = make_again(made_folder, base="")
    assert messages == ["read", messages[1], *NONE[1:]]
    assert messages[1].startswith("From Gemma 3 270M in 10 min, reading your texts ")
    assert result.trained.before is not None
    memory["available_bytes"] = 1e9  # what is free now does not change what was chosen
    assert make_again(made_folder, base="")[0] == messages


def break_config(base: Path) -> None:
    (base / "config.json").write_text("{}")


def swap_tokens(base: Path) -> None:
    """Swap two tokens in a tokenizer file, which keeps its size."""
    path = base / "tokenizer.json"
    data = path.read_bytes()
    swapped = data.replace(b"<|turn|>", b"<|x|>").replace(b"<|title|>", b"<|turn|>")
    path.write_bytes(swapped.replace(b"<|x|>", b"<|title|>"))
    assert path.read_bytes() != data


@pytest.mark.parametrize(
    ("damage", "message"),
    [(break_config, "model_type"), (swap_tokens, "is not the one that the model was saved with")],
)
def test_a_damaged_base_is_refused_before_the_texts_are_read(
    damage: Callable[[Path], None], message: str, made_folder: Path, tmp_path: Path
) -> None:
    damage(made_folder / "base" / "model")
    with pytest.raises(OwnwordsError, match=message):
        make_again(made_folder, workspace=tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_an_unusable_gpu_is_reported_once_and_all_stages_use_the_cpu(
    made_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ones = torch.ones

    def ones_on(*size: Any, **how: Any) -> torch.Tensor:  # noqa: ANN401 - as torch.ones
        if how.get("device") == "cuda":
            raise RuntimeError("CUDA error: no kernel image is available")
        return ones(*size, **how)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(inference_model, "has_driver", lambda: True)
    monkeypatch.setattr(torch, "ones", ones_on)
    monkeypatch.setattr(hardware, "_noted", set())
    notes: list[str] = []

    def listen(event: Event) -> None:
        if "no kernel image" in event.message:
            notes.append(event.message)

    listener = Listener()
    request = tiny_make.make_request(made_folder, device="auto", workspace=made_folder / "new")
    pipeline.make(request, progress=Progress(listen), callbacks=listener)
    assert listener.messages == ALL
    assert len(notes) == 1 and "is not used" in notes[0]
    assert not caplog.messages


def test_new_posts_are_reported_and_the_model_retrained_from_the_base(made_folder: Path) -> None:
    old = made_folder / "w" / "runs" / make_again(made_folder)[1].trained.run
    # A finished run keeps its log and plan, but not its checkpoints.
    assert (old / "plan.toml").exists()
    assert not (old / "checkpoints").exists()
    tiny_make.write_post(made_folder / "blog", 24)
    fixed = {**tiny_make.SMALL, "train.steps": 12}
    messages, result = make_again(made_folder, minutes=2.0, fixed=fixed)
    assert messages[1].startswith(
        "Since the last model here: 25 posts instead of 24, a different time limit,"
        " different settings."
    )
    assert messages[2:] == ALL[1:]
    assert (result.trained.posts, result.trained.steps) == (25, 12)
    assert make_again(made_folder, minutes=2.0, fixed=fixed)[0] == NONE


def test_only_missing_results_are_rebuilt(
    made_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model_fingerprint(made_folder / "w" / "model")
    shutil.rmtree(made_folder / "w" / "model")
    messages, result = make_again(made_folder)
    assert messages == ["read", "planned from model", "trained", *NONE[2:]]
    assert model_fingerprint(result.model) == before
    without_training(monkeypatch)
    result.scorecard_page.write_text("mine")
    assert make_again(made_folder)[0] == [*NONE[:-1], "scores", "scored"]
    assert result.scorecard_page.read_text("utf-8") != "mine"
    (made_folder / "w" / "report.html").unlink()
    assert make_again(made_folder)[0] == NONE
    assert (made_folder / "w" / "report.html").exists()


def test_a_dry_run_trains_nothing(made_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    shutil.copytree(made_folder / "blog", tmp_path / "new" / "blog")
    request = tiny_make.make_request(tmp_path / "new", base=str(made_folder / "base" / "model"))
    plan = pipeline.plan(request)
    assert plan.recipe.train.steps == 16
    assert not (tmp_path / "new" / "w" / "model").exists()
    assert pipeline.plan(tiny_make.make_request(made_folder)).recipe == plan.recipe


def test_time_spent_on_a_question_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stops while the author is asked."""
    tiny_make.write_blog(tmp_path / "blog")
    words = " ".join(f"word{(k * k) % 977}" for k in range(9000))
    (tmp_path / "blog" / "long.md").write_text(f"---\ntitle: A long one\n---\n\n{words}\n")
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    times: list[float | None] = []

    def pretrain(_: object, __: object, work: recipes.TrainRequest) -> None:
        times.append(work.began)
        raise CorpusError("enough")

    monkeypatch.setattr(recipes, "plan_pretraining", pretrain)

    def ask(question: object) -> str:
        clock[0] += 50
        return "leave out"

    request = MakeRequest([tmp_path / "blog"], tmp_path / "w", base="none")
    with pytest.raises(CorpusError, match="enough"):
        pipeline.make(request, ask=ask, began=90.0)
    assert times == [90.0 + clock[0] - 100.0]
    assert clock[0] > 100


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"minutes": 0.0}, "--minutes must be more than 0"),
        ({"minutes": float("inf")}, "--minutes must be at most 10,000,000"),
        ({"base": "nowhere"}, "there is no base called nowhere"),
        ({"fixed": {"train.batch_sise": 4}}, r"did you mean train\.batch_size\?"),
        ({"fixed": {"train.dropout": 2}}, "train.dropout"),
    ],
)
def test_impossible_requests_are_refused_immediately(
    more: dict[str, object], message: str, tmp_path: Path
) -> None:
    tiny_make.write_blog(tmp_path / "blog", posts=8)
    (tmp_path / "base").mkdir()
    with pytest.raises(OwnwordsError, match=message):
        pipeline.make(tiny_make.make_request(tmp_path, **{"base": "none", **more}))


def test_too_little_text_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "blog").mkdir()
    (tmp_path / "blog" / "a.md").write_text(" ".join(f"word{n}" for n in range(1_900)))
    listener = Listener()
    with pytest.raises(CorpusError, match=r"too little text to train on: 1,900 words"):
        pipeline.make(tiny_make.make_request(tmp_path, base="none"), callbacks=listener)
    assert listener.messages == ["read"]
    assert not (tmp_path / "w" / "model").exists()


def test_concurrent_makes_do_not_interfere(made_folder: Path) -> None:
    class Second(MakeCallbacks):
        def on_trained(self, trained: TrainingSummary, seconds: float | None) -> None:
            pipeline.make(tiny_make.make_request(made_folder))

    with pytest.raises(OwnwordsError, match="another ownwords is making a model in"):
        pipeline.make(tiny_make.make_request(made_folder), callbacks=Second())


class InterruptingCallbacks(MakeCallbacks):
    def __init__(self, at: str) -> None:
        self._at = at

    def on_read(self, report: Report, seconds: float) -> None:
        self._stop("read")

    def on_planned(self, plan: Plan, base: str) -> None:
        self._stop("planned")

    def on_writing(self, title: str, pieces: Iterator[str]) -> None:
        next(pieces)
        self._stop("writes")

    def _stop(self, now: str) -> None:
        if now == self._at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("read", "the texts are read and stored; the same command continues from there"),
        ("planned", "the same command resumes"),
        ("writes", "your model is finished, in .*model; the same command resumes with the rest"),
    ],
)
def test_an_interrupt_reports_what_is_saved(
    at: str, message: str, first_make: tuple[Path, list[str], MakeResult], tmp_path: Path
) -> None:
    request = tiny_make.make_request(first_make[0], workspace=tmp_path / "w", minutes=1.0)
    with pytest.raises(KeyboardInterrupt, match=message):
        pipeline.make(request, callbacks=InterruptingCallbacks(at))


def test_from_python(made_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[MakeRequest] = []

    monkeypatch.setattr(pipeline, "make", requests.append)
    ownwords.make_model(
        str(made_folder / "blog"), base=made_folder / "base" / "model", workspace="x"
    )
    assert (requests[0].resolved_minutes, requests[0].workspace) == (4, Path("x"))
    assert find_base(requests[0].base) == made_folder / "base" / "model"
    assert find_base("none") is None


def test_cached_results_need_no_heavy_imports(made_folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from math import inf\n"
        "from pathlib import Path\n"
        "from ownwords.evaluation.scoring import ScoreConfig\n"
        "from ownwords.make import pipeline\n"
        "from ownwords.make.stages import MakeRequest\n"
        f"order = MakeRequest([Path({str(made_folder / 'blog')!r})],\n"
        f"    workspace=Path({str(made_folder / 'w')!r}),\n"
        f"    minutes=10.0, base={str(made_folder / 'base' / 'model')!r}, device='cpu',\n"
        f"    fixed={tiny_make.SMALL!r}, scoring={tiny_make.SMALL_SCORING!r})\n"
        "print(pipeline.make(order).is_new)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.returncode) == ("False\n", 0), process.stderr


def test_samples_are_shorter_where_writing_is_slow(tmp_path: Path) -> None:
    tiny_make.write_blog(tmp_path / "blog")
    run = pipeline.MakeRun(
        MakeRequest([tmp_path / "blog"], workspace=tmp_path / "w", minutes=4.0), None, None, None
    )
    lengths = []
    for seconds in (0.0, 10.0, 2000.0):
        run.cache.put("write", {}, FirstParagraph("A title", "word " * 100), seconds)
        lengths.append(run._score_config.max_tokens)
    assert lengths[0] == ScoreConfig().max_tokens > lengths[1] > lengths[2] > 0
