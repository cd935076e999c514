"""The folder of a run: locked by one process; its checkpoints are exact, complete or absent."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from ownwords.core.errors import WorkspaceError
from ownwords.core.progress import Progress
from ownwords.models.weights import write_tensors
from ownwords.training.checkpoint import Checkpoints, Run
from ownwords.training.run import Evaluation, RunRecord

STATE = RunRecord(step=7, progress=0.1, evaluations=[Evaluation(4, None, 2.5)])


def groups(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    source = torch.Generator().manual_seed(seed)
    return {
        "weights": {
            "a.weight": torch.randn(3, 5, generator=source),
            "b": torch.randn(7, generator=source).bfloat16(),
            "turned": torch.randn(4, 2, generator=source).T,
            "scalar": torch.tensor(-0.0),
            "strange": torch.tensor([float("inf"), float("nan"), 1e-45]),
            "empty": torch.empty(0, 3),
        },
        "optimizer": {"count": torch.tensor(3.0)},
    }


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    (tmp_path / "checkpoints").mkdir()
    return Checkpoints(tmp_path / "checkpoints")


def write_record(path: Path, record: str) -> None:
    path.unlink()
    write_tensors(path, {"weights/a": torch.zeros(1)}, metadata={"record": record})


def never(note: str) -> None:
    raise AssertionError(note)


def test_a_saved_checkpoint_round_trips_to_the_bit(checkpoints: Checkpoints) -> None:
    checkpoints.save(7, groups(), STATE)
    saved = checkpoints.newest(never)
    assert saved is not None and saved.step == 7 and saved.record == STATE
    for group, tensors in groups().items():
        assert saved.groups[group].keys() == tensors.keys()
        for name, tensor in tensors.items():
            back = saved.groups[group][name]
            assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape), name
            kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
            bits = kind[tensor.element_size()]
            assert torch.equal(
                back.contiguous().view(-1).view(bits), tensor.contiguous().view(-1).view(bits)
            )


def test_the_two_newest_and_the_best_are_kept(checkpoints: Checkpoints) -> None:
    for step in (0, 5, 10, 15, 20):
        checkpoints.save(step, groups(), STATE)
        checkpoints.prune([5] if step >= 5 else [])
    assert checkpoints.steps() == [5, 15, 20]
    checkpoints.delete_after(15)
    assert checkpoints.steps() == [5, 15]
    assert {path.name for path in checkpoints.folder.iterdir()} == {
        "step-00000005.safetensors",
        "step-00000015.safetensors",
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: torch.save({"weights": {}}, path),
        lambda path: write_record(path, '{"step": 2, "deadline": 1.5}'),  # of another version
    ],
)
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    damage: Callable[[Path], object], checkpoints: Checkpoints
) -> None:
    checkpoints.save(1, groups(1), STATE)
    checkpoints.save(2, groups(2), STATE)
    damage(checkpoints.path(2))
    notes: list[str] = []
    saved = checkpoints.newest(notes.append)
    assert saved is not None and saved.step == 1
    (note,) = notes
    assert "step-00000002.safetensors is damaged" in note and note.endswith(
        "the one before it is used."
    )
    assert "\n" not in note


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "cannot be written")]
)
def test_a_failing_disk_is_a_sentence_and_the_one_before_stays(
    number: int, reason: str, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.save(1, groups(1), STATE)

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match=reason):
        checkpoints.save(2, groups(2), STATE)
    monkeypatch.undo()
    assert checkpoints.steps() == [1]
    assert not [path for path in checkpoints.folder.iterdir() if path.name.startswith(".")]


# --- the folder of a run --------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.new(tmp_path / "runs", "a1b2")


def test_events_are_recorded_while_the_run_is_open(run: Run) -> None:
    lines_seen: list[str] = []
    outer = Progress(lambda event: lines_seen.append(event.message))
    for word in ("first", "second"):
        with run.opened(outer) as progress:
            progress.note(word)
    outer.note("after")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["message"] for line in lines] == ["first", "second"]
    assert lines_seen == ["first", "second", "after"]
    with run.opened(outer, writes=False) as progress:
        progress.note("by another rank")
    assert len(run.metrics.read_text().splitlines()) == 2


def test_what_a_killed_process_left_half_written_is_removed(run: Run) -> None:
    run.checkpoints.save(1, groups(), STATE)
    (run.checkpoints.folder / ".step-00000002.safetensors.x3.unfinished").write_bytes(b"half")
    assert run.checkpoints.steps() == [1]
    with run.opened(Progress()):
        assert [path.name for path in run.checkpoints.folder.iterdir()] == [
            "step-00000001.safetensors"
        ]


@pytest.mark.parametrize("damaged", [None, "", "[]", '{"k": "x"}', '{"rows": 0}', "\0"])
def test_a_run_remembers_how_many_rows_fit(damaged: str | None, run: Run) -> None:
    if damaged is not None:
        (run.folder / "limits.json").write_text(damaged)
    assert run.micro_batch_limit(16) == 16
    run.limit_micro_batch(4)
    assert Run(run.folder).micro_batch_limit(16) == 4
    assert Run(run.folder).micro_batch_limit(2) == 2
