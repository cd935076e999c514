"""What a model directory holds, as a key: another one writes otherwise."""

import hashlib
from pathlib import Path

from ownwords.core.fingerprint import digest
from ownwords.core.workspace import translate_os_errors
from ownwords.models import atomic_dir
from ownwords.models.directory import PROVENANCE

# Of a model directory, what decides what it writes; its card may be edited.
_DECIDES = {".json", ".safetensors", ".jinja", ".txt", ".model", ".xz"}


def model_fingerprint(folder: Path, *, provenance: bool = False) -> str:
    """A key of what a model directory writes by; with `provenance` of where it comes from, too.

    What tuning asks a base is in its provenance. Empty where there is no directory.
    """
    there = atomic_dir.readable_dir(folder)
    if not there.is_dir():
        return ""
    parts = []
    with translate_os_errors(folder):
        for path in sorted(there.iterdir()):
            if path.name == PROVENANCE and not provenance:
                continue
            if path.suffix in _DECIDES and path.is_file():
                with path.open("rb") as file:
                    parts += [path.name, hashlib.file_digest(file, "blake2b").hexdigest()]
    return digest(*parts) if parts else ""
