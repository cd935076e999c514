"""Finds the Publii sites in the usual folders of this system."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ownwords.core.workspace import path_text

_MAX_SITES = 50
_DATABASE = Path("input", "db.sqlite")


@dataclass(frozen=True)
class FoundSite:
    """A Publii site that was found; `changed` is when its posts were last saved."""

    path: str
    name: str
    label: str
    changed: float


def find_publii_sites(home: Path | None = None) -> list[FoundSite]:
    """The Publii sites of this user, the last saved first. Nothing in them is read."""
    found: dict[Path, FoundSite] = {}
    for folder in _usual_folders(home or Path.home()):
        try:
            sites = sorted(folder.iterdir())[:_MAX_SITES]
        except OSError:
            continue
        for site in sites:
            try:
                changed = (site / _DATABASE).stat().st_mtime
            except OSError:
                continue
            found[site] = FoundSite(path_text(site), site.name, "a Publii site", changed)
    return sorted(found.values(), key=lambda site: -site.changed)[:_MAX_SITES]


def _usual_folders(home: Path) -> list[Path]:
    """Where Publii keeps its sites unless its user has moved them."""
    documents: list[Path | None] = [home / "Documents", home / "OneDrive" / "Documents"]
    if sys.platform not in ("win32", "darwin"):
        documents = [_xdg_documents(home), home / "Documents", home]
    unique = dict.fromkeys(path for path in documents if path is not None)
    return [path / "Publii" / "sites" for path in unique]


def _xdg_documents(home: Path) -> Path | None:
    """The documents folder of a Linux desktop, which is named in the user's language."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    try:
        lines = (config / "user-dirs.dirs").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        name, _, value = line.strip().partition("=")
        if name == "XDG_DOCUMENTS_DIR":
            return Path(value.strip('"').replace("$HOME", str(home)))
    return None
