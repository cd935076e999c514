from dataclasses import replace

import pytest
import torch

import families  # noqa: F401 - one thread
from ownwords.models import fused
from ownwords.models.configs.llama import Qwen3Config
from ownwords.training import throughput
from ownwords.training.device import choose
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.throughput import measure_speeds

SMALL = Qwen3Config(
    vocabulary=97, context=16, width=32, layers=1, heads=2, kv_heads=1, head_dim=16, hidden=32
)


@pytest.mark.parametrize("fast", [True, False])
def test_real_steps_are_timed_in_each_precision_that_may_be_the_fastest(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "has_fast_bf16", lambda: fast)
    before = torch.random.get_rng_state()
    speeds = measure_speeds(choose("cpu"), SMALL, rows=2, context=16, seconds=3600)
    assert torch.equal(before, torch.random.get_rng_state())
    slow = {"float32", "bf16"} if fused.find_library() else {"float32"}
    assert set(speeds.step_times) == ({"autocast", "bf16"} if fast else slow)
    assert all(pace.is_measured for pace in speeds.step_times.values())
    assert all(pace.step_s(SMALL, 2, 16) > 0 for pace in speeds.step_times.values())


def test_without_time_nothing_is_measured() -> None:
    speeds = measure_speeds(choose("cpu"), SMALL, rows=2, context=16, seconds=0)
    assert [pace.is_measured for pace in speeds.step_times.values()] == [False]


def test_a_shape_that_is_assumed_too_slow_to_time_is_timed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A row would take hours.
    names = ("assumed_vector_share", "assumed_float32_share", "assumed_tile_share")
    shares = dict.fromkeys(names, 1e-12)
    slow = replace(PLAN_CONSTANTS, assumed_cpu_flops=1.0, **shares)
    monkeypatch.setattr(throughput, "PLAN_CONSTANTS", slow)
    speeds = measure_speeds(choose("cpu"), SMALL, rows=2, context=16, seconds=60)
    assert {pace.is_measured for pace in speeds.step_times.values()} == {True}
