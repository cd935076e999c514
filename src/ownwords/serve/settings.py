"""Settings of the server: where it listens, who may use it, and how much at once."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from ownwords.core.errors import ConfigError
from ownwords.inference.engine import WeightFormat

HOST: Final = "127.0.0.1"
PORT: Final = 8377
MIN_KEY_LENGTH: Final = 12  # shorter ones can be guessed
_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


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
    tasks: int = 128  # that may wait for one of them

    requests: int = 256  # open at once, streams included
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
        host = socket.gethostname() if self.host in _ALL_ADDRESSES else self.host
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
        """Whether nobody on another machine can use it, through a proxy either."""
        return self.is_loopback and not self.names
