"""Settings of a server, and the files that list the running servers of this user."""

import ipaddress
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import Workspace, data_folder, is_held, try_lock
from ownwords.inference.engine import WeightFormat

HOST: Final = "127.0.0.1"
PORT: Final = 8377
MIN_KEY_LENGTH: Final = 12  # shorter ones can be guessed
ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """The settings of one server. Raises ConfigError for invalid ones.

    `names` are further host names that lead to it, such as a proxy's.
    """

    host: str = HOST
    port: int = PORT
    key: str = ""  # needed for the page and the API; none is needed if it is empty
    names: tuple[str, ...] = ()

    device: str = "auto"
    weights: WeightFormat = "stored"
    threads: int | None = None
    embed: str = ""  # what computes embeddings; see ask.embed

    rows: int = 64  # texts that a model generates at once; fewer in little memory
    queue: int = 64  # requests that may wait for a row
    context: int = 4096  # tokens of a text that are kept, at most the model's own context
    memory_share: float = 0.25  # of the free memory, for the KV cache
    loaded: int = 3  # models in memory; the least recently used is dropped

    workers: int = 4  # threads for the archive and the disk

    body_bytes: int = 4 << 20
    upload_bytes: int = 4 << 30  # of a file with posts

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"the port must be from 0 to 65535, not {self.port}")
        if self.key and len(self.key) < MIN_KEY_LENGTH:
            raise ConfigError(
                f"the key must have at least {MIN_KEY_LENGTH} characters, not {len(self.key)}",
                hint="leave it out, and the server makes one",
            )
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise ConfigError("the key must be ASCII letters, digits and signs, without spaces")
        if not self.is_loopback and not self.key:
            raise ConfigError(
                f"on {self.host}, other machines can reach the server, so it needs a key",
                hint="give one with --key",
            )

    @property
    def address(self) -> str:
        """The page's address for a browser."""
        host = socket.gethostname() if self.host in ALL_ADDRESSES else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_private(self) -> bool:
        """Whether no other machine can use it, not even through a proxy."""
        return self.is_loopback and not self.names


FOLDER: Final = "servers"
_KEY = "key"
_LOCK = ".lock"


@dataclass(frozen=True)
class RunningServer:
    """The addresses of a running server, its key ("": none), and its first workspace."""

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
    """Return the key of this user's servers, made at the first call; a new one if it can't be kept.

    It stays the same, so that an open page and programs that use the API survive a restart.
    """
    key = secrets.token_urlsafe(24)
    with suppress(OSError, OwnwordsError):
        path = data_folder() / FOLDER / _KEY
        path.parent.mkdir(parents=True, exist_ok=True)
        if kept := _kept_key(path):
            return kept
        with path.with_suffix(_LOCK).open("a") as lock:
            try_lock(lock.fileno())  # another server may be making the key
            if kept := _kept_key(path):
                return kept
            _write_private(path, key)
    return key


def _kept_key(path: Path) -> str:
    """Return the key in the file; "" if there is no usable one."""
    kept = path.read_text("utf-8", "replace").strip() if path.exists() else ""
    return kept if len(kept) >= MIN_KEY_LENGTH and kept.isascii() and kept.isprintable() else ""


@contextmanager
def announced(workspace: Workspace, port: int, url: str, key: str) -> Iterator[None]:
    """Keep the file of the server at this port, and its lock, within the block."""
    server = RunningServer(url, f"{url}v1", key, os.getpid(), str(workspace.root.absolute()))
    try:
        path = data_folder() / FOLDER / f"{port}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(_LOCK).open("a")
    except (OSError, OwnwordsError):  # such as a read-only disk; the key is also printed
        yield
        return
    with lock:
        # Not ours if another address of this machine serves the same port.
        is_ours = try_lock(lock.fileno())
        if is_ours:
            with suppress(OSError):
                _write_private(path, json.dumps(encode(server)) + "\n")
        try:
            yield
        finally:
            if is_ours:
                with suppress(OSError):
                    path.unlink()


def running_servers() -> list[RunningServer]:
    """Return the servers of this user that are alive."""
    try:
        paths = sorted((data_folder() / FOLDER).glob("*.json"))
    except OwnwordsError:
        return []
    servers = []
    for path in paths:
        with suppress(OSError, ValueError, OwnwordsError):
            if is_held(path.with_suffix(_LOCK)):  # otherwise it is left over
                servers.append(decode(RunningServer, json.loads(path.read_bytes())))
    return servers


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # an existing file would keep its permissions
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
