"""Checkpoints, written atomically and verified when read; the two newest and the best are kept.

A checkpoint is a folder `step-00000123` with one safetensors file for each group of tensors and
`checkpoint.json`, which holds the state, the checksum of every file, and a checksum of itself.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ownwords.core.errors import OwnwordsError
from ownwords.models import atomic_dir
from ownwords.models.untrusted_files import open_file, read_json
from ownwords.models.weights import read_tensors, write_tensors

_MANIFEST = "checkpoint.json"
_FORMAT = 3
_NAME = re.compile(r"step-(\d{8,})")
_BLOCK = 1 << 20
_LEFTOVERS = (atomic_dir.UNFINISHED, atomic_dir.DELETED)

Groups = Mapping[str, Mapping[str, Tensor]]


class CheckpointError(OwnwordsError):
    """A checkpoint is damaged, or of another version."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint read from disk: tensors on the CPU by group and name, and the other state."""

    step: int
    groups: dict[str, dict[str, Tensor]]
    state: dict[str, object]


class Checkpoints:
    """The checkpoints of one run; the run's lock lets only one process write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, damaged ones included, in order."""
        matches = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in matches if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def clear(self) -> None:
        """Delete checkpoints that a killed process left half written or half deleted."""
        for left in self.folder.glob(".step-*"):
            if left.suffix in _LEFTOVERS:
                shutil.rmtree(left, ignore_errors=True)

    def save(self, step: int, groups: Groups, state: Mapping[str, object]) -> None:
        """Write a checkpoint, replacing one of the same step.

        WorkspaceError if the disk is full or cannot be written; other checkpoints stay intact.
        """
        with atomic_dir.replace_dir(self.path(step)) as beside:
            for group, tensors in groups.items():
                write_tensors(beside / f"{group}.safetensors", tensors)
            content = {
                "format": _FORMAT,
                "step": step,
                "files": {group: _checksum(beside / f"{group}.safetensors") for group in groups},
                "state": dict(state),
            }
            text = json.dumps({"content": content, "checksum": _digest(content)})
            atomic_dir.write_file(beside / _MANIFEST, text.encode())

    def prune(self, best: Collection[int] = ()) -> None:
        """Delete all checkpoints but the two newest and those of the steps in `best`."""
        for step in set(self.steps()[:-2]) - set(best):
            atomic_dir.delete_dir(self.path(step))

    def delete_after(self, step: int) -> None:
        """Delete all later checkpoints."""
        for each in self.steps():
            if each > step:
                atomic_dir.delete_dir(self.path(each))

    def load(self, step: int) -> LoadedCheckpoint:
        """Read the checkpoint of a step; CheckpointError if it is damaged."""
        folder = atomic_dir.readable_dir(self.path(step))
        try:
            return _read(folder)
        except CheckpointError:
            raise
        except OwnwordsError as error:
            raise CheckpointError(f"{folder} is damaged: {error.message}") from error
        except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{folder} is damaged ({error})") from error

    def newest(
        self, note: Callable[[str], None], before: int | None = None
    ) -> LoadedCheckpoint | None:
        """The newest intact checkpoint, older than `before` if given; damaged ones are noted."""
        for step in reversed(self.steps()):
            if before is None or step < before:
                try:
                    return self.load(step)
                except CheckpointError as error:
                    note(f"{error.message}; the one before it is used.")
        return None


def _read(folder: Path) -> LoadedCheckpoint:
    manifest = read_json(folder / _MANIFEST)
    content = manifest["content"]
    if not isinstance(content, dict) or manifest["checksum"] != _digest(content):
        raise CheckpointError(f"{folder} is damaged: {_MANIFEST} does not match its checksum")
    if content["format"] != _FORMAT:
        raise CheckpointError(
            f"{folder} has the format {content['format']}, and this version reads {_FORMAT}"
        )
    groups: dict[str, dict[str, Tensor]] = {}
    for group, checksum in content["files"].items():
        path = folder / f"{group}.safetensors"
        if _checksum(path) != checksum:
            raise CheckpointError(f"{path} is damaged: it does not match its checksum")
        groups[group] = read_tensors(path)
    return LoadedCheckpoint(content["step"], groups, content["state"])


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checksum(path: Path) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    with open_file(path) as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()
