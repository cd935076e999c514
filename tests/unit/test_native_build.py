"""The part in C++ is built as far as it can be, and what is there is used."""

import ctypes
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ownwords.native import bindings, build

needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="there is no C++ compiler")
needs_library = pytest.mark.skipif(
    not build.library(0).exists(), reason="the part in C++ is not built"
)
# Small sources in place of ours: what is compiled is not what is asked here.
SMALL = {
    "one.cpp": 'extern "C" int ownwords_level();\nint twice(int);\n'
    "int ownwords_level() { return twice(0); }\n",
    "inner/two.cpp": "int twice(int x) { return 2 * x; }\n",
    "first.h": "#include <cstdint>\n",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SMALL.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "source")
    made = tmp_path / "made"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def _forget() -> None:
    bindings.load_library.cache_clear()


@needs_compiler
def test_all_levels_are_built_and_nothing_is_left_beside_them(small: Path) -> None:
    assert build.build(small) == ""
    assert sorted(small.iterdir()) == sorted(build.library(level, small) for level in build.LEVELS)
    assert build.libraries(small) == [build.library(level, small) for level in build.LEVELS]


@needs_compiler
@pytest.mark.skipif(build.MACHINE != "x86_64", reason="has no level that could fail")
def test_a_level_that_fails_takes_no_other_with_it(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.library(3, small).write_bytes(b"of earlier sources")
    monkeypatch.setitem(build.LEVELS, 3, ("-march=no-such-processor",))
    problem = build.build(small, (0, 3, 4))
    assert "failed" in problem
    assert "no-such-processor" in problem
    assert build.libraries(small) == [build.library(level, small) for level in (0, 4)]


@needs_compiler
def test_what_does_not_compile_is_told_once_and_leaves_nothing(small: Path) -> None:
    (build.SOURCES / "inner/two.cpp").write_text("this is no C++\n", "utf-8")
    assert "error" in build.build(small, (0,))
    assert not list(small.iterdir())


@needs_compiler
@pytest.mark.skipif(build.WINDOWS, reason="the compiler is a script of the shell")
def test_a_compiler_that_cannot_read_ahead_does_without(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = small.parent / "compiler"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *c++-header*) exit 1;; esac\nexec {build.compiler()} "$@"\n',
        "utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    assert build.build(small, (0,)) == ""
    assert build.libraries(small) == [build.library(0, small)]


@needs_compiler
def test_for_this_machine_alone_there_are_the_plain_level_and_its_best(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = max(build.LEVELS)
    monkeypatch.setattr(build, "best_here", lambda: best)
    for level in build.LEVELS:
        build.library(level, small).write_bytes(b"of earlier sources")
    assert build.build_for_here(small) == ""
    assert build.libraries(small) == [build.library(level, small) for level in sorted({0, best})]
    assert b"of earlier" not in build.library(best, small).read_bytes()


@needs_compiler
@pytest.mark.skipif(build.MACHINE != "x86_64", reason="has no level that could fail")
def test_where_the_compiler_is_too_old_for_the_best_level_it_is_the_next(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "best_here", lambda: 4)
    monkeypatch.setitem(build.LEVELS, 4, ("-march=no-such-processor",))
    assert "no-such-processor" in build.build_for_here(small)
    assert build.libraries(small) == [build.library(level, small) for level in (0, 3)]


@needs_compiler
def test_a_processor_that_cannot_be_asked_gets_every_level(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build.best_here() is None  # there is no library.cpp among the small sources
    assert build.build_for_here(small) == ""
    assert build.libraries(small) == [build.library(level, small) for level in build.LEVELS]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler was found" in build.build_for_here(small)
    assert build.libraries(small) == []


@needs_compiler
def test_nothing_but_a_level_is_taken_for_one(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = build.SOURCES / "library.cpp"
    said = 'extern "C" int ownwords_level();\nint ownwords_level() { return %d; }\n'
    asked.write_text(said % 0, "utf-8")
    assert build.best_here() == 0
    asked.write_text(said % 77, "utf-8")
    assert build.best_here() is None
    monkeypatch.setattr(build, "LEVELS", {0: (), 3: ()})
    asked.write_text(said % 5, "utf-8")  # of a system that has no libraries for its best
    assert build.best_here() == 3


@needs_compiler
@needs_library
def test_the_compiler_is_told_of_the_level_that_the_loader_takes() -> None:
    plain = ctypes.CDLL(str(build.library(0)))
    best = build.best_here()
    assert best == max(level for level in build.LEVELS if level <= plain.ownwords_level())


@pytest.mark.parametrize(
    ("version", "environment", "stays"),
    [
        ("editable", {}, True),
        ("standard", {}, False),  # python -m build
        ("standard", {"PIP_BUILD_TRACKER": "/tmp/x"}, True),  # pip install .
        ("standard", {"PIP_BUILD_TRACKER": "/tmp/x", "CIBUILDWHEEL": "1"}, False),
        ("editable", {"OWNWORDS_LEVELS": "all"}, False),
        ("standard", {"OWNWORDS_LEVELS": "Own"}, True),
        ("standard", {"OWNWORDS_LEVELS": ""}, False),
    ],
)
def test_what_is_built_for_others_has_every_level(
    version: str, environment: dict[str, str], stays: bool
) -> None:
    assert build.is_for_here(version, environment) == stays


def test_without_a_compiler_the_libraries_of_earlier_sources_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.library(0, tmp_path).write_bytes(b"of earlier sources")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler was found" in build.build(tmp_path)
    assert not list(tmp_path.iterdir())


@needs_library
def test_what_cannot_be_loaded_is_passed_over(tmp_path: Path) -> None:
    shutil.copyfile(build.library(0), build.library(0, tmp_path))
    for level in build.LEVELS:
        if level > 0:
            build.library(level, tmp_path).write_bytes(b"damaged")
    found = bindings.load_library(tmp_path)
    assert found is not None
    assert found.level == 0
    others = tmp_path / "others"
    others.mkdir()
    build.library(0, others).write_bytes(b"damaged")
    assert bindings.load_library(others) is None


@needs_library
def test_an_installed_library_is_checked_by_its_own_program() -> None:
    program = Path(__file__).parents[1] / "native/installed.py"
    done = subprocess.run([sys.executable, program], capture_output=True, check=False)
    assert (done.returncode, b"compiled kernels" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("oldest", "machine", "expected"),
    [
        ("10.15", "x86_64", "macosx_10_15_x86_64"),
        ("12.3", "arm64", "macosx_12_0_arm64"),
        ("13", "arm64", "macosx_13_0_arm64"),
    ],
)
def test_on_a_mac_wheels_are_for_one_kind_of_processor(
    oldest: str, machine: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MAC", True)
    monkeypatch.setattr(build, "_OLDEST_MAC", oldest)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert build.wheel_platform() == expected
