"""`choices.toml`: the author's text is kept, and mistakes in it are reported."""

from pathlib import Path

import pytest

from ownwords.archive.selection import Decision, read_choices, write_choices
from ownwords.core.errors import ConfigError
from ownwords.core.validation import ValidationError
from unit import sample_report

MINE = '[[post]]\nid = "blog:post/1"\ndecision = "leave out"\n'


def read(tmp_path: Path, text: str, encoding: str = "utf-8") -> dict[str, Decision]:
    path = tmp_path / "choices.toml"
    path.write_text(text, encoding=encoding)
    return read_choices(path)


def test_only_differences_from_the_proposal_are_choices(tmp_path: Path) -> None:
    assert read(tmp_path, "") == {}
    assert read(tmp_path, MINE) == {"blog:post/1": "leave out"}
    assert read(tmp_path, MINE + 'proposed = "leave out"\n') == {}
    assert read(tmp_path, MINE + 'proposed = "cap"\n') == {"blog:post/1": "leave out"}


def test_files_written_by_notepad_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, MINE, "utf-8-sig") == {"blog:post/1": "leave out"}


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        (MINE.replace("[[post]]", "[[posts]]"), "posts", "unknown"),
        (MINE.replace("decision", "decison"), "post[0].decison", "unknown"),
        (MINE.replace("leave out", "leaveout"), "post[0].decision", "type"),
        ('[[post]]\ndecision = "keep"\n', "post[0].id", "missing"),
    ],
)
def test_choices_that_would_be_lost_or_misread_are_reported(
    text: str, path: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError) as raised:
        read(tmp_path, text)
    assert (raised.value.path, raised.value.problem) == (path, problem)


def test_two_entries_for_a_post_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="blog:post/1"):
        read(tmp_path, MINE + MINE.replace("leave out", "keep"))


def test_written_choices_are_read_back(tmp_path: Path) -> None:
    report = sample_report.hostile()
    for post in report.posts:
        post.decision = "keep"
    report.posts[0].title = "w" * 5_000
    choices_made: dict[str, Decision] = {report.posts[1].id: "keep", "gone": "cap"}
    text = write_choices(report.posts, choices_made)
    assert read(tmp_path, text) == choices_made
    assert max(map(len, text.splitlines())) < 2_000


def test_a_folder_of_that_name_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "choices.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_choices(tmp_path / "choices.toml")
