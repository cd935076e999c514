"""How the server is set up: where it listens, who may come in, and how much at once."""

import ipaddress
from dataclasses import dataclass
from typing import Final

from ownwords.core.errors import ConfigError
from ownwords.inference.engine import WeightFormat

HOST: Final = "127.0.0.1"
PORT: Final = 8377
# Shorter ones are guessed, however slowly wrong ones are answered.
SHORTEST_KEY: Final = 12


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What holds for a server from its start to its end. ConfigError for what cannot be.

    `names` are further host names that it is reached by, such as that of a proxy before it.
    """

    host: str = HOST
    port: int = PORT
    key: str = ""  # that the API and the page ask for; none is asked for where it is empty
    names: tuple[str, ...] = ()

    device: str = "auto"
    weights: WeightFormat = "stored"
    threads: int | None = None
    embed: str = ""  # what makes vectors of meaning; see ask.embed

    rows: int = 64  # texts a model writes at once; the memory may allow fewer
    queue: int = 64  # more that wait for a row; who comes then is told to come again
    context: int = 4096  # tokens of a text that are kept in view, where the model sees as many
    memory_share: float = 0.25  # of the memory that is free, for what a model has read
    loaded: int = 3  # models in memory; beyond, the one that wrote longest ago is let go
    ahead: int = 1024  # tokens a text may be ahead of who reads it

    workers: int = 4  # threads for the archive and the disk
    tasks: int = 128  # that wait for one of them

    requests: int = 256  # under way at once, streams included
    body_bytes: int = 4 << 20
    header_bytes: int = 32 << 10
    header_s: float = 10.0  # to send the head of a request
    body_s: float = 30.0  # to send the rest
    answer_s: float = 600.0  # until an answer begins
    stalled_s: float = 60.0  # that a reader may leave an answer unread
    idle_s: int = 30  # that a connection stays open between requests

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"a port is a number from 0 to 65535, and {self.port} was given")
        if self.key and len(self.key) < SHORTEST_KEY:
            raise ConfigError(
                f"the key has {len(self.key)} characters, and should have {SHORTEST_KEY} or more",
                hint="give none, and one is made for you",
            )
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise ConfigError("a key is of letters, digits and signs of ASCII, without spaces")
        if not self.is_loopback and not self.key:
            raise ConfigError(
                f"on {self.host} others can reach it, and it has no key to know you by",
                hint="give one with --key",
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
