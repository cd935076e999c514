"""The name of a blog, the same wherever it is shown."""

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import SUFFIX, path_text, write_atomically
from ownwords.view.format import plain

FILE = "name.json"
MAX_CHARACTERS = 120


@dataclass(frozen=True)
class _Given:
    """The names that the user has given, when the blog was created and later."""

    first: str = ""
    new: str = ""


def blog_name(root: Path) -> str:
    """Return the blog's name in a workspace: the user's new one, or what the last `look` chose."""
    folder = path_text(Path(root.absolute().name.removesuffix(SUFFIX)))
    given = _given(root)
    return given.new or _name_in(root / "archive.sqlite") or given.first or folder or "own"


def new_name(root: Path) -> str:
    """Return the new name that the user has given to the blog; "" if there is none."""
    return _given(root).new


def choose_name(root: Path, title: str, files: Sequence[str]) -> str:
    """Choose a report's name: the user's new one, the site's, the user's first, the file's."""
    given = _given(root)
    name = given.new or plain(title, MAX_CHARACTERS) or given.first
    if not name and len(files) == 1:
        name = path_text(Path(files[0]))
    return name or blog_name(root)


def give_name(root: Path, name: str, *, is_first: bool = False) -> None:
    """Store the name that the user gives to a blog."""
    key = "first" if is_first else "new"
    given = replace(_given(root), **{key: plain(name, MAX_CHARACTERS)})
    write_atomically(root / FILE, json.dumps(encode(given), ensure_ascii=False) + "\n")


def as_file_name(name: str) -> str:
    """Return the name without characters that a file's or model's name cannot contain."""
    return re.sub(r"[^\w .()+-]+", "-", re.sub(r"['’\"“”]", "", name)).strip("-. ")[:60]


def _given(root: Path) -> _Given:
    with suppress(OSError, ValueError, OwnwordsError):  # none yet, or a damaged one
        return decode(_Given, json.loads((root / FILE).read_bytes()), unknown="ignore")
    return _Given()


def _name_in(archive: Path) -> str:
    if archive.exists():
        uri = f"{archive.absolute().as_uri()}?mode=ro"
        query = "SELECT json_extract(value, '$.name') FROM meta WHERE key = 'report'"
        with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as connection:
            return plain((connection.execute(query).fetchone() or ("",))[0] or "", MAX_CHARACTERS)
    return ""
