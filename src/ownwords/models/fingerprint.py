"""Identifies the model in a directory: a digest of its files, and a stamp that is cheap to read."""

import hashlib
import time
from pathlib import Path

from ownwords.core.fingerprint import digest
from ownwords.core.workspace import translate_os_errors
from ownwords.models import atomic_dir
from ownwords.models.directory import COPY_GUARD, PROVENANCE
from ownwords.models.untrusted_files import open_file

# The suffixes of the files that affect the model's output; the card does not.
_DECISIVE = {".json", ".safetensors", ".jinja", ".txt", ".model", ".xz"}
# mtime granularity: a file younger than this may change and keep its times.
_SETTLED_NS = 2_000_000_000

Stamp = tuple[tuple[str, int, int, int], ...]
# By path, inode, size, mtime and ctime.
_digests: dict[tuple[Path, int, int, int, int], str] = {}


def model_fingerprint(folder: Path, *, copy_guard: bool = True, provenance: bool = False) -> str:
    """A digest of weights, config, tokenizer and copy guard; "" if there is no directory.

    `provenance` includes the provenance file (fine-tuning depends on its base's). Digests of files
    that have not changed since this process read them are reused.
    """
    parts: list[str] = []
    with translate_os_errors(folder):
        for path in _decisive_files(folder):
            skipped = (path.name == PROVENANCE and not provenance) or (
                path.name == COPY_GUARD and not copy_guard
            )
            if not skipped:
                parts += [path.name, _file_digest(path)]
    return digest(*parts) if parts else ""


def model_stamp(folder: Path) -> Stamp:
    """Name, inode, mtime and size of each file, to detect changes without opening the files."""
    stats = ((path.name, path.stat()) for path in _decisive_files(folder))
    return tuple((name, stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _decisive_files(folder: Path) -> list[Path]:
    folder = atomic_dir.readable_dir(folder)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in files if path.suffix in _DECISIVE and path.is_file()]


def _file_digest(path: Path) -> str:
    stat = path.stat()
    key = (path.resolve(), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if key in _digests:
        return _digests[key]
    with open_file(path) as file:
        value = hashlib.file_digest(file, "blake2b").hexdigest()  # type: ignore[arg-type]
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
        _digests[key] = value
    return value
