"""`ownwords serve` with a training that is played, and with endpoints where the test has put them.

Started as a program: `playing.py PORT serve …`; PORT 0 is none at all. How a training behaves
stands in the workspace's file `manner`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ownwords.core.workspace import DATA_FOLDER_VARIABLE, Workspace

MAKE = Path(__file__).resolve().parents[1] / "fake_make.py"


@contextmanager
def served(workspace_served: Workspace, port: int = 0) -> Iterator[str]:
    """The link of such a server."""
    from browser.site import link_of

    command = [sys.executable, "-u", __file__, str(port), "serve", str(workspace_served.root)]
    home = os.environ.get(DATA_FOLDER_VARIABLE) or str(workspace_served.root.parent / "home")
    with subprocess.Popen(
        [*command, "--port", "0", "--threads", "1"],
        env={**os.environ, DATA_FOLDER_VARIABLE: home},  # no other test's training is waited for
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            yield link_of(server)
        finally:
            server.terminate()
            server.communicate(timeout=30)


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
