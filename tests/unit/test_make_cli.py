"""`make` and `chat` on the command line, with a fake pipeline."""

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ownwords.archive.report import PostSummary, Report, ReportTotals, SourceSummary, SplitCounts
from ownwords.base.catalogue import SHIPPED_TITLE
from ownwords.cli.main import main
from ownwords.cli.make import MakeView
from ownwords.cli.write import WritingOptions, talk
from ownwords.core.progress import Progress
from ownwords.inference.text_generation import DEFAULT_SAMPLING
from ownwords.make import pipeline
from ownwords.make.stages import (
    FirstParagraph,
    MakeCallbacks,
    MakeRequest,
    MakeResult,
    TrainingSummary,
)
from ownwords.training.plan import Forecast, Plan, PlannedValue
from unit import sample_card

BLOG = str(Path(__file__).resolve().parents[2] / "examples" / "blog")
TRAINED = TrainingSummary(
    key="k",
    run="finetune-1",
    parameters=8_100_000,
    steps=400,
    epochs=6.0,
    stopped="done",
    bits_per_byte=1.534,
    before=1.812,
    judged=("Time: 3 min, expected 3 min.",),
    posts=53,
)
CARD = sample_card.good()
PLAN = Plan(
    reasons=(PlannedValue("train.steps", 400, "that fills the time", "measured here", "measured"),),
    expected=Forecast(1.5, 1.9, 182.0, 10**6, 6.0, 10**8, 5000.0, 1000),
)
REPORT = Report(
    "The Hundred Steps",
    "",
    "",
    "",
    sources=[SourceSummary("examples/blog", "a Publii site")],
    totals=ReportTotals(posts=53, pages=1, own_words=31_535, first_day="2017-02-12"),
    posts=[
        PostSummary(
            "1",
            "What it says in the night",
            "",
            "",
            "post",
            6171,
            74,
            share=0.1,
            flags=["dump"],
            decision="leave out",
            reason="a machine wrote it",
        )
    ],
    split=SplitCounts(posts={"train": 43, "validation": 5, "test": 6}),
)
TEXT = ["The gutter ", "was full, and so was I. It had rained for nine days, ", "or ten."]


class FakePipeline:
    """Stands in for the pipeline and records its requests."""

    def __init__(self, folder: Path) -> None:
        self.orders: list[MakeRequest] = []
        self.wants_questions: list[bool] = []
        self.fails: BaseException | None = None
        self.base = SHIPPED_TITLE
        self.title = "The gutter in March"
        self.result = MakeResult(
            workspace=folder / "blog.ownwords",
            model=folder / "blog.ownwords" / "model",
            report=REPORT,
            trained=TRAINED,
            paragraph=FirstParagraph(self.title, "".join(TEXT)),
            scorecard=CARD,
            seconds={"train": 182.0},
            is_new=True,
        )

    def make(
        self,
        order: MakeRequest,
        *,
        progress: Progress,
        ask: object,
        callbacks: MakeCallbacks,
        began: float | None,
    ) -> MakeResult:
        assert began is not None
        self.orders.append(order)
        self.wants_questions.append(ask is not None)
        callbacks.on_read(REPORT, 0.6)
        callbacks.on_planned(PLAN, self.base)
        if self.fails:
            raise self.fails
        callbacks.on_trained(TRAINED, 178.0)
        callbacks.on_writing(self.title, iter(TEXT))
        callbacks.on_notice("Scoring", "The model predicts held-out posts.")
        callbacks.on_scored(CARD, 24.0)
        return self.result

    def plan(self, order: MakeRequest, **_: object) -> Plan:
        self.orders.append(order)
        return PLAN


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePipeline:
    for name in [name for name in os.environ if name.startswith("OWNWORDS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    fake_pipeline = FakePipeline(tmp_path)
    monkeypatch.setattr(pipeline, "make", fake_pipeline.make)
    monkeypatch.setattr(pipeline, "plan", fake_pipeline.plan)
    return fake_pipeline


def test_each_stage_is_a_line_and_the_end_lists_the_files(
    play: FakePipeline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["make", BLOG, "--base", "none"]) == 0
    output = capsys.readouterr().out
    text = " ".join(re.sub(r" +[\d.]+ (s|min)$", "", output, flags=re.MULTILINE).split())
    for words in (
        "The Hundred Steps",
        "31,535 words of your own in 53 posts and 1 page, 2017.",
        "Left out “What it says in the night”. A machine wrote it.",
        "5 texts to choose the best checkpoint, 6 to judge the model. It is"
        " trained on the other 43.",
        "fine-tuned from the built-in model: 3 min, reading your texts 6.0 times.",
        "1.53 bits per byte on held-out posts; the base had 1.81.",
        "Your post “The gutter in March” was held out. From its title alone, the model writes:",
        "The gutter was full, and so was I.",
        "but its texts make no sense. Read blind",
        "Your model blog.ownwords/model",
        "Its scorecard blog.ownwords/scorecard.html",
        "ownwords chat --model blog.ownwords",
    ):
        assert words in text
    assert text.count("Bits per byte say") == 1
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    (read,) = [line for line in lines if line.startswith("  Read ")]
    assert read.endswith("0.6 s")
    order = play.orders[0]
    assert (order.base, order.minutes, order.workspace) == (
        "none",
        None,
        tmp_path / "blog.ownwords",
    )
    assert order.fixed == {}
    assert play.wants_questions == [False]


@pytest.mark.parametrize("width", [40, 200])
def test_on_any_terminal_no_line_is_wider(width: int, play: FakePipeline) -> None:
    stream = io.StringIO()
    view = MakeView(Console(file=stream, width=width, color_system=None, legacy_windows=False))
    play.make(MakeRequest([]), progress=Progress(), ask=None, callbacks=view, began=0.0)
    view.show_result(play.result)
    # Paths and commands are to be copied, and stay whole.
    summary, _, _ = stream.getvalue().partition("  Where things are")
    assert max(len(line) for line in summary.splitlines()) <= min(width, 108)
    assert "A model this small" in summary


def test_json_is_one_object_and_quiet_says_no_stages(
    play: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make", BLOG, "--base", "none", "--json", "--minutes", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["trained"]["bits_per_byte"] == 1.534
    assert figures["paragraph"]["title"] == "The gutter in March"
    assert figures["scorecard"]["verdicts"][0]["kind"] == "writes like you"
    assert play.orders[0].minutes == 2
    assert main(["make", BLOG, "--base", "none", "--quiet"]) == 0
    output = capsys.readouterr().out
    assert "  Read  " not in output
    assert "The gutter was full" in " ".join(output.split())
    assert "Where things are" in output


def test_the_plan_in_full_is_all_that_plan_shows(
    play: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make", BLOG, "--base", "none", "--plan"]) == 0
    output = capsys.readouterr().out
    assert "that fills the time" in output
    assert "The gutter" not in output
    assert main(["make", BLOG, "--base", "none", "--plan", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"plan", "recipe", "expected"}


def test_settings_of_the_user_reach_the_order(play: FakePipeline, tmp_path: Path) -> None:
    (tmp_path / "ownwords.toml").write_text("[archive]\ndrafts = true\n")
    arguments = ["--set", "train.batch_size=4", "--set", "split.test=0.3", "--workspace", "w"]
    assert main(["make", BLOG, "--base", "none", "--quiet", *arguments]) == 0
    order = play.orders[0]
    assert order.fixed == {"train.batch_size": 4}
    assert order.reading.archive.drafts
    assert order.reading.split.test == 0.3
    assert order.workspace == Path("w")


def test_without_held_out_posts_nothing_is_claimed(
    play: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    play.result = replace(play.result, scorecard=None)
    assert main(["make", BLOG, "--base", "none", "--quiet", "--open"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "the quality is unknown" in output
    assert "scorecard.html" not in output


def test_the_page_is_opened_only_where_asked(
    play: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[str] = []
    monkeypatch.setattr("ownwords.cli.make.open_browser", pages.append)
    assert main(["make", BLOG, "--base", "none", "--quiet"]) == 0
    assert pages == []
    assert main(["make", BLOG, "--base", "none", "--quiet", "--open"]) == 0
    assert pages == [play.result.scorecard_page.as_uri()]


def test_an_interrupt_is_one_sentence(
    play: FakePipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    play.fails = KeyboardInterrupt("your model is finished")
    assert main(["make", BLOG, "--base", "none"]) == 130
    assert "interrupted: your model is finished" in capsys.readouterr().err


def test_several_processes_are_refused(
    play: FakePipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["make", BLOG, "--base", "none"]) == 2
    assert "runs in one process" in capsys.readouterr().err
    assert not play.orders


class Parrot:
    """Writes the prompt it was given, so that a test can see it."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.breaks = False

    def write(self, prompt: str, **options: Any) -> Iterator[str]:  # noqa: ANN401
        self.requests.append({"prompt": prompt, **options})
        yield " goes on"
        if self.breaks:
            raise KeyboardInterrupt


def lines(*lines_typed: str) -> Callable[[], str]:
    lines_left = iter(lines_typed)

    def line() -> str:
        for typed in lines_left:
            return typed
        raise EOFError

    return line


def run_chat(*typed: str, parrot: Parrot | None = None) -> list[dict[str, Any]]:
    model = parrot or Parrot()
    talk(model, lines(*typed), 9, WritingOptions(seed=40))  # type: ignore[arg-type]
    return model.requests


def test_each_line_begins_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    requests = run_chat("The trouble", "", "/again", "On hats", "/again")
    assert [request["prompt"] for request in requests] == [
        "The trouble",
        "",
        "",
        "On hats",
        "On hats",
    ]
    # Each draws with a seed of its own.
    assert [request["seed"] for request in requests] == [40, 41, 42, 43, 44]
    assert requests[0]["max_tokens"] == 9
    assert capsys.readouterr().out.splitlines()[0] == "The trouble goes on"


def test_commands_set_the_temperature_and_end_it() -> None:
    requests = run_chat("/temperature 0.5", "One", "/quit", "Two")
    assert [(request["seed"], request["temperature"]) for request in requests] == [(40, 0.5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/seed 7", "Type the beginning of a text"),
        (
            "/temperature nan",
            f"the temperature is {DEFAULT_SAMPLING.temperature:g}; it may be from 0 to 5",
        ),
    ],
)
def test_an_unknown_command_is_reported_and_nothing_generated(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_chat(line) == []
    assert message in capsys.readouterr().err


def test_ctrl_c_ends_the_text_and_not_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    parrot = Parrot()
    parrot.breaks = True
    assert len(run_chat("One", "Two", parrot=parrot)) == 2
    assert capsys.readouterr().out.splitlines() == ["One goes on", "Two goes on"]
