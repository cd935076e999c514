"""A killed worker, a signal to one of two: the same training and the same weights."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import torchrun
from ownwords.models import fused

STEPS = 20
# Of any weight, after rounding was made larger by AdamW and Muon for twenty steps.
FURTHEST = 1e-4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals on Windows"),
]


def start(folder: Path, *arguments: str, processes: int = 2, restarts: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    torchrun.run("training_process", folder, *arguments, processes=processes, restarts=restarts)
    return folder


def result_of(folder: Path, mode: str, size: int = 2, rank: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"{mode}-{size}-{rank}.json").read_text("utf-8"))
    return result


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
def single_process(folder: Path) -> dict[str, Any]:
    return result_of(start(folder / "alone", processes=1), "ddp", size=1)


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Path:
    return start(folder / "undisturbed")


@pytest.fixture(scope="module")
def killed(folder: Path) -> Path:
    """The second process is killed after step 12 of each run; torchrun restarts both."""
    return start(folder / "killed", "KILLED_AT", "13", restarts=2)


@pytest.fixture(scope="module")
def stopped(folder: Path) -> Path:
    """In each run only the second process gets a stop signal; the run is then resumed."""
    return start(folder / "asked", "ASKED_AT", "5")


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_two_processes_train_as_one(
    undisturbed: Path, single_process: dict[str, Any], mode: str
) -> None:
    first, second = (result_of(undisturbed, mode, rank=rank) for rank in range(2))
    assert len(first["losses"]) == STEPS
    assert first["losses"] == pytest.approx(single_process["losses"], rel=0, abs=1e-5)
    assert first["losses"][-1] < first["losses"][0]
    assert first["bits_per_byte"] == pytest.approx(single_process["bits_per_byte"], rel=0, abs=1e-5)
    assert largest_difference(first, single_process) < FURTHEST
    assert first == second


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_in_bfloat16_two_processes_train_as_one(folder: Path, mode: str) -> None:
    """On a model with native blocks. Gradients are rounded to 1/256."""
    both, other_folder = folder / "bfloat16", folder / "other-seed"
    if not both.exists():
        start(both, "BFLOAT16", "3", processes=1)
        start(both, "BFLOAT16", "3")
        start(other_folder, "BFLOAT16", "4", processes=1)
    alone, another = result_of(both, "ddp", size=1), result_of(other_folder, "ddp", size=1)
    first, second = (result_of(both, mode, rank=rank) for rank in range(2))
    assert first == second
    # From the same weights the losses are the same but for rounding; then the runs drift apart, but
    # by less than one of another seed.
    assert first["losses"][0] == pytest.approx(alone["losses"][0], rel=2**-8)
    assert drift(first, alone) < drift(another, alone)
    assert largest_difference(first, alone) < largest_difference(another, alone)
    assert first["losses"][-1] < first["losses"][0]
    native = fused.has_fast_bf16()
    assert first["blocks"]["by the library"] == (first["blocks"]["in all"] if native else 0)


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_killed_process_does_not_change_the_result(
    undisturbed: Path, killed: Path, mode: str
) -> None:
    full_run, resumed = result_of(undisturbed, mode), result_of(killed, mode)
    assert resumed["weights"] == full_run["weights"]  # to the bit
    assert resumed["bits_per_byte"] == full_run["bits_per_byte"]
    assert result_of(killed, "fsdp")["restarts"] == 2


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_signal_to_one_process_stops_all_at_the_same_step(
    undisturbed: Path, stopped: Path, mode: str
) -> None:
    first, second = (result_of(stopped, mode, rank=rank) for rank in range(2))
    assert first["stopped"] == second["stopped"]
    assert first["steps_before"] == second["steps_before"]
    assert 5 <= first["steps_before"] < STEPS
    assert first["losses"] == result_of(undisturbed, mode)["losses"]
    assert first["weights"] == result_of(undisturbed, mode)["weights"]


def test_a_run_resumes_with_another_number_of_processes(
    killed: Path, single_process: dict[str, Any], folder: Path
) -> None:
    """From a checkpoint of two sharded processes to the same weights in one."""
    fewer = folder / "fewer"
    shutil.copytree(killed / "fsdp-2", fewer / "ddp-1")
    newest = max((fewer / "ddp-1" / "checkpoints").glob("step-*"))
    assert newest.name == f"step-{STEPS:08d}.pt"
    newest.unlink()
    result = result_of(start(fewer, processes=1), "ddp", size=1)
    assert 0 < len(result["losses"]) < STEPS
    assert result["losses"] == pytest.approx(
        single_process["losses"][-len(result["losses"]) :], rel=0, abs=1e-5
    )
    assert largest_difference(result, single_process) < FURTHEST
