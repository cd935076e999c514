"""Loads the compiled library: declares its C interface with ctypes and chooses the best build.

A library whose results on small problems differ from the baseline's is replaced by the next best
one; the check takes a millisecond.

The environment variable OWNWORDS_ISA names the instruction set to use: none, sse2, avx2, avxvnni,
avx512, avx512bf16 or amx (on ARM: none, neon, neon-dotprod or neon-bf16). The default is the best
one available.
"""

import ctypes
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.native.build import ISA_FLAGS, SOURCES, Isa, library_path, source_hash

VARIABLE = "OWNWORDS_ISA"
_TYPES = {
    "void": None,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    **{f"{kind}_t": getattr(ctypes, f"c_{kind}") for kind in ("int32", "int64", "uint64")},
}
# Tolerance relative to the largest value: int8 and bfloat16 rounding depends on the ISA.
_ROUNDING = 0.005
# Functions that do not return a Status.
_PLAIN = ("ownwords_best_isa", "ownwords_runs_isa", "ownwords_has_fast_bf16")
# Keyed by the names of Status in api.h.
_MESSAGES = {
    "NULL_POINTER": "an array is missing",
    "BAD_SHAPE": "no model has these sizes",
    "BAD_TENSOR": "a tensor is unknown, given twice, or does not fit the model's sizes",
    "MISSING_TENSOR": "a tensor is missing",
    "NOT_FINITE": "it holds numbers that are not finite",
    "NO_MEMORY": "there is not enough memory",
    "BAD_ROW": "a row is not one of the cache's",
    "DUPLICATE_ROW": "a row is named twice in one call",
    "BAD_COUNT": "a number of rows or ids is out of range",
    "BAD_ID": "an id is not in the vocabulary",
    "CACHE_FULL": "a text is longer than the cache holds",
    "BAD_LENGTH": "a length is out of range",
    "INTERNAL_ERROR": "the compiled library failed",
}


class NativeError(OwnwordsError):
    """A function of the library failed; `status` is the name of its Status in api.h."""

    def __init__(self, status: str) -> None:
        super().__init__(
            _MESSAGES[status],
            hint="ask for less at once" if status == "NO_MEMORY" else "",
        )
        self.status = status


class Interface:
    """The constants, structs and functions that api.h declares, parsed from its text."""

    def __init__(self, header: str) -> None:
        code = re.sub(r"//.*|^#.*", "", header, flags=re.MULTILINE)
        self.constants: dict[str, int] = {}
        self.structs: dict[str, Any] = {}
        for kind, name, body in re.findall(r"(enum|struct) (\w+) \{(.*?)\}", code, re.DOTALL):
            if kind == "enum":
                for i, member in enumerate(filter(None, map(str.strip, body.split(",")))):
                    key, _, value = member.partition("=")
                    self.constants[key.strip()] = int(value or i)
            else:
                fields = [field for line in body.split(";") for field in self._fields(line)]
                self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
        self.functions = {
            name: (
                self._type(result),
                [self._type(each) for each in arguments.split(",") if each != "void"],
            )
            for result, name, arguments in re.findall(
                r"OWNWORDS_API ([^;(]*?)(ownwords_\w+)\(([^;]*)\);", code
            )
        }

    def names(self, prefix: str) -> list[str]:
        """Return the constants of an enum without their prefix, in order."""
        return [key.removeprefix(prefix) for key in self.constants if key.startswith(prefix)]

    def _fields(self, declaration: str) -> list[tuple[str, Any]]:
        """Parse the fields of a declaration such as `const float *a, *b`."""
        base, _, declarators = re.sub(r"const |struct ", "", declaration).strip().partition(" ")
        fields = []
        for each in filter(None, declarators.split(",")):
            name, _, count = each.strip(" *]\n").partition("[")
            field = ctypes.c_void_p if "*" in each else self._type(base)
            fields.append((name, field * self.constants[count] if count else field))
        return fields

    def _type(self, text: str) -> Any:  # noqa: ANN401 - a type of ctypes, or None
        if "*" in text:
            return ctypes.c_char_p if "char" in text else ctypes.c_void_p
        word = text.replace("const ", "").split()[0]
        return self.structs[word] if word in self.structs else _TYPES[word]


@cache
def interface() -> Interface:
    """Return the library's C interface, parsed from api.h."""
    return Interface((SOURCES / "api.h").read_text("utf-8"))


@dataclass(frozen=True)
class Rates:
    """GFLOP/s of one core by number type, in vectors or AMX tiles; 0 where there are none.

    The fields are in the order of `Rate` in api.h.
    """

    float32: float
    bfloat16: float
    bfloat16_tiles: float
    int16: float


class NativeLibrary:
    """A loaded library, with its functions as attributes without the prefix `ownwords_`.

    Functions that return a Status raise NativeError unless it is OK. `isa` is the instruction set
    that the library was compiled for.
    """

    def __init__(self, path: Path, isa: Isa) -> None:
        self.isa = isa
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in interface().functions.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
            if result is ctypes.c_int and name not in _PLAIN:
                function.errcheck = _check
            setattr(self, name.removeprefix("ownwords_"), function)

    @cached_property
    def rates(self) -> Rates:
        """How fast this library multiplies on this processor; measured in a few milliseconds."""
        rates = np.zeros(interface().constants["RATE_COUNT"])
        self.measure_rates(rates.ctypes.data)
        return Rates(*rates.tolist())

    @property
    def keeps_bf16(self) -> bool:
        """Whether weights may stay in bfloat16: without bfloat16 instructions PyTorch is slow."""
        return self.rates.bfloat16 > 0

    @property
    def has_fast_int16(self) -> bool:
        """Whether int16 is multiplied faster than float32 and bfloat16, as measured."""
        rates = self.rates
        return rates.int16 > 1.2 * max(rates.float32, rates.bfloat16, rates.bfloat16_tiles)

    def agrees_with(self, other: "NativeLibrary") -> bool:
        """Whether this library and another agree on small problems, up to rounding."""
        figures = np.zeros((2, interface().constants["CHECK_FIGURES"]), np.float32)
        self.check(figures[0].ctypes.data)
        other.check(figures[1].ctypes.data)
        products = interface().constants["CHECK_PRODUCTS"]
        return all(
            bool(np.abs(ours - theirs).max() <= _ROUNDING * np.abs(theirs).max())
            for ours, theirs in (figures[:, :products], figures[:, products:])
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers
        raise AttributeError(name)


_STATUSES = interface().names("STATUS_")


def _check(status: int, function: object, arguments: object) -> int:
    if status:
        raise NativeError(_STATUSES[status])
    return status


def load_library(folder: Path = SOURCES.parent) -> NativeLibrary | None:
    """Load the best library for this processor, or the one OWNWORDS_ISA names; None if missing.

    Raises ConfigError if OWNWORDS_ISA names a library that is missing or does not run here.
    """
    return _load(folder, os.environ.get(VARIABLE, "").strip().lower())[0]


def library_problem(folder: Path = SOURCES.parent) -> str:
    """Return why the best library for this processor is not in use; "" if it is."""
    return _load(folder, os.environ.get(VARIABLE, "").strip().lower())[1]


def describe_library(folder: Path = SOURCES.parent) -> str:
    """Name the library in use, and say why it is not the best if it is not."""
    library, problem = load_library(folder), library_problem(folder)
    if library is None:
        return problem
    label = library.isa.label
    if not problem:
        return f"{label}, the best for this processor"
    return f"{label}, where this processor can run {_best_of(library).label}: {problem}"


@cache
def _load(folder: Path, choice: str) -> tuple[NativeLibrary | None, str]:
    labels = {isa.label: isa for isa in ISA_FLAGS}
    if choice == "none":
        return None, f"the C++ library is switched off by {VARIABLE}=none"
    if choice and choice not in labels:
        raise ConfigError(f"{VARIABLE}={choice} is not one of none, {', '.join(labels)}")
    # The baseline runs on any processor, and detects its instruction sets.
    baseline, problem = _open(Isa.BASELINE, folder)
    if baseline is None:
        return None, problem
    best = _best_of(baseline)
    if choice:
        if not baseline.runs_isa(labels[choice]):
            raise ConfigError(
                f"{VARIABLE}={choice}: the best this processor can run is {best.label}"
            )
        library, problem = _open(labels[choice], folder)
        if library is None:
            raise ConfigError(f"{VARIABLE}={choice}: {problem}")
        return library, "" if library.isa == best else f"chosen by {VARIABLE}"
    problem = ""
    for isa in sorted(ISA_FLAGS, reverse=True):
        if baseline.runs_isa(isa):
            library, why = _open(isa, folder)
            problem = problem or why
            if library is not None:
                return library, problem
    return baseline, problem


def _best_of(library: NativeLibrary) -> Isa:
    """Return the best instruction set of this processor that this version is compiled for."""
    return max(isa for isa in ISA_FLAGS if isa <= library.best_isa())


@cache
def _open(isa: Isa, folder: Path) -> tuple[NativeLibrary | None, str]:
    """Load the library of an instruction set; returns it and "", or None and the problem."""
    path = library_path(isa, folder)
    if not path.exists():
        if isa == Isa.BASELINE:
            return None, "the C++ library was not compiled: install ownwords again"
        return None, f"{path.name} is missing: install ownwords again"
    try:
        digest = ctypes.CDLL(str(path)).ownwords_source_hash
        digest.restype = ctypes.c_char_p
        # A library compiled from other sources may have other struct layouts.
        if digest() != source_hash(SOURCES).encode():
            return None, f"{path.name} was compiled from other sources: install ownwords again"
        library = NativeLibrary(path, isa)
        # Code for some instruction sets was never tested on such a processor, so check the results.
        baseline = None if isa == Isa.BASELINE else _open(Isa.BASELINE, folder)[0]
        if baseline is not None and not library.agrees_with(baseline):
            return None, f"{path.name} computes wrong numbers on this processor: please report it"
    except (OSError, AttributeError):
        return None, f"{path.name} cannot be loaded; it may be damaged, or of another version"
    return library, ""


if __name__ == "__main__":  # run for every wheel
    sys.stdout.write(f"{describe_library()}\n")
    sys.exit(bool(library_problem()))
