"""The voice card: how the author writes, beside others, with passages."""

from pathlib import Path

import pytest

from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.drafts.voice_card import VoiceCard, voice_card

BLOG = Path(__file__).resolve().parents[2] / "examples" / "blog"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("voice") / "w.ownwords"
    look([BLOG], workspace=root)
    return root


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
