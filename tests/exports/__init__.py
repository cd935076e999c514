"""Exports shaped like the real thing, a module per source.

A module tells what a reader must find in what its `write` makes: PUBLISHED, the title and day of
each post by its ref; LEFT_OUT, how many have another status, if any; OTHERS, how many comments.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path

NON_ASCII = "Zażółć gęślą jaźń, 日本語, 🙂, العربية"


def write_zip(path: Path, members: Mapping[str, str | bytes]) -> Path:
    """Pack the files into one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            packed.writestr(name, data)
    return path


def write_folder(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write the files into a folder."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return root
