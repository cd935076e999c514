"""The scorecard as data: it round-trips through JSON; figures are cached."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.corpus import TrainingText
from ownwords.core.errors import WorkspaceError
from ownwords.evaluation import scoring
from ownwords.evaluation.scorecard import Scorecard, read_scorecard
from ownwords.evaluation.scorecard_view import write_scorecard
from ownwords.evaluation.scoring import MetricCache, sample_posts
from unit import sample_card


@pytest.mark.parametrize(("name", "card"), list(sample_card.every()))
def test_a_card_round_trips_through_json(name: str, card: Scorecard, tmp_path: Path) -> None:
    page, data = write_scorecard(card, tmp_path)
    assert read_scorecard(tmp_path) == card
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert json.loads(data.read_text("utf-8"))["verdicts"][0]["kind"] == card.verdict.kind


def test_a_missing_or_damaged_card_is_none(tmp_path: Path) -> None:
    assert read_scorecard(tmp_path) is None
    _, data = write_scorecard(sample_card.good(), tmp_path)
    original = data.read_bytes()
    for damaged in (
        original[:-100],
        b"[]",
        b"{}",
        b"[" * 100_000,
        original.replace(b'"bits"', b'"x"'),
    ):
        data.write_bytes(damaged)
        assert read_scorecard(tmp_path) is None


@dataclass(frozen=True)
class Figure:
    value: float


def test_a_figure_is_measured_once_per_set_of_inputs(tmp_path: Path) -> None:
    measured: list[str] = []

    def figure(name: str, *depends_on: str) -> float:
        def measure() -> Figure:
            measured.append(name)
            return Figure(len(measured) / 3)

        return (
            MetricCache(tmp_path / "scores").get_or_measure(name, Figure, depends_on, measure).value
        )

    first = figure("a", "model", "posts")
    assert figure("a", "model", "posts") == first
    assert measured == ["a"]
    figure("a", "model", "other posts")
    figure("b", "model", "posts")
    assert figure("a", "modelposts") != first  # two parts do not run together
    assert measured == ["a", "a", "b", "a"]
    assert figure("a", "model", "posts") == first
    assert len(list((tmp_path / "scores").iterdir())) == 4


def test_figures_of_another_version_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of the figures only those that were used last are kept."""
    measured: list[str] = []

    def figure(name: str) -> dict[str, float]:
        def measure() -> Figure:
            measured.append(name)
            return Figure(1.0)

        cache = MetricCache(tmp_path)
        cache.get_or_measure(name, Figure, ["text"], measure)
        return cache.seconds

    assert figure("voice") == figure("voice") != {}
    for constant in ("__version__", "_VERSION"):
        monkeypatch.setattr(scoring, constant, "another")
        figure("voice")
        figure("voice")
    assert measured == ["voice"] * 3
    monkeypatch.setattr(scoring, "_MAX_FILES", 2)
    for age, name in enumerate(("voice", "bits", "fluency")):
        figure(name)
        for path in tmp_path.glob(f"{name}-*"):
            os.utime(path, (age, age))
    figure("bits")  # used again
    MetricCache(tmp_path).prune()
    assert {path.stem.partition("-")[0] for path in tmp_path.iterdir()} == {"bits", "fluency"}


def test_a_damaged_or_foreign_cache_file_is_ignored(tmp_path: Path) -> None:
    store = MetricCache(tmp_path)
    store.get_or_measure("a", Figure, ["x"], lambda: Figure(1.0))
    (path,) = tmp_path.iterdir()
    stored = json.loads(path.read_text())
    for damaged in (
        "",
        "[]",
        "null",
        json.dumps({**stored, "figures": {"value": "many"}}),
        json.dumps({**stored, "seconds": None}),
    ):
        path.write_text(damaged)
        assert store.get_or_measure("a", Figure, ["x"], lambda: Figure(2.0)).value == 2.0
        assert (
            MetricCache(tmp_path).get_or_measure("a", Figure, ["x"], lambda: Figure(3.0)).value
            == 2.0
        )


def test_an_uncreatable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError):
        MetricCache(tmp_path / "file" / "scores").get_or_measure(
            "a", Figure, [], lambda: Figure(1.0)
        )


posts_of = st.lists(st.text("abc ", min_size=1, max_size=30), min_size=1, max_size=20)


@given(posts_of, st.integers(1, 20_000), st.integers(5, 8))
def test_posts_drawn_by_lot_are_few_enough_but_five_and_always_the_same(
    texts: list[str], most_bytes: int, most: int
) -> None:
    every = [TrainingText(str(number), 200 * f"a{text}") for number, text in enumerate(texts)]
    drawn = sample_posts(every, most_bytes, most)
    whole = {post.id: post.text for post in every}
    assert [post.id for post in drawn] == [i for i in whole if i in {post.id for post in drawn}]
    assert min(5, len(every)) <= len(drawn) <= most
    assert all(whole[post.id].startswith(post.text) for post in drawn)
    size = sum(len(post.text) for post in drawn)
    assert size <= most_bytes or (len(drawn) <= 5 and size <= max(7_500, most_bytes))
    shuffled = sample_posts(every[::-1], most_bytes, most)
    assert {post.id for post in shuffled} == {post.id for post in drawn}
    if sum(map(len, whole.values())) <= most_bytes and len(texts) <= most:
        assert drawn == every
