"""Installs a tiny base from a package in forked children, each killed at a moment of it.

python base_kills.py FOLDER
"""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import large_vocabulary
from families import TINY
from ownwords.base import catalogue, install, known_bases
from ownwords.base.known_bases import KNOWN_BASES, GGUFPackage
from ownwords.inference.export import export
from ownwords.models import atomic_dir
from ownwords.models.gguf import reading

MODULE = "tiny_gemma_package"


def kill_self(*_: object, **__: object) -> None:
    """Die as in a power cut."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_on_call(
    owner: object,
    name: str,
    when: Callable[..., bool] = lambda *_, **__: True,
    *,
    after: bool = False,
) -> None:
    """Kill the process before or after the next matching call of a function."""
    real = getattr(owner, name)

    def deadly(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        if not after and when(*arguments, **named):
            kill_self()
        result = real(*arguments, **named)
        if when(*arguments, **named):
            kill_self()
        return result

    setattr(owner, name, deadly)


def run_forked(work: Callable[[], object]) -> int:
    """Run the work in a forked child; returns its exit code."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


MOMENTS: dict[str, Callable[[], None]] = {
    "before the parts are joined": lambda: kill_on_call(install, "_join"),
    "when the parts are joined": lambda: kill_on_call(install, "_join", after=True),
    "when the weights are converted": lambda: kill_on_call(reading, "write_file", after=True),
    "when all is converted": lambda: kill_on_call(reading, "convert", after=True),
    "before it is opened": lambda: kill_on_call(catalogue, "check_usable"),
    "while it is put in its place": lambda: kill_on_call(atomic_dir, "_put"),
    "when it is in its place": lambda: kill_on_call(atomic_dir, "_put", after=True),
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


def main(folder: Path) -> dict[str, int]:
    """Add the base undisturbed, then killed at each moment; returns the exit codes."""
    make_package(folder)
    sys.path.insert(0, str(folder))
    data = b"".join((folder / MODULE / part).read_bytes() for part in "ab")
    package = GGUFPackage("tiny", "tiny==1", MODULE, hashlib.sha256(data).hexdigest(), "terms.html")
    tiny = replace(KNOWN_BASES[0], name="tiny", repository="org/tiny", package=package)
    known_bases.KNOWN_BASES = (tiny, *KNOWN_BASES[1:])

    def add(home: str, moment: str) -> None:
        os.environ["OWNWORDS_HOME"] = str(folder / home)
        if moment:
            MOMENTS[moment]()
        install.add("tiny", accepted_terms="tiny")

    statuses = {"calm": run_forked(partial(add, "calm", ""))}
    for moment in MOMENTS:
        statuses[moment] = run_forked(partial(add, "killed", moment))
        exists = (folder / "killed" / "bases" / "tiny").exists()
        assert exists == (moment == "when it is in its place")
    return statuses


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
