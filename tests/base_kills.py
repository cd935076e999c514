"""Installs a tiny base from a package, and dies at a moment of it: started by tests/faults.

    python base_kills.py FOLDER HOME [MOMENT]

The package is made in FOLDER by the first call; a call without a moment goes on to the end.
"""

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import large_vocabulary
from families import TINY
from ownwords.base import catalogue, install, known_bases
from ownwords.base.known_bases import KNOWN_BASES, GGUFPackage
from ownwords.inference.export import export
from ownwords.models import atomic_dir
from ownwords.models.gguf import reading

MODULE = "tiny_gemma_package"


def dies(owner: object, name: str, *, after: bool = False) -> None:
    """From now on a call of that function is the last thing the process does, or just did."""
    real = getattr(owner, name)

    def deadly(*arguments: Any, **named: Any) -> None:  # noqa: ANN401
        if after:
            real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)


MOMENTS: dict[str, Callable[[], None]] = {
    "before the parts are joined": lambda: dies(install, "_assemble"),
    "when the parts are joined": lambda: dies(install, "_assemble", after=True),
    "when the weights are converted": lambda: dies(reading, "write_file", after=True),
    "when all is converted": lambda: dies(reading, "convert", after=True),
    "before it is opened": lambda: dies(catalogue, "check_usable"),
    "while it is put in its place": lambda: dies(atomic_dir, "_put"),
    "when it is in its place": lambda: dies(atomic_dir, "_put", after=True),
}


def make_package(folder: Path) -> None:
    """A package that carries a tiny Gemma in two parts."""
    config = replace(TINY["gemma3"], query_scalar=TINY["gemma3"].head_dim, softcap=None)  # type: ignore[call-arg]
    base_folder = large_vocabulary.write(folder / "base", config=config)
    data = export(base_folder, "gguf", out=folder / "m.gguf", type="q8_0").path.read_bytes()
    package = folder / MODULE
    package.mkdir()
    (package / "a").write_bytes(data[:5000])
    (package / "b").write_bytes(data[5000:])
    (package / "terms.html").write_text("<p>Be kind.</p>")
    (package / "__init__.py").write_text(
        "from pathlib import Path\n"
        "def chunk_paths():\n    return [Path(__file__).parent / name for name in 'ab']\n"
    )


def main(folder: Path, home: Path, moment: str) -> None:
    if not (folder / MODULE).exists():
        make_package(folder)
    sys.path.insert(0, str(folder))
    data = b"".join((folder / MODULE / part).read_bytes() for part in "ab")
    package = GGUFPackage("tiny", "tiny==1", MODULE, hashlib.sha256(data).hexdigest(), "terms.html")
    tiny = replace(KNOWN_BASES[0], name="tiny", repository="org/tiny", package=package)
    known_bases.KNOWN_BASES = (tiny, *KNOWN_BASES[1:])
    if moment:
        MOMENTS[moment]()
    install.add("tiny", home=home, accepted_terms="tiny")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
