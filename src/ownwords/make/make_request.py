"""What is to be made, of what, in which time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.archive.settings import ArchiveConfig, ProvenanceConfig, SplitConfig
from ownwords.base import catalogue
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scoring import ScoreConfig
from ownwords.models import directory

MINUTES = 4.0  # the first paragraph of a small blog is then there within five, from a cold start
COMPARED_FROM = 3.0  # minutes; in fewer, a model from nothing says little about what time can do
_COMPARING_SHARE = 0.2  # of the minutes
_COMPARING_MOST_S = 600.0
_MOST_MINUTES = 10_000_000  # nineteen years
_QUICKLY = ScoreConfig(seeds=6, prompts=3, tokens=300, beside_base=2, passages=96)
NOTHING = "none"  # the name of no base


def base_of(name: str | Path) -> Path | None:
    """The base of that name, the one in the box where it is empty; None for "none"."""
    if isinstance(name, Path):
        return name
    return None if name == NOTHING else catalogue.find(name)


@dataclass(frozen=True)
class MakeRequest:
    """What is to be made, of what, in which time.

    The minutes are for reading, planning and training, that of the model it is compared with
    included; scoring comes after them.
    """

    paths: Sequence[Path]
    workspace: Path | None = None  # ./NAME.ownwords unless given
    minutes: float = MINUTES
    is_timed: bool = False  # somebody named the minutes: a model found by a search is no answer
    base: Path | None = None  # a model directory; None: a model from nothing
    fixed: Mapping[str, object] = field(default_factory=dict)  # settings of the training, by key
    archive: ArchiveConfig = field(default_factory=ArchiveConfig)
    provenance: ProvenanceConfig = field(default_factory=ProvenanceConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    scoring: ScoreConfig | None = None  # how much is measured; None: as the minutes are
    device: str = "auto"
    began: float | None = None  # of time.perf_counter(), where the user began to wait

    @property
    def place(self) -> Workspace:
        return Workspace(self.workspace) if self.workspace else Workspace.default_for(self.paths[0])

    @property
    def is_compared(self) -> bool:
        """Whether a model from nothing is trained beside it."""
        return self.base is not None and self.has_time_to_compare

    @property
    def has_time_to_compare(self) -> bool:
        """Whether models are trained only to see what the author's own is worth."""
        return self.minutes >= COMPARED_FROM

    @property
    def comparing_s(self) -> float:
        """Seconds of the minutes that are for the model from nothing."""
        if not self.is_compared:
            return 0.0
        return min(_COMPARING_SHARE * self.minutes * 60, _COMPARING_MOST_S)

    @property
    def measured(self) -> ScoreConfig:
        """How much is measured of the model: who has little time does not wait long for it."""
        if self.scoring:
            return self.scoring
        return ScoreConfig() if self.minutes >= COMPARED_FROM else _QUICKLY

    def check(self) -> None:
        """OwnwordsError says what cannot be; before anything is read, which may take long."""
        if not self.minutes > 0:
            raise ConfigError(f"--minutes should be more than 0, and is {self.minutes:g}")
        if self.minutes > _MOST_MINUTES:
            raise ConfigError(f"--minutes should be {_MOST_MINUTES:,} at most")
        if self.base is not None:
            with directory.open_directory(self.base) as there:
                directory.read(there)
