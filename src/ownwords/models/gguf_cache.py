"""Opens GGUF files as model directories, converted once into the user's cache.

A hit reads nothing of the file and imports neither torch nor the converter.
"""

import os
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import digest
from ownwords.core.packages import install_command
from ownwords.core.progress import Progress
from ownwords.core.workspace import cache_folder, translate_os_errors
from ownwords.models import atomic_dir
from ownwords.models.weight_mapping import SINGLE

_SUFFIX = ".gguf"
_KEPT = 3  # conversions; the one not used for the longest time goes first


def is_gguf(path: Path) -> bool:
    """Whether this is a file with the suffix of GGUF."""
    return path.suffix.lower() == _SUFFIX and path.is_file()


def model_directory(path: Path, progress: Progress | None = None) -> Path:
    """The path itself, or for a GGUF file the directory that it is converted to.

    A killed conversion starts again with the next call. Raises ModelError or ConfigError for a
    file that cannot be used, WorkspaceError for a full disk.
    """
    if not is_gguf(path):
        return path
    conversions, stat = cache_folder() / "gguf", path.stat()
    key = digest(f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}")
    folder = conversions / key / path.stem  # a model is called as its folder
    if not (folder / SINGLE).exists():
        try:
            from ownwords.models.gguf.reading import convert  # noqa: PLC0415 - torch
        except ModuleNotFoundError as error:
            raise OwnwordsError(
                f"opening a GGUF file needs the package {error.name}, which is not installed",
                hint=install_command("train"),
            ) from error
        with atomic_dir.replace_dir(folder.parent) as draft:
            (draft / folder.name).mkdir()
            convert(path, draft / folder.name, progress=progress)
        _delete_oldest(conversions, folder.parent)
    with translate_os_errors(folder):
        os.utime(folder.parent)
    return folder


def _delete_oldest(conversions: Path, newest: Path) -> None:
    """Delete the conversions beyond `_KEPT` that were not used for the longest time."""
    folders = [each for each in conversions.iterdir() if not each.name.startswith(".")]
    folders.sort(key=lambda each: (each == newest, each.stat().st_mtime), reverse=True)
    for folder in folders[_KEPT:]:
        atomic_dir.delete_dir(folder)
