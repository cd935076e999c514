"""A run: one folder with all that one training needs to go on, and tells about itself."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from ownwords.core.errors import OwnwordsError, WorkspaceError
from ownwords.core.progress import JsonLines, Progress, printable
from ownwords.core.workspace import translate_os_errors, try_lock, write_atomically
from ownwords.models.untrusted_files import read_json
from ownwords.training.checkpoint import Checkpoints

_LIMITS = "limits.json"


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
        """The run of that key: found again, with its checkpoints, if it was begun before."""
        if not re.fullmatch(r"[\w.-]{1,100}", key) or not key.strip("."):
            raise WorkspaceError(f"{key!r:.120} cannot be the name of a run")
        with translate_os_errors(runs / key):
            (runs / key / "checkpoints").mkdir(parents=True, exist_ok=True)
        return cls(runs / key)

    def write_config(self, toml: str) -> None:
        """Keep the settings in force; `core.config.Resolved.to_toml` writes them with origins."""
        write_atomically(self.config, toml)

    @contextmanager
    def opened(self, progress: Progress, *, writes: bool = True) -> Iterator[Progress]:
        """Hold the run, and keep the events of this while in `metrics.jsonl`.

        WorkspaceError if another process holds it. Of several processes of one training, only the
        one that `writes` holds and keeps anything.
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
    """How many rows at once have fitted the memory: kept in the run, and across runs in a cache.

    What did not fit once is not tried again. `key` stands for all that decides it: the device, the
    model, the length of a row.
    """

    def __init__(self, run: Run, cache: Path | None, key: str) -> None:
        self._run = run.folder / _LIMITS
        self._cache = cache
        self._key = key

    def known(self, rows: int) -> int:
        """At most `rows`, or fewer where more have failed before."""
        found = [_table(path).get(self._key, rows) for path in (self._run, self._cache) if path]
        return max(1, min(rows, *found))

    def remember(self, rows: int) -> None:
        """From now on at most so many."""
        write_atomically(self._run, json.dumps(_table(self._run) | {self._key: rows}))
        if self._cache is not None:
            # A cache that cannot be written costs the next run one failed step, no more.
            with suppress(OSError, OwnwordsError):
                self._cache.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._cache, json.dumps(_table(self._cache) | {self._key: rows}))


def _table(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    try:
        table = read_json(path)
    except OwnwordsError:  # damaged: as if it had never been written
        return {}
    return {key: value for key, value in table.items() if type(value) is int and value > 0}
