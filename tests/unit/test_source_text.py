from pathlib import Path

import pytest

from exports import text as export
from items import skipped
from ownwords.archive import untrusted_files
from ownwords.archive.document import RawDocument
from ownwords.archive.sources import detect_source, text


def documents(path: Path) -> list[RawDocument]:
    return [item for item in text.read(path) if isinstance(item, RawDocument)]


def titles_and_bodies(
    folder: Path, data: str | bytes, name: str = "note.txt"
) -> list[tuple[str, str]]:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return [(document.title, document.body) for document in documents(path)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("A title\n\nText", [("A title", "Text")]),
        ("A title\nText", [("note", "A title\nText")]),
        ("x" * 81 + "\n\nText", [("note", "x" * 81 + "\n\nText")]),
        ("a\r\nb\rc", [("note", "a\nb\nc")]),
        ("a\x0bb\x85c\u2028d", [("note", "a\x0bb\x85c\u2028d")]),
    ],
)
def test_documents_of_a_file(tmp_path: Path, data: str, expected: list[tuple[str, str]]) -> None:
    assert titles_and_bodies(tmp_path, data) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    assert titles_and_bodies(tmp_path, "Zażółć".encode(encoding)) == [("note", "Zażółć")]


def test_a_damaged_utf8_file_stays_utf8_and_late_other_encodings_are_detected(
    tmp_path: Path,
) -> None:
    polish = "zażółć gęślą jaźń " * 20_000
    damaged = polish.encode()[:200_000] + b"\xff" + polish.encode()[200_000:]
    assert "zażółć" in untrusted_files.decode_text(damaged)
    assert "zażółć" in titles_and_bodies(tmp_path, damaged)[0][1]
    late = b"plain " * 50_000 + "größer für".encode("cp1252") * 50
    assert titles_and_bodies(tmp_path, late)[0][1].endswith("größer für")


def test_a_large_file_is_split_at_blank_lines(tmp_path: Path) -> None:
    paragraph = "A sentence that stands for many others. " * 20
    path = tmp_path / "large.txt"
    path.write_text("\n\n".join([paragraph] * 4000), encoding="utf-8")
    parts = documents(path)
    assert [part.title for part in parts] == [f"large, part {n}" for n in (1, 2, 3, 4)]
    assert [part.ref for part in parts] == [f"large.txt#{n}" for n in (1, 2, 3, 4)]
    assert all(part.body.startswith("A sentence") for part in parts)
    assert all(part.body.rstrip().endswith("others.") for part in parts)
    assert sum(part.body.count("sentence") for part in parts) == 80_000


def test_a_folder(tmp_path: Path) -> None:
    root = export.write(tmp_path)
    assert text.detect(root) == "a folder of text files"
    reasons = {i.ref: i.reason for i in skipped(text.read(root))}
    assert reasons == {"empty.txt": "empty", "picture.txt": "is a binary file, not text"}


def test_a_folder_names_the_files_it_skips(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.md", "d.html", "e.pdf", "f.jpeg"):
        (tmp_path / name).write_text("Some words of mine.", encoding="utf-8")
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside, target_is_directory=True)
    assert text.detect(tmp_path) == "a folder of text files"
    left_out = {item.reason: item.count for item in skipped(text.read(tmp_path))}
    apart = "; to read it, give its path as well"
    assert left_out == {
        f"not plain text (.md){apart}": 1,
        f"not plain text (.html){apart}": 1,
        f"not plain text (.pdf){apart}": 1,
        "a link to another folder; not followed": 1,
    }


def test_a_workspace_inside_a_folder_does_not_change_its_detection(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Some words of mine.", encoding="utf-8")
    workspace = tmp_path / "blog.ownwords"
    workspace.mkdir()
    for name in ("report.html", "scorecard.html", "card.md"):
        (workspace / name).write_text("<p>ours</p>", encoding="utf-8")
    found = detect_source(tmp_path)
    assert (found.name, found.label) == ("text", "a folder of text files")
