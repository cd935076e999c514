"""PDFs: what is one paragraph, what is no part of the text, and files that are made to do harm."""

import sys
import zlib
from pathlib import Path

import pytest

from exports.pdf import COATS, HATS, framed, lines, pdf
from items import documents, skipped
from ownwords.archive.sources import load_source
from ownwords.archive.sources import pdf as source
from ownwords.core.errors import SourceError

PARAGRAPH = [
    "Rain fell on the roof of the shed from six until the milk came, and nobody",
    "minded, since the shed was empty but for a spade, which had been out before.",
    "The gutter held.",
]


def body_of(tmp_path: Path, data: bytes) -> str:
    pytest.importorskip("pypdf")
    path = tmp_path / "a.pdf"
    path.write_bytes(data)
    (document,) = documents(list(load_source("pdf").read(path))).values()
    return document.body


def test_words_are_joined_and_headers_and_page_numbers_go(tmp_path: Path) -> None:
    body = body_of(tmp_path, HATS)
    assert "rain wondered what" in body and "ended well-known." in body
    assert "much more to say than a single page can hold" in body
    assert "INTRUDER" not in body and not any(f"<p>{n}</p>" in body for n in range(1, 5))


@pytest.mark.parametrize(
    "page",
    [
        [*lines(*PARAGRAPH), *lines(*PARAGRAPH, top=680)],  # a gap
        [*lines(*PARAGRAPH), *lines(*PARAGRAPH, top=698)],  # a short last line
        [*lines(*PARAGRAPH[:2]), *lines("Now " + PARAGRAPH[0], x=90, top=712)],  # an indent
        [*lines(*PARAGRAPH[:2]), *lines(*PARAGRAPH, x=320)],  # a second column
    ],
)
def test_paragraphs_are_parted(tmp_path: Path, page: list[tuple[float, float, float, str]]) -> None:
    # A column ends a paragraph only if its last line is short.
    in_columns = page[-1][0] == 320
    page = [*page[:2], *lines(PARAGRAPH[2], top=712), *page[2:]] if in_columns else page
    assert body_of(tmp_path, pdf([page])).count("<p>") == 2


def test_scans_and_missing_packages_and_locks_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pypdf")
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf([[], []]))
    with pytest.raises(SourceError, match="is a scan"):
        list(load_source("pdf").read(path))
    path.write_bytes(COATS)
    (page,) = skipped(list(load_source("pdf").read(path)))
    assert (page.what, page.count, page.ref) == ("page", 1, "a.pdf")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setattr(source, "find_spec", lambda _: None)
    with pytest.raises(SourceError, match="needs the package pypdf") as caught:
        list(load_source("pdf").read(path))
    assert "[pdf]" in caught.value.hint


def test_a_hostile_file_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pypdf")
    path = tmp_path / "a.pdf"
    page = framed(1, lines(*PARAGRAPH))
    # A stream of a few MB that unpacks to 3 GB.
    packer = zlib.compressobj(9)
    first, again = (
        packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    bomb = first + again * 3000
    data = pdf([page])
    start, end = data.rindex(b"<< /Length"), data.rindex(b"endstream")
    stream = b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(bomb) + bomb + b"\n"
    path.write_bytes(data[:start] + stream + data[end:])
    with pytest.raises(SourceError):
        list(load_source("pdf").read(path))
    path.write_bytes(data)
    monkeypatch.setattr(source, "_MAX_SECONDS", 0.01)
    with pytest.raises(SourceError, match="minutes to read"):
        list(load_source("pdf").read(path))
