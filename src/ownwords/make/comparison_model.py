"""A model that is made only to be compared with the author's own."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ownwords.core.errors import ConfigError, CorpusError
from ownwords.make.result import TrainingSummary
from ownwords.make.stage_cache import StageCache
from ownwords.models.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from ownwords.training.recipes import TrainedModel


@dataclass(frozen=True)
class ComparisonModel:
    """Its stage, all that it depends on, where it lies, and who is told how it went.

    `ended` hears of the model, or why there is none, and the seconds it took, if it was made now.
    """

    stage: str
    depends_on: Mapping[str, str]
    folder: Path
    begins: Callable[[], None]
    ended: Callable[[TrainingSummary | None, str, float | None], None]

    def standing(self, finished: StageCache) -> TrainingSummary | None:
        """The model that was made before, if it is there and nothing has changed."""
        found = finished.found(self.stage, self.depends_on, TrainingSummary)
        if found is None or model_fingerprint(self.folder) != found.key:
            return None
        self.ended(found, "", None)
        return found

    def made(
        self,
        finished: StageCache,
        make: "Callable[[], TrainedModel]",
        posts: int,
        forget: Callable[[str], None],
    ) -> TrainingSummary | None:
        """Make it; None where that cannot be. `forget` is given the run of the one it replaces."""
        before = finished.last(self.stage, TrainingSummary)
        self.begins()
        began = time.perf_counter()
        try:
            made = make()
        except (ConfigError, CorpusError) as error:  # too little time or text for it
            self.ended(None, error.message, None)
            return None
        trained = TrainingSummary.of(made, model_fingerprint(self.folder), posts)
        took = time.perf_counter() - began
        finished.keep(self.stage, self.depends_on, trained, took)
        if before and before.run != trained.run:
            forget(before.run)
        self.ended(trained, "", took)
        return trained
