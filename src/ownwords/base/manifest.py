"""The manifest of a base, base.json: where it came from, and a checksum of each file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ownwords.core.validation import decode, encode
from ownwords.models.untrusted_files import ModelError, read_json

FILE = "base.json"
_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Source, revision and checksums of a base at the time it was added."""

    source: str  # the model on the hub, the folder it was copied from, or what made it
    revision: str  # the commit on the hub; empty otherwise
    files: Mapping[str, str]  # the SHA-256 of each file, by name

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The manifest in a folder; None if there is none. OwnwordsError if it is damaged."""
        path = folder / FILE
        if not path.exists():
            return None
        data = read_json(path)
        if (version := data.pop("format", None)) != _FORMAT:
            raise ModelError(
                f"{path} has format {version!r:.40}, and this ownwords reads {_FORMAT}",
                hint="upgrade ownwords",
            )
        return decode(cls, data, source=str(path), unknown="ignore")

    def to_bytes(self) -> bytes:
        """The manifest as the content of base.json."""
        data = {"format": _FORMAT, **encode(self), "files": dict(sorted(self.files.items()))}
        return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
