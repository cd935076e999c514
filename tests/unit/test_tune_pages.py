import csv
import io
import json
from dataclasses import replace

import pytest
from selectolax.lexbor import LexborHTMLParser as HTMLParser

from ownwords.tune.verdict import TrialRecord, judge, trials_csv, trials_view
from ownwords.view import html
from toy_search import AXES, PLAN

HOSTILE = '<script>alert("x")</script>'


def search() -> list[TrialRecord]:
    trials = [
        TrialRecord(1, "plan", 1, PLAN, "done", 1.5, 61.0, {"tokens": 12_345, "settings": {}})
    ]
    for number in range(2, 12):
        settings = {axis.name: axis.low + (axis.high - axis.low) * number / 12 for axis in AXES}
        figures = {"tokens": 1000 * number, "steps": 7, "settings": {"optim.learning_rate": number}}
        score = 1.48 + 0.004 * number
        trials.append(TrialRecord(number, "search", 1, settings, "done", score, 60.0, figures))
    trials.append(TrialRecord(12, "search", 1, PLAN, "failed", error=f"out of memory\n{HOSTILE}"))
    for number, of, seed in ((13, 1, 2), (14, 2, 2), (15, 1, 3), (16, 2, 3)):
        first = trials[of - 1]
        repeat = replace(first, number=number, kind="again", seed=seed, figures={}, repeats=of)
        trials.append(replace(repeat, score=(first.score or 0) + 0.001 * seed))
    trials.append(TrialRecord(17, "again", 4, PLAN, repeats=1))
    return trials


def test_the_table_has_every_detail_of_each_trial() -> None:
    trials = search()
    rows = list(csv.DictReader(io.StringIO(trials_csv(AXES, trials))))
    assert len(rows) == len(trials)
    for row, trial in zip(rows, trials, strict=True):
        about = (int(row["trial"]), row["state"], row["kind"], int(row["seed"]))
        assert about == (trial.number, trial.state, trial.kind, trial.seed)
        for axis in AXES:
            assert float(row[axis.name]) == pytest.approx(trial.settings[axis.name], rel=1e-5)
        score = float(row["bits_per_byte"]) if row["bits_per_byte"] else None
        assert score == (None if trial.score is None else pytest.approx(trial.score, rel=1e-5))
    assert json.loads(rows[1]["set"]) == {"optim.learning_rate": 2}
    assert (rows[1]["tokens"], rows[1]["steps"], rows[1]["seconds"]) == ("2000", "7", "60.0")
    assert rows[12]["repeats"] == "1"
    assert rows[11]["why"] == f"out of memory {HOSTILE}"


def test_the_page_has_the_verdict_the_settings_and_every_trial() -> None:
    trials, toml = search(), "[optim]\nlearning_rate = 0.002"
    page = html.document(trials_view(HOSTILE, AXES, trials, judge(trials), toml))
    tree = HTMLParser(page)
    assert len(tree.css("#table tbody tr")) == len(trials)
    lede, settings = tree.css_first(".lede"), tree.css_first("#settings pre")
    assert lede is not None and lede.text() == judge(trials).sentences()[0]
    assert settings is not None and settings.text().strip() == toml
    assert "<script" not in page
    assert "&lt;script&gt;" in page
