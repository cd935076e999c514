"""Progress and remaining time over all stages of a job."""

import pytest

from ownwords.core.progress import Event
from ownwords.core.timeline import Timeline


class TimelineDriver:
    """A timeline whose clock the test sets."""

    def __init__(self, spent_s: float = 0.0) -> None:
        self.now = 0.0
        self.events: list[Event] = []
        self.timeline = Timeline(self.events.append, spent_s=spent_s, clock=lambda: self.now)

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


def test_the_parts_that_follow_count_from_the_beginning() -> None:
    job = TimelineDriver()
    job.expect(read=10.0, train=60.0, score=30.0)
    job.begin("read")
    assert job.remaining_s == 100.0
    job.advance(5.0)
    assert job.remaining_s == 95.0
    job.begin("train")  # reading was quicker than expected
    assert job.remaining_s == 90.0
    assert job.events[-1].values == {"share": round(5 / 95, 4), "remaining_s": 90.0}


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


def test_an_overdue_stage_never_reports_zero_remaining() -> None:
    job = TimelineDriver()
    job.expect(read=None, write=4.0)
    job.begin("read")
    job.advance(100.0)
    assert job.remaining_s == pytest.approx(14.0)


def test_parts_that_were_skipped_do_not_count() -> None:
    job = TimelineDriver()
    job.expect(read=1.0, train=60.0, write=4.0)
    job.begin("read")
    job.begin("write")
    assert job.remaining_s == 4.0


def test_the_share_is_monotonic_and_includes_earlier_time() -> None:
    job = TimelineDriver(spent_s=50.0)
    job.expect(train=60.0, score=10.0)
    job.begin("train")
    job.advance(10.0, remaining_s=20.0, stage="train")
    assert job.timeline.share == pytest.approx(60 / 90)
    job.advance(10.0, remaining_s=500.0, stage="train")
    assert job.timeline.share == pytest.approx(60 / 90)


def test_a_long_job_reports_less_often() -> None:
    job = TimelineDriver()
    job.expect(train=1e6)
    job.begin("train")
    for _ in range(20_000):
        job.advance(1.0)
    assert len(job.events) < 5_000


def test_what_takes_longer_than_it_promised_is_never_done_before_its_end() -> None:
    job = TimelineDriver()
    job.expect(score=10.0)
    job.begin("score")
    job.advance(5.0, remaining_s=2.0)
    job.advance(60.0, stage="other")
    assert job.remaining_s == pytest.approx(6.0)
    assert job.events[-1].values["share"] < 1.0
    job.advance(0.0, remaining_s=0.0)
    assert job.events[-1].values["share"] < 1.0
