"""Files that were read whole and found right, and look the same since, need not be read again.

A stamp beside the files says how each looked when its checksum was compared: its size, when it was
written, when anything of it last changed, which file of the disk it is. Damage by whoever writes to
a file, even one who sets its times back, gives it another look: Linux and macOS note every change
at a time that nobody can set. What decays on the disk without being written keeps its look; it is
found when everything is read again, `RENEWED_S` after it last was.
"""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import write_atomically
from ownwords.models.untrusted_files import read_json

STAMP = "verified.json"
RENEWED_S = 7 * 24 * 3600
# A file changed twice within a tick of its clock looks the same: one as young as this may yet be.
SETTLED_S = 2.0

Look = list[int]


@contextmanager
def unread(folder: Path, names: Collection[str], key: str) -> Iterator[Collection[str]]:
    """Those of the files that must be read whole; vouched for when the block ends without an error.

    That is all of them or none. `key` stands for what they should be. A folder that cannot be
    written to gets no stamp, and is read each time.
    """
    now = time.time()
    looks = {name: _look(folder / name) for name in names}
    if None not in looks.values() and _vouched(folder, key, now) == looks:
        yield ()
        return
    yield names
    if all(look is not None and now - max(look[1:3]) / 1e9 > SETTLED_S for look in looks.values()):
        said = {"key": key, "read": now, "looks": looks}
        with suppress(OwnwordsError, OSError):
            write_atomically(folder / STAMP, json.dumps(said))


def _look(path: Path) -> Look | None:
    try:
        found = path.stat()
    except OSError:  # whoever reads it says what is wrong
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _vouched(folder: Path, key: str, now: float) -> object:
    """How the files looked when they were last read; None if that was long ago, or of others."""
    try:
        said = read_json(folder / STAMP)
    except OwnwordsError:  # none, or a damaged one
        return None
    read = said.get("read")
    if said.get("key") != key or not isinstance(read, float) or not 0 <= now - read < RENEWED_S:
        return None
    return said.get("looks")
