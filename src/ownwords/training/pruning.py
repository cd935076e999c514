"""A workspace's encoded texts: those of earlier states of the archive do not pile up."""

import json
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import write_atomically
from ownwords.models import atomic_dir
from ownwords.models.untrusted_files import ModelError, read_json
from ownwords.training.shards import MANIFEST

KEPT = 8  # a training uses up to three: its own texts, the base's, those held out
_NAMED = "tokens.json"


def keep(run: Path, keys: Collection[str]) -> None:
    """Note with a run which encoded texts it is of: as long as it is there, they stay."""
    write_atomically(run / _NAMED, json.dumps({"keys": sorted(keys)}))


def prune(tokens: Path, runs: Path) -> None:
    """Delete encoded texts but for the `KEPT` that were last used, and those that a run names.

    What is deleted is encoded again where it is wanted. Nothing is, where a run does not tell what
    it needs.
    """
    for left in tokens.glob(f".*{atomic_dir.DELETED}"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        named = set().union(*(_named_by(path) for path in runs.glob(f"*/{_NAMED}")))
    except OwnwordsError:
        return
    used = sorted(tokens.glob(f"[!.]*/{MANIFEST}"), key=_last_use, reverse=True)
    for manifest in used[KEPT:]:
        if manifest.parent.name not in named:
            with suppress(OwnwordsError, OSError):  # as where Windows has one of its files open
                atomic_dir.delete_dir(manifest.parent)


def _named_by(path: Path) -> set[str]:
    keys = read_json(path).get("keys")
    if not isinstance(keys, list):
        raise ModelError(f"{path} names no encoded texts")
    return {str(key) for key in keys}


def _last_use(manifest: Path) -> float:
    """Opening them touches their folder."""
    try:
        return manifest.parent.stat().st_mtime
    except OSError:  # deleted meanwhile by another process
        return 0.0
