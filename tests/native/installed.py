"""Check that the C++ library of an installed package exists, loads and computes."""

import ctypes
import sys

from ownwords.native.bindings import describe, load_library, missing_reason


def main() -> int:
    """Return 1 if there is none, or it computes something else."""
    library = load_library()
    if library is None:
        sys.stdout.write(missing_reason() + "\n")
        return 1
    gate_up, y = (ctypes.c_float * 2)(0.0, 3.0), (ctypes.c_float * 1)(1.0)
    library.gated_activation(0, 0, ctypes.addressof(gate_up), ctypes.addressof(y), 1, 1)
    sys.stdout.write(describe() + "\n")
    return int(y[0] != 0.0)  # silu(0) * 3


if __name__ == "__main__":
    sys.exit(main())
