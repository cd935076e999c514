"""Compile the C++ sources with sanitizers, and run the tests written in C++.

For the baseline and the best instruction set of this processor: memory errors and undefined
behavior, and (for the best) races between threads. Without such a sanitizer the tests run plainly.
Warnings of the compiler are errors here.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ownwords.native import build
from ownwords.native.build import Isa

HERE = Path(__file__).parent
FLAGS = (
    *(flag for flag in build.FLAGS if flag != "-O3"),
    *("-O2", "-g", "-fno-omit-frame-pointer", "-Werror"),
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),  # of GCC 12's own immintrin.h
)


def main() -> int:
    """Run all tests; return 1 if one fails."""
    compiler = build.compiler()
    if compiler is None:
        _say("skipped: there is no C++ compiler")
        return 0
    best = build.best_here() or Isa.BASELINE
    failed = False
    for sanitizer, isas in (
        ("address,undefined", sorted({Isa.BASELINE, best})),
        ("thread", [best]),
    ):
        with tempfile.TemporaryDirectory() as folder:
            sanitize: tuple[str, ...] = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
            if not _works(compiler, sanitize, Path(folder)):
                _say(f"{sanitizer}: skipped, {compiler} has no such sanitizer here")
                sanitize = ()
            for isa in isas:
                _say(f"{sanitizer}, {isa.label}")
                failed |= not _passes(compiler, (*sanitize, *build.ISA_FLAGS[isa]), Path(folder))
    return int(failed)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _works(compiler: str, sanitize: tuple[str, ...], folder: Path) -> bool:
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}\n")
    command = [compiler, *sanitize, str(source), "-o", str(program)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return False
    return subprocess.run([program], capture_output=True, check=False).returncode == 0


def _passes(compiler: str, flags: tuple[str, ...], folder: Path) -> bool:
    def compiled(source: Path) -> Path:
        object_file = folder / f"{source.parent.name}-{source.stem}.o"
        subprocess.run(
            [compiler, *FLAGS, *flags, "-c", str(source), "-o", str(object_file)], check=True
        )
        return object_file

    tests = sorted(HERE.glob("test_*.cpp"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        objects = list(workers.map(compiled, build.sources()))
        programs = list(workers.map(compiled, tests))
    good = True
    for test in programs:
        program = test.with_suffix("")
        command = [compiler, *FLAGS, *flags, str(test), *map(str, objects), "-o", str(program)]
        subprocess.run(command, check=True)
        good &= subprocess.run([program], check=False).returncode == 0
    return good


if __name__ == "__main__":
    sys.exit(main())
