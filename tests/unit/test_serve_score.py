"""The page's Score part says what the scorecard's own page says."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ownwords.core.workspace import Workspace
from ownwords.evaluation.card import files
from ownwords.evaluation.card.page import render
from ownwords.evaluation.scorecard import Scorecard
from ownwords.serve.api import score
from ownwords.serve.app_state import AppState
from unit import sample_card

CARDS = [pytest.param(card, id=name) for name, card in sample_card.every()]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "w.ownwords")
    made.root.mkdir()
    return made


@pytest.fixture
def client(place: Workspace) -> Iterator[TestClient]:
    state = AppState(place)
    with TestClient(Starlette(routes=score.routes(state))) as made:
        yield made
        made.portal.call(state.close)  # type: ignore[union-attr]


def said(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every text in what was answered."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in ("url", "id"):
                yield from said(each)
    elif isinstance(value, list):
        for each in value:
            yield from said(each)


@pytest.mark.parametrize("card", CARDS)
def test_every_text_stands_on_the_scorecards_page_too(
    client: TestClient, place: Workspace, card: Scorecard
) -> None:
    files.write(card, place.root)
    found = client.get("/api/score").json()["card"]
    page = " ".join(html.unescape(re.sub(r"<[^>]+>", "", render(card))).split())
    texts = [" ".join(one.split()) for one in said(found)]
    assert [one for one in texts if one not in page] == []
    assert found["is_bad"] == ('<h1 class="bad">' in render(card))


def test_figures_are_those_of_the_card(client: TestClient, place: Workspace) -> None:
    whole = sample_card.good()
    files.write(whole, place.root)
    found = client.get("/api/score").json()["card"]
    drawn = [one for panel in found["prediction"]["panels"] for one in panel["gauges"]]
    assert sorted(one["value"] for one in drawn) == sorted(row.bits for row in whole.bits)
    assert [one["is_ours"] for one in drawn].count(True) == sum(r.is_ours for r in whole.bits)
    assert all(
        one["value"] <= panel["top"]
        for panel in found["voice"]["panels"]
        for one in panel["gauges"]
    )
    assert len(found["samples"]["rows"]) == len(whole.samples)


def test_what_a_model_wrote_stays_text(client: TestClient, place: Workspace) -> None:
    whole = sample_card.good()
    samples = (replace(whole.samples[0], tuned=sample_card.EVIL), *whole.samples[1:])
    files.write(replace(whole, samples=samples), place.root)
    found = client.get("/api/score").json()["card"]
    shown = [line for one in found["samples"]["rows"] for part in one["tuned"] for line in part]
    assert any("<script>" in line for line in shown)  # as text: the page makes no markup of it
    assert not any("\x1b" in line or "\u202e" in line for line in shown)


def test_without_a_card_it_says_what_there_is(client: TestClient, place: Workspace) -> None:
    nothing = client.get("/api/score").json()
    assert nothing == {"card": None, "has_model": False, "unreadable": False}
    (place.root / files.DATA).write_text("{}")
    assert client.get("/api/score").json()["unreadable"] is True
