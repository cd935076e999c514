"""Compile the part in C++: one library for each level of instructions, with any plain compiler.

Run by the build hook at install. Nothing here is for this machine alone: which library is loaded
is decided where it runs.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fopenmp-simd",  # its pragmas for vectors; threads are torch's
    "-fno-math-errno",
    "-fno-trapping-math",
)
# By the number that the library gives its levels.
LEVELS = {
    0: (),
    3: ("-march=x86-64-v3",),
    4: ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    5: ("-march=x86-64-v4", "-mavx512bf16", "-mprefer-vector-width=512"),
}


def library(level: int, folder: Path = SOURCES.parent) -> Path:
    """Where the library of a level is, or would be."""
    return folder / f"kernels-{level}.so"


def compiler() -> str | None:
    """The compiler that CXX names, or the first there is."""
    named = os.environ.get("CXX", "").strip()
    return shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)


def build(folder: Path = SOURCES.parent) -> str:
    """Make the libraries in `folder`; what went wrong, in a sentence, or nothing."""
    found = compiler()
    if found is None:
        return "no C++ compiler was found (CXX, c++, g++, clang++)"
    if sys.platform == "win32":
        return "the part in C++ is not built on Windows"
    intel = platform.machine().lower() in ("x86_64", "amd64")
    problem = ""
    for level in LEVELS if intel else (0,):
        into = library(level, folder)
        beside = into.with_suffix(".new")
        sources = sorted(str(path) for path in SOURCES.glob("*.cpp"))
        command = [found, *FLAGS, *LEVELS[level], *sources, "-o", str(beside)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{found} could not be run: {error}"
        if done.returncode == 0:
            beside.replace(into)
            continue
        beside.unlink(missing_ok=True)
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        said = next((line for line in lines if "error" in line), "no reason given")
        problem = f"{found} failed: {said.strip()[:200]}"
        if level == 0:
            break  # without this one the others are not looked for
    return problem
