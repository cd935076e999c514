"""The folder of a run, its checkpoints, and the state that they restore."""

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.progress import JsonLines, Progress, printable
from ownwords.core.validation import decode
from ownwords.core.workspace import (
    UNFINISHED,
    locked,
    remove_unfinished,
    translate_os_errors,
    write_atomically,
)
from ownwords.models.safetensors_header import read_metadata
from ownwords.models.untrusted_files import read_json
from ownwords.models.weights import read_tensors, write_tensors
from ownwords.training.distributed import World
from ownwords.training.optim import Optimizer
from ownwords.training.run import CHECKPOINTS, RunRecord, best_of
from ownwords.training.settings import LoopConfig

_LIMITS = "limits.json"
_NAME = re.compile(r"step-(\d{8,})\.safetensors")
_RECORD = "record"  # in the metadata of the file

Groups = Mapping[str, Mapping[str, Tensor]]


class CheckpointError(OwnwordsError):
    """A checkpoint is damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors on the CPU by group and name, and the record of the run."""

    step: int
    groups: Groups
    record: RunRecord


class Checkpoints:
    """The checkpoints of a run, one file each; the run's lock lets only one process write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, perhaps a damaged one, in order."""
        matches = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in matches if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"

    def save(self, step: int, groups: Groups, record: RunRecord) -> None:
        """Write a checkpoint atomically, replacing one of the same step.

        WorkspaceError if it cannot be written; other checkpoints stay intact.
        """
        named = {
            f"{group}/{name}": each
            for group, tensors in groups.items()
            for name, each in tensors.items()
        }
        path = self.path(step)
        draft = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
        try:
            with translate_os_errors(path):
                write_tensors(draft, named, metadata={_RECORD: json.dumps(asdict(record))})
                draft.replace(path)
        except BaseException as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            if isinstance(error, OSError):  # such as a failing disk
                raise WorkspaceError(
                    f"{path} cannot be written: {error.strerror}",
                    hint="check the disk, or give another --workspace",
                ) from error
            raise

    def prune(self, best: Collection[int] = ()) -> None:
        """Delete all checkpoints but the two newest and those of the steps in `best`."""
        self._delete(set(self.steps()[:-2]) - set(best))

    def delete_after(self, step: int) -> None:
        self._delete(each for each in self.steps() if each > step)

    def _delete(self, steps: Iterable[int]) -> None:
        with translate_os_errors(self.folder):
            for step in steps:
                self.path(step).unlink()

    def load(self, step: int) -> Checkpoint:
        """Read the checkpoint of a step; CheckpointError if it is damaged."""
        path = self.path(step)
        groups: dict[str, dict[str, Tensor]] = defaultdict(dict)
        try:
            record = decode(RunRecord, json.loads(read_metadata(path)[_RECORD]))
            for name, tensor in read_tensors(path).items():
                group, _, rest = name.partition("/")
                groups[group][rest] = tensor
        except (OwnwordsError, OSError, LookupError, ValueError) as error:
            reason = error.message if isinstance(error, OwnwordsError) else error
            raise CheckpointError(f"{path} is damaged ({reason})") from error
        return Checkpoint(step, groups, record)

    def newest(self, note: Callable[[str], None], before: int | None = None) -> Checkpoint | None:
        """The newest intact checkpoint, older than `before` if given; damaged ones are noted."""
        for step in reversed(self.steps()):
            if before is None or step < before:
                try:
                    return self.load(step)
                except CheckpointError as error:
                    note(f"{error.message}; the one before it is used.")
        return None


class Run:
    """The folder of a run: `plan.toml`, `metrics.jsonl`, `samples.txt`, `checkpoints/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.samples = folder / "samples.txt"
        self.checkpoints = Checkpoints(folder / CHECKPOINTS)

    @classmethod
    def new(cls, runs: Path, key: str) -> "Run":
        """Create the run of a key, or open it with its checkpoints if it was started before."""
        with translate_os_errors(runs / key):
            (runs / key / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        return cls(runs / key)

    @contextmanager
    def opened(self, progress: Progress, *, writes: bool = True) -> Iterator[Progress]:
        """Lock the run within the block, and record its events in `metrics.jsonl`.

        InUseError if another process has the lock. In distributed training only the process with
        `writes` locks and records.
        """
        if not writes:
            yield progress
            return
        with locked(
            self.folder / ".lock",
            f"another process is training the run {self.folder}",
            "wait for it to end, or stop it: it saves what it has",
        ):
            with translate_os_errors(self.checkpoints.folder):
                self.checkpoints.folder.mkdir(exist_ok=True)
            remove_unfinished(self.checkpoints.folder)
            with closing(JsonLines(self.metrics)) as log:
                yield Progress(*progress.subscribers, log)

    def add_sample(self, step: int, text: str) -> None:
        with translate_os_errors(self.samples), self.samples.open("a", encoding="utf-8") as file:
            file.write(f"\n--- step {step}\n{printable(text)}\n")

    def micro_batch_limit(self, rows: int) -> int:
        """The number of rows to compute at once: `rows`, or fewer if these once did not fit."""
        try:
            limit = read_json(self.folder / _LIMITS).get("rows")
        except OwnwordsError:  # there is none
            limit = None
        return min(rows, limit) if isinstance(limit, int) and limit > 0 else rows

    def limit_micro_batch(self, rows: int) -> None:
        """Record that at most `rows` rows fit into memory; the run resumes with this limit."""
        write_atomically(self.folder / _LIMITS, json.dumps({"rows": rows}))


class TrainingState:
    """The weights, the optimizer and the record of a run, as saved in checkpoints.

    All processes must call each method; only the first one reads and writes files.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        optimizer: Optimizer,
        loop: LoopConfig,
        world: World,
        note: Callable[[str], None],
    ) -> None:
        self.record, self.optimizer = RunRecord(), optimizer
        self._checkpoints, self._loop, self._world, self._note = checkpoints, loop, world, note
        self._saved_step = self._rolled_back_to = -1
        self._saved_at = self._began = time.monotonic()

    def begin(self) -> None:
        """Restore the newest checkpoint; if there is none, save one for a rollback."""
        checkpoint = self._newest()
        if checkpoint is None:
            self.save()
            return
        self._restore(checkpoint)
        self._saved_step = checkpoint.step
        if self.record.stopped:
            self._note("This run has already finished; its weights are used.")
        elif checkpoint.step:
            steps = self.record.total_steps(self._loop.steps)
            self._note(f"Resuming after step {checkpoint.step:,} of {steps:,}.")

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough to save a new one."""
        return time.monotonic() - self._saved_at >= self._loop.checkpoint_every_s

    def save(self, again: bool = False) -> None:
        """Save a checkpoint, unless this step has one and `again` is false.

        WorkspaceError if the disk is full; it says how many steps are lost.
        """
        record = self.record
        if self._saved_step == record.step and not again:
            return
        record.seconds = time.monotonic() - self._began
        if self._world.is_first:
            groups = {"weights": self.optimizer.weights(), "optimizer": self.optimizer.state()}
            best = best_of(record.evaluations)
            try:
                self._checkpoints.save(record.step, groups, record)
            except WorkspaceError as error:
                saved_step = max(0, self._saved_step)
                if lost := record.step - saved_step:
                    error.message += (
                        f"; the last checkpoint is of step {saved_step:,}, so {lost:,} steps are"
                        " lost"
                    )
                raise
            self._checkpoints.prune([best.step] if best else [])
        self._world.barrier()
        self._saved_step, self._saved_at = record.step, time.monotonic()

    def roll_back(self, lr_factor: float) -> bool:
        """Restore the newest intact checkpoint, lower the learning rate, and save the result.

        If the last rollback was to that checkpoint too, the one before it is restored. Returns
        False if no checkpoint is intact.
        """
        has_diverged = lr_factor < 1
        rollbacks = self.record.rollbacks + has_diverged
        lr_factor *= self.record.lr_factor
        elapsed = self.record.elapsed
        checkpoint = self._newest()
        if has_diverged and checkpoint and checkpoint.step == self._rolled_back_to:
            checkpoint = self._newest(before=checkpoint.step) or checkpoint
        if checkpoint is None:
            return False
        self._restore(checkpoint)
        self._saved_step = checkpoint.step
        if has_diverged:
            self._rolled_back_to = checkpoint.step
        self.record.rollbacks, self.record.lr_factor = rollbacks, lr_factor
        self.record.elapsed = elapsed  # the steps are repeated, but the time is spent
        self.optimizer.lr_factor = lr_factor
        if self._world.is_first:
            self._checkpoints.delete_after(checkpoint.step)
        self.save(again=True)  # so that the lower rate survives a crash
        return True

    def load_weights(self, step: int) -> bool:
        """Load the weights of a step into the model; False if its checkpoint is damaged."""
        if step != self.record.step:
            checkpoint = None
            if self._world.is_first:
                try:
                    checkpoint = self._checkpoints.load(step)
                except CheckpointError as error:
                    self._note(f"{error.message}; the last weights are kept instead.")
            checkpoint = self._shared(checkpoint)
            if checkpoint is None:
                return False
            self._load(checkpoint)
        return True

    def _newest(self, before: int | None = None) -> Checkpoint | None:
        checkpoint = None
        if self._world.is_first:
            checkpoint = self._checkpoints.newest(self._note, before)
        return self._shared(checkpoint)

    def _shared(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """Broadcast the record of the first process's checkpoint, without the tensors."""
        if self._world.size == 1:
            return checkpoint
        if checkpoint is None or not self._world.is_first:
            return self._world.broadcast(checkpoint)
        groups: Groups = {group: {} for group in checkpoint.groups}
        self._world.broadcast(replace(checkpoint, groups=groups))
        return checkpoint

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.record = checkpoint.record
        self._began = time.monotonic() - self.record.seconds
        self._load(checkpoint)
        self.optimizer.load_state(self._world.share(checkpoint.groups["optimizer"]))
        self.optimizer.lr_factor = self.record.lr_factor

    def _load(self, checkpoint: Checkpoint) -> None:
        self.optimizer.load_weights(self._world.share(checkpoint.groups["weights"]))
