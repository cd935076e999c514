"""Source: a zip or tar of texts that no other source reads as it is, such as one of Markdown files.

Its texts are unpacked into a temporary folder, which the source that they belong to reads.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from ownwords.archive import sources
from ownwords.archive.document import SourceItem
from ownwords.archive.untrusted_files import (
    READ_BY_THEMSELVES,
    is_packed,
    open_packed,
    require_room,
)
from ownwords.core.errors import OwnwordsError, SourceError
from ownwords.core.workspace import source_name
from ownwords.view.format import count

LABEL = "a zip or tar of texts"
# Beside the texts, what says which program's they are.
_TEXTS = (READ_BY_THEMSELVES - {".eml", ".mbox"}) | {".xml", ".json", ".yml", ".yaml", ".toml"}
_NAMED_SUFFIXES = 4


def detect(path: Path) -> str | None:
    """What the texts inside are, "a folder of Markdown"; raises SourceError if there are none."""
    if not is_packed(path):
        return None
    with _unpacked(path) as folder:
        return sources.detect_source(folder)[1]


def read(path: Path) -> Iterator[SourceItem]:
    """Yield what the source of the texts inside yields."""
    with _unpacked(path) as folder:
        yield from sources.load_source(sources.detect_source(folder)[0]).read(folder)


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The texts inside in a temporary folder of the zip's name; errors name the zip instead."""
    with tempfile.TemporaryDirectory(prefix="ownwords-") as temporary:
        folder = Path(temporary, source_name(path))
        try:
            everything = Path(temporary, ".everything")
            _unpack(path, everything)
            inside = [*everything.glob("[!.]*")]
            is_wrapped = len(inside) == 1 and inside[0].is_dir()
            yield (inside[0] if is_wrapped else everything).rename(folder)
        except OwnwordsError as error:
            error.message = error.message.replace(str(folder), str(path))
            error.hint = error.hint.replace(str(folder), str(path))
            raise


def _unpack(path: Path, folder: Path) -> None:
    """Unpack the texts into the folder; SourceError if there are none."""
    with open_packed(path) as members:  # whose names do not lead out of the folder
        texts = [name for name in members.names if _is_text(name)]
        if not texts:
            raise _nothing_to_read(path, members.names)
        require_room(folder.parent, sum(members.sizes[name] for name in texts))
        for name in texts:
            target = folder / name.replace("\\", "/")
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with members.open(name) as file, target.open("xb") as copy:
                    shutil.copyfileobj(file, copy)
            except (OSError, ValueError) as error:  # names that clash, are too long, or hold a NUL
                raise SourceError(f"{path} cannot be unpacked: {error}") from error


def _nothing_to_read(path: Path, names: tuple[str, ...]) -> SourceError:
    hint = "give an export of the blog, or a zip of its texts, such as Markdown or HTML files"
    if not names:
        return SourceError(f"there is nothing to read in {path}: it is empty", hint=hint)
    seen = Counter(PurePosixPath(name).suffix.lower() or "without a suffix" for name in names)
    kinds = [f"{number:,} {suffix}" for suffix, number in seen.most_common(_NAMED_SUFFIXES)]
    kinds += ["…"] if len(seen) > _NAMED_SUFFIXES else []
    return SourceError(
        f"there is nothing to read in {path}: it holds {count(len(names), 'file')}"
        f" ({', '.join(kinds)})",
        hint=hint,
    )


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    is_hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return path.suffix.lower() in _TEXTS and not is_hidden
