"""The voice card: how the author writes, beside others, with passages."""

import json
import shutil
from pathlib import Path

import pytest

from ownwords.archive.store import Archive
from ownwords.cli.main import main
from ownwords.drafts.voice_card import LOOP, VoiceCard, voice_card


@pytest.fixture(scope="module")
def workspace(sample_blog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(sample_blog, tmp_path_factory.mktemp("voice") / "w.ownwords")


def card_of(workspace: Path, about: str = "", words: int = 1200) -> VoiceCard:
    with Archive(workspace / "archive.sqlite") as archive:
        return voice_card(archive, about, words)


def test_the_passages_are_the_authors_and_near_the_task(workspace: Path) -> None:
    card = card_of(workspace, "the allotment and the rain gauge")
    with Archive(workspace / "archive.sqlite") as archive:
        posts = {each.id: each for each in archive.documents()}
        used = archive.selection()
    assert 5 <= len(card.passages) <= 10
    assert len({each.post for each in card.passages}) == len(card.passages)
    for passage in card.passages:
        assert passage.text in {segment.text for segment in posts[passage.post].segments}
        assert used[passage.post][0] != "leave out"
        assert used[passage.post][2] == "train"
    assert any("rain" in each.text for each in card.passages[:2])
    assert 800 < len(card.text.split()) < 1600


def test_the_card_has_the_form_that_is_asked_for(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(*form: str) -> str:
        assert main(["voice", str(workspace), *form]) == 0
        return capsys.readouterr().out

    text = written()
    skill = written("--format", "skill")
    assert skill.startswith("---\nname: write-like-") and LOOP in skill and text in skill
    assert text in written("--format", "modelfile").split('SYSTEM """')[1]
    found = json.loads(written("--json"))
    assert all(passage["text"] in text for passage in found["passages"])


def test_the_card_counts_a_paragraph_shows_habits_and_always_has_the_spelling(
    workspace: Path,
) -> None:
    card = card_of(workspace)
    lines = card.text.split("\n")
    (counted,) = (line for line in lines if "a paragraph of 54 words has" in line)
    assert "sentences: 4, " in counted and "question marks: 1 per " in counted
    assert "- Spelling: British (15 of 19)" in lines
    with Archive(workspace / "archive.sqlite") as archive:
        posts = "\n".join(each.text() for each in archive.documents())
    shown = [line.partition(", such as: ")[2] for line in lines if ", such as: " in line]
    assert len(shown) > 4 and all(example in posts for example in shown)
