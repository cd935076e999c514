import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree
from selectolax.lexbor import LexborHTMLParser as HTMLParser

from ownwords.tune import trials_csv
from ownwords.tune.axis import SearchAxis
from ownwords.tune.trial import TrialRecord
from ownwords.tune.trials_page import trials_view
from ownwords.tune.verdict import TuneVerdict, judge
from ownwords.view import html
from toy_search import AXES, PLAN

HOSTILE = '<script>alert("x")</script>'


def render(
    name: str,
    axes: Sequence[SearchAxis],
    trials: list[TrialRecord],
    verdict: TuneVerdict | None,
    settings: str = "",
) -> str:
    return html.document(trials_view(name, axes, trials, verdict, settings))


def search() -> list[TrialRecord]:
    trials = [
        TrialRecord(1, "done", "plan", 1, PLAN, 1.5, 61.0, "a", {"tokens": 12_345, "settings": {}})
    ]
    for number in range(2, 12):
        settings = {axis.name: axis.at(number / 12) for axis in AXES}
        figures = {
            "tokens": 1000 * number,
            "steps": 7,
            "settings": {"optim.learning_rate": 0.001 * number},
        }
        score = 1.48 + 0.004 * number
        trials.append(TrialRecord(number, "done", "spread", 1, settings, score, 60.0, "b", figures))
    trials.append(TrialRecord(12, "failed", "search", 1, PLAN, error=f"out of memory\n{HOSTILE}"))
    trials.append(replace(trials[10], number=13, score=9.9))  # far worse than can be shown
    for number, of, seed in ((14, 1, 2), (15, 2, 2), (16, 1, 3), (17, 2, 3)):
        first = trials[of - 1]
        repeat = replace(first, number=number, kind="again", seed=seed, figures={})
        repeat = replace(repeat, score=(first.score or 0) + 0.001 * seed)
        trials.append(replace(repeat, repeats=of, finalists=(2,), seeds=2, seconds=60.0))
    trials.append(TrialRecord(18, "running", "again", 4, PLAN, repeats=1, finalists=(2,), seeds=2))
    return trials


@pytest.fixture(params=["whole", "begun", "nothing yet", "one"])
def page(request: pytest.FixtureRequest) -> str:
    tried = search()
    if request.param == "whole":
        toml = "[optim]\nlearning_rate = 0.002\n\n[train]\ndropout = 0.0"
        return render(HOSTILE, AXES, tried, judge(tried), toml)
    states = {"begun": tried[:5], "nothing yet": [replace(tried[-1], repeats=0, kind="plan")]}
    return render("blog", AXES, states.get(request.param, tried[:1]), None)


def test_the_table_has_every_detail_of_each_trial(tmp_path: Path) -> None:
    tried = search()
    trials_csv.write(tmp_path / "trials.csv", AXES, tried)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "trials.csv").read_text("utf-8"))))
    assert len(rows) == len(tried)
    for row, trial in zip(rows, tried, strict=True):
        assert int(row["trial"]) == trial.number
        assert (row["state"], row["kind"], int(row["seed"])) == (
            trial.state,
            trial.kind,
            trial.seed,
        )
        for axis in AXES:
            assert float(row[axis.name]) == pytest.approx(trial.settings[axis.name], rel=1e-5)
        score = float(row["bits_per_byte"]) if row["bits_per_byte"] else None
        assert score == (None if trial.score is None else pytest.approx(trial.score, rel=1e-5))
    assert json.loads(rows[1]["set"]) == {"optim.learning_rate": 0.002}
    assert (rows[1]["tokens"], rows[1]["steps"], rows[1]["seconds"]) == ("2000", "7", "60.0")
    assert rows[13]["repeats"] == "1"
    assert rows[11]["why"] == f"out of memory {HOSTILE}"


def test_every_tag_is_closed_in_order(page: str) -> None:
    bare = re.sub(r"<style>.*?</style>", "", page.removeprefix("<!DOCTYPE html>\n"), flags=re.S)
    as_xml = re.sub(r"<(meta|br)( [^>]*)?>", r"<\1\2/>", bare)
    assert etree.fromstring(as_xml.encode()).tag == "html"


def test_the_page_is_self_contained_without_scripts(page: str) -> None:
    tree = HTMLParser(page)
    assert not tree.css("script, link, img, iframe, object, embed, form, base, use")
    style = tree.css_first("style")
    assert style is not None
    assert not re.search(r"@import|url\(|https?:", style.text())
    policy = tree.css_first('meta[http-equiv="Content-Security-Policy"]')
    assert policy is not None
    assert (policy.attributes["content"] or "").startswith("default-src 'none'")
    ids = [element.attributes["id"] for element in tree.css("[id]")]
    assert len(ids) == len(set(ids))
    for element in tree.css("[aria-labelledby]"):
        assert set((element.attributes["aria-labelledby"] or "").split()) <= set(ids)
    for element in tree.css("*"):
        assert not any(name.startswith("on") for name in element.attributes)


def test_every_trial_has_a_row() -> None:
    tried = search()
    tree = HTMLParser(render("blog", AXES, tried, judge(tried)))
    assert len(tree.css("#table tbody tr")) == len(tried)
    lede = tree.css_first(".lede")
    assert lede is not None
    assert lede.text() == judge(tried).sentences()[0]


def test_hostile_text_is_escaped() -> None:
    page = render(HOSTILE, AXES, search(), None)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_settings_are_shown_line_by_line() -> None:
    tried = search()
    tree = HTMLParser(render("blog", AXES, tried, judge(tried), "[optim]\nlearning_rate = 0.002"))
    block = tree.css_first("#settings pre")
    assert block is not None
    assert block.text().splitlines() == ["[optim]", "learning_rate = 0.002"]
