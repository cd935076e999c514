"""Work under way, on a terminal and elsewhere."""

import io
import time
from collections.abc import Callable

import pytest

from ownwords.cli.progress_view import ProgressView
from ownwords.core.progress import Event, Progress


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def events_of_a_run(progress: Progress, begun: Callable[[], bool] = lambda: True) -> None:
    with progress.stage("Reading", 2, "posts") as reading:
        reading.advance(2)
    with progress.stage("train", 50, "steps") as stage:
        wait_for(begun)
        for step in range(1, 51):
            stage.advance()
            stage.metric(step=step, bits_per_byte=100 / step, tokens_per_s=1000.0)
            if step % 25 == 0:
                with progress.stage("Evaluating", 3) as inner:
                    inner.advance(3)
                stage.metric(step=step, validation_bits_per_byte=2.0 + step / 100)
                stage.note("sample: Das Meer.\nEs rauscht.")
        stage.note("The rate was halved.")
    with progress.stage("Saving"):
        pass


def test_without_a_terminal_there_are_plain_lines() -> None:
    output = io.StringIO()
    view = ProgressView(output, after_s=0.0, every_s=0.0)
    events_of_a_run(Progress(view))
    view.close()
    lines = output.getvalue().splitlines()
    assert lines[0].startswith("Reading: 2 posts, done in")
    assert "training: step 25: 2.250 bits per byte on held-out posts" in lines
    assert "training: step 50: 2.500 bits per byte on held-out posts" in lines
    assert lines.count("training: sample: Das Meer. Es rauscht.") == 1  # the same text again
    assert "The rate was halved." in lines
    assert any(
        line.startswith("training: step 40 of 50, ") and "1,000 tokens/s" in line for line in lines
    )
    assert any(line.startswith("training: 50 steps, done in") for line in lines)
    assert lines[-1].startswith("Saving: done in")
    assert not any("Evaluating" in line or "\x1b" in line for line in lines)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_training_is_shown_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    view = ProgressView(screen, after_s=0.0)
    events_of_a_run(Progress(view), lambda: "Training" in screen.getvalue())
    view.close()
    output = screen.getvalue()
    for words in ("Training", "The rate was halved.", "of 50"):
        assert words in output
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") > 0  # the cursor is given back


def test_short_stages_leave_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    view = ProgressView(screen, after_s=0.2)
    for number in range(40):
        with Progress(view).stage(f"Stage {number}"):
            pass
    time.sleep(0.4)
    assert screen.getvalue() == ""
    with Progress(view).stage("Reading"):  # without any news
        wait_for(lambda: "Reading" in screen.getvalue())
    view.close()


def test_the_cursor_is_restored_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    view = ProgressView(screen, after_s=0.0)
    with pytest.raises(KeyboardInterrupt), Progress(view).stage("train", 5) as stage:
        stage.metric(step=1, bits_per_byte=2.0)
        wait_for(lambda: "\x1b[?25l" in screen.getvalue())
        raise KeyboardInterrupt
    view.close()
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h") == 1


# --- stages -------------------------------------------------------------------------------------


def at(seconds: float, kind: str, fraction: int = 0, **more: object) -> Event:
    return Event(0.0, "Reading", kind, fraction, 100, "posts", seconds=seconds, **more)  # type: ignore[arg-type]


def test_without_a_terminal_a_stage_says_a_plain_line_now_and_then() -> None:
    stream = io.StringIO()
    view = ProgressView(stream)
    for event in (
        at(0, "start"),
        at(5, "advance", 10, remaining_s=45.0),
        at(10, "advance", 20, remaining_s=40.0),
        at(15, "advance", 30, remaining_s=35.0),
        at(20.1, "advance", 40),
        at(31, "metric", 62),
        at(50, "done", 100),
    ):
        view(event)
    assert stream.getvalue().splitlines() == [
        "Reading: 20 of 100 posts, about 40 s left",
        "Reading: 40 of 100 posts",
        "Reading: 100 posts, done in 50 s",
    ]


def test_a_short_stage_is_not_worth_a_line_and_a_stopped_one_is_not_done() -> None:
    stream = io.StringIO()
    view = ProgressView(stream)
    view(at(0, "start"))
    view(at(0.9, "done", 100))
    view(at(0, "start"))
    view(at(3, "done", 7, message="stopped"))
    view(Event(0.0, "", "note", message="a title \x1b[31m"))
    assert stream.getvalue().splitlines() == [
        "Reading: 7 posts, stopped after 3.0 s",
        "a title ?[31m",
    ]
