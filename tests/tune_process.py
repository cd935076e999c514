"""A search on a toy objective, as a process: FOLDER, the worker's name, the record's name."""

import json
import sys
import time
from pathlib import Path

from ownwords.tune.search import Search, TrialResult
from ownwords.tune.verdict import TrialRecord
from toy_search import AXES, PLAN, Toy

TRIAL_S = 0.04


def main(folder: Path, worker: str, record: str) -> None:
    def run(trial: TrialRecord) -> TrialResult:
        with (folder / f"{worker}.log").open("a") as log:
            log.write(json.dumps([trial.settings, trial.seed]) + "\n")
        time.sleep(TRIAL_S)
        return Toy(best={**PLAN, "rate": 2.8})(trial)._replace(seconds=TRIAL_S)

    search = Search(folder / f"{record}.json", AXES, 600.0, 1.0, 10)
    search.run(run)
    trials = [(t.state, t.repeats, t.seed, t.settings, t.score) for t in search.trials]
    (folder / f"{worker}-trials.json").write_text(json.dumps(trials))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
