"""Opens a GGUF file in llama.cpp."""

from pathlib import Path
from typing import Any

import pytest


def open_llama(path: Path, **options: Any) -> Any:  # noqa: ANN401 - llama-cpp-python has no types
    """The model of a file; skips the test without llama-cpp-python."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    defaults = llama_cpp.llama_cpp.llama_model_default_params

    def plain() -> object:
        # Its kernels for AMX repack matrices, and crash at small and at narrow ones.
        params = defaults()
        params.use_extra_bufts = False
        return params

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_cpp.llama_cpp, "llama_model_default_params", plain)
        return llama_cpp.Llama(str(path), verbose=False, **options)
