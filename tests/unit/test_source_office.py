import zipfile
from pathlib import Path

import pytest

from exports import NON_ASCII, write_zip
from exports import office as export
from items import documents, skipped
from ownwords.archive.segments import parse_body
from ownwords.archive.sources import office
from ownwords.core.errors import SourceError


def segments_of(path: Path) -> list[tuple[str, str]]:
    (document,) = documents(office.read(path)).values()
    return [(s.kind, s.text) for s in parse_body(document.body, document.markup).segments]


def test_a_word_document_is_read_with_its_changes_accepted(tmp_path: Path) -> None:
    folder = export.write(tmp_path)
    assert segments_of(folder / "2020-01-31 hats.docx") == [
        ("prose", f"A hat is a roof one wears. {NON_ASCII}"),
        ("prose", "It was felt & straw\nonce."),
        ("heading", "Kinds"),
        ("list", "- bowler\n- top"),
        ("list", "1. first"),
        ("quote", "A quoted line."),
        ("table", "size | seven"),
        ("prose", "Coats"),
        ("prose", "Or twice."),
    ]
    assert sum(i.count for i in skipped(office.read(folder))) == 5


def test_a_libreoffice_document_is_read_with_its_changes_accepted(tmp_path: Path) -> None:
    assert segments_of(export.write(tmp_path) / "coats.odt") == [
        ("prose", "After hats, coats: warm\nand long."),
        ("heading", "Kinds"),
        ("list", "1. first\n2. second"),
        ("quote", "A quoted line."),
        ("prose", "To the knee."),
    ]


def test_a_locked_document_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="protected by a password") as caught:
        list(office.read(export.write(tmp_path) / "secret.docx"))
    assert "without a password" in caught.value.hint
    path = tmp_path / "secret.odt"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("content.xml", b"\xff\x00\x17")
        packed.writestr("META-INF/manifest.xml", '<m xmlns="x"><e><encryption-data/></e></m>')
    with pytest.raises(SourceError, match="protected by a password"):
        list(office.read(path))


def test_each_cell_of_a_table_is_read_once(tmp_path: Path) -> None:
    inner = f"<w:tbl><w:tr><w:tc>{export.paragraph('within')}</w:tc></w:tr></w:tbl>"
    cell = f"<w:tc>{export.paragraph('chosen')}{inner}</w:tc>"
    row = f"<w:tr><w:tc>{export.paragraph('size')}</w:tc><w:sdt><w:sdtContent>{cell}"
    table = f"<w:tbl>{row}</w:sdtContent></w:sdt></w:tr></w:tbl>"
    text = export.DOCX["word/document.xml"].replace("<w:body>", f"<w:body>{table}")
    write_zip(tmp_path / "a.docx", export.DOCX | {"word/document.xml": text})
    words = " ".join(text for _, text in segments_of(tmp_path / "a.docx")).split()
    assert [words.count(word) for word in ("chosen", "within")] == [1, 1]


def test_entities_are_not_expanded(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "INTRUDER"><!ENTITY b SYSTEM "file:///etc/passwd">]>'
    text = export.DOCX["word/document.xml"].replace("once.", "once&a;&b;.")
    write_zip(tmp_path / "a.docx", export.DOCX | {"word/document.xml": bomb + text})
    assert segments_of(tmp_path / "a.docx")[1] == ("prose", "It was felt & straw\nonce")


def boxes_in_boxes(depth: int) -> str:
    if not depth:
        return ""
    box = f"<w:txbxContent>{boxes_in_boxes(depth - 1)}</w:txbxContent>"
    fallback = "<w:Fallback><w:txbxContent><w:p>INTRUDER</w:p></w:txbxContent></w:Fallback>"
    return f"<w:p><w:r><w:t>box {depth}</w:t>{box}{fallback}</w:r></w:p>"


def test_each_text_box_of_word_is_read_once(tmp_path: Path) -> None:
    text = export.DOCX["word/document.xml"].replace("<w:body>", f"<w:body>{boxes_in_boxes(40)}")
    write_zip(tmp_path / "a.docx", export.DOCX | {"word/document.xml": text})
    read = [text for _, text in segments_of(tmp_path / "a.docx")]
    assert read[:40] == [f"box {depth}" for depth in range(40, 0, -1)]


def frame(text: str, inside: str = "") -> str:
    paragraph = f"<text:p>{text}</text:p>" if text else ""
    return f"<draw:frame><draw:text-box>{paragraph}{inside}</draw:text-box></draw:frame>"


NOTE = "<text:note><text:note-body><text:p>n{}</text:p></text:note-body></text:note>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"<text:p>A{frame('B' + frame('C'))}{frame('D')} E</text:p>", "A E|B|C|D"),
        (f"<text:p>A{frame('B', frame('C'))}</text:p>", "A|B|C"),
        (f"{frame('of the page')}<text:p>A</text:p>", "of the page|A"),
        (f"<text:p>A{NOTE.format(frame('B'))}</text:p>", "A|n|B"),
    ],
)
def test_each_frame_of_libreoffice_is_read_once(body: str, expected: str, tmp_path: Path) -> None:
    root = export.ODT["content.xml"].partition("<office:automatic-styles>")[0]
    root = root.replace(">", ' xmlns:draw="d">')
    content = f"{root}<office:body><office:text>{body}</office:text></office:body>"
    members = {"content.xml": f"{content}</office:document-content>"}
    write_zip(tmp_path / "a.odt", members)
    assert "|".join(text for _, text in segments_of(tmp_path / "a.odt")) == expected
