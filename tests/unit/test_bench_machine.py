"""Background work and benchmarks take turns."""

import threading
from pathlib import Path

import pytest

import scripts

fcntl = pytest.importorskip("fcntl")
if not (scripts.ROOT / "bench" / "machine.py").exists():
    pytest.skip("bench/ is not part of this copy", allow_module_level=True)
machine = scripts.load("bench/machine.py")


def is_free(path: Path) -> bool:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_benchmarks_and_background_steps_wait_for_each_other(
    tmp_path: Path,
) -> None:
    turn, _ = machine.lock_files(tmp_path)
    work = machine.BackgroundWork(tmp_path)
    work.give_way()  # a step begins
    order: list[str] = []

    def benchmark() -> None:
        with machine.measuring(tmp_path):
            order.append("benchmark")

    thread = threading.Thread(target=benchmark)
    thread.start()
    while is_free(turn):  # until the benchmark has asked for its turn
        pass
    order.append("the step ends")
    work.give_way()
    order.append("the next step")
    thread.join()
    work.close()
    assert order == ["the step ends", "benchmark", "the next step"]


def test_benchmarks_do_not_exclude_each_other_and_release_their_locks(tmp_path: Path) -> None:
    turn, busy = machine.lock_files(tmp_path)
    with machine.measuring(tmp_path), machine.measuring(tmp_path):
        assert not is_free(turn)
        assert is_free(busy)
    assert is_free(turn)
    work = machine.BackgroundWork(tmp_path)
    work.give_way()
    assert is_free(turn) and not is_free(busy)
    work.close()
    assert is_free(busy)
