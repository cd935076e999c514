"""The C++ libraries are built as far as possible, and the best one is used."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from native_levels import isas, library_at
from ownwords.core.errors import ConfigError
from ownwords.native import bindings, build
from ownwords.native.build import ISA_FLAGS, Isa, library_path

needs_compiler = pytest.mark.skipif(build.compiler() is None, reason="there is no C++ compiler")
needs_library = pytest.mark.skipif(
    not library_path(Isa.BASELINE).exists(), reason="the part in C++ is not built"
)
# Small sources in place of ours: what is compiled is not what is asked here.
SMALL = {
    "one.cpp": "int twice(int);\nint answer() { return twice(0); }\n",
    "inner/two.cpp": "int twice(int x) { return 2 * x; }\n",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SMALL.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "source")
    folder = tmp_path / "made"
    folder.mkdir()
    return folder


@needs_compiler
def test_exactly_the_libraries_are_built(small: Path) -> None:
    assert build.build(small) == ""
    assert sorted(small.iterdir()) == sorted(library_path(isa, small) for isa in ISA_FLAGS)
    assert build.libraries(small) == [library_path(isa, small) for isa in ISA_FLAGS]


@needs_compiler
@pytest.mark.skipif(build.MACHINE != "x86_64", reason="has no build that could fail")
def test_a_failed_build_does_not_stop_the_others(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_path(Isa.AVX2, small).write_bytes(b"of earlier sources")
    monkeypatch.setitem(ISA_FLAGS, Isa.AVX2, ("-march=no-such-processor",))
    problem = build.build(small, (Isa.BASELINE, Isa.AVX2, Isa.AVX512))
    assert "failed" in problem
    assert "no-such-processor" in problem
    assert build.libraries(small) == [
        library_path(isa, small) for isa in (Isa.BASELINE, Isa.AVX512)
    ]


@needs_compiler
def test_a_compile_error_is_reported_once_and_leaves_no_files(small: Path) -> None:
    (build.SOURCES / "inner/two.cpp").write_text("this is no C++\n", "utf-8")
    assert "error" in build.build(small, (Isa.BASELINE,))
    assert not list(small.iterdir())


@needs_compiler
@pytest.mark.skipif(build.MACHINE != "x86_64", reason="has no build that could fail")
def test_for_this_machine_the_baseline_and_the_best_that_compiles_are_built(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = 'extern "C" __attribute__((visibility("default")))'
    answer = f"{exported} int ownwords_best_isa() {{ return {int(Isa.AVX512)}; }}\n"
    (build.SOURCES / "best.cpp").write_text(answer, "utf-8")
    for isa in ISA_FLAGS:
        library_path(isa, small).write_bytes(b"of earlier sources")
    assert build.build_for_here(small) == ""
    assert build.libraries(small) == [
        library_path(isa, small) for isa in (Isa.BASELINE, Isa.AVX512)
    ]
    assert b"of earlier" not in library_path(Isa.AVX512, small).read_bytes()
    monkeypatch.setitem(ISA_FLAGS, Isa.AVX512, ("-march=too-new",))
    monkeypatch.setitem(ISA_FLAGS, Isa.AVXVNNI, ("-march=new",))
    assert "too-new" in build.build_for_here(small)  # the first problem
    assert build.libraries(small) == [library_path(isa, small) for isa in (Isa.BASELINE, Isa.AVX2)]


# What -march=x86-64-v3 allows: leaf, register and bit of CPUID.
V3_FEATURES = {
    "SSE3": (1, "c", 0),
    "SSSE3": (1, "c", 9),
    "FMA": (1, "c", 12),
    "CMPXCHG16B": (1, "c", 13),
    "SSE4.1": (1, "c", 19),
    "SSE4.2": (1, "c", 20),
    "MOVBE": (1, "c", 22),
    "POPCNT": (1, "c", 23),
    "OSXSAVE": (1, "c", 27),
    "F16C": (1, "c", 29),
    "BMI1": (7, "b", 3),
    "BMI2": (7, "b", 8),
    "LAHF": (0x80000001, "c", 0),
    "LZCNT": (0x80000001, "c", 5),
}
LACKING = """
#include <cpuid.h>
static unsigned lacks_leaf, lacks_b, lacks_c;
static int lacking(unsigned leaf, unsigned part, unsigned *a, unsigned *b, unsigned *c,
                   unsigned *d) {
    const int known = __get_cpuid_count(leaf, part, a, b, c, d);
    if (leaf == lacks_leaf) *b &= ~lacks_b, *c &= ~lacks_c;
    return known;
}
#define __get_cpuid(leaf, ...) lacking(leaf, 0, __VA_ARGS__)
#define __get_cpuid_count lacking
#include "isa.cpp"
#include <cstdio>
#include <cstdlib>
int main(int, char **arguments) {
    const unsigned bit = 1u << std::atoi(arguments[3]);
    lacks_leaf = unsigned(std::strtoul(arguments[1], nullptr, 0));
    (*arguments[2] == 'b' ? lacks_b : lacks_c) = bit;
    std::printf("%d", ownwords_best_isa());
}
"""


@needs_compiler
@pytest.mark.skipif(build.MACHINE != "x86_64", reason="CPUID is of x86")
def test_a_processor_that_lacks_a_feature_is_not_given_code_that_uses_it(tmp_path: Path) -> None:
    best = build.best_here()
    if best is None or best < Isa.AVX2:
        pytest.skip("this processor has no AVX2")
    source, program = tmp_path / "lacking.cpp", tmp_path / "lacking"
    source.write_text(LACKING, "utf-8")
    command = [str(build.compiler()), *build.FLAGS, "-O0", str(source), "-o", str(program)]
    subprocess.run(command, check=True)

    def best_without(leaf: int, register: str, bit: int) -> Isa:
        call = [str(program), str(leaf), register, str(bit)]
        return Isa(int(subprocess.run(call, capture_output=True, check=True).stdout))

    assert best_without(2, "c", 0) >= best  # nothing is asked of leaf 2
    for name, place in V3_FEATURES.items():
        assert best_without(*place) == Isa.BASELINE, name


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
def test_a_build_for_others_has_every_library(
    version: str, environment: dict[str, str], stays: bool
) -> None:
    assert build.is_for_here(version, environment) == stays


def test_without_a_compiler_the_libraries_of_earlier_sources_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_path(Isa.BASELINE, tmp_path).write_bytes(b"of earlier sources")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler was found" in build.build(tmp_path)
    assert not list(tmp_path.iterdir())


@needs_library
def test_an_unloadable_library_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(bindings.VARIABLE, raising=False)
    shutil.copyfile(library_path(Isa.BASELINE), library_path(Isa.BASELINE, tmp_path))
    for isa in ISA_FLAGS:
        if isa > Isa.BASELINE:
            library_path(isa, tmp_path).write_bytes(b"damaged")
    library = bindings.load_library(tmp_path)
    assert library is not None
    assert library.isa == Isa.BASELINE
    foreign = tmp_path / "others"
    foreign.mkdir()
    library_path(Isa.BASELINE, foreign).write_bytes(b"damaged")
    assert bindings.load_library(foreign) is None
    assert bindings.load_library(tmp_path / "nothing") is None


@needs_compiler
@needs_library
def test_a_library_of_other_sources_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its structs can have another layout: one more field moves all later ones."""
    monkeypatch.delenv(bindings.VARIABLE, raising=False)
    changed = tmp_path / "changed"
    shutil.copytree(build.SOURCES, changed)
    with (changed / "api.h").open("a", encoding="utf-8") as file:
        file.write("\n// One byte more.\n")
    assert build.source_hash(changed) != build.source_hash(build.SOURCES)
    shutil.copyfile(library_path(Isa.BASELINE), library_path(Isa.BASELINE, tmp_path))
    monkeypatch.setattr(bindings, "SOURCES", changed)
    assert bindings.load_library(tmp_path) is None
    assert "compiled from other sources" in bindings.library_problem(tmp_path)


@needs_library
def test_the_environment_chooses_the_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for isa in isas():
        monkeypatch.setenv(bindings.VARIABLE, f" {isa.label.upper()} ")
        library = bindings.load_library()
        assert library is not None
        assert library.isa == isa
    monkeypatch.setenv(bindings.VARIABLE, "none")
    assert bindings.load_library() is None
    assert bindings.library_problem() == "the C++ library is switched off by OWNWORDS_ISA=none"
    monkeypatch.setenv(bindings.VARIABLE, "avx9")
    with pytest.raises(ConfigError, match=r"OWNWORDS_ISA=avx9 is not one of none, "):
        bindings.load_library()


@needs_library
def test_a_library_for_another_processor_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(bindings.VARIABLE, raising=False)
    shutil.copyfile(library_path(Isa.BASELINE), library_path(Isa.BASELINE, tmp_path))
    library = bindings.load_library(tmp_path)
    assert library is not None
    label = Isa.BASELINE.label
    best = build.best_here()
    assert best is not None
    if best == Isa.BASELINE:
        assert bindings.describe_library(tmp_path) == f"{label}, the best for this processor"
        return
    notice = f"{label}, where this processor can run {best.label}: "
    assert bindings.describe_library(tmp_path) == notice + (
        f"kernels-{best.label}.so is missing: install ownwords again"
    )
    monkeypatch.setenv(bindings.VARIABLE, label)
    assert bindings.describe_library(tmp_path) == notice + "chosen by OWNWORDS_ISA"


@needs_library
def test_every_library_that_runs_here_agrees_with_the_baseline() -> None:
    baseline = library_at(Isa.BASELINE)
    assert isas()
    for isa in isas():
        assert library_at(isa).agrees_with(baseline), isa.label


@needs_compiler
@needs_library
def test_a_library_that_computes_wrong_numbers_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with all functions, but whose kernels do nothing."""
    monkeypatch.delenv(bindings.VARIABLE, raising=False)
    best = build.best_here()
    if best in (None, Isa.BASELINE):
        pytest.skip("this processor has no better instruction set than the baseline")
    shutil.copyfile(library_path(Isa.BASELINE), library_path(Isa.BASELINE, tmp_path))
    functions = set(bindings.interface().functions) - {"ownwords_source_hash"}
    wrong = "".join(f"int {name}() {{ return 0; }}\n" for name in functions)
    wrong += (
        f'const char *ownwords_source_hash() {{ return "{build.source_hash(build.SOURCES)}"; }}\n'
    )
    source = tmp_path / "wrong.c"
    source.write_text(wrong)
    path = library_path(best, tmp_path)
    subprocess.run(
        [str(build.compiler()), "-x", "c", "-shared", "-fPIC", str(source), "-o", str(path)],
        check=True,
    )
    library = bindings.load_library(tmp_path)
    assert library is not None
    assert library.isa == Isa.BASELINE
    assert f"{path.name} computes wrong numbers" in bindings.describe_library(tmp_path)
    assert "computes wrong numbers" in bindings.library_problem(tmp_path)  # so the program fails
    monkeypatch.setenv(bindings.VARIABLE, best.label)
    with pytest.raises(ConfigError, match="computes wrong numbers"):
        bindings.load_library(tmp_path)


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
