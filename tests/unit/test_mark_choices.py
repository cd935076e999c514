"""marks.toml: what the author decided is followed everywhere, and only that."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import openai_server
from ownwords.archive.store import Archive
from ownwords.cli.main import main
from ownwords.core.errors import ConfigError
from ownwords.core.workspace import Workspace
from ownwords.drafts.check import AuthorStyle
from ownwords.drafts.drafting import DraftLine, with_rules
from ownwords.drafts.mark_choices import CHANGED, MARKED, UNLIKE, MarkChoices, MarksFile, Rule
from ownwords.drafts.rewriting import Habits, rewrite
from ownwords.drafts.voice_card import voice_card
from ownwords.serve.app_state import AppState
from page_client import page_client

FOREIGN = "In order to leverage best practices, users should configure appropriate settings."
DRAFT = f"We waited, prior to the rain, in the shed.\n\n{FOREIGN}\n"


@pytest.fixture(scope="module")
def workspace(sample_blog: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("marks") / "blog.ownwords"
    return Workspace(shutil.copytree(sample_blog, root))


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
        marks.change(lambda choices: choices.keep(FOREIGN, "a", UNLIKE, FOREIGN, ""))
        assert kinds() == {"OWNWORDS_STOCK_PHRASE"}
        assert not any(each.is_marked for each in style.check(DRAFT).sentences)
        marks.change(lambda choices: choices.allow("stock_phrase", "Prior to"))
        assert kinds() == set()
        assert str(rewrite(DRAFT, habits)) == DRAFT

        marks.change(lambda choices: choices.accept(CHANGED, "the shed", "my shed"))
        assert kinds() == {"OWNWORDS_RULE"}
        assert "in my shed" in str(rewrite(DRAFT, habits))
        assert "- “my shed” not “the shed”" in voice_card(archive).text
        line = DraftLine("shed, dry", "The shed is dry.", kept=True)
        assert [each.text for each in with_rules([line], marks())] == ["My shed is dry."]
        marks.change(lambda choices: choices.remove("words", "prior to"))
        assert kinds() == {"OWNWORDS_RULE", "OWNWORDS_STOCK_PHRASE"}


def test_only_what_is_often_alike_is_proposed() -> None:
    choices = MarkChoices()
    for number in range(5):
        assert choices.proposals() == []
        form = "wording", "do not" if number % 2 else "Do not", "don’t"
        choices = choices.keep(f"Sentence {number}.", f"text {number % 3}", *form)
    (proposal,) = choices.proposals()
    assert proposal == ("wording", "do not", "don't")
    assert choices.decline(*proposal).proposals() == []
    accepted = choices.accept(*proposal)
    assert (accepted.words, accepted.proposals()) == (("do not",), [])
    # Five times in two texts are too few; forms are not mixed up.
    choices = MarkChoices().kept_forms("a", [("spelling", "color", "colour")] * 4)
    assert choices.kept_forms("b", [("spelling", "color", "colour")]).proposals() == []
    # A kind without words is silenced, and sentences are marked half as often.
    for kind, expected in (
        ("long_sentence", MarkChoices(silenced=("long_sentence",))),
        (UNLIKE, MarkChoices(marked=MARKED / 2)),
    ):
        choices = MarkChoices()
        for number in range(5):
            choices = choices.kept_forms(str(number), [(kind, "x", "y")])
        accepted = choices.accept(*choices.proposals()[0])
        assert accepted == expected
        again = replace(accepted, choice=choices.choice)
        assert kind != UNLIKE or again.proposals() == []  # sentences, only once


def test_words_that_are_always_replaced_in_drafts_become_a_rule() -> None:
    choices = MarkChoices()
    for number in range(5):
        drafted = [f"We utilize the {number} kettles in the shed.", "It rained all day."]
        saved = f"We use the {number} kettles in the shed. It rained all day."
        for text in ("We uti the kettles.", saved, saved):  # as it is saved again and again
            choices = choices.changed_words(f"text {number}", drafted, text)
    assert choices.proposals() == [(CHANGED, "utilize", "use")]
    rule = choices.accept(CHANGED, "utilize", "use")
    assert rule.rule == (Rule("utilize", "use"),)
    assert rule.follow("Utilize it. He utilized it.") == "Use it. He utilized it."


def test_the_file_is_written_as_it_is_read(marks: MarksFile, tmp_path: Path) -> None:
    made = MarkChoices(
        sentences=('She said "no" \\ and left.',),
        silenced=("ellipses",),
        words=("it's",),
        marked=0.02,
        rule=(Rule("a", "b"),),
        declined=(("wording", "x", "y"),),
    ).keep("One.", "t", "wording", "a", "b")
    assert marks.change(lambda _: made) == made
    assert MarksFile(tmp_path / "none.toml")() == MarkChoices()
    other = MarksFile(marks._path)
    assert other() == made
    (tmp_path / "marks.toml").write_text("words = 3")
    with pytest.raises(ConfigError, match="words"):
        MarksFile(tmp_path / "marks.toml")()


def test_the_page_shows_and_takes_back(workspace: Workspace, marks: MarksFile) -> None:
    client = client_of(workspace)
    kept = [["wording", "do not", "don't"]] * 2
    for text in ("a", "b", "c"):
        answer = client.post("/api/marks", json={"text": text, "kept": kept})
    assert answer.json()["proposals"] == [["wording", "do not", "don't"]]
    answer = client.post("/api/marks", json={"accept": kept[0]})
    assert (answer.json()["words"], answer.json()["proposals"]) == (["do not"], [])
    assert client.get("/api/marks").json() == answer.json()
    assert marks().words == ("do not",)
    answer = client.post("/api/marks", json={"remove": ["words", "do not"]})
    assert answer.json()["words"] == []
    assert client.post("/api/marks", json={"remove": ["choice", "x"]}).status_code == 400


def test_an_undone_edit_of_the_command_line_is_counted(
    workspace: Workspace, marks: MarksFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = tmp_path / "draft.txt"
    draft.write_text(DRAFT)
    for _ in range(2):
        assert (
            main(["rewrite", str(draft), "--workspace", str(workspace.root), "--without", "1"]) == 0
        )
    assert "prior to" in capsys.readouterr().out
    (choice,) = marks().choice
    assert (choice.key, choice.times) == (("stock_phrase", "prior to", "before"), 1)
