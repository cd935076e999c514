from pathlib import Path

import pytest

from exports import gutenberg as export
from items import skipped
from ownwords.archive.document import RawDocument, SourceNote
from ownwords.archive.segments import parse_body
from ownwords.archive.sources import gutenberg
from ownwords.core.errors import SourceError

START = "*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n"
END = "\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\n\nLicence\n"
JOINED = " ".join(export.PROSE.replace("_", "").split())


def documents(path: Path) -> list[RawDocument]:
    return [item for item in gutenberg.read(path) if isinstance(item, RawDocument)]


def notes(path: Path) -> str:
    return " ".join(item.text for item in gutenberg.read(path) if isinstance(item, SourceNote))


def save_book(folder: Path, text: str) -> Path:
    path = folder / "book.txt"
    path.write_text(text, encoding="utf-8")
    return path


def words(document: RawDocument) -> str:
    return " ".join(document.body.split())


def test_the_licence_is_removed(tmp_path: Path) -> None:
    root = export.write(tmp_path)
    assert gutenberg.detect(root) == "a folder of Project Gutenberg texts"
    first = documents(root)[0]
    assert first.author == "Ann Author"
    assert words(first).startswith(f"CHAPTER I {JOINED} A hat, a hat, upon the wall, And")
    for part in documents(root):
        assert "INTRUDER" not in part.body
        assert "Gutenberg" not in part.body


def test_prose_is_unwrapped_and_verse_is_not(tmp_path: Path) -> None:
    verse = "A hat, a hat,\nupon the wall"
    text = "\n\n".join([*[export.PROSE.replace("_", "")] * 9, verse])
    (book,) = documents(save_book(tmp_path, START + text + END))
    *prose, last = parse_body(book.body, book.markup).segments
    assert {segment.text for segment in prose} == {JOINED}
    assert last.text == verse


def test_the_reader_is_told_about_copyright_and_doubtful_markers(tmp_path: Path) -> None:
    messages = notes(export.write(tmp_path))
    assert "check their own law" in messages
    assert "unmarked.txt: the line where the licence ends" in messages
    assert "old.txt" not in messages


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (
            "*** START OF THIS PROJECT GUTENBERG EBOOK X ***",
            "*** END OF THIS PROJECT GUTENBERG EBOOK X ***",
        ),
        ("***START OF THE PROJECT GUTENBERG EBOOK X***", "END OF PROJECT GUTENBERG ETEXT"),
        ("*** Start of the\nProject Gutenberg ebook X ***", "End of Project Gutenberg's X, by Y"),
        (
            "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*",
            "End of the Project Gutenberg Etext of X",
        ),
    ],
)
def test_the_markers_of_all_years(tmp_path: Path, start: str, end: str) -> None:
    text = f"The Project Gutenberg EBook of X\nLICENCE\n{start}\n\n{export.PROSE}\n{end}\nLICENCE\n"
    path = save_book(tmp_path, text)
    assert gutenberg.detect(path)
    assert [words(part) for part in documents(path)] == [JOINED]


def test_markers_that_would_leave_too_little_are_ignored(tmp_path: Path) -> None:
    path = save_book(tmp_path, f"Kept before.\n\n{START}Short.{END}" + export.PROSE * 3)
    assert "Kept before." in documents(path)[0].body
    assert "under half" in notes(path)


def test_a_copyrighted_book_is_refused(tmp_path: Path) -> None:
    root = export.write(tmp_path)
    with pytest.raises(SourceError, match="COPYRIGHTED"):
        documents(root / "refused.txt")
    reasons = {i.ref: i.reason for i in skipped(gutenberg.read(root))}
    assert "COPYRIGHTED" in reasons["refused.txt"]


def test_a_long_book_is_split_at_chapters(tmp_path: Path) -> None:
    chapter = "\n\n".join([export.PROSE] * 100)
    chapters = [f"CHAPTER {n}\n\n{chapter}" for n in range(1, 21)]
    header = "Title: A Long Book\n\n"
    parts = documents(save_book(tmp_path, header + START + "\n\n".join(chapters) + END))
    assert [part.title for part in parts] == [f"A Long Book, part {n}" for n in range(1, 6)]
    assert all(part.body.startswith("CHAPTER") for part in parts)
    assert sum(part.body.count("CHAPTER") for part in parts) == 20


def test_italics_lose_their_marks_and_names_with_underscores_keep_them(tmp_path: Path) -> None:
    sentence = "He said _very\nmuch_ of snake_case_names._"
    path = save_book(tmp_path, f"{START}{export.PROSE}\n{sentence}{END}")
    assert documents(path)[0].body.endswith("\n\nHe said very\nmuch of snake_case_names._")


def test_a_line_of_asterisks_is_fast(tmp_path: Path) -> None:
    path = save_book(tmp_path, START + "*" * 2_000_000 + "\n" + "_" * 200_000 + "x" + END)
    assert len(documents(path)) == 1


def test_the_oldest_name_the_book_in_their_first_line_and_marks_of_pictures_go(
    tmp_path: Path,
) -> None:
    first = "*****The Project Gutenberg Etext of On Hats, by Ann Author*****\n\n"
    path = save_book(
        tmp_path, f"{first}{START}{export.PROSE}\n\n[Illustration: A hat]\n\nMore.{END}"
    )
    (book,) = documents(path)
    assert book.title == "On Hats"
    assert words(book) == f"{JOINED} More."
