"""Compile the part in C++: one library for each level of instructions, with any plain compiler.

Run by the build hook at install. Nothing here is for this machine alone: which library is loaded
is decided where it runs.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
MACHINE = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
WINDOWS, MAC = sys.platform == "win32", sys.platform == "darwin"
# On Windows clang++ by itself builds for Microsoft's libraries, which may not be there.
COMPILERS = ("g++", "clang++", "c++") if WINDOWS else ("c++", "g++", "clang++")
_OLDEST_MAC = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or (
    "11.0" if MACHINE == "aarch64" else "10.15"
)
_FOR_MAC = ("-arch", platform.machine(), f"-mmacosx-version-min={_OLDEST_MAC}")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fvisibility=hidden",
    "-pthread",
    "-fopenmp-simd",  # its pragmas for vectors; threads are torch's, or the engine's own
    "-fno-math-errno",
    "-fno-trapping-math",
    *(() if WINDOWS else ("-fPIC",)),
    *(_FOR_MAC if MAC else ()),
    f"-I{SOURCES}",
)
# On Windows nothing of the compiler's has to be there where the library is used.
_LINKED = ("-shared", "-pthread", *(("-static",) if WINDOWS else ()))

# g++ takes the stack of Windows to be aligned for long vectors, which it is not.
_UNALIGNED = ("-Wa,-muse-unaligned-vector-move",) if WINDOWS else ()
_V4 = ("-march=x86-64-v4", "-mprefer-vector-width=512", *_UNALIGNED)
_V5 = (*_V4, "-mavx512vnni", "-mavx512bf16")
_INTEL: dict[int, tuple[str, ...]] = {
    0: (),
    3: ("-march=x86-64-v3", *_UNALIGNED),
    4: _V4,
    5: _V5,
    6: (*_V5, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
}
_ARM: dict[int, tuple[str, ...]] = {0: (), 1: ("-march=armv8.2-a+dotprod",)}


def _levels() -> dict[int, tuple[str, ...]]:
    """Those that there are for this kind of processor, where this system lets them be used."""
    if MACHINE == "x86_64":
        most = 4 if MAC else 5 if WINDOWS else 6
        return {level: flags for level, flags in _INTEL.items() if level <= most}
    # On a Mac the compiler's own choice is the level of the oldest there is.
    return _ARM if MACHINE == "aarch64" and sys.platform == "linux" else {0: ()}


# What the compiler is told, by the number that the library gives its levels.
LEVELS = _levels()


def library(level: int, folder: Path = SOURCES.parent) -> Path:
    """Where the library of a level is, or would be."""
    return folder / f"kernels-{level}.{'dll' if WINDOWS else 'so'}"


def libraries(folder: Path = SOURCES.parent) -> list[Path]:
    """Those that have been built."""
    return [path for path in (library(level, folder) for level in LEVELS) if path.exists()]


def wheel_platform() -> str:
    """The last part of the name of a wheel with these libraries."""
    if MAC:  # Python may be built for several kinds of processor, or older systems
        major, minor = [*_OLDEST_MAC.split("."), "0"][:2]
        # From 11 on installers know systems by the first number alone.
        return f"macosx_{major}_{minor if major == '10' else '0'}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def sources() -> list[str]:
    """All that is compiled, into one library."""
    return sorted(str(path) for path in SOURCES.rglob("*.cpp"))


def compiler() -> str | None:
    """The compiler that CXX names, or the first there is."""
    named = os.environ.get("CXX", "").strip()
    return shutil.which(named) if named else next(filter(None, map(shutil.which, COMPILERS)), None)


def build(folder: Path = SOURCES.parent, levels: Iterable[int] = tuple(LEVELS)) -> str:
    """Make the libraries of `levels` in `folder`; what went wrong, in a sentence, or nothing.

    A level that fails has no library afterwards, not even one of earlier sources; of the first
    that failed it is told.
    """
    found = compiler()
    if found is None:
        for level in levels:
            library(level, folder).unlink(missing_ok=True)
        return "no C++ compiler was found (CXX, " + ", ".join(COMPILERS) + ")"
    # The longest last long; begun late they would leave the other processors idle.
    largest = sorted(sources(), key=lambda path: -Path(path).stat().st_size)
    with (
        tempfile.TemporaryDirectory(prefix="ownwords-") as scratch,
        ThreadPoolExecutor(os.cpu_count() or 1) as workers,
    ):
        tries = [_Level(found, level, Path(scratch, str(level))) for level in levels]
        list(workers.map(_Level.make_ready, tries))
        list(workers.map(lambda each: each[0].compile(each[1]), _pairs(tries, largest)))
        list(workers.map(lambda each: each.link(library(each.level, folder)), tries))
    return next((each.problem for each in tries if each.problem), "")


def _pairs(tries: list["_Level"], paths: list[str]) -> list[tuple["_Level", str]]:
    return [(each, path) for path in paths for each in tries]


class _Level:
    """The making of one library; once there is a problem nothing more is done."""

    def __init__(self, compiler: str, level: int, folder: Path) -> None:
        self.compiler, self.level, self.folder = compiler, level, folder
        self.problem = ""
        self._flags = (*FLAGS, *LEVELS[level])
        self._first = SOURCES / "first.h"
        self._objects: list[str] = []
        folder.mkdir()

    def make_ready(self) -> None:
        """What all sources include, read once; a compiler that cannot reads it again and again."""
        made = self.folder / "first.h"
        shutil.copyfile(self._first, made)
        self._run(*self._flags, "-x", "c++-header", str(made), "-o", f"{made}.gch")
        if not self.problem:
            self._first = made
        self.problem = ""

    def compile(self, source: str) -> None:
        into = self.folder / (Path(source).relative_to(SOURCES).as_posix().replace("/", "-") + ".o")
        self._run(*self._flags, "-include", str(self._first), "-c", source, "-o", str(into))
        self._objects.append(str(into))

    def link(self, into: Path) -> None:
        beside = into.with_suffix(".new")
        self._run(*self._flags, *_LINKED, *sorted(self._objects), "-o", str(beside))
        try:
            if not self.problem:
                beside.replace(into)
                return
            beside.unlink(missing_ok=True)
            into.unlink(missing_ok=True)
        except OSError as error:  # Windows keeps a library that is in use
            self.problem = self.problem or f"{into.name} could not be replaced: {error.strerror}"

    def _run(self, *arguments: str) -> None:
        if self.problem:
            return
        try:
            done = subprocess.run(
                [self.compiler, *arguments], capture_output=True, timeout=600, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.problem = f"{self.compiler} could not be run: {error}"
            return
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").splitlines()
            said = next((line for line in lines if "error" in line), "no reason given")
            self.problem = f"{self.compiler} failed: {said.strip()[:200]}"
