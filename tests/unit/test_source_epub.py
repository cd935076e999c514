from pathlib import Path

import pytest

from exports import epub as export
from exports import write_zip
from items import skipped
from ownwords.archive import readability
from ownwords.archive.document import RawDocument, SiteInfo
from ownwords.archive.sources import epub
from ownwords.core.errors import SourceError


def book(folder: Path, **changed: str | bytes) -> Path:
    """The book with some files replaced; "__" stands for "/" and "_dot_" for "."."""
    files = {k.replace("__", "/").replace("_dot_", "."): v for k, v in changed.items()}
    return write_zip(folder / "book.epub", {**export.FILES, **files})


def documents(path: Path) -> list[RawDocument]:
    return [item for item in epub.read(path) if isinstance(item, RawDocument)]


def test_chapters_are_in_reading_order_with_their_own_titles(tmp_path: Path) -> None:
    chapters = documents(export.write(tmp_path))
    assert [chapter.title for chapter in chapters] == ["On hats", "Coats", "Of Books, part 3"]
    assert {chapter.author for chapter in chapters} == {"Ann Author"}
    assert chapters[0].tags == ("Clothes",)
    assert next(iter(epub.read(export.write(tmp_path)))) == SiteInfo("Of Books")


def test_xhtml_entities_and_self_closing_elements_are_parsed(
    tmp_path: Path,
) -> None:
    body = documents(export.write(tmp_path))[0].body
    assert "A&nbsp;hat — a roof." in body
    assert '<a id="top"></a>' in body
    assert "<h1>" not in body


def test_front_matter_of_a_book_is_counted(tmp_path: Path) -> None:
    items = list(epub.read(export.write(tmp_path)))
    reasons = {item.reason: item.count for item in skipped(items)}
    assert reasons == {
        "without text: a picture or an empty page": 1,
        "the table of contents": 1,
        "the copyright page": 1,
        "outside the reading order": 1,
        "the book lists it, but it is missing": 1,
    }


def test_a_drm_locked_book_is_refused_and_obfuscated_fonts_are_not(tmp_path: Path) -> None:
    lock = export.FILES["META-INF/encryption.xml"]
    lock = lock.replace(
        "http://www.idpf.org/2008/embedding", "http://www.w3.org/2001/04/xmlenc#aes"
    )
    path = book(tmp_path, **{"META-INF__encryption_dot_xml": lock})
    assert len(documents(path)) == 3  # only a font is encrypted
    lock = lock.replace("OEBPS/font.otf", "OEBPS/text/ch1.xhtml")
    path = book(tmp_path, **{"META-INF__encryption_dot_xml": lock})
    with pytest.raises(SourceError, match="protected by DRM"):
        documents(path)


def test_page_and_note_numbers_are_not_joined_to_words(tmp_path: Path) -> None:
    chapter = export.page(
        "<h1>On hats</h1><p>A hat<a epub:type='noteref' href='notes.xhtml#n1'>1</a>"
        "<span epub:type='pagebreak' id='p5'>5</span>, x<sup>2</sup>, a roof"
        "<sup><a href='#n2'>2</a></sup><span class='pagenum'>[Pg 12]</span>"
        " and <a href='ch%202.xhtml#x'>coats</a>.</p>"
    )
    body = documents(book(tmp_path, OEBPS__text__ch1_dot_xhtml=chapter))[0].body
    plain = readability.node_text(readability.parse(body))
    assert plain == "A hat, x2, a roof and coats."


def test_a_long_chapter_in_a_file_called_cover_is_kept(tmp_path: Path) -> None:
    page = export.page(f"<p>{'word ' * 600}</p>", "cover")
    path = book(tmp_path, OEBPS__text__cover_dot_xhtml=page)
    assert "OEBPS/text/cover.xhtml" in {chapter.ref for chapter in documents(path)}
