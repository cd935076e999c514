"""Counting the network calls of a job, so that "none" is a measurement and not a promise."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)  # told apart by identity when several count at once
class Calls:
    """Connections tried and host names asked for while counting."""

    count: int = 0


_counting: list[Calls] = []
_state = {"hooked": False}


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _counting or event not in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        return
    # A path is a socket on this machine's own disk; a host and port is the network.
    if event == "socket.getaddrinfo" or isinstance(arguments[1], tuple):
        for calls in _counting:
            calls.count += 1


@contextmanager
def counting_network_calls() -> Iterator[Calls]:
    """Count every network call that this process makes meanwhile, whichever library makes it."""
    if not _state["hooked"]:
        sys.addaudithook(_hook)  # cannot be taken out again, so it is put in once
        _state["hooked"] = True
    calls = Calls()
    _counting.append(calls)
    try:
        yield calls
    finally:
        _counting.remove(calls)
