"""Allow a test to connect to servers on this machine, and to nobody else."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_CONNECT, _ASK = socket.socket.connect, socket.getaddrinfo  # before a test is cut off
_HERE = ("127.0.0.1", "localhost")


@contextmanager
def reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the block, this machine can be reached."""

    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        assert address[0] in _HERE, "only this machine can be reached"
        _CONNECT(self, address)

    def ask(host: str, *more: object, **named: object) -> object:
        assert host in _HERE, "only this machine can be reached"
        return _ASK(host, *more, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "connect", connect)
        patched.setattr(socket, "getaddrinfo", ask)
        yield
