"""The score API says what the scorecard's own page says."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser as HTMLParser
from starlette.testclient import TestClient

from ownwords.core.workspace import Workspace
from ownwords.evaluation.scorecard import DATA, Scorecard
from ownwords.evaluation.scorecard_view import scorecard_view, write_scorecard
from ownwords.serve.app_state import AppState
from ownwords.view import html
from page_client import page_client
from unit import sample_card

CARDS = [pytest.param(card, id=name) for name, card in sample_card.every()]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made_workspace = Workspace(tmp_path / "w.ownwords")
    made_workspace.root.mkdir()
    return made_workspace


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with page_client(AppState(workspace)) as client:
        yield client


@pytest.mark.parametrize("card", CARDS)
def test_the_page_shows_the_scorecard_with_the_place_of_its_model(
    client: TestClient, workspace: Workspace, card: Scorecard
) -> None:
    write_scorecard(card, workspace.root)
    drawn = HTMLParser(client.get("/api/score").json()["html"])
    # The path at which it was measured may be of another machine: shown is where the model lies.
    here = replace(card, about=replace(card.about, model=str(workspace.root / "model")))
    page = HTMLParser(html.document(scorecard_view(here)))
    for part in ("header", "section", "footer"):
        assert [node.text() for node in drawn.css(part)] == [node.text() for node in page.css(part)]


def test_model_output_stays_text(client: TestClient, workspace: Workspace) -> None:
    scorecard = sample_card.good()
    samples = (replace(scorecard.samples[0], tuned=sample_card.EVIL), *scorecard.samples[1:])
    write_scorecard(replace(scorecard, samples=samples), workspace.root)
    drawn = client.get("/api/score").json()["html"]
    assert "&lt;script&gt;" in drawn
    assert not re.search("<script|<img|\x1b|\u202e", drawn)
    # The page's policy forbids styles and scripts in elements.
    assert not re.search(r"<[^>]+ (style|on\w+)=", drawn)


def test_the_scorecard_is_downloaded_as_one_page(client: TestClient, workspace: Workspace) -> None:
    assert client.get("/api/score/page").status_code == 404
    write_scorecard(sample_card.good(), workspace.root)
    answer = client.get("/api/score/page")
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.text == html.document(scorecard_view(sample_card.good()))


def test_what_broken_off_trainings_keep_is_shown_and_freed(
    client: TestClient, workspace: Workspace
) -> None:
    checkpoints = workspace.runs / "finetune-1" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "step-1.safetensors").write_bytes(bytes(1000))
    (checkpoints.parent / "plan.toml").touch()
    assert client.get("/api/machine").json()["unfinished_bytes"] >= 1000
    assert client.post("/api/machine/free").status_code == 204
    assert client.get("/api/machine").json()["unfinished_bytes"] == 0
    assert (checkpoints.parent / "plan.toml").exists() and not checkpoints.exists()


def test_without_a_card_the_answer_says_why(client: TestClient, workspace: Workspace) -> None:
    nothing = client.get("/api/score").json()
    assert nothing == {"html": "", "unreadable": False}
    (workspace.root / DATA).write_text("{}")
    assert client.get("/api/score").json()["unreadable"] is True


def test_each_model_has_its_own_scorecard(client: TestClient, workspace: Workspace) -> None:
    old = workspace.root / "models" / "old"
    (old / "model").mkdir(parents=True)
    (old / "model" / "config.json").write_text("{}")
    write_scorecard(sample_card.good(), old)
    assert client.get("/api/score").json()["html"] == ""
    shown = client.get("/api/score", params={"model": "old"}).json()["html"]
    assert "old/model" in HTMLParser(shown).text()
    assert client.get("/api/score/page", params={"model": "old"}).status_code == 200
