"""Languages are identified, and a post in another one is named."""

from pathlib import Path

import pytest

from ownwords.archive.features import identify_language
from ownwords.archive.look import look

TEXTS = {
    "English": "It was the best of times, and it was not the worst; he said that he would "
    "be there with his brother, but they have never come to the house, which is empty.",
    "German": "Es war nicht das beste Jahr, und ich habe mich auch nicht gewundert, dass der "
    "Winter so lang war. Die Tage sind kurz, und das Licht ist noch schwach auf dem Feld.",
    "French": "Ce n'est pas la première fois que nous allons dans les montagnes avec des amis, et "
    "cette année est plus belle pour nous que les autres, qui sont passées sur la route.",
    "Polish": "To nie jest tak, że się nie da, ale po co się spieszyć, jak już jest po zimie. Na "
    "polu nie ma nic, a w domu jest ciepło i to mi się od dawna podoba tylko tutaj.",
    "Russian": "Это не так, как он думал, и я не знал, что это она. Но он так и не пришёл, и "
    "за окном всё было как раньше, а по улице от дома к дому шёл снег, и так это и было.",
    "Japanese": "これは私が去年の秋に書いた日記です。雨が降っていて、誰も来ませんでした。",
    "": "Kwrx plomb zett urgo fenn " * 12,
}


@pytest.mark.parametrize(("language", "text"), TEXTS.items())
def test_a_language_is_recognised(language: str, text: str) -> None:
    assert identify_language(text) == language
    assert identify_language(text[:20]) == ""


def test_a_post_in_another_language_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for n in range(6):
        text = f"# Note {n}\n\nNumber {n}. {TEXTS['English']}\n"
        (folder / f"{n}.md").write_text(text, encoding="utf-8")
    (folder / "winter.md").write_text(f"# Winter\n\n{TEXTS['German']}\n", encoding="utf-8")
    report = look([folder], workspace=tmp_path / "w")
    (winter,) = [post for post in report.posts if post.title == "Winter"]
    assert (winter.flags, winter.decision) == (["language"], "keep")
    assert winter.reason == "it is in German, unlike most of your posts"
    assert not any("language" in post.flags for post in report.posts if post is not winter)
    page = (tmp_path / "w" / "report.html").read_text(encoding="utf-8")
    assert "is in another language" in page.lower()
