"""All settings: the sections of the packages below, put together."""

from dataclasses import dataclass, field
from pathlib import Path

from ownwords.archive.settings import ArchiveConfig, ProvenanceConfig, SplitConfig
from ownwords.training.settings import Recipe

FILE = "ownwords.toml"


@dataclass(frozen=True)
class Settings(Recipe):
    """The settings, by section: those of a training run, and those of reading an archive."""

    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)
    split: SplitConfig = field(default_factory=SplitConfig)


def settings_files(workspace: Path | None, config: Path | None) -> list[Path]:
    """The files to read, the later winning: this folder's, the workspace's, the one asked for."""
    files = [Path(FILE)]
    if workspace and workspace.absolute() != Path.cwd():
        files.append(workspace / FILE)
    return [file for file in files if file.exists()] + ([config] if config else [])
