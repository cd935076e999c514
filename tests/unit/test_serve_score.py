"""The score API says what the scorecard's own page says."""

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
def workspace(tmp_path: Path) -> Workspace:
    made_workspace = Workspace(tmp_path / "w.ownwords")
    made_workspace.root.mkdir()
    return made_workspace


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    state = AppState(workspace)
    with TestClient(Starlette(routes=score.routes(state))) as test_client:
        yield test_client
        test_client.portal.call(state.close)  # type: ignore[union-attr]


def texts_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every text in an answer."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("url", "id"):
                yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


@pytest.mark.parametrize("card", CARDS)
def test_every_text_is_on_the_scorecard_page_too(
    client: TestClient, workspace: Workspace, card: Scorecard
) -> None:
    files.write(card, workspace.root)
    report = client.get("/api/score").json()["card"]
    # The path at which it was measured may be of another machine: shown is where the model lies.
    assert report.pop("model") == str(workspace.root / "model")
    page = " ".join(html.unescape(re.sub(r"<[^>]+>", "", render(card))).split())
    texts = [" ".join(text.split()) for text in texts_in(report)]
    assert [text for text in texts if text not in page] == []
    assert report["is_bad"] == ('<h1 class="bad">' in render(card))


def test_figures_equal_those_of_the_card(client: TestClient, workspace: Workspace) -> None:
    scorecard = sample_card.good()
    files.write(scorecard, workspace.root)
    card = client.get("/api/score").json()["card"]
    drawn = [gauge for panel in card["prediction"]["panels"] for gauge in panel["gauges"]]
    assert sorted(gauge["value"] for gauge in drawn) == sorted(row.bits for row in scorecard.bits)
    assert [gauge["is_ours"] for gauge in drawn].count(True) == sum(
        r.is_ours for r in scorecard.bits
    )
    assert all(
        gauge["value"] <= panel["top"]
        for panel in card["voice"]["panels"]
        for gauge in panel["gauges"]
    )
    assert len(card["samples"]["rows"]) == len(scorecard.samples)


def test_model_output_stays_text(client: TestClient, workspace: Workspace) -> None:
    scorecard = sample_card.good()
    samples = (replace(scorecard.samples[0], tuned=sample_card.EVIL), *scorecard.samples[1:])
    files.write(replace(scorecard, samples=samples), workspace.root)
    card = client.get("/api/score").json()["card"]
    lines = [line for row in card["samples"]["rows"] for part in row["tuned"] for line in part]
    assert any("<script>" in line for line in lines)  # as text: the page makes no markup of it
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_without_a_card_the_answer_says_why(client: TestClient, workspace: Workspace) -> None:
    nothing = client.get("/api/score").json()
    assert nothing == {"card": None, "has_model": False, "unreadable": False}
    (workspace.root / files.DATA).write_text("{}")
    assert client.get("/api/score").json()["unreadable"] is True
