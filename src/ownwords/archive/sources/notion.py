"""Source: a Notion export, as Markdown or HTML; its file names end in the ids of the pages."""

import re
from collections.abc import Iterator
from pathlib import Path

from ownwords.archive import dates, readability, untrusted_files
from ownwords.archive.document import ExpectedCount, RawDocument, SkippedItem, SourceItem
from ownwords.archive.sources.markdown import split_heading
from ownwords.core.errors import SourceError

NAME = "Notion"

_PAGE = re.compile(r"(?:^|/)(?P<title>[^/]*?) ?(?P<id>[0-9a-f]{32})\.(md|html)$")
# A page of a database begins with its properties, one per line.
_PROPERTY = re.compile(r"([A-Z][^:\n]{0,40}): (.*)")
_DATES = ("date", "published", "publish date", "created", "created time")


def detect(path: Path) -> str | None:
    """Recognise a zip or folder by the names of its files."""
    is_export = untrusted_files.export_holds(path, lambda files: _pages(files.names))
    return "a Notion export" if is_export else None


def _pages(names: tuple[str, ...]) -> list[str]:
    return sorted(name for name in names if _PAGE.search(name))


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the pages, sorted by file."""
    with untrusted_files.open_export(path) as members:
        pages = _pages(members.names)
        if not pages:
            raise SourceError(
                f"{path} holds no Notion pages",
                hint="export them as Markdown & CSV or as HTML",
            )
        yield from members.skipped
        yield ExpectedCount(len(pages))
        for name in pages:
            try:
                yield _document(name, untrusted_files.decode_text(members.read(name)))
            except SourceError as error:
                yield SkippedItem("page", f"it cannot be unpacked: {error.message}", ref=name)
        if rest := len(members.names) - len(pages):
            yield SkippedItem("file", "a table or a picture, not a page", rest)


def _document(name: str, text: str) -> RawDocument:
    page = _PAGE.search(name)
    assert page is not None  # so `_pages` found it
    is_html = name.endswith(".html")
    title, properties, body = _html_page(text) if is_html else _markdown_page(text)
    written = (dates.parse_date(properties.get(key, "").lstrip("@")) for key in _DATES)
    return RawDocument(
        ref=f"page/{page['id']}",
        title=title or page["title"],
        body=body,
        markup="html" if is_html else "markdown",
        date=next(filter(None, written), None),
        tags=tuple(tag for t in properties.get("tags", "").split(",") if (tag := t.strip())),
    )


def _markdown_page(text: str) -> tuple[str, dict[str, str], str]:
    """Return the title, the properties and the body of a page."""
    title, body = split_heading("", text.replace("\r\n", "\n"))
    lines = body.strip("\n").split("\n")
    properties: dict[str, str] = {}
    while lines and (found := _PROPERTY.fullmatch(lines[0])):
        properties[found[1].casefold()] = found[2].strip()
        del lines[0]
    if lines and lines[0].strip():  # the lines belong to a paragraph
        properties, lines = {}, body.split("\n")
    return title, properties, "\n".join(lines).strip("\n")


def _html_page(text: str) -> tuple[str, dict[str, str], str]:
    """Return the same of a page in HTML."""
    page = readability.parse(text)
    body = page.css_first(".page-body")
    rows = (row.css("th, td") for row in page.css(".properties tr"))
    pairs = [tuple(map(readability.node_text, cells)) for cells in rows if len(cells) == 2]
    properties = {name.casefold(): value for name, value in pairs}
    return readability.text_of(page, ".page-title"), properties, (body.html or "") if body else ""
