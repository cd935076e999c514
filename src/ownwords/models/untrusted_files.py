"""Opening model files of unknown origin: regular files only, bounded, every fault one sentence."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ownwords.core.errors import OwnwordsError

# More than any model's settings need, and little enough to be parsed without harm.
MAX_JSON_BYTES = 16 << 20
# Parsed, an empty list of 2 bytes takes 64. Gemma's tokenizer has 0.6 and 2 million of these.
_MAX_BRACKETS, _MAX_COMMAS = 2_000_000, 4_000_000


class ModelError(OwnwordsError):
    """A model directory cannot be used: incomplete, damaged, unsafe, or of another kind."""


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, open for reading; ModelError for a link, a pipe, a folder or no file.

    A link could lead anywhere on the machine, so it is followed only where Hugging Face's own
    download cache puts its files: from `snapshots/<revision>/` to the `blobs/` beside.
    """
    try:
        if path.is_symlink() and not _leads_to_its_own_cache(path):
            raise ModelError(
                f"{path} is a link to another place, which a model directory may not hold",
                hint="copy the folder with its links resolved, for example `cp -rL`",
            )
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError(f"{path} is not a file", hint="a model is a folder of plain files")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


def _leads_to_its_own_cache(path: Path) -> bool:
    folder = path.parent.resolve()
    blobs = folder.parent.parent / "blobs"
    return folder.parent.name == "snapshots" and path.resolve().parent == blobs


def read_bytes(path: Path, limit: int) -> bytes:
    """The whole of a file that may have at most `limit` bytes."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ModelError(f"{path} has over {limit >> 20} MiB, which no such file needs")
    return data


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, object]:
    """A JSON file that holds an object."""
    return parse_json(read_bytes(path, limit), str(path))


def parse_json(data: bytes, where: str) -> dict[str, object]:
    """A JSON object from bytes; a name that stands twice is refused: readers take either."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name stands twice in one object")
        return found

    def no_constant(name: str) -> object:
        raise ValueError(f"{name} is no value of JSON")

    if data.count(b"[") + data.count(b"{") > _MAX_BRACKETS or data.count(b",") > _MAX_COMMAS:
        raise ModelError(f"{where} holds more values than any model needs")
    try:
        text = data.decode("utf-8")
        parsed = json.loads(text, object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split())[:120]
        raise ModelError(f"{where} is not valid JSON: {said}", hint="is the file whole?") from error
    if not isinstance(parsed, dict):
        raise ModelError(f"{where} holds a JSON {type(parsed).__name__} and not an object")
    return parsed


def preview(names: "list[str] | set[str]", first: int = 3) -> str:
    """The first few names of foreign origin, harmless to print, and how many more there are."""
    listed = [repr(name if len(name) <= 80 else name[:77] + "...") for name in sorted(names)]
    more = f" and {len(listed) - first:,} more" if len(listed) > first else ""
    return ", ".join(listed[:first]) + more
