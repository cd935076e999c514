"""What `ownwords make` is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.archive.settings import ArchiveConfig, ProvenanceConfig, SplitConfig
from ownwords.base import catalogue
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.models import directory

MINUTES = 4.0  # a small blog then has its first paragraph within five, from a cold start
COMPARED_FROM = 3.0  # minutes; in fewer, a model from scratch says little
_COMPARISON_SHARE = 0.2  # of the minutes
_COMPARISON_MOST_S = 600.0
_MOST_MINUTES = 10_000_000  # nineteen years
_QUICK_SCORING = ScoreConfig(seeds=6, prompts=3, max_tokens=300, base_samples=2, passages=96)
NOTHING = "none"  # the name of no base


def base_of(name: str | Path) -> Path | None:
    """The folder of the named base, the built-in one for ""; None for "none"."""
    if isinstance(name, Path):
        return name
    return None if name == NOTHING else catalogue.find(name)


def check_minutes(minutes: float) -> None:
    """Raise ConfigError for minutes that no training can take."""
    if not minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, and is {minutes:g}")
    if minutes > _MOST_MINUTES:
        raise ConfigError(f"--minutes should be {_MOST_MINUTES:,} at most")


@dataclass(frozen=True)
class MakeRequest:
    """The texts, the base, the time and the settings.

    The minutes cover reading, planning and training, the model from scratch included; scoring comes
    on top.
    """

    paths: Sequence[Path]
    workspace: Path | None = None  # ./NAME.ownwords unless given
    minutes: float = MINUTES
    is_timed: bool = False  # the user named the minutes: a model from `ownwords tune` does not do
    base: Path | None = None  # a model directory; None trains from scratch
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's training settings
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    scoring: ScoreConfig | None = None  # None: chosen by the minutes
    device: str = "auto"
    began: float | None = None  # time.perf_counter() when the user began to wait

    @property
    def resolved_workspace(self) -> Workspace:
        return Workspace(self.workspace) if self.workspace else Workspace.default_for(self.paths[0])

    @property
    def has_time_to_compare(self) -> bool:
        """Whether there is time for models that only serve as a comparison."""
        return self.minutes >= COMPARED_FROM

    @property
    def comparison_s(self) -> float:
        """Seconds for the model from scratch; 0 where none is trained."""
        if self.base is None or not self.has_time_to_compare:
            return 0.0
        return min(_COMPARISON_SHARE * self.minutes * 60, _COMPARISON_MOST_S)

    @property
    def training_s(self) -> float:
        """Seconds for the author's own model."""
        return self.minutes * 60 - self.comparison_s

    @property
    def score_config(self) -> ScoreConfig:
        """How much is measured: less where the user has little time."""
        if self.scoring:
            return self.scoring
        return ScoreConfig() if self.has_time_to_compare else _QUICK_SCORING

    def check(self) -> None:
        """Raise OwnwordsError for what cannot work, before the texts are read."""
        check_minutes(self.minutes)
        if self.base is not None:
            with directory.open_directory(self.base) as folder:
                directory.read(folder)
