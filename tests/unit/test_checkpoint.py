"""Checkpoints: exact, complete or absent, and the right ones kept."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from ownwords.core.errors import WorkspaceError
from ownwords.models.untrusted_files import ModelError
from ownwords.training.checkpoint import CheckpointError, Checkpoints

STATE = {"record": {"loss": 0.1, "none": None, "list": [1, 2.5]}, "name": "ä"}


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
    return Checkpoints(tmp_path / "checkpoints")


def never(note: str) -> None:
    raise AssertionError(note)


def test_a_saved_checkpoint_round_trips_to_the_bit(checkpoints: Checkpoints) -> None:
    checkpoints.save(7, groups(), STATE)
    saved = checkpoints.newest(never)
    assert saved is not None and saved.step == 7 and saved.state == STATE
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
        "step-00000005",
        "step-00000015",
    }


def test_the_same_step_is_replaced(checkpoints: Checkpoints) -> None:
    checkpoints.save(3, groups(0), STATE)
    checkpoints.save(3, groups(1), {"other": 1})
    saved = checkpoints.load(3)
    assert saved.state == {"other": 1}
    assert torch.equal(saved.groups["weights"]["a.weight"], groups(1)["weights"]["a.weight"])


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


DAMAGE: list[Callable[[Path], object]] = [
    lambda folder: flip(folder / "weights.safetensors", -1),
    lambda folder: flip(folder / "weights.safetensors", 20),
    lambda folder: (folder / "optimizer.safetensors").unlink(),
    lambda folder: (folder / "weights.safetensors").write_bytes(b""),
    lambda folder: (folder / "checkpoint.json").unlink(),
    lambda folder: (folder / "checkpoint.json").write_text("{}"),
    lambda folder: (folder / "checkpoint.json").write_text("[" * 9),
    lambda folder: (folder / "checkpoint.json").write_text('{"content": [], "checksum": ""}'),
    lambda folder: (folder / "checkpoint.json").write_text(
        (folder / "checkpoint.json").read_text().replace('"loss": 0.1', '"loss": 0.2')
    ),
    shutil.rmtree,
    emptied,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(
    damage: Callable[[Path], object], checkpoints: Checkpoints
) -> None:
    checkpoints.save(1, groups(1), STATE)
    checkpoints.save(2, groups(2), STATE)
    is_removed = damage is shutil.rmtree
    damage(checkpoints.path(2))
    notes: list[str] = []
    saved = checkpoints.newest(notes.append)
    assert saved is not None and saved.step == 1
    assert len(notes) == (0 if is_removed else 1)
    if notes:
        assert "step-00000002" in notes[0] and "damaged" in notes[0]
        assert notes[0].endswith("the one before it is used.")
        assert "\n" not in notes[0]


def test_every_flipped_byte_of_the_manifest_is_detected(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, {"weights": {"a": torch.ones(2)}}, {"x": 1})
    path = checkpoints.path(1) / "checkpoint.json"
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CheckpointError):
            checkpoints.load(1)


def test_a_checkpoint_of_another_version_is_refused(checkpoints: Checkpoints) -> None:
    from ownwords.training import checkpoint

    checkpoints.save(1, groups(), STATE)
    path = checkpoints.path(1) / "checkpoint.json"
    content = json.loads(path.read_text())["content"] | {"format": 99}
    path.write_text(json.dumps({"content": content, "checksum": checkpoint._digest(content)}))
    with pytest.raises(CheckpointError, match="has the format 99, and this version reads"):
        checkpoints.load(1)


def test_an_unsupported_value_raises_and_writes_nothing(checkpoints: Checkpoints) -> None:
    with pytest.raises(ModelError):
        checkpoints.save(1, {"weights": {"a": torch.zeros(3, dtype=torch.float64)}}, {})
    with pytest.raises(ValueError, match="JSON"):
        checkpoints.save(1, {}, {"loss": float("nan")})
    assert checkpoints.steps() == []
    assert list(checkpoints.folder.iterdir()) == []


@pytest.mark.parametrize("fails_at", range(5))
def test_a_full_disk_is_a_sentence_and_the_one_before_stays(
    fails_at: int, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC from every fsync in turn: that of each file, and of the folder."""
    import errno
    import os

    checkpoints.save(1, groups(1), STATE)
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match=r"the disk is full: .* could not be written"):
        checkpoints.save(2, groups(2), STATE)
    monkeypatch.undo()
    saved = checkpoints.newest(never)
    assert saved is not None
    # The last of them comes when the folder is in its place already.
    assert saved.step == (1 if fails_at < 4 else 2)
    assert not [path for path in checkpoints.folder.iterdir() if path.name.startswith(".")]


def test_leftovers_of_a_killed_process_are_removed(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, groups(), STATE)
    for name in (".step-00000002.x3.writing", ".step-00000000.deleted"):
        (checkpoints.folder / name).mkdir()
        (checkpoints.folder / name / "weights.safetensors").write_bytes(b"half")
    assert checkpoints.steps() == [1]
    checkpoints.clear()
    assert {path.name for path in checkpoints.folder.iterdir()} == {"step-00000001"}
