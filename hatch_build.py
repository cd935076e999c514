"""Compiles the C++ part with the package; without a compiler the package has everything else."""

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """Compile, and set the wheel's tag; editable installs find the libraries in src."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "src/ownwords/native")
        # Loaded by itself: the package's dependencies are missing during its build.
        spec = importlib.util.spec_from_file_location("native_build", folder / "build.py")
        if spec is None or spec.loader is None:
            return
        native = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(native)
        here = native.is_for_here(version, os.environ)
        problem = native.build_for_here() if here else native.build()
        made = native.libraries()
        if problem:
            without = "some of its libraries" if made else "its part"
            self.app.display_warning(f"ownwords is installed without {without} in C++: {problem}")
        if not made:
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{native.wheel_platform()}"
        for path in made:
            inside = f"ownwords/native/{path.name}"
            build_data["force_include"][str(path)] = inside
