import socket

import pytest

from ownwords.archive.look import counting_network_calls


def test_every_listener_counts_connection_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # lets this one test connect: to itself, where nobody listens
    with counting_network_calls() as outer:
        with counting_network_calls() as calls, socket.socket() as tried:
            assert tried.connect_ex(("127.0.0.1", 9)) != 0
        with socket.socket() as tried:
            tried.connect_ex(("127.0.0.1", 9))
    assert calls.count == 1
    assert outer.count == 2
