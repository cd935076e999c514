"""A draft is checked against the author's posts and other authors today."""

import json
from pathlib import Path

import pytest

from ownwords.archive.corpus import TrainingText, load_corpus
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.cli.main import main
from ownwords.core.errors import CorpusError
from ownwords.drafts.check import AuthorStyle
from ownwords.evaluation.reference_data import ReferenceAuthors

MODERN = (
    "We leverage the new API to streamline deployment. You can install the package prior to that,"
    " then configure your environment variables. If you have any questions, please open an issue."
)


@pytest.mark.shared
def test_a_draft_is_placed_marked_and_found_in_the_posts(
    columnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "w.ownwords"
    look([columnist], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as archive:
        corpus = load_corpus(archive)
    held_out = next(iter(corpus.test))
    draft = tmp_path / "draft.txt"
    first, *rest = held_out.text.split("\n\n")[1:4]
    draft.write_text("\n\n".join([first, MODERN, *rest]), encoding="utf-8")
    capsys.readouterr()
    assert main(["check", str(draft), "--workspace", str(workspace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    foreign = [each for each in found["sentences"] if each["text"] in MODERN]
    own = [each for each in found["sentences"] if each["text"] not in MODERN]
    assert len(foreign) == 3
    assert all(each["is_marked"] for each in foreign)
    assert sum(each["is_marked"] for each in own) <= max(1, len(own) // 4)
    assert any("“leverage”" in reason for reason in foreign[0]["because"])
    assert "you write “before” rather than “prior to”" in foreign[1]["because"]
    whole = draft.read_text(encoding="utf-8")
    assert all(whole[each["start"] : each["end"]] == each["text"] for each in foreign)
    assert found["others"]["middle"] < 0.1 < 0.9 < found["own"]["middle"]
    assert held_out.title in {each["title"] for each in found["written_before"]}
    assert main(["check", str(draft), "--workspace", str(workspace)]) == 0
    assert "You wrote this before" in capsys.readouterr().out


def test_too_few_posts_are_one_sentence() -> None:
    post = TrainingText("1", "The cat sat on the mat, and that was the end of it.", "The cat")
    with pytest.raises(CorpusError, match="too few"):
        AuthorStyle([post], ReferenceAuthors.load())


@pytest.fixture
def gardener() -> AuthorStyle:
    days = ("Monday", "Tuesday", "Friday", "Sunday")
    text = "On {} I went out to the garden, and the rain had bent every stem of the lupin. " * 5
    posts = [TrainingText(str(n), text.format(*[day] * 5), day) for n, day in enumerate(days * 6)]
    return AuthorStyle(posts, ReferenceAuthors.load())


def test_what_he_writes_about_is_rather_his_than_what_others_write_about(
    gardener: AuthorStyle,
) -> None:
    found = gardener.check(
        "I looked at the garden and the lupin in the rain. I looked at the zyzzyva and the xylem in"
        " the kiln. I looked at the github and the python in the cloud."
    )
    his, new, others = (sentence.yours for sentence in found.sentences)
    assert his > new > others


def test_of_a_wrapped_markdown_draft_the_prose_is_checked(gardener: AuthorStyle) -> None:
    plain = "On Monday I went out to the garden, and the rain had bent every stem of the lupin."
    wrapped = plain.replace("bent every", "bent\nevery")
    front = "---\ntags: ['xylem']\n---\n\n# The garden\n\n"
    rest = "\n\n> A quoted zyzzyva.\n\n```\nkiln\n```\n\n- The lupin\n- The rain\n"
    linked = "It is [here](https://xylem.example/kiln) now."
    draft = f"{front}{wrapped} {linked}{rest}"
    found = gardener.check(draft)
    texts = ["The garden", wrapped, linked, "- The lupin", "- The rain"]
    assert [sentence.text for sentence in found.sentences] == texts
    assert all(draft[each.start : each.end] == each.text for each in found.sentences)
    assert not any("xylem" in why for each in found.sentences for why in each.because)
    assert found.sentences[1].yours == gardener.check(plain).sentences[0].yours
