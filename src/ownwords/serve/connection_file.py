"""A file by which local programs find a running server and its key, as with Jupyter."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ownwords.core.workspace import Workspace

NAME = "server.json"


@contextmanager
def connection_file(workspace: Workspace, address: str, key: str) -> Iterator[None]:
    """Write `runs/serve/server.json` for the duration of the block, readable by its owner only.

    Does nothing if the workspace does not exist yet; the server does not create it.
    """
    if not workspace.archive.exists():
        yield
        return
    path = workspace.runs / "serve" / NAME
    content = json.dumps({"url": address, "api": f"{address}v1", "key": key, "pid": os.getpid()})
    with suppress(OSError):  # such as a read-only disk; the key is also printed
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # an existing file would keep its permissions
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content + "\n")
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if json.loads(path.read_text("utf-8"))["pid"] == os.getpid():
                path.unlink()
