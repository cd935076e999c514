"""Where a base came from and the checksum of each of its files: base.json beside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ownwords.models.untrusted_files import ModelError, read_json

FILE = "base.json"
_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """What was true of a base when it was put where it is."""

    source: str  # "openai-community/gpt2", the folder it was copied from, or what made it
    revision: str  # the commit on the hub; empty otherwise
    files: Mapping[str, str]  # the SHA-256 of each, by name

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """That of a folder; None where it has none. ModelError if it is damaged."""
        path = folder / FILE
        if not path.exists():
            return None
        said = read_json(path)
        source, revision, files = said.get("source"), said.get("revision"), said.get("files")
        if said.get("format") != _FORMAT:
            raise ModelError(
                f"{path} is of format {said.get('format')!r:.40}, and this ownwords knows"
                f" {_FORMAT}",
                hint="upgrade ownwords",
            )
        if not (isinstance(source, str) and isinstance(revision, str) and isinstance(files, dict)):
            raise ModelError(f"{path} does not say where the model came from")
        return cls(source, revision, {name: str(value) for name, value in files.items()})

    def to_bytes(self) -> bytes:
        """As the file has it."""
        said = {
            "format": _FORMAT,
            "source": self.source,
            "revision": self.revision,
            "files": dict(sorted(self.files.items())),
        }
        return (json.dumps(said, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
