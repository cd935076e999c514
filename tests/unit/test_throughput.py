import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import families  # noqa: F401 - one thread
from ownwords.core.workspace import cache_folder
from ownwords.models.configs.qwen3 import Qwen3Config
from ownwords.training import flops, throughput
from ownwords.training.device import choose
from ownwords.training.plan_constants import PLAN_CONSTANTS
from ownwords.training.settings import OptimConfig
from ownwords.training.throughput import (
    ASSUMED,
    CACHED,
    MEASURED,
    StepTimeModel,
    StepTiming,
    fit_step_time,
    measure_speeds,
)

SMALL = Qwen3Config(
    vocabulary=97, context=16, width=32, layers=1, heads=2, kv_heads=1, head_dim=16, hidden=32
)
LARGER = Qwen3Config(
    vocabulary=97, context=16, width=64, layers=2, heads=2, kv_heads=1, head_dim=32, hidden=96
)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_law_is_fitted_from_its_own_samples() -> None:
    def sample(layers: int, work: float) -> StepTiming:
        return StepTiming(layers, work, layers * 2e-3 + work / 5e10)

    law = fit_step_time([sample(2, 1e8), sample(6, 4e9)], StepTimeModel(1, 1))
    assert law.layer_s == pytest.approx(2e-3)
    assert law.flops_per_s == pytest.approx(5e10)
    law = fit_step_time([sample(2, 1e8), sample(4, 9e8), sample(6, 4e9)], StepTimeModel(1, 1))
    assert law.flops_per_s == pytest.approx(5e10)


def test_contradictory_samples_give_no_negative_term() -> None:
    law = fit_step_time(
        [StepTiming(10, 1e8, 0.001), StepTiming(2, 1e8, 0.5)], StepTimeModel(1e-3, 1e11)
    )
    assert law.layer_s >= 0
    assert law.flops_per_s > 0
    fitted = fit_step_time([StepTiming(4, 1e9, 0.1)], StepTimeModel(1e-3, 1e11))
    assert 4 * fitted.layer_s + 1e9 / fitted.flops_per_s == pytest.approx(0.1)


def test_the_time_of_a_step_is_overhead_per_layer_plus_arithmetic() -> None:
    pace = StepTimeModel(1e-3, 1e9)
    work = throughput.step_flops(LARGER, 3, 16)
    assert work > 3 * 16 * flops.per_token(LARGER, 16)  # the optimizer's own on top
    assert pace.step_s(LARGER, 3, 16) == pytest.approx(2e-3 + work / 1e9)


def test_real_steps_are_timed_and_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    device = choose("cpu")
    before = torch.random.get_rng_state()
    speeds = measure_speeds(device, [SMALL, LARGER], rows=2, context=16, seconds=3600)
    assert torch.equal(before, torch.random.get_rng_state())
    assert set(speeds.step_times) == {"float32", "autocast", "bf16"}
    assert all(pace.origin == MEASURED for pace in speeds.step_times.values())
    assert speeds.step_times["float32"].step_s(LARGER, 2, 16) > 0

    steps = Counter[str]()
    real = throughput._steps

    def counted(*arguments: Any) -> list[float]:  # noqa: ANN401
        steps["timed"] += 1
        return real(*arguments)

    monkeypatch.setattr(throughput, "_steps", counted)
    remeasured = measure_speeds(device, [SMALL, LARGER], rows=2, context=16, seconds=3600)
    assert steps["timed"] == 1  # one, to see how busy the machine is
    assert remeasured.step_times["bf16"].origin == CACHED


def test_a_busy_machine_scales_the_cached_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    device = choose("cpu")

    def taking(seconds: float) -> None:
        monkeypatch.setattr(throughput, "_steps", lambda *_: [seconds])

    taking(0.01)
    idle = measure_speeds(device, [SMALL], rows=2, context=16, seconds=9)
    taking(0.03)
    busy = measure_speeds(device, [SMALL], rows=2, context=16, seconds=9)
    for precision, pace in idle.step_times.items():
        slower = busy.step_times[precision].step_s(SMALL, 2, 16)
        assert slower == pytest.approx(3 * pace.step_s(SMALL, 2, 16))


def test_without_time_nothing_is_measured() -> None:
    speeds = measure_speeds(choose("cpu"), [LARGER], rows=2, context=16, seconds=0)
    assert [pace.origin for pace in speeds.step_times.values()] == [ASSUMED]


def test_a_shape_that_is_assumed_too_slow_to_time_is_timed_all_the_same() -> None:
    slow = replace(PLAN_CONSTANTS, assumed_cpu_flops=1.0)  # a row would take hours
    device = choose("cpu")
    speeds = measure_speeds(device, [SMALL], rows=2, context=16, seconds=60, constants=slow)
    assert {pace.origin for pace in speeds.step_times.values()} == {MEASURED}


def test_unsupported_operations_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> list[float]:
        if "bf16" in arguments:
            raise RuntimeError("no such type here")
        return [0.01]

    monkeypatch.setattr(throughput, "_steps", refuse)
    speeds = measure_speeds(choose("cpu"), [SMALL], rows=2, context=16, seconds=5)
    assert set(speeds.step_times) == {"float32", "autocast"}


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"m": 3}', '{"m": {"k": [1, 2]}}', '{"m": {"k": [1, 2, NaN]}}']
)
def test_a_damaged_cache_is_not_an_error(content: str) -> None:
    folder = cache_folder()
    folder.mkdir(parents=True)
    (folder / "speed.json").write_text(content)
    store = throughput.SpeedCache(choose("cpu"))
    assert store.get("k") is None
    store.put("k", StepTiming(1, 2.0, 3.0))
    store.save()
    assert throughput.SpeedCache(choose("cpu")).get("k") == StepTiming(1, 2.0, 3.0)
    assert json.loads((folder / "speed.json").read_text())


def test_an_unwritable_cache_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    store = throughput.SpeedCache(choose("cpu"))
    store.put("k", StepTiming(1, 2.0, 3.0))
    store.save()


def test_keys_distinguish_what_takes_different_time() -> None:
    muon, adamw = OptimConfig(), OptimConfig(kind="adamw")
    keys = {
        throughput.sample_key(shape, rows, 16, precision, optim)
        for shape in (SMALL, LARGER)
        for rows in (1, 2)
        for precision in ("float32", "bf16")
        for optim in (muon, adamw)
    }
    assert len(keys) == 16
