import sys
from pathlib import Path
from types import ModuleType

import pytest

from ownwords.core import hardware
from ownwords.core.hardware import Cpu, read_cpu, read_memory, threads, usable_cores
from ownwords.core.packages import install_command

XEON = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Processor
"""


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_the_processor_is_read_from_linux(tmp_path: Path) -> None:
    cpu = read_cpu(machine(tmp_path, {"proc/cpuinfo": XEON}), system="linux")
    assert cpu.model == "Intel(R) Xeon(R) Processor"
    assert 1 <= cpu.physical_cores <= cpu.logical_cores


def test_a_mac_is_read_from_sysctl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = {"machdep.cpu.brand_string": "Apple M2"}
    monkeypatch.setattr(hardware, "_sysctl", facts.get)
    assert read_cpu(tmp_path, system="darwin").model == "Apple M2"


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000"},
        {"proc/self/cgroup": "0::/host/only\n", "sys/fs/cgroup/cpu.max": "50000 100000"},
    ],
)
def test_a_container_limits_the_cores(tmp_path: Path, files: dict[str, str]) -> None:
    assert usable_cores(machine(tmp_path, files)) == 1


def test_an_unlimited_container_sets_no_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000"}
    assert usable_cores(machine(tmp_path, files)) == usable_cores(tmp_path / "nowhere")


def test_a_container_limits_the_memory(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a\n",
            "sys/fs/cgroup/a/memory.max": "512000",
            "sys/fs/cgroup/a/memory.current": "12000",
            "sys/fs/cgroup/memory.max": "max",
        },
    )
    memory = read_memory(root)
    assert (memory.total_bytes, memory.available_bytes) == (512000, 500000)


def test_threads_are_limited_to_the_available_cores() -> None:
    assert threads(Cpu("", "", physical_cores=4, logical_cores=8, usable_cores=8)) == 4
    assert threads(Cpu("", "", physical_cores=4, logical_cores=8, usable_cores=2)) == 2


class _Finder:
    """Stands in for an installed torch that cannot be imported."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch":
            raise self.error


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError("libcudart.so.12: cannot open\nmore"), "OSError: libcudart.so.12: cannot open"),
        (RuntimeError("numpy is too new"), "RuntimeError: numpy is too new"),
        (ModuleNotFoundError("No module named 'sympy'", name="sympy"), "sympy"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), ""),
    ],
)
def test_a_broken_torch_is_distinguished_from_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Finder(error), *sys.meta_path])
    torch, reason = hardware.import_torch()
    assert torch is None
    assert problem in reason
    assert bool(problem) == bool(reason)
    assert "\n" not in reason


def test_the_whole_machine_is_described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_torch() -> tuple[ModuleType | None, str]:
        return None, "importing it fails"

    monkeypatch.setattr(hardware, "import_torch", no_torch)
    machine = hardware.inspect_machine(tmp_path / "not" / "yet")
    assert machine.cpu.usable_cores >= machine.threads >= 1
    assert machine.disk.total_bytes >= machine.disk.available_bytes > 0
    assert machine.full_text_search
    torch = next(part for part in machine.parts if part.name == "torch")
    assert torch.problem == "importing it fails"
    assert torch.command == install_command("train")
