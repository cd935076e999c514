"""The user's running servers and their key, in files that only the user can read, as with Jupyter.

`servers/PORT.json` in the data folder says where a server is. Its lock is held as long as the
server lives, so that a file which a killed server left behind is known for one.
"""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import Workspace, data_folder, is_held, try_lock
from ownwords.serve.settings import MIN_KEY_LENGTH

FOLDER: Final = "servers"
_KEY = "key"
_LOCK = ".lock"


@dataclass(frozen=True)
class RunningServer:
    """Where a server is: its page, its API, its key ("": none), and the workspace it began with."""

    url: str
    api: str
    key: str
    pid: int
    workspace: str

    @property
    def link(self) -> str:
        """The page's address, which also logs a browser in."""
        return f"{self.url}?key={self.key}" if self.key else self.url


def user_key() -> str:
    """The key of this user's servers, made at the first call; a new one where it cannot be kept.

    It stays the same, so that a page that is open, and programs that use the API, go on after the
    server was started again.
    """
    key = secrets.token_urlsafe(24)
    with suppress(OSError, OwnwordsError):
        path = data_folder() / FOLDER / _KEY
        path.parent.mkdir(parents=True, exist_ok=True)
        if kept := _kept_key(path):
            return kept
        draft = path.with_name(f"{_KEY}-{secrets.token_hex(8)}")
        _write_private(draft, key)
        try:
            # Whole or not at all, and the first one stays: another server may begin just now.
            os.link(draft, path)
        except FileExistsError:
            if kept := _kept_key(path):
                return kept
            draft.replace(path)  # no key, or a damaged one
        finally:
            draft.unlink(missing_ok=True)
    return key


def _kept_key(path: Path) -> str:
    """The key in the file; "" if there is none that could be used."""
    try:
        key = path.read_text("utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return key if len(key) >= MIN_KEY_LENGTH and key.isascii() and key.isprintable() else ""


@contextmanager
def announced(workspace: Workspace, port: int, url: str, key: str) -> Iterator[None]:
    """Keep the file of the server at this port for the duration of the block, and its lock."""
    server = RunningServer(url, f"{url}v1", key, os.getpid(), str(workspace.root.absolute()))
    try:
        path = data_folder() / FOLDER / f"{port}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(_LOCK).open("a")
    except (OSError, OwnwordsError):  # such as a read-only disk; the key is also printed
        yield
        return
    with lock:
        is_ours = try_lock(lock.fileno())
        if is_ours:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # an existing file would keep its permissions
                _write_private(path, json.dumps(encode(server)) + "\n")
        try:
            yield
        finally:
            if is_ours:
                with suppress(OSError):
                    path.unlink()


def running_servers() -> list[RunningServer]:
    """The servers of this user that are alive."""
    try:
        paths = sorted((data_folder() / FOLDER).glob("*.json"))
    except OwnwordsError:
        return []
    servers = []
    for path in paths:
        with suppress(OSError, ValueError, OwnwordsError):
            if is_held(path.with_suffix(_LOCK)):  # else it was left behind
                servers.append(decode(RunningServer, json.loads(path.read_bytes())))
    return servers


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
