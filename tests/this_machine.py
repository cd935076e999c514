"""Allow a test to connect to servers on this machine, and to nobody else."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

HERE = "127.0.0.1"
_CONNECT = socket.socket.connect, socket.socket.connect_ex  # before a test is cut off
_LOOK_UP = socket.getaddrinfo
_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_API_KEY", "HF_TOKEN", "HF_ENDPOINT")


def _only_here(call: Callable[..., Any], host: Callable[..., str]) -> Callable[..., Any]:
    def checked(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        assert host(*arguments) in (HERE, "localhost"), "only this machine can be reached"
        return call(*arguments, **named)

    return checked


@contextmanager
def reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the block, this machine can be reached."""
    with monkeypatch.context() as patch:
        for name, call in zip(("connect", "connect_ex"), _CONNECT, strict=True):
            patch.setattr(socket.socket, name, _only_here(call, lambda _, address: address[0]))
        patch.setattr(socket, "getaddrinfo", _only_here(_LOOK_UP, lambda host, *_: host))
        for name in (*_VARIABLES, "OWNWORDS_API_KEY"):
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        yield
