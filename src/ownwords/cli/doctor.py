"""`ownwords doctor`."""

from dataclasses import asdict, replace
from pathlib import Path

from ownwords.cli.options import DEFAULTS, CommonOptions, Settings
from ownwords.core.config import Resolved, settings_of
from ownwords.core.hardware import Machine, OptionalComponent, inspect_machine
from ownwords.view.blocks import Line, Pairs
from ownwords.view.format import count
from ownwords.view.terminal import TerminalWriter


def doctor(*, common: CommonOptions = DEFAULTS) -> None:
    """Inspect this machine, and show the settings in force."""
    from ownwords.inference.model import describe_cpu_engine

    resolved = common.resolve({}, workspace=common.workspace)
    with common.watched() as (progress, _), progress.stage("Inspecting this machine"):
        machine = inspect_machine(common.workspace or Path.cwd())
    machine = replace(machine, parts=(*machine.parts, _native_part()))
    figures = asdict(machine)
    engine, why = describe_cpu_engine()
    figures["writing"] = {"engine": engine, "why": why}
    figures["settings"] = {
        setting.key: {"value": setting.default, "origin": resolved.origins[setting.key]}
        for setting in settings_of(resolved.settings)
    }
    rows = _rows(machine, (engine, why), resolved)
    common.show(
        figures,
        lambda console: TerminalWriter(console).blocks([Pairs(rows=rows)]),
    )


def _native_part() -> OptionalComponent:
    from ownwords.native import bindings

    installed = bindings.describe_library() if bindings.load_library() else ""
    return OptionalComponent(
        name="C++ kernels",
        purpose="write without PyTorch, and train faster on the CPU",
        installed=installed,
        problem="" if installed else bindings.library_problem(),
        command="" if installed else "install a C++ compiler, then install ownwords again",
    )


def _rows(
    machine: Machine, writing: tuple[str, str], resolved: Resolved[Settings]
) -> list[tuple[str, Line]]:
    cpu, memory, disk = machine.cpu, machine.memory, machine.disk
    rows: list[tuple[str, Line]] = [
        ("System", f"{machine.system}, Python {machine.python}"),
        ("Processor", f"{cpu.model or 'unknown'}, {cpu.architecture}"),
        (
            "Cores",
            f"{cpu.physical_cores or 'unknown'} physical, {cpu.logical_cores} logical,"
            f" {cpu.usable_cores} usable here; using {count(machine.threads, 'thread')}",
        ),
        ("Memory", f"{_gb(memory.total_bytes)}, {_gb(memory.available_bytes)} available"),
        ("Disk", f"{_gb(disk.available_bytes)} free of {_gb(disk.total_bytes)}"),
        (
            "SQLite",
            f"{machine.sqlite}, full-text search (FTS5) "
            + ("present" if machine.full_text_search else "missing: use another build of Python"),
        ),
    ]
    for device in machine.devices:
        size = f", {_gb(device.memory_bytes)}" if device.memory_bytes else ""
        dtypes = ", ".join(device.dtypes) or "cannot be used with this PyTorch"
        rows.append(("Device", f"{device.kind}: {device.name}{size}; {dtypes}"))
    engine, why = writing
    rows.append(("Writing", (engine or "not possible") + (f": {why}" if why else "")))
    for part in machine.parts:
        state = part.installed or ("broken: " + part.problem if part.problem else "missing")
        rows.append((part.name, f"{state} ({part.purpose})"))
        if part.command:
            rows.append(("", f"to add it: {part.command}"))
    changed = [
        f"{setting.key} = {setting.default} ({resolved.origins[setting.key]})"
        for setting in settings_of(resolved.settings)
        if resolved.origins[setting.key] != "default"
    ]
    rows += [("Setting", text) for text in changed or ["all defaults"]]
    return rows


def _gb(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count else "unknown"
