"""The folder of a run: everything needed to resume it, its metrics and samples."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeGuard

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.progress import JsonLines, Progress, printable
from ownwords.core.workspace import translate_os_errors, try_lock, write_atomically
from ownwords.models.untrusted_files import read_json
from ownwords.training.checkpoint import Checkpoints

_LIMITS = "limits.json"
# A size that ran out of memory is tried again after this time, or with this many times the free
# memory.
_RETRY_S = 7 * 24 * 3600.0
_MORE_MEMORY = 1.1


class Run:
    """The folder of a run: `config.toml`, `metrics.jsonl`, `samples.txt`, `checkpoints/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.toml"
        self.metrics = folder / "metrics.jsonl"
        self.samples = folder / "samples.txt"
        self.checkpoints = Checkpoints(folder / "checkpoints")

    @classmethod
    def new(cls, runs: Path, key: str) -> "Run":
        """Create the run of a key, or open it with its checkpoints if it was started before."""
        if not re.fullmatch(r"[\w.-]{1,100}", key) or not key.strip("."):
            raise WorkspaceError(f"{key!r:.120} cannot be the name of a run")
        with translate_os_errors(runs / key):
            (runs / key / "checkpoints").mkdir(parents=True, exist_ok=True)
        return cls(runs / key)

    def write_config(self, toml: str) -> None:
        """Store the settings, as `core.config.Resolved.to_toml` returns them."""
        write_atomically(self.config, toml)

    @contextmanager
    def opened(self, progress: Progress, *, writes: bool = True) -> Iterator[Progress]:
        """Lock the run within the block, and record its events in `metrics.jsonl`.

        WorkspaceError if another process has the lock. In distributed training only the process
        with `writes` locks and records.
        """
        if not writes:
            yield progress
            return
        with translate_os_errors(self.folder):
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with translate_os_errors(self.folder / ".lock"):
                lock = stack.enter_context((self.folder / ".lock").open("a+", encoding="utf-8"))
            if not try_lock(lock.fileno()):
                raise WorkspaceError(
                    f"another process is training the run {self.folder}",
                    hint="wait for it to end, or stop it: it saves what it has",
                )
            self.checkpoints.clear()
            log = stack.enter_context(closing(JsonLines(self.metrics)))
            yield Progress(*progress.subscribers, log)

    def add_samples(self, step: int, texts: Sequence[str]) -> None:
        """Append what the model wrote at that step to `samples.txt`."""
        shown = "".join(f"\n--- step {step}\n{printable(text)}\n" for text in texts)
        with translate_os_errors(self.samples), self.samples.open("a", encoding="utf-8") as file:
            file.write(shown)


class MicroBatchLimits:
    """Remembers how many rows fit into memory, after larger micro-batches did not.

    A run stores its limit, so that it resumes with the same sums. Other runs read it from the cache
    for a week, as long as not much more memory is free; then they try again. `key` identifies the
    device, the model and the length of a row.
    """

    def __init__(self, run: Run, cache: Path | None, key: str, free_memory: int) -> None:
        self._run = run.folder / _LIMITS
        self._cache = cache
        self._key, self._free_memory = key, free_memory

    def lower(self, rows: int) -> int:
        """The number of rows to compute at once: `rows`, or fewer if so many did not fit."""
        limits = [rows]
        if values := _limits(self._run).get(self._key):
            limits.append(int(values[0]))
        elif self._cache and (values := _limits(self._cache).get(self._key)):
            limit, free_memory, failed_at = values
            is_recent = 0 <= time.time() - failed_at < _RETRY_S
            if is_recent and self._free_memory < _MORE_MEMORY * free_memory:
                limits.append(int(limit))
        return max(1, min(limits))

    def remember(self, rows: int) -> None:
        """Record that at most `rows` rows fit into memory."""
        limit = {self._key: [rows, self._free_memory, time.time()]}
        write_atomically(self._run, json.dumps(_limits(self._run) | limit))
        if self._cache is not None:
            # A cache that cannot be written costs the next run one failed step.
            with suppress(OSError, OwnwordsError):
                self._cache.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._cache, json.dumps(_limits(self._cache) | limit))


def _limits(path: Path) -> dict[str, list[float]]:
    """Rows, free bytes and time by key; damaged entries and those of other versions are skipped."""
    if not path.exists():
        return {}
    try:
        table = read_json(path)
    except OwnwordsError:
        return {}
    return {key: values for key, values in table.items() if _is_limit(values)}


def _is_limit(values: object) -> TypeGuard[list[float]]:
    if not isinstance(values, list) or len(values) != 3:
        return False
    return all(type(value) in (int, float) for value in values) and values[0] >= 1
