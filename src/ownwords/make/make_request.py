"""What `ownwords make` is asked: on the command line, from Python, and by a job of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ownwords.archive.ingest import workspace_for
from ownwords.archive.settings import LookSettings
from ownwords.base import catalogue
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.models.model_library import ModelLibrary

MINUTES = 4.0  # until the texts are read, and it is known how many the best base needs
MAX_MINUTES = 10_000_000  # nineteen years
SCRATCH = "none"  # the base that means training from scratch
SCORING_SHARE = 0.35  # of the minutes, beside loading the models and the first paragraph
_QUICK_BELOW = 3.0  # minutes
_QUICK_SCORING = ScoreConfig(seeds=5, prompts=3, max_tokens=300, base_samples=2, passages=64)


def find_base(name: str) -> Path | None:
    """The folder of a base by name or path: "" is the built-in one, "none" gives None."""
    return None if name == SCRATCH else catalogue.find(name)


def check_minutes(minutes: float) -> None:
    """Raise ConfigError if the minutes are not positive or too many."""
    if not minutes > 0:
        raise ConfigError(f"--minutes should be more than 0, and is {minutes:g}")
    if minutes > MAX_MINUTES:
        raise ConfigError(f"--minutes should be {MAX_MINUTES:,} at most")


@dataclass(frozen=True)
class MakeRequest:
    """The texts, the base, the time and the settings.

    The minutes cover reading, planning and training, but not scoring.
    """

    paths: Sequence[Path]
    workspace: Path | None = None  # ./NAME.ownwords unless given
    minutes: float | None = None  # None: as many as the base needs, see `estimates.usual_minutes`
    base: str = ""  # a name or a path; "": the best installed one that there is time for
    name: str = ""  # of the model; without one it gets the workspace's, with a number
    trims: bool = True  # a large vocabulary to what the author writes
    fixed: Mapping[str, object] = field(default_factory=dict)  # the user's training settings
    reading: LookSettings = field(default_factory=LookSettings)
    scoring: ScoreConfig | None = None  # None: depends on the minutes
    device: str = "auto"

    @property
    def resolved_workspace(self) -> Workspace:
        return Workspace(self.workspace) if self.workspace else workspace_for(self.paths[0])

    @property
    def resolved_minutes(self) -> float:
        return MINUTES if self.minutes is None else self.minutes

    @property
    def score_config(self) -> ScoreConfig:
        """How much to measure: less if the user has little time."""
        usual = ScoreConfig() if self.resolved_minutes >= _QUICK_BELOW else _QUICK_SCORING
        return self.scoring or replace(usual, seconds=SCORING_SHARE * 60 * self.resolved_minutes)

    def check(self) -> None:
        """Raise OwnwordsError for minutes or a name that cannot be, before any text is read."""
        check_minutes(self.resolved_minutes)
        if self.name:
            library = ModelLibrary(self.resolved_workspace.root)
            # When this is resumed, the current model has the name already.
            if not any(model.is_current and model.name == self.name for model in library.models()):
                library.check_name(self.name)
