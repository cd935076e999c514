"""The inputs of `ownwords make`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.archive.settings import ArchiveConfig, ProvenanceConfig, SplitConfig
from ownwords.base import catalogue
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.models import directory
from ownwords.models.model_library import ModelLibrary

MINUTES = 4.0  # gives a small blog its first paragraph within five minutes of a cold start
COMPARED_FROM = 3.0  # minutes; with less, comparison models are not informative
_COMPARISON_SHARE = 0.2  # of the minutes, for the model from scratch
_COMPARISON_MOST_S = 600.0
_COMPARISON_LARGE_S = 60.0  # at most, beside a large base: its own time is worth more
_MOST_MINUTES = 10_000_000  # nineteen years
_QUICK_SCORING = ScoreConfig(seeds=6, prompts=3, max_tokens=300, base_samples=2, passages=96)
NOTHING = "none"  # the `--base` that means training from scratch


def base_of(name: str | Path) -> Path | None:
    """Find the folder of a base by name: "" is the built-in base, "none" gives None."""
    if isinstance(name, Path):
        return name
    return None if name == NOTHING else catalogue.find(name)


def check_minutes(minutes: float) -> None:
    """Raise ConfigError if the minutes are not positive or too many."""
    if not minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, and is {minutes:g}")
    if minutes > _MOST_MINUTES:
        raise ConfigError(f"--minutes should be {_MOST_MINUTES:,} at most")


@dataclass(frozen=True)
class MakeRequest:
    """The texts, the base, the time and the settings.

    The minutes cover reading, planning and training, including the model from scratch, but not
    scoring.
    """

    paths: Sequence[Path]
    workspace: Path | None = None  # ./NAME.ownwords unless given
    minutes: float = MINUTES
    is_timed: bool = False  # the user gave the minutes: do not adopt a tuned model
    base: Path | None = None  # a model directory; None trains from scratch
    chooses_base: bool = False  # instead of `base`, take the best installed one there is time for
    trims: bool = True  # a large vocabulary to what the author writes
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's training settings
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    scoring: ScoreConfig | None = None  # None: depends on the minutes
    device: str = "auto"
    began: float | None = None  # time.perf_counter() when the command started
    name: str = ""  # of the model; without one it gets the workspace's, with a number

    @property
    def resolved_workspace(self) -> Workspace:
        return Workspace(self.workspace) if self.workspace else Workspace.default_for(self.paths[0])

    @property
    def has_time_to_compare(self) -> bool:
        """Whether there is time for comparison models."""
        return self.minutes >= COMPARED_FROM

    @property
    def comparison_s(self) -> float:
        """Seconds for the model from scratch; 0 if none is trained."""
        if self.base is None or not self.has_time_to_compare:
            return 0.0
        most = _COMPARISON_LARGE_S if catalogue.is_large(self.base) else _COMPARISON_MOST_S
        return min(_COMPARISON_SHARE * self.minutes * 60, most)

    @property
    def training_s(self) -> float:
        """Seconds for the author's own model."""
        return self.minutes * 60 - self.comparison_s

    @property
    def score_config(self) -> ScoreConfig:
        """How much to measure: less if the user has little time."""
        if self.scoring:
            return self.scoring
        return ScoreConfig() if self.has_time_to_compare else _QUICK_SCORING

    def check(self) -> None:
        """Raise OwnwordsError if the minutes or the base are invalid, before any text is read."""
        check_minutes(self.minutes)
        if self.name:
            self._check_name()
        if self.base is not None:
            with directory.open_directory(self.base) as folder:
                directory.read(folder)

    def _check_name(self) -> None:
        """Refuse a name that another model has; the current one has it when this is resumed."""
        library = ModelLibrary(self.resolved_workspace.root)
        if not any(model.is_current and model.name == self.name for model in library.models()):
            library.check_name(self.name)
