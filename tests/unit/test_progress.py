import json
from contextlib import closing
from pathlib import Path

import pytest

from ownwords.core.errors import WorkspaceError
from ownwords.core.progress import (
    Event,
    JobProgress,
    JsonLines,
    Progress,
    Timeline,
    duration,
    printable,
)


def test_a_stage_tells_its_start_its_notes_its_figures_and_its_end() -> None:
    events: list[Event] = []
    with Progress(events.append).stage("Reading", total=3, unit="posts") as stage:
        stage.advance(2)
        stage.note("half a word")
        stage.metric(loss=0.5)
        stage.advance()
    assert [event.kind for event in events] == ["start", "note", "metric", "done"]
    assert events[1].message == "half a word"
    assert events[2].values == {"loss": 0.5}
    assert (events[2].done, events[-1].done, events[-1].total) == (2, 3, 3)
    assert {event.stage for event in events} == {"Reading"}


def test_an_interrupted_stage_is_reported_and_the_error_propagates() -> None:
    events: list[Event] = []
    with pytest.raises(KeyError), Progress(events.append).stage("Reading"):
        raise KeyError
    assert (events[-1].kind, events[-1].message) == ("done", "stopped")


def test_a_stage_with_a_limit_promises_no_more_than_what_is_left_of_it() -> None:
    events: list[Event] = []
    with Progress(events.append).stage("Scoring", total=10**9) as stage:
        stage.advance()
        stage.note("as long as the rest takes at this rate")
        stage.limit_s = 5.0
        stage.note("until the time is up")
    free, limited = (event.remaining_s for event in events if event.kind == "note")
    assert free is not None
    assert limited is not None
    assert 0 < limited <= 5 < free


def test_the_log_holds_a_line_an_event_and_mends_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"kind": "metr')
    with closing(JsonLines(path)) as log, Progress(log).stage("Pläne", total=2) as stage:
        stage.metric(loss=float("nan"), steps=2)
        lines = path.read_text(encoding="utf-8").splitlines()  # there at once
        assert len(lines) == 3
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines[1:]]
    assert [record["kind"] for record in records] == ["start", "metric", "done"]
    assert records[1]["values"] == {"steps": 2}
    assert records[0]["stage"] == "Pläne"
    assert records[0]["total"] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_ends_the_work_with_a_sentence() -> None:
    with (
        closing(JsonLines(Path("/dev/full"))) as log,
        pytest.raises(WorkspaceError, match="disk is full"),
    ):
        Progress(log).note("lost")


def test_durations_read_well() -> None:
    texts = [duration(s) for s in (0.44, 9.94, 12.3, 99, 120, 5900, 7500)]
    assert texts == ["0.4 s", "9.9 s", "12 s", "99 s", "2 min", "98 min", "2 h 5 min"]


def test_control_characters_are_made_visible() -> None:
    assert printable("é\x1b]0;x\x07\nb") == "é?]0;x?\nb"


# --- the whole job --------------------------------------------------------------------------------


class TimelineDriver:
    """A timeline whose clock the test sets."""

    def __init__(self, spent_s: float = 0.0) -> None:
        self.now = 0.0
        self.reports: list[JobProgress] = []
        self.timeline = Timeline(self.reports.append, spent_s=spent_s, clock=lambda: self.now)

    def expect(self, **parts: float | None) -> None:
        for part, s in parts.items():
            self.timeline(Event(0, part, "expect", values={} if s is None else {"seconds": s}))

    def begin(self, part: str) -> None:
        self.timeline(Event(0, part, "begin"))

    def advance(self, seconds: float, remaining_s: float | None = None, stage: str = "x") -> None:
        self.now += seconds
        self.timeline(Event(0, stage, "advance", remaining_s=remaining_s))

    @property
    def remaining_s(self) -> float:
        return self.timeline.remaining_s()

    @property
    def shown_s(self) -> float:
        return self.reports[-1].remaining_s or 0.0


def test_the_parts_that_follow_count_from_the_beginning() -> None:
    job = TimelineDriver()
    job.expect(read=10.0, train=60.0, score=30.0)
    job.begin("read")
    assert job.remaining_s == 100.0
    job.advance(5.0)
    assert job.remaining_s == 95.0
    job.begin("train")  # reading was quicker than expected
    assert job.remaining_s == 90.0
    assert (job.reports[-1].share, job.reports[-1].remaining_s) == (round(5 / 95, 4), 90.0)


def test_after_its_last_step_a_training_still_has_its_saving_time() -> None:
    job = TimelineDriver()
    job.expect(train=60.0, score=30.0)
    job.begin("train")
    job.advance(50.0, remaining_s=0.0, stage="train")
    assert job.remaining_s == 40.0


def test_a_counted_stage_takes_as_long_as_its_work() -> None:
    job = TimelineDriver()
    job.expect(score=30.0)
    job.begin("score")
    job.advance(10.0, remaining_s=200.0, stage="Scoring")
    assert job.remaining_s == 200.0
    job.now += 20.0  # nothing is reported, and the time goes on
    assert job.remaining_s == 180.0


def test_parts_that_were_skipped_do_not_count() -> None:
    job = TimelineDriver()
    job.expect(read=1.0, train=60.0, write=4.0)
    job.begin("read")
    job.begin("write")
    assert job.remaining_s == 4.0
    assert job.reports[-1].parts == {"read": "done", "train": "skipped", "write": "running"}


def test_the_share_is_monotonic_and_includes_earlier_time() -> None:
    job = TimelineDriver(spent_s=50.0)
    job.expect(train=120.0, score=10.0)
    job.begin("train")
    job.advance(10.0, remaining_s=20.0, stage="train")
    assert job.timeline.share == pytest.approx(60 / 90)
    job.advance(10.0, remaining_s=500.0, stage="train")
    assert job.timeline.share == pytest.approx(60 / 90)


def test_the_time_told_is_near_what_is_believed_and_small_changes_do_not_raise_it() -> None:
    job = TimelineDriver()
    job.expect(train=60.0, score=10.0)
    job.begin("train")
    told: list[float] = []
    for promised in (50.0, 44.0, 38.0, 200.0, 190.0, 100.0, 10.0):
        job.advance(10.0, remaining_s=promised, stage="train")
        told.append(job.shown_s)
        assert 0.79 * job.remaining_s <= told[-1] <= job.remaining_s
    assert told[:3] == sorted(told[:3], reverse=True)
    assert told[3] == 210.0


def test_a_plan_that_takes_longer_than_was_told_is_told_before_its_training() -> None:
    job = TimelineDriver()
    job.expect(plan=None, train=60.0, score=10.0)
    job.begin("plan")
    job.advance(2.0)
    assert job.shown_s <= 71.0
    job.expect(train=200.0)
    job.begin("train")
    assert job.shown_s == pytest.approx(210.0, abs=1.0)


def test_a_resumed_training_goes_on_with_the_time_that_was_left() -> None:
    job = TimelineDriver(spent_s=360.0)
    job.expect(read=None, train=720.0, score=60.0)
    job.begin("read")
    assert job.shown_s == pytest.approx(420.0, abs=2.0)
    job.expect(train=700.0)  # by the plan, which does not know of the earlier attempt
    job.begin("train")
    assert job.shown_s == pytest.approx(400.0, abs=2.0)
    job.advance(10.0, remaining_s=350.0, stage="train")
    assert job.remaining_s == 410.0


def test_what_takes_longer_than_it_promised_is_never_done_before_its_end() -> None:
    job = TimelineDriver()
    job.expect(score=10.0)
    job.begin("score")
    job.advance(5.0, remaining_s=2.0)
    job.advance(60.0, stage="other")
    assert job.remaining_s == pytest.approx(58.0)  # 58 s late: as long again
    assert job.reports[-1].share < 1.0
    job.advance(0.0, remaining_s=0.0)
    assert job.reports[-1].share < 1.0
