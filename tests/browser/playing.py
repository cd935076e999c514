"""`ownwords serve` with trainings that are played, and with endpoints on the port of the test.

Run as a program: `playing.py PORT serve …`; PORT 0 is none at all. The workspace's file `manner`
says how a training behaves.
"""

import json
import os
import signal
import sys
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.workspace import DATA_FOLDER_VARIABLE, Workspace

if TYPE_CHECKING:
    from browser.site import Site

MAKE = Path(__file__).resolve().parents[1] / "fake_make.py"


def served(place: Workspace, port: int = 0) -> "AbstractContextManager[Site]":
    """Such a server."""
    from browser.site import served

    # No other test's training is waited for.
    home = os.environ.get(DATA_FOLDER_VARIABLE) or str(place.root.parent / "home")
    environment = {**os.environ, DATA_FOLDER_VARIABLE: home}
    return served(place, __file__, str(port), environment=environment)


def kill_jobs(folder: Path) -> None:
    """Kill the jobs of all workspaces in a folder."""
    for record in folder.glob("*.ownwords/runs/jobs/*/job.json"):
        with suppress(OSError, ValueError):
            os.killpg(json.loads(record.read_bytes())["pid"], signal.SIGKILL)


def _main(port: int, arguments: list[str]) -> int:
    from ownwords.ask import servers
    from ownwords.cli.main import main
    from ownwords.serve import jobs

    jobs.PROGRAM = (sys.executable, str(MAKE), "as told")
    ports = {port: "llama.cpp"} if port else {}
    servers.discover = partial(servers.discover, ports)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2:]))
