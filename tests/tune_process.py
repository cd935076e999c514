"""A search on a toy objective, as a process: FOLDER, the worker's name, the journal's name."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ownwords.tune.search import Search, Study, TrialResult, open_storage
from toy_search import AXES, PLAN, Toy

TRIAL_S = 0.04


def main(folder: Path, worker: str, journal: str) -> None:
    def trial(settings: Mapping[str, float], seconds: float, seed: int) -> TrialResult:
        with (folder / f"{worker}.log").open("a") as log:
            log.write(json.dumps([dict(settings), seed]) + "\n")
        time.sleep(TRIAL_S)
        result = Toy(best={**PLAN, "rate": 2.8})(settings, seconds, seed)
        return TrialResult(result.score, TRIAL_S, "model")

    study = Study(open_storage(folder / f"{journal}.journal"), "toy", AXES)
    search = Search(trial, study, 600.0, 1.0, "here", 10)
    trials = [
        (trial.state, trial.repeats, trial.seed, dict(trial.settings), trial.score)
        for trial in search.run()
    ]
    (folder / f"{worker}.json").write_text(json.dumps(trials))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
