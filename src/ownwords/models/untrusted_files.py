"""Opens model files of unknown origin: regular files only, bounded sizes, one error class."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import is_disk_full

# More than any config needs, and safe to parse.
MAX_JSON_BYTES = 16 << 20


class ModelError(OwnwordsError):
    """A model cannot be used because it is incomplete, damaged, unsafe or of an unknown kind."""


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; ModelError for a link, a pipe, a folder or a missing file.

    A link could lead anywhere on the machine. Only links within Hugging Face's download cache are
    followed, from `snapshots/<revision>/` to its `blobs/`.
    """
    try:
        if path.is_symlink() and not _is_hub_cache_link(path):
            raise ModelError(
                f"{path} is a symbolic link, which a model directory must not contain",
                hint="copy the folder with its links resolved, for example `cp -rL`",
            )
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError(f"{path} is not a file", hint="a model is a folder of regular files")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        if is_disk_full(error):  # while something was written from it
            raise
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


def _is_hub_cache_link(path: Path) -> bool:
    folder = path.parent.resolve()
    blobs = folder.parent.parent / "blobs"
    return folder.parent.name == "snapshots" and path.resolve().parent == blobs


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ModelError(f"{path} is larger than {limit >> 20} MiB")
    return data


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, object]:
    """Read a JSON file that holds an object."""
    return parse_json(read_bytes(path, limit), str(path))


def parse_json(data: bytes, where: str) -> dict[str, object]:
    """Parse a JSON object."""
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelError(
            f"{where} is not a JSON object: {reason}", hint="is the file complete?"
        ) from error


def preview(names: "list[str] | set[str]", first: int = 3) -> str:
    """Quote the first few names, shortened and safe to print, and count the others."""
    quoted = [repr(name if len(name) <= 80 else name[:77] + "...") for name in sorted(names)]
    more = f" and {len(quoted) - first:,} more" if len(quoted) > first else ""
    return ", ".join(quoted[:first]) + more
