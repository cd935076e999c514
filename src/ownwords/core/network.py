"""Counts the network calls of a job, so that a report of no calls is a measurement."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)  # compared by identity, as several may be counting
class NetworkCalls:
    """The number of connections attempted and host names looked up."""

    count: int = 0


_counting: list[NetworkCalls] = []
_state = {"hooked": False}


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _counting or event not in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        return
    # The address of a local socket is a path, that of a network socket a tuple.
    if event == "socket.getaddrinfo" or isinstance(arguments[1], tuple):
        for calls in _counting:
            calls.count += 1


@contextmanager
def counting_network_calls() -> Iterator[NetworkCalls]:
    """Count every network call of this process within the block, whichever library makes it."""
    if not _state["hooked"]:
        sys.addaudithook(_hook)  # once, as audit hooks cannot be removed
        _state["hooked"] = True
    calls = NetworkCalls()
    _counting.append(calls)
    try:
        yield calls
    finally:
        _counting.remove(calls)
