"""Source: an EPUB book, its chapters in reading order, without cover, contents and imprint."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from lxml import etree
from selectolax.lexbor import LexborNode

from ownwords.archive import dates, readability, untrusted_files
from ownwords.archive.document import ExpectedCount, RawDocument, SiteInfo, SkippedItem, SourceItem
from ownwords.archive.safe_xml import element_text, read_xml
from ownwords.core.errors import SourceError

NAME = "EPUB"
SUFFIXES = frozenset({".epub"})

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_SELF_CLOSED = re.compile(rf"<(?!(?:{_VOID})\b)([A-Za-z][\w:-]*)((?:\s[^<>]*)?)/>")
_DOCTYPE = re.compile(r"<!DOCTYPE[^<>\[]*(\[[^\[\]]*\]\s*)?>", re.IGNORECASE)
_FRAME = (
    (re.compile(r"cover"), "the cover"),
    (re.compile(r"toc|nav|(table[-_ ]?of[-_ ]?)?contents"), "the table of contents"),
    (re.compile(r"copyright([-_ ]?page)?|imprint|colophon|legal"), "the copyright page"),
    (re.compile(r"(half[-_ ]?)?title[-_ ]?page"), "the title page"),
)
_MARKS = frozenset({"pagebreak", "doc-pagebreak", "pagenum", "pageno", "noteref", "doc-noteref"})
_NUMBER_OF_NOTE = re.compile(r"[\[(]?(?:\d{1,4}|[*†‡§]{1,3}|[a-z])[\])]?")
_LONGEST_MARK = 8
# A page with more words is a chapter, whatever its file is called.
_FRAME_WORDS = 500


@dataclass(frozen=True, slots=True)
class _Package:
    """The contents of the book's package file; file names are those within the zip."""

    title: str
    author: str
    date: str
    tags: tuple[str, ...]
    spine: dict[str, bool]  # name -> is in the reading order
    contents: list[str]  # the navigation documents
    guide: dict[str, str]  # file name -> role ("cover")


def detect(path: Path) -> str | None:
    """Recognise a zip, or an unpacked folder, that holds EPUB's container file."""
    if path.is_dir():
        is_book = untrusted_files.path_exists(path / _CONTAINER)
    else:
        is_book = untrusted_files.export_holds(path, lambda members: _CONTAINER in members.names)
    return "an EPUB book" if is_book else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield a document for every chapter file; front matter such as the cover is skipped."""
    with untrusted_files.open_export(path) as members:
        yield from members.skipped
        package = _package(members)
        _refuse_locked(members, package)
        yield SiteInfo(package.title)
        yield ExpectedCount(len(package.spine))
        yield from _chapters(members, package)


def _package(members: untrusted_files.ExportFiles) -> _Package:
    container = read_xml(members, _CONTAINER)
    name = next((node.get("full-path") or "" for node in container.iter("{*}rootfile")), "")
    root = read_xml(members, unquote(name))

    def inside(node: etree._Element) -> str:
        return _inside(name, node.get("href") or "")

    def texts(tag: str) -> list[str]:
        return [text for node in root.iter(f"{{*}}{tag}") if (text := _words(node))]

    items = list(root.iter("{*}item"))
    hrefs = {item.get("id"): inside(item) for item in items}
    dates_of = [
        _words(node)
        for node in root.iter("{*}date")
        if not any(str(key).endswith("event") and "mod" in str(v) for key, v in node.items())
    ]
    return _Package(
        title=next(iter(texts("title")), members.path.stem),
        author=", ".join(texts("creator")),
        date=next(iter(dates_of), ""),
        tags=tuple(texts("subject")),
        spine={
            hrefs[ref]: (item.get("linear") or "yes") != "no"
            for item in root.iter("{*}itemref")
            if (ref := item.get("idref")) in hrefs
        },
        contents=[
            inside(item)
            for item in items
            if "nav" in (item.get("properties") or "").split()
            or item.get("media-type") == "application/x-dtbncx+xml"
        ],
        guide={
            inside(node): (node.get("type") or "").casefold() for node in root.iter("{*}reference")
        },
    )


def _words(node: etree._Element) -> str:
    return " ".join(element_text(node).split())


def _inside(beside: str, href: str) -> str:
    """Return the file in the zip that `href` in the file `beside` refers to."""
    folder = posixpath.dirname(beside)
    return posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))


def _refuse_locked(members: untrusted_files.ExportFiles, package: _Package) -> None:
    if _ENCRYPTION not in members.names:
        return
    # Free books may encrypt their fonts, too, which does not lock the text.
    locked = read_xml(members, _ENCRYPTION).iter("{*}CipherReference")
    if {unquote(node.get("URI") or "") for node in locked} & package.spine.keys():
        raise SourceError(
            f"{members.path} is protected by DRM: its text is encrypted and cannot be read",
            hint="use an unlocked copy, such as one from your own writing program",
        )


def _chapters(members: untrusted_files.ExportFiles, package: _Package) -> Iterator[SourceItem]:
    titles = _titles(members, package)
    held = frozenset(members.names)
    read = 0
    for name, is_linear in package.spine.items():
        if not is_linear:
            yield SkippedItem("chapter", "outside the reading order")
            continue
        if name not in held:
            yield SkippedItem("chapter", "the book lists it, but it is missing", ref=name)
            continue
        try:
            body = _body(members.read(name))
        except SourceError as error:
            yield SkippedItem("chapter", f"it cannot be unpacked: {error.message}", ref=name)
            continue
        reason = _frame(name, titles.get(name, ""), body, package)
        if reason:
            yield SkippedItem("chapter", reason)
            continue
        read += 1
        yield _chapter(name, titles.get(name, ""), body, package, read)


def _body(data: bytes) -> LexborNode:
    # XHTML allows <title/>; an HTML parser would take it as open and swallow the chapter.
    text = _DOCTYPE.sub("", readability.decode(data), count=1)
    body = readability.parse(_SELF_CLOSED.sub(r"<\1\2></\1>", text))
    readability.remove(body, "script, style")
    for node in body.css("a, span, div, hr, sup"):
        if _is_mark(node):
            node.decompose()
    return body


def _is_mark(node: LexborNode) -> bool:
    """Return whether the element is the number of a printed page or of a note."""
    attributes = node.attributes
    kinds = f"{attributes.get('epub:type') or ''} {attributes.get('role') or ''}".split()
    if not _MARKS.isdisjoint((*kinds, *(attributes.get("class") or "").split())):
        return len(readability.node_text(node)) <= _LONGEST_MARK
    if node.tag != "a" or "#" not in (attributes.get("href") or ""):
        return False
    raised = node.css_first("sup") is not None or (
        node.parent is not None and node.parent.tag == "sup"
    )
    return raised and _NUMBER_OF_NOTE.fullmatch(readability.node_text(node)) is not None


def _frame(name: str, title: str, body: LexborNode, package: _Package) -> str:
    """Return why a file is not a chapter (cover, contents, ...); "" if it is one."""
    if name in package.contents:
        return "the table of contents"
    words = readability.count_words(body)
    if not words:
        return "without text: a picture or an empty page"
    if words > _FRAME_WORDS:
        return ""
    types = {
        (node.attributes.get("epub:type") or "").casefold()
        for node in [body, *(child for child in body.iter() if child.tag == "section")]
    }
    names = [
        re.sub(r"(?<![\d_-])[\d_-]+$", "", posixpath.basename(name).partition(".")[0].casefold()),
        package.guide.get(name, ""),
        *(word for kind in types for word in kind.split()),
        title.casefold(),
        readability.text_of(body, "h1, h2, h3").casefold(),
    ]
    return next((why for pattern, why in _FRAME if any(map(pattern.fullmatch, names))), "")


def _chapter(
    name: str, title: str, body: LexborNode, package: _Package, number: int
) -> RawDocument:
    shown = title or readability.text_of(body, "h1, h2, h3, h4")
    readability.remove_heading(body, shown)
    return RawDocument(
        ref=name,
        title=shown or f"{package.title}, part {number}",
        body=body.inner_html or "",
        markup="html",
        date=dates.parse_date(package.date),
        author=package.author,
        tags=package.tags,
    )


def _titles(members: untrusted_files.ExportFiles, package: _Package) -> dict[str, str]:
    """Read chapter titles by file name from the table of contents; a file's first entry counts."""
    titles: dict[str, str] = {}
    for name in sorted(set(package.contents).intersection(members.names)):
        try:
            body = _body(members.read(name))
        except SourceError:
            continue  # `_chapter` falls back to the headings
        navs = body.css("nav")
        nav = next((n for n in navs if n.attributes.get("epub:type") == "toc"), (*navs, body)[0])
        # An entry is a link, in EPUB 2 a navPoint with a label and an address.
        for entry in nav.css("a[href], navpoint"):
            address = entry if entry.tag == "a" else entry.css_first("content")
            label = entry if entry.tag == "a" else entry.css_first("navlabel")
            if address is not None and label is not None:
                href = address.attributes.get("href") or address.attributes.get("src") or ""
                if title := readability.node_text(label):
                    titles.setdefault(_inside(name, href), title)
    return titles
