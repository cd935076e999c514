"""The licence of a model that another is made of, which goes with the new one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.models.directory import CARD, read_license_files
from ownwords.models.untrusted_files import read_bytes

_FREE = frozenset({"", "mit", "cc0-1.0", "unlicense", "other"})  # ask for nothing, or say nothing
_ENTRY = re.compile(r"^(license|license_link|base_model): *['\"]?([^\s'\"#]+)", re.MULTILINE)
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class BaseLicense:
    """The licence of a base, and the files that go with every copy of what is made of it."""

    license: str = ""
    link: str = ""
    base_model: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "BaseLicense":
        """The licence that the card of a model directory names; empty if it asks for nothing."""
        entries = _entries(folder)
        if entries.get("license", "") in _FREE:
            return cls()
        files = read_license_files(folder)
        base = entries.get("base_model", folder.name)
        return cls(entries["license"], entries.get("license_link", ""), base, files)

    def on(self, card: str) -> str:
        """A card that says what the model derives from, and under which licence."""
        if not self.license:
            return card
        front = f"license: {self.license}\nbase_model: {self.base_model}\n"
        link = ""
        if self.link:
            front += f"license_link: {self.link}\n"
            link = f", {self.link}"
        papers = " and ".join(sorted(self.files))
        goes = f" {papers} must go with every copy." if papers else ""
        return (
            "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- ownwords\n"
            f"{front}---\n\n{card}\n## License\n\nThis model derives from {self.base_model} and"
            f" comes under its license ({self.license}{link}).{goes}\n"
        )

    def provenance(self) -> dict[str, object]:
        """The same as data."""
        if not self.license:
            return {}
        return {"derived_from": {"model": self.base_model, "license": self.license}}


def license_of(folder: Path) -> str:
    """The licence that the card of a model directory names; empty if it names none."""
    return _entries(folder).get("license", "")


def _entries(folder: Path) -> dict[str, str]:
    """The licence, its link and the base model that the card of a model directory names."""
    path = folder / CARD
    card = read_bytes(path, _MOST_BYTES).decode("utf-8", "replace") if path.exists() else ""
    front = card.split("\n---", 1)[0] if card.startswith("---\n") else ""
    return dict(_ENTRY.findall(front))
