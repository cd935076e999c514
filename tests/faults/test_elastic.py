"""Two processes, one of which is killed or gets a signal: the same training, the same weights."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import torchrun
from ownwords.models import fused
from ownwords.training.distributed import SINGLE_PROCESS
from training_process import STEPS, observed

# Of any weight, after rounding was made larger by AdamW and Muon for twenty steps.
FURTHEST = 1e-4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals on Windows"),
]


def result_of(folder: Path, name: str, rank: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"{name}-{rank}.json").read_text("utf-8"))
    return result


def without_blocks(result: dict[str, Any]) -> dict[str, Any]:
    """What both processes have alike: each evaluates other texts."""
    return {key: value for key, value in result.items() if key != "blocks"}


def largest_difference(first: dict[str, Any], second: dict[str, Any]) -> float:
    ours: dict[str, list[float]] = first["weights"]
    theirs: dict[str, list[float]] = second["weights"]
    assert ours.keys() == theirs.keys()
    return max(abs(a - b) for name in ours for a, b in zip(ours[name], theirs[name], strict=True))


def drift(first: dict[str, Any], second: dict[str, Any]) -> float:
    losses: list[tuple[float, float]] = list(zip(first["losses"], second["losses"], strict=True))
    return max(abs(a - b) for a, b in losses)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elastic")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    return observed(folder / "alone", SINGLE_PROCESS)


@pytest.fixture(scope="module")
def calm(folder: Path) -> Path:
    (folder / "calm").mkdir()
    torchrun.run("training_process", folder / "calm", "calm")
    return folder / "calm"


@pytest.fixture(scope="module")
def disturbed(folder: Path) -> Path:
    (folder / "disturbed").mkdir()
    torchrun.run("training_process", folder / "disturbed", "disturbed", restarts=1)
    return folder / "disturbed"


@pytest.mark.parametrize("name", ["ended", "adapter", "untied"])
def test_two_processes_train_as_one(
    name: str, folder: Path, calm: Path, alone: dict[str, Any]
) -> None:
    if name != "ended":
        is_adapter, is_tied = name == "adapter", name != "untied"
        alone = observed(folder / name, SINGLE_PROCESS, adapter=is_adapter, tied=is_tied)
    first, second = (result_of(calm, name, rank) for rank in range(2))
    assert without_blocks(first) == without_blocks(second) and len(first["losses"]) == STEPS
    assert first["losses"] == pytest.approx(alone["losses"], rel=0, abs=1e-5)
    assert first["losses"][-1] < first["losses"][0]
    assert first["bits_per_byte"] == pytest.approx(alone["bits_per_byte"], rel=0, abs=1e-5)
    assert largest_difference(first, alone) < FURTHEST


def test_in_bfloat16_two_processes_train_as_one(folder: Path, calm: Path) -> None:
    """On a model with native blocks. Gradients are rounded to 1/256."""
    one = observed(folder / "one", SINGLE_PROCESS, seed=3)
    other = observed(folder / "other", SINGLE_PROCESS, seed=4)
    first, second = (result_of(calm, "bfloat16", rank) for rank in range(2))
    assert without_blocks(first) == without_blocks(second)
    # From the same weights the losses are the same but for rounding; then the runs drift apart, but
    # by less than one of another seed.
    assert first["losses"][0] == pytest.approx(one["losses"][0], rel=2**-8)
    assert drift(first, one) < drift(other, one)
    assert largest_difference(first, one) < largest_difference(other, one)
    by_library, blocks = first["blocks"]
    assert by_library == (blocks if fused.find_library() else 0)


def test_a_stop_signal_and_a_kill_do_not_change_the_result(calm: Path, disturbed: Path) -> None:
    stops = [result_of(disturbed, "stopped", rank) for rank in range(2)]
    assert stops[0] == stops[1]  # at the same step
    assert 5 <= stops[0]["steps"] < STEPS
    whole, resumed = result_of(calm, "ended"), result_of(disturbed, "ended")
    assert resumed["weights"] == whole["weights"]  # to the bit
    assert resumed["bits_per_byte"] == whole["bits_per_byte"]


def test_a_run_resumes_with_another_number_of_processes(
    disturbed: Path, alone: dict[str, Any], folder: Path
) -> None:
    """From a checkpoint of two processes to the same weights in one."""
    shutil.copytree(disturbed / "run-2", folder / "fewer" / "run-1")
    newest = max((folder / "fewer" / "run-1" / "checkpoints").glob("step-*"))
    assert newest.name == f"step-{STEPS:08d}.safetensors"
    newest.unlink()
    result = observed(folder / "fewer", SINGLE_PROCESS)
    count = len(result["losses"])
    assert 0 < count < STEPS
    assert result["losses"] == pytest.approx(alone["losses"][-count:], rel=0, abs=1e-5)
    assert largest_difference(result, alone) < FURTHEST
