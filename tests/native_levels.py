"""The compiled library of each instruction set that was built and runs here."""

import sys

from ownwords.native import bindings
from ownwords.native.bindings import NativeLibrary
from ownwords.native.build import ISA_FLAGS, Isa, library_path


def isas() -> list[Isa]:
    """From the baseline to the one in use; empty where nothing was built."""
    best = bindings.load_library()
    if best is None:
        return []
    return [
        isa
        for isa in ISA_FLAGS
        if isa <= best.isa and best.runs_isa(isa) and library_path(isa).exists()
    ]


def library_at(isa: Isa) -> NativeLibrary:
    """The library for an instruction set, even if the processor supports a better one."""
    return NativeLibrary(library_path(isa), isa)


if __name__ == "__main__":
    sys.stdout.write("\n".join(isa.label for isa in isas()) + "\n")
