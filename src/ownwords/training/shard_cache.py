"""The cache of a workspace's encoded texts: skips repeated checksums, and prunes old shards.

A stamp beside the files records the size, times and inode of each file when its checksum was
verified. Writing to a file changes these, even if its mtime is set back: Linux and macOS also
record a change time that cannot be set. Decay on the disk does not change them; it is found when
all files are read again, after `RECHECK_S`.
"""

import json
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import write_atomically
from ownwords.models import atomic_dir
from ownwords.models.untrusted_files import ModelError, read_json

MANIFEST = "manifest.json"
STAMP = "verified.json"
RECHECK_S = 7 * 24 * 3600
SETTLED_S = 2.0  # mtime granularity: don't trust files younger than this
MAX_SHARDS = 8  # one training uses up to three: its texts, the replay text, the held-out texts
_USED = "tokens.json"

Look = list[int]


@contextmanager
def unchecked(folder: Path, names: Collection[str], key: str) -> Iterator[Collection[str]]:
    """Yield the files to verify, all or none; the folder is stamped if the block succeeds.

    `key` identifies the checksums. A folder that cannot be written gets no stamp, and is verified
    each time.
    """
    now = time.time()
    looks = {name: _look(folder / name) for name in names}
    if None not in looks.values() and _stamped(folder, key, now) == looks:
        yield ()
        return
    yield names
    if all(look is not None and now - max(look[1:3]) / 1e9 > SETTLED_S for look in looks.values()):
        with suppress(OwnwordsError, OSError):
            stamp = {"key": key, "read": now, "looks": looks}
            write_atomically(folder / STAMP, json.dumps(stamp))


def _look(path: Path) -> Look | None:
    try:
        stat = path.stat()
    except OSError:  # reading the file reports the error
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _stamped(folder: Path, key: str, now: float) -> object:
    """The looks stored at the last check; None if it is too old or of other checksums."""
    try:
        stamp = read_json(folder / STAMP)
    except OwnwordsError:  # missing or damaged
        return None
    read = stamp.get("read")
    if stamp.get("key") != key or not isinstance(read, float) or not 0 <= now - read < RECHECK_S:
        return None
    return stamp.get("looks")


def name_shards(run: Path, keys: Collection[str]) -> None:
    """Record which shards a run uses; they are kept as long as the run."""
    write_atomically(run / _USED, json.dumps({"keys": sorted(keys)}))


def prune(tokens: Path, runs: Path) -> None:
    """Delete all shards but the `MAX_SHARDS` used last and those that a run uses.

    Deleted ones are encoded again when needed. Nothing is deleted while a run's list is damaged.
    """
    for leftover in tokens.glob(f".*{atomic_dir.DELETED}"):  # of a killed process
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        used = set().union(*(_used_by(path) for path in runs.glob(f"*/{_USED}")))
    except OwnwordsError:
        return
    newest = sorted(tokens.glob(f"[!.]*/{MANIFEST}"), key=_last_use, reverse=True)
    for manifest in newest[MAX_SHARDS:]:
        if manifest.parent.name not in used:
            with suppress(OwnwordsError, OSError):  # Windows: a file is open elsewhere
                atomic_dir.delete_dir(manifest.parent)


def _used_by(path: Path) -> set[str]:
    keys = read_json(path).get("keys")
    if not isinstance(keys, list):
        raise ModelError(f"{path} names no encoded texts")
    return {str(key) for key in keys}


def _last_use(manifest: Path) -> float:
    """The time of the last use: opening shards touches their folder."""
    try:
        return manifest.parent.stat().st_mtime
    except OSError:  # deleted meanwhile by another process
        return 0.0
