"""The first steps of a run show whether its plan assumed another speed; on a fake clock."""

import pytest

from ownwords.training.replan import ReplanMonitor


class Machine:
    """Steps of given durations; `replan_seconds` records the step times of new plans."""

    def __init__(
        self, seconds: float, step_s: float, *, accepts: bool = True, unseen: int = 1
    ) -> None:
        self.now, self.replan_seconds = 0.0, list[float]()

        def plan_anew(found_s: float) -> bool:
            self.replan_seconds.append(found_s)
            return accepts

        self.monitor = ReplanMonitor(
            seconds, step_s, plan_anew, unseen=unseen, clock=lambda: self.now
        )

    def run(self, step_s: list[float], pauses: dict[int, float] | None = None) -> int | None:
        """The step before which a new plan was made; None if there never was one."""
        for step, took_s in enumerate(step_s):
            if self.monitor.requested():
                return step
            if pauses and step in pauses:
                self.now += pauses[step]
                self.monitor.pause_done()
            self.now += took_s
            self.monitor.step_done()
        return len(step_s) if self.monitor.requested(is_last=True) else None


def test_a_plan_made_on_a_busy_machine_is_revised_within_seconds() -> None:
    machine = Machine(240.0, 7.0)  # as of 295 tokens a second, where 7,000 can be had
    assert machine.run([0.3] * 200) is not None
    assert machine.replan_seconds == [pytest.approx(0.3)]
    assert machine.now < 0.03 * 240


def test_a_run_that_ends_too_early_is_repeated_with_a_new_plan() -> None:
    machine = Machine(240.0, 2.0)
    assert machine.run([0.02] * 120) == 120
    assert machine.replan_seconds == [pytest.approx(0.02)]


def test_a_plan_made_on_an_idle_machine_is_revised_within_a_tenth_of_the_time() -> None:
    machine = Machine(600.0, 0.1)
    assert machine.run([0.4] * 5000) is not None
    assert machine.replan_seconds == [pytest.approx(0.4)]
    assert machine.now < 0.1 * 600


@pytest.mark.parametrize("times", [0.85, 1.0, 1.3, 1.9])
def test_a_speed_close_to_the_plan_changes_nothing(times: float) -> None:
    machine = Machine(600.0, 0.1)
    assert machine.run([0.1 * times] * 6000) is None
    assert machine.replan_seconds == []


def test_a_short_slowdown_changes_nothing() -> None:
    machine = Machine(600.0, 0.1)
    assert machine.run([0.5] * 60 + [0.1] * 5000) is None
    assert machine.replan_seconds == []


def test_a_disturbed_plan_with_disturbed_first_steps_is_detected() -> None:
    machine = Machine(600.0, 2.0)
    assert machine.run([2.0] * 12 + [0.1] * 500) is not None
    assert machine.replan_seconds == [pytest.approx(0.1, rel=0.3)]


def test_later_there_is_no_replanning() -> None:
    machine = Machine(600.0, 0.1)
    assert machine.run([0.1] * 2000 + [0.01] * 5000) is None
    assert machine.replan_seconds == []


def test_pauses_are_not_steps() -> None:
    machine = Machine(100.0, 0.1, unseen=3)
    assert machine.run([40.0, 9.0, 9.0] + [0.1] * 900, pauses={5: 30.0, 40: 9.0}) is None
    assert machine.replan_seconds == []


def test_it_asks_only_once() -> None:
    machine = Machine(240.0, 7.0, accepts=False)
    assert machine.run([0.3] * 900) is None
    assert len(machine.replan_seconds) == 1
    assert machine.monitor.is_over
