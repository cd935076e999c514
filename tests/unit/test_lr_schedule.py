import pytest

from ownwords.training.lr_schedule import lr_scale
from ownwords.training.settings import ScheduleConfig


def shape(steps: int, **settings: float) -> list[float]:
    config = ScheduleConfig(**settings)
    return [lr_scale(step, steps, config) for step in range(steps)]


def test_up_flat_down() -> None:
    scales = shape(100, warmup_fraction=0.1, decay_fraction=0.5, final_lr_fraction=0.0)
    assert scales[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert scales[10:51] == [1.0] * 41
    assert scales[50:] == pytest.approx([1 - i / 50 for i in range(50)])


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 99, 1000])
@pytest.mark.parametrize(
    ("warmup", "decay", "final"),
    [(0.01, 0.6, 0.0), (0.5, 0.5, 0.0), (0.0, 1.0, 0.1), (0.0, 0.0, 0.0), (1.0, 0.0, 1.0)],
)
def test_never_zero_never_above_the_peak_and_one_summit(
    steps: int, warmup: float, decay: float, final: float
) -> None:
    scales = shape(steps, warmup_fraction=warmup, decay_fraction=decay, final_lr_fraction=final)
    assert all(0 < scale <= 1 for scale in scales)
    summit = scales.index(max(scales))
    assert scales[: summit + 1] == sorted(scales[: summit + 1])
    assert scales[summit:] == sorted(scales[summit:], reverse=True)
    assert min(scales[summit:]) >= final


def test_the_end_is_the_final_share() -> None:
    config = ScheduleConfig(warmup_fraction=0.0, decay_fraction=0.5, final_lr_fraction=0.05)
    assert lr_scale(1000, 1000, config) == lr_scale(1001, 1000, config) == pytest.approx(0.05)
    assert lr_scale(999, 1000, config) == pytest.approx(0.05 + 0.95 / 500)
    assert lr_scale(1000, 1000, ScheduleConfig(warmup_fraction=0.0, decay_fraction=0.0)) == 0


def test_without_warm_down_the_rate_stays() -> None:
    assert shape(10, warmup_fraction=0.0, decay_fraction=0.0) == [1.0] * 10


def test_the_stable_phase_does_not_depend_on_the_length() -> None:
    short = shape(1000, warmup_fraction=0.01, decay_fraction=0.5)
    long = shape(4000, warmup_fraction=0.0025, decay_fraction=0.5)
    assert short[:500] == long[:500]
