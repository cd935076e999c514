"""Compile the part in C++: one library for each level of instructions, with any plain compiler.

Run by the build hook at install. Nothing here is for this machine alone: which library is loaded
is decided where it runs.
"""

import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
    "-fopenmp-simd",  # its pragmas for vectors; threads are torch's, or the engine's own
    "-fno-math-errno",
    "-fno-trapping-math",
)
_V4 = ("-march=x86-64-v4", "-mprefer-vector-width=512")
_V5 = (*_V4, "-mavx512vnni", "-mavx512bf16")
# By the number that the library gives its levels.
LEVELS = {
    0: (),
    3: ("-march=x86-64-v3",),
    4: _V4,
    5: _V5,
    6: (*_V5, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
}


def library(level: int, folder: Path = SOURCES.parent) -> Path:
    """Where the library of a level is, or would be."""
    return folder / f"kernels-{level}.so"


def sources() -> list[str]:
    """All that is compiled, into one library."""
    return sorted(str(path) for path in SOURCES.rglob("*.cpp"))


def compiler() -> str | None:
    """The compiler that CXX names, or the first there is."""
    named = os.environ.get("CXX", "").strip()
    return shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)


def build(folder: Path = SOURCES.parent, levels: tuple[int, ...] = ()) -> str:
    """Make the libraries in `folder`; what went wrong, in a sentence, or nothing.

    Those of all `levels` this kind of processor has; of the first that failed it is told.
    """
    found = compiler()
    if found is None:
        return "no C++ compiler was found (CXX, c++, g++, clang++)"
    if sys.platform == "win32":
        return "the part in C++ is not built on Windows"
    intel = platform.machine().lower() in ("x86_64", "amd64")
    chosen = levels or (tuple(LEVELS) if intel else (0,))
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        problems = list(workers.map(lambda level: _build(found, level, folder), chosen))
    return next(filter(None, problems), "")


def _build(found: str, level: int, folder: Path) -> str:
    into = library(level, folder)
    beside = into.with_suffix(".new")
    flags = (*FLAGS, *LEVELS[level], f"-I{SOURCES}")
    try:
        done = subprocess.run(
            [found, *flags, *sources(), "-o", str(beside)],
            capture_output=True,
            timeout=600,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{found} could not be run: {error}"
    if done.returncode == 0:
        beside.replace(into)
        return ""
    beside.unlink(missing_ok=True)
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    said = next((line for line in lines if "error" in line), "no reason given")
    return f"{found} failed: {said.strip()[:200]}"
