"""marks.toml: what the author decided is followed everywhere, and only that."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import openai_server
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.drafts.check import AuthorStyle
from ownwords.drafts.drafting import DraftLine, with_rules
from ownwords.drafts.mark_choices import MarkChoices, MarksFile, Rule
from ownwords.drafts.rewriting import Habits, rewrite
from ownwords.drafts.voice_card import voice_card
from ownwords.serve.app_state import AppState
from page_client import page_client

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"
FOREIGN = "In order to leverage best practices, users should configure appropriate settings."
DRAFT = f"We waited, prior to the rain, in the shed.\n\n{FOREIGN}\n"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("marks") / "blog.ownwords")
    look([BLOG], workspace=workspace.root)
    return workspace


@pytest.fixture
def marks(workspace: Workspace) -> MarksFile:
    path = workspace.root / "marks.toml"
    path.unlink(missing_ok=True)
    return MarksFile(path)


def client_of(workspace: Workspace) -> TestClient:
    return page_client(AppState(workspace, openai_server.settings()))


def test_decisions_are_followed_by_all(workspace: Workspace, marks: MarksFile) -> None:
    with Archive(workspace.archive) as archive:
        style, habits = AuthorStyle.of(archive), Habits.of(archive)
        client = client_of(workspace)

        def kinds() -> set[str]:
            answer = client.get("/v2/check", params={"language": "en-GB", "text": DRAFT})
            return {match["rule"]["id"] for match in answer.json()["matches"]}

        assert kinds() == {"OWNWORDS_STOCK_PHRASE", "OWNWORDS_UNLIKE_YOU"}
        assert any(each.is_marked for each in style.check(DRAFT).sentences)
        marks.change(lambda choices: choices.keep(FOREIGN))
        assert kinds() == {"OWNWORDS_STOCK_PHRASE"}
        assert not any(each.is_marked for each in style.check(DRAFT).sentences)
        marks.change(lambda choices: choices.allow("stock_phrase", "Prior to"))
        assert kinds() == set()
        assert str(rewrite(DRAFT, habits)) == DRAFT

        marks.change(lambda choices: replace(choices, rule=(Rule("the shed", "my shed"),)))
        assert kinds() == {"OWNWORDS_RULE"}
        assert "in my shed" in str(rewrite(DRAFT, habits))
        assert "- “my shed” not “the shed”" in voice_card(archive).text
        line = DraftLine("shed, dry", "The shed is dry.", kept=True)
        assert [each.text for each in with_rules([line], marks())] == ["My shed is dry."]
        marks.change(lambda choices: choices.remove("words", "prior to"))
        assert kinds() == {"OWNWORDS_RULE", "OWNWORDS_STOCK_PHRASE"}


def test_a_rule_replaces_its_words_and_no_others() -> None:
    choices = MarkChoices(rule=(Rule("utilize", "use"),))
    assert choices.follow("Utilize it. He utilized it.") == "Use it. He utilized it."
    assert choices.remove("rule", "utilize") == MarkChoices()


def test_the_file_is_written_as_it_is_read(marks: MarksFile, tmp_path: Path) -> None:
    made = MarkChoices(
        sentences=('She said "no" \\ and left.',),
        silenced=("ellipses",),
        words=("it's",),
        marked=0.05,
        rule=(Rule("a", "b"),),
    ).keep("One.")
    assert marks.change(lambda _: made) == made
    assert MarksFile(tmp_path / "none.toml")() == MarkChoices()
    with marks._path.open("a") as file:  # a section of an earlier version
        file.write('\n[[choice]]\ntext = "t"\nkind = "wording"\n')
    assert MarksFile(marks._path)() == made
    (tmp_path / "marks.toml").write_text("words = 3")
    with pytest.raises(ConfigError, match="words"):
        MarksFile(tmp_path / "marks.toml")()


def test_the_page_shows_and_takes_back(workspace: Workspace, marks: MarksFile) -> None:
    client = client_of(workspace)
    marks.change(lambda choices: choices.allow("wording", "do not"))
    assert client.get("/api/marks").json()["words"] == ["do not"]
    answer = client.post("/api/marks", json={"remove": ["words", "do not"]})
    assert answer.json()["words"] == [] and marks() == MarkChoices()
    assert client.post("/api/marks", json={"remove": ["choice", "x"]}).status_code == 400
