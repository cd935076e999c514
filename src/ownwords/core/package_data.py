"""The data files of the package."""

import tomllib
from pathlib import Path
from typing import Any


def toml_beside(module: str, name: str) -> dict[str, Any]:
    """The TOML file that lies beside a module, such as its words or selectors."""
    return tomllib.loads(Path(module).with_name(name).read_text("utf-8"))
