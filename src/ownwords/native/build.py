"""Compiles the C++ sources into one library per instruction set, with g++ or clang++.

The build hook runs this at install. A wheel for distribution contains every instruction set, and
the best is chosen at run time. An install from source contains only the baseline, which detects the
processor's instruction sets, and the best library for this machine. The environment variable
OWNWORDS_LEVELS=all or own overrides that. `python -m ownwords.native.build` builds all in place.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import IntEnum
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
MACHINE = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
WINDOWS, MAC = sys.platform == "win32", sys.platform == "darwin"
# On Windows, clang++ needs Microsoft's libraries, which may be missing.
COMPILERS = ("g++", "clang++", "c++") if WINDOWS else ("c++", "g++", "clang++")
_OLDEST_MAC = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or (
    "11.0" if MACHINE == "aarch64" else "10.15"
)
_FOR_MAC = ("-arch", platform.machine(), f"-mmacosx-version-min={_OLDEST_MAC}")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-pthread",
    "-fopenmp-simd",  # for `omp simd` only, not for threads
    "-fno-math-errno",
    "-fno-trapping-math",
    *(() if WINDOWS else ("-fPIC",)),
    *(_FOR_MAC if MAC else ()),
    f"-I{SOURCES}",
)
# On Windows the library must not depend on the compiler's runtime libraries.
_LINKED = ("-shared", "-pthread", *(("-static",) if WINDOWS else ()))

# g++ assumes that the stack is aligned for long vectors, but on Windows it is not.
_UNALIGNED = ("-Wa,-muse-unaligned-vector-move",) if WINDOWS else ()


class Isa(IntEnum):
    """Instruction sets that libraries are compiled for, with the values of `Isa` in api.h."""

    BASELINE = 0
    NEON_DOTPROD = 1
    NEON_BF16 = 2
    AVX2 = 3
    AVXVNNI = 4
    AVX512 = 5
    AVX512BF16 = 6
    AMX = 7

    @property
    def label(self) -> str:
        """The name used in file names and in OWNWORDS_ISA."""
        if self == Isa.BASELINE:
            return {"x86_64": "sse2", "aarch64": "neon"}.get(MACHINE, "baseline")
        return self.name.lower().replace("_", "-")


_AVX2 = ("-march=x86-64-v3", *_UNALIGNED)
_AVX512 = ("-march=x86-64-v4", "-mprefer-vector-width=512", "-mavx512vnni", *_UNALIGNED)
_AVX512BF16 = (*_AVX512, "-mavx512bf16")


def _isa_flags() -> dict[Isa, tuple[str, ...]]:
    """Return the compiler flags of each instruction set for this architecture and system."""
    if MACHINE == "x86_64":
        flags = {
            Isa.BASELINE: (),
            Isa.AVX2: _AVX2,
            Isa.AVXVNNI: (*_AVX2, "-mavxvnni"),
            Isa.AVX512: _AVX512,
            Isa.AVX512BF16: _AVX512BF16,
            Isa.AMX: (*_AVX512BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
        }
        most = Isa.AVX512 if MAC else Isa.AVX512BF16 if WINDOWS else Isa.AMX
        return {isa: options for isa, options in flags.items() if isa <= most}
    if MACHINE == "aarch64" and sys.platform == "linux":
        return {
            Isa.BASELINE: (),
            Isa.NEON_DOTPROD: ("-march=armv8.2-a+dotprod",),
            Isa.NEON_BF16: ("-march=armv8.2-a+dotprod+bf16",),
        }
    # On a Mac the compiler's default target is Apple's oldest processor.
    return {Isa.BASELINE: ()}


ISA_FLAGS = _isa_flags()


def library_path(isa: Isa, folder: Path = SOURCES.parent) -> Path:
    """Return the path of an instruction set's library, whether or not it exists."""
    return folder / f"kernels-{isa.label}.{'dll' if WINDOWS else 'so'}"


def libraries(folder: Path = SOURCES.parent) -> list[Path]:
    """Return the paths of the libraries that have been built."""
    return [path for path in (library_path(isa, folder) for isa in ISA_FLAGS) if path.exists()]


@cache
def source_hash(folder: Path | None = None) -> str:
    """Return the SHA-256 of all sources, which is also compiled into the libraries."""
    digest = hashlib.sha256()
    # This runs at every load, and pathlib would take 10 ms.
    for path, folders, names in os.walk(folder or SOURCES):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".h", ".cpp")):
                with open(os.path.join(path, name), "rb") as file:  # noqa: PTH118, PTH123
                    digest.update(name.encode() + file.read())
    return digest.hexdigest()


def wheel_platform() -> str:
    """Return the platform tag of a wheel that contains these libraries."""
    if MAC:  # the installed Python may be universal, or target older systems
        major, minor = [*_OLDEST_MAC.split("."), "0"][:2]
        # From macOS 11 on, platform tags use the major version only.
        return f"macosx_{major}_{minor if major == '10' else '0'}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def sources() -> list[Path]:
    """Return the C++ sources, all of which are compiled into every library."""
    return sorted(SOURCES.rglob("*.cpp"))


def compiler() -> str | None:
    """Return the compiler that CXX names, or the first that is installed."""
    cxx = os.environ.get("CXX", "").strip()
    return shutil.which(cxx) if cxx else next(filter(None, map(shutil.which, COMPILERS)), None)


def build(folder: Path = SOURCES.parent, isas: Iterable[Isa] = tuple(ISA_FLAGS)) -> str:
    """Build the libraries of `isas` in `folder`; return the first problem as a sentence, or "".

    A library that cannot be built is removed, even if it is from an earlier build.
    """
    problems: list[str] = []
    # Largest first, so that no long compilation is left for the end.
    largest_first = sorted(sources(), key=lambda path: -path.stat().st_size)
    with (
        tempfile.TemporaryDirectory(prefix="ownwords-") as scratch,
        ThreadPoolExecutor(os.cpu_count() or 1) as workers,
    ):
        jobs = {
            isa: [workers.submit(_compile, isa, path, Path(scratch)) for path in largest_first]
            for isa in isas
        }
        for isa, objects in jobs.items():
            try:
                _link(isa, [job.result() for job in objects], library_path(isa, folder))
            except _BuildError as error:
                problems.append(str(error))
                with suppress(OSError):  # Windows cannot delete or replace a library in use
                    library_path(isa, folder).unlink(missing_ok=True)
            except OSError as error:
                problems.append(f"{library_path(isa).name} could not be replaced: {error.strerror}")
    return next(iter(problems), "")


def build_for_here(folder: Path = SOURCES.parent) -> str:
    """Build the baseline and the best library for this processor; return the same as `build`.

    If the compiler is too old for the best one, the next best one is built. Libraries for other
    instruction sets are removed, because they may come from earlier sources.
    """
    problems = [build(folder, [Isa.BASELINE])]
    best, is_built = best_here(folder) or Isa.BASELINE, False
    for isa in sorted(ISA_FLAGS.keys() - {Isa.BASELINE}, reverse=True):
        if isa > best or is_built:
            library_path(isa, folder).unlink(missing_ok=True)
        else:
            problems.append(build(folder, [isa]))
            is_built = library_path(isa, folder).exists()
    return next(filter(None, problems), "")


def best_here(folder: Path = SOURCES.parent) -> Isa | None:
    """Ask the baseline library for the best instruction set of this processor; None without it."""
    try:
        best: int = ctypes.CDLL(str(library_path(Isa.BASELINE, folder))).ownwords_best_isa()
    except (OSError, AttributeError):
        return None
    return max(isa for isa in ISA_FLAGS if isa <= best)


def is_for_here(version: str, environment: Mapping[str, str]) -> bool:
    """Whether the build is for this machine only; `version` is hatchling's build version.

    True for an editable install and for a build that pip installs; False for a wheel made by
    `python -m build` or cibuildwheel.
    """
    choice = environment.get("OWNWORDS_LEVELS", "").strip().lower()
    if choice in ("all", "own"):
        return choice == "own"
    if "CIBUILDWHEEL" in environment:
        return False
    return version == "editable" or "PIP_BUILD_TRACKER" in environment


class _BuildError(Exception):
    """The compiler is missing or failed."""


def _compile(isa: Isa, source: Path, scratch: Path) -> str:
    name = source.relative_to(SOURCES).as_posix().replace("/", "-")
    compiled = str(scratch / f"{isa.label}-{name}.o")
    _run(isa, f'-DOWNWORDS_SOURCE_HASH="{source_hash()}"', "-c", str(source), "-o", compiled)
    return compiled


def _link(isa: Isa, objects: Iterable[str], into: Path) -> None:
    temporary = into.with_suffix(".new")
    _run(isa, *_LINKED, *sorted(objects), "-o", str(temporary))
    temporary.replace(into)


def _run(isa: Isa, *arguments: str) -> None:
    cxx = compiler()
    if cxx is None:
        raise _BuildError("no C++ compiler was found (CXX, " + ", ".join(COMPILERS) + ")")
    command = [cxx, *FLAGS, *ISA_FLAGS[isa], *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _BuildError(f"{cxx} could not be run: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        error_line = next((line for line in lines if "error" in line), "no reason given")
        raise _BuildError(f"{cxx} failed: {error_line.strip()[:200]}")


if __name__ == "__main__":
    problem = build()
    sys.stdout.write(f"{problem or 'built'}\n")
    sys.exit(1 if problem else 0)
