"""Compile the part in C++: one library for each level of instructions, with any plain compiler.

Run by the build hook at install. A wheel for others has every level, and which is loaded is decided
where it runs. What is installed from source is for the machine it is compiled on: it has the level
of that processor, and the plain one, which is there to be asked. OWNWORDS_LEVELS=all (or own) in
the environment decides otherwise.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
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


def build_for_here(folder: Path = SOURCES.parent) -> str:
    """Make the plain library and the best one for this processor; otherwise as `build`.

    Where the compiler is too old for the best, it is the next below that it can make. Libraries of
    other levels go, as they would be of earlier sources.
    """
    best = best_here()
    if best is None:
        return build(folder)
    below = [level for level in LEVELS if 0 < level <= best]
    wanted = {0, *below[-1:]}
    problem = build(folder, sorted(wanted))
    while below and not library(below[-1], folder).exists() and library(0, folder).exists():
        below.pop()
        if below:
            wanted.add(below[-1])
            build(folder, below[-1:])
    for level in LEVELS.keys() - wanted:
        library(level, folder).unlink(missing_ok=True)
    return problem


def best_here() -> int | None:
    """The best level for this processor; None where nothing can be compiled and run to ask it."""
    found, asked = compiler(), SOURCES / "library.cpp"
    if found is None:
        return None
    with tempfile.TemporaryDirectory(prefix="ownwords-") as scratch:
        program, main = Path(scratch, "ask.exe"), Path(scratch, "main.cpp")
        main.write_text(
            'extern "C" int ownwords_level();\nint main() { return ownwords_level(); }\n', "utf-8"
        )
        include = ("-include", str(SOURCES / "first.h"))
        linked = ("-pthread", *(("-static",) if WINDOWS else ()))
        command = [found, *FLAGS, "-O0", *include, str(asked), str(main), *linked]
        try:
            subprocess.run(
                [*command, "-o", str(program)], capture_output=True, timeout=120, check=True
            )
            # The level is the program's exit status; what no level has ended it otherwise.
            asked_it = subprocess.run([program], capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
    said = asked_it.returncode
    return max(level for level in LEVELS if level <= said) if said in {*_INTEL, *_ARM} else None


def is_for_here(version: str, environment: Mapping[str, str]) -> bool:
    """Whether what is built stays on this machine, `version` being what hatchling calls it.

    So it is for an editable install, and for what pip builds to install; not for a wheel of
    `python -m build`, nor of cibuildwheel, whatever that builds with.
    """
    said = environment.get("OWNWORDS_LEVELS", "").strip().lower()
    if said in ("all", "own"):
        return said == "own"
    if "CIBUILDWHEEL" in environment:
        return False
    return version == "editable" or "PIP_BUILD_TRACKER" in environment


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
