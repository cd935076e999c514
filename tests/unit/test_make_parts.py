"""Parts of make: the first paragraph, its title, the stage cache, word wrapping."""

import io
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.report import PostSummary, Report
from ownwords.base.trimming import are_english
from ownwords.cli.output import StreamingWordWrap, has_desktop
from ownwords.make.stages import (
    FirstParagraph,
    StageCache,
    TrainingSummary,
    cut_at_paragraph,
    prompt_of,
    title_for,
)

TRAINED = TrainingSummary("", "run", 1, 1, 1.0, "done", None, None, (), 1)
SENTENCE = "It rained on the hat, and nobody minded at all. "


def pieces(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


@given(st.integers(1, 9))
def test_a_paragraph_ends_where_a_long_one_ends_or_at_a_sentence(size: int) -> None:
    short = "A title\n\n" + SENTENCE * 2
    goes_on = short.rstrip() + "\n\n" + SENTENCE * 8
    assert "".join(cut_at_paragraph(pieces(goes_on + "\n\nMore.", size))) == goes_on.rstrip()
    endless = SENTENCE * 100
    paragraph = "".join(cut_at_paragraph(pieces(endless, size)))
    assert endless.startswith(paragraph)
    assert paragraph.endswith("at all.")
    assert 700 <= len(paragraph) <= 700 + len(SENTENCE)


@given(st.text(max_size=400), st.integers(1, 7))
def test_a_text_that_ends_by_itself_is_complete_but_stripped(text: str, size: int) -> None:
    assert "".join(cut_at_paragraph(pieces(text[:340], size))) == text[:340].strip()


def test_a_quoted_sentence_ends_after_its_mark() -> None:
    text = SENTENCE * 14 + "Then he asked me, as he does when it rains, “Is it?” "
    assert "".join(cut_at_paragraph([text + "He was gone."])).endswith("“Is it?”")


def post(title: str, **more: object) -> PostSummary:
    fields = {"id": title, "url": "", "day": "", "kind": "post", "words": 300, "own_words": 300}
    return PostSummary(title=title, share=0.1, **{"split": "test", **fields, **more})  # type: ignore[arg-type]


def test_the_title_is_that_of_a_suitable_held_out_post() -> None:
    posts = [
        post("Learned from it", split="train"),
        post("Chosen by it", split="validation"),
        post("Left out of it", decision="leave out"),
        post("A page about me", kind="page"),
        post("Much too short", own_words=20),
        post("Untitled"),
        post(" ".join(["word"] * 21)),
    ]
    report = Report("blog", "", "", "", posts=posts)
    assert title_for(report) == ""
    assert prompt_of("") == ""
    long = "How one found out in ten days what the gutter costs"
    report.posts.append(post(long))
    assert title_for(report) == long
    report.posts += [post("The  gutter in March"), post("On hats")]
    title = title_for(report)
    assert title in ("The gutter in March", "On hats")
    report.posts.reverse()
    assert title_for(report) == title
    assert prompt_of(title) == f"{title}\n\n"


def test_the_language_is_that_of_most_texts() -> None:
    english = ["The hat was on the table, and it was not his, as far as he could see."]
    german = ["Der Hut lag auf dem Tisch, und soweit er sehen konnte, war es nicht seiner."]
    assert are_english(english)
    assert not are_english(german)
    assert not are_english([*german, *german, *english])
    assert not are_english(english * 60 + german * 300)  # the first are English


def test_a_cached_stage_is_found_only_for_the_same_inputs(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "make" / "finished.json"
    finished = StageCache(path)
    paragraph = FirstParagraph("On hats", "It rained.\n\n“So?”")
    assert finished.inputs("write") == {}
    finished.put("write", {"model": "a", "title": "On hats"}, paragraph, 1.5)
    reopened = StageCache(path)
    assert reopened.get("write", {"title": "On hats", "model": "a"}, FirstParagraph) == paragraph
    assert reopened.get("write", {"title": "On hats", "model": "b"}, FirstParagraph) is None
    assert reopened.latest("write", FirstParagraph) == paragraph
    assert reopened.inputs("write") == {"model": "a", "title": "On hats"}
    assert reopened.seconds("write") == 1.5
    assert reopened.latest("other", FirstParagraph) is None


@pytest.mark.parametrize(
    "damage",
    ["", "[]", '{"write": {"depends_on": {}}}', "[" * 100_000],
)
def test_a_damaged_cache_file_is_ignored(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "finished.json"
    path.write_text(damage)
    finished = StageCache(path)
    assert finished.latest("write", FirstParagraph) is None
    finished.put("write", {}, FirstParagraph("a b", "c"), 0.1)
    assert StageCache(path).latest("write", FirstParagraph) == FirstParagraph("a b", "c")


def wrap_text(text: str, size: int, width: int, margin: int = 0) -> str:
    stream = io.StringIO()
    StreamingWordWrap(stream, width=width, margin=margin).write(pieces(text, size))
    return stream.getvalue()


@given(st.integers(1, 12), st.integers(20, 60), st.integers(0, 8))
def test_text_flows_in_lines_behind_a_margin(size: int, width: int, margin: int) -> None:
    text = "A title\n\n" + SENTENCE * 5 + "\n\n\nThe end."
    text_lines = wrap_text(text, size, width, margin)
    assert text_lines.split() == text.split()
    lines = text_lines.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == " " * margin + "A title"
    assert lines[1] == ""
    assert all(line.startswith(" " * margin) for line in lines if line)
    # As much on a line as fits: the next word never would have.
    for line, after in pairwise(lines):
        if line and after and not line.endswith("title"):
            assert len(line) + 1 + len(after.split()[0]) > width


@pytest.mark.parametrize(
    ("text", "size", "width", "expected"),
    [
        ("a \x1b[31mred\x07 hat", 3, 40, "a ?[31mred? hat\n"),
        ("", 3, 40, ""),
        ("雨" * 5 + " x", 4, 8, "雨雨雨雨雨\nx\n"),
    ],
)
def test_control_characters_and_long_words_are_wrapped_safely(
    text: str, size: int, width: int, expected: str
) -> None:
    assert wrap_text(text, size, width) == expected


def test_it_ends_its_line_where_the_writing_breaks_off() -> None:
    def breaks() -> object:
        yield "One tw"
        raise KeyboardInterrupt

    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        StreamingWordWrap(stream, width=40).write(breaks())  # type: ignore[arg-type]
    assert stream.getvalue() == "One tw\n"


@pytest.mark.parametrize(
    ("environment", "system", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", False),
        ({"SSH_CONNECTION": "here there"}, "darwin", False),
        ({"CI": "false"}, "win32", True),
    ],
)
def test_pages_are_opened_only_where_somebody_sits(
    environment: dict[str, str], system: str, expected: bool
) -> None:
    assert has_desktop(environment, system) == expected
