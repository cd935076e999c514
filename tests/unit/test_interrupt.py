"""Stop signals: first noted, then obeyed immediately; handlers are restored afterwards."""

import signal
from threading import Thread

import pytest

from ownwords.training.loop import InterruptHandler

ASKING = ["SIGTERM", "SIGBREAK"]


@pytest.fixture(autouse=True)
def with_ctrl_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: adds the signal that only Windows has."""
    if not hasattr(signal, "SIGBREAK"):
        monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR2, raising=False)


@pytest.mark.parametrize("name", ASKING)
def test_the_first_is_noted_and_the_second_interrupts(name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with InterruptHandler() as signals:
        wanted = [signals.wanted]
        signal.raise_signal(number)
        wanted.append(signals.wanted)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert wanted == [False, True]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("name", ASKING)
def test_interruptible_work_ends_immediately(name: str) -> None:
    with InterruptHandler() as signals:
        with pytest.raises(KeyboardInterrupt), signals.at_once():
            signal.raise_signal(getattr(signal, name))
        assert signals.wanted
        with pytest.raises(KeyboardInterrupt), signals.at_once():
            pytest.fail("begun, though it was asked to stop")


def test_outside_the_main_thread_no_handler_is_installed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    states = []

    def work() -> None:
        with InterruptHandler():
            states.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert states == [before]
