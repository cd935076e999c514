"""The file by which local programs find a running server and its key, as Jupyter's do."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ownwords.core.workspace import Workspace

NAME = "server.json"


@contextmanager
def connection_file(workspace: Workspace, address: str, key: str) -> Iterator[None]:
    """Write `runs/serve/server.json` for the block's duration, readable by its owner only.

    Without a workspace on disk there is no file: a server makes none before the first training.
    """
    if not workspace.archive.exists():
        yield
        return
    path = workspace.runs / "serve" / NAME
    content = json.dumps({"url": address, "api": f"{address}v1", "key": key, "pid": os.getpid()})
    with suppress(OSError):  # such as on a read-only disk: the key is printed, too
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # or its permissions would stay
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content + "\n")
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(path.read_text("utf-8"))["pid"] == os.getpid():
                path.unlink()
