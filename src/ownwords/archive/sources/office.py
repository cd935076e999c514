"""Source: a Word or LibreOffice document (.docx, .odt), or a folder of them.

A document is read with all changes accepted: what tracked changes inserted is text, what they
deleted is not. Comments are other people's words.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Set
from html import escape, unescape
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Final

from lxml import etree

from ownwords.archive import dates
from ownwords.archive.document import RawDocument, SkippedItem, SourceItem
from ownwords.archive.safe_xml import local_name, read_xml
from ownwords.archive.sources import holds_mostly, read_texts
from ownwords.archive.untrusted_files import (
    ExportFiles,
    open_packed,
    read_head,
)
from ownwords.core.config import toml_beside
from ownwords.core.errors import SourceError

NAME = "Word and LibreOffice"

SUFFIXES = frozenset({".docx", ".odt"})
_OLE = b"\xd0\xcf\x11\xe0"  # begins files of Word before 2007, and encrypted .docx files
_Block = tuple[str, str]  # the element of a paragraph or table, and the HTML inside it
_Node = etree._Element


def detect(path: Path) -> str | None:
    """Recognise a document by its name, and a folder that holds more of them than other texts."""
    if path.is_dir():
        is_ours = holds_mostly(path, SUFFIXES)
        return "a folder of Word or LibreOffice documents" if is_ours else None
    is_ours = path.suffix.lower() in SUFFIXES and path.is_file()
    return "a Word or LibreOffice document" if is_ours else None


def read(path: Path, only: Set[Path] | None = None) -> Iterator[SourceItem]:
    """Yield a document for each file."""
    yield from read_texts(path, SUFFIXES, _document, "Word or LibreOffice documents", only)


def _document(file: Path, name: str) -> Iterator[SourceItem]:
    if file.name.startswith(("~$", ".~lock")):
        return  # the lock file of a document that is open
    if read_head(file, len(_OLE)) == _OLE:
        raise SourceError(
            f"{file} is protected by a password, or in the format of Word before 2007",
            hint="save it as .docx without a password, and give that file",
        )
    with open_packed(file) as members:
        reader = (_OdtReader if "content.xml" in members.names else _DocxReader)(members)
        every = reader.document()
    path, known = PurePosixPath(name), reader.properties
    titles = [text for kind, text in every if kind == "title"]
    blocks = [(kind, text) for kind, text in every if kind != "title"]
    if not titles and blocks and blocks[0][0] == "h1":
        titles.append(blocks.pop(0)[1])
    title = unescape(re.sub(r"<[^<>]*>", " ", " ".join(titles))) or known.get("title", "")
    if reader.comments:
        yield SkippedItem("comment", "other people's words", reader.comments)
    if reader.deletions:
        reason = "deleted with tracked changes; documents are read as if all changes were accepted"
        yield SkippedItem("part", reason, reader.deletions, ref=name)
    yield RawDocument(
        ref=name,
        title=" ".join(title.split()) or dates.title_from_filename(path.stem),
        body=_html(blocks),
        markup="html",
        date=dates.date_in_name(path.name)
        or dates.parse_date(known.get("created") or known.get("creation-date")),
        author=known.get("initial-creator") or known.get("creator", ""),
    )


def _html(blocks: list[_Block]) -> str:
    html = []
    for kind, group in groupby(blocks, key=itemgetter(0)):
        texts = [text for _, text in group]
        if kind in ("ul", "ol"):
            html.append(f"<{kind}><li>{'</li><li>'.join(texts)}</li></{kind}>")
        elif kind == "blockquote":
            html.append(f"<blockquote><p>{'</p><p>'.join(texts)}</p></blockquote>")
        elif kind == "pre":
            html.append(f"<pre>{'<br>'.join(texts)}</pre>")
        else:
            html.extend(f"<{kind}>{text}</{kind}>" for text in texts)
    return "\n".join(html)


# ---- what both formats share: paragraphs, tables and notes in order

_DATA: Final = toml_beside(__file__, "office.toml")
_BY_STYLE = tuple((re.compile(style), element) for style, element in _DATA["styles"].items())
_MOST_PARENTS = 20  # of a style
_BREAKS: Mapping[str, str] = _DATA["breaks"]
_DELETED = frozenset(_DATA["elements"]["deleted"])
_BOXES = frozenset(_DATA["elements"]["boxes"])
_NOT_TEXT = _DELETED.union(_DATA["elements"]["not_text"])


def _attribute(node: _Node | None, name: str = "val") -> str:
    """Return the attribute of this name in any namespace; programs use two for each format."""
    items = () if node is None else node.items()
    return next((str(value) for key, value in items if str(key).rpartition("}")[2] == name), "")


def _nearest(node: _Node, names: tuple[str, ...]) -> Iterator[_Node]:
    """Yield the elements of these names at any depth in a table or row, but not in an inner one."""
    for child in node:
        if local_name(child) in names:
            yield child
        else:
            yield from _nearest(child, names)


class _Reader:
    """The paragraphs of a document; each format says where its parts are and how to read them."""

    is_mixed = False  # whether text may be outside of <t>

    def __init__(self, members: ExportFiles) -> None:
        self.members = members
        self.deletions = self.comments = 0
        self.properties: dict[str, str] = {}  # the title and so on
        self.styles: dict[str, _Node] = {}
        self.hidden: set[str] = set()  # styles
        self.numbered: set[str] = set()  # lists
        self.notes: list[_Node] = []
        self.boxes: list[_Node] = []  # text boxes of the paragraph being read

    def body(self) -> _Node:
        raise NotImplementedError

    def paragraph(self, node: _Node, listed: str) -> _Block:
        raise NotImplementedError

    def named(self, style: str) -> tuple[str, str]:
        """Return the English name of a style, and the style that it is derived from."""
        raise NotImplementedError

    def link(self, node: _Node) -> str:
        return _attribute(node, "href")

    def document(self) -> list[_Block]:
        """Return the paragraphs and tables that are not empty, then the notes."""
        for part in ("docProps/core.xml", "meta.xml"):
            for node in self.xml(part).iter():
                self.properties.setdefault(local_name(node), " ".join((node.text or "").split()))
        blocks = list(self.blocks(self.body()))
        blocks += [block for note in self.notes for block in self.blocks(note)]
        return [(kind, text) for kind, text in blocks if kind and text.strip()]

    def xml(self, name: str) -> _Node:
        """Return the root of a file in the document; an empty element if there is no such file."""
        return self.required(name) if name in self.members.names else etree.Element("none")

    def required(self, name: str) -> _Node:
        return read_xml(self.members, name)

    def element(self, style: str) -> str:
        """Return the element for paragraphs of a style; "" leaves them out."""
        for _ in range(_MOST_PARENTS):
            name, parent = self.named(style)
            for pattern, element in _BY_STYLE:
                if match := pattern.match(name.casefold()):
                    return match.expand(element)
            if not parent:
                break
            style = parent
        return "p"

    def blocks(self, parent: _Node, listed: str = "") -> Iterator[_Block]:
        """Yield the paragraphs and tables below an element."""
        for node in parent:
            name = local_name(node)
            if name in ("p", "h"):
                yield self.paragraph(node, listed)
                boxes, self.boxes = self.boxes, []
                for box in boxes:
                    yield from self.blocks(box)
            elif name in ("tbl", "table"):
                rows = _nearest(node, ("tr", "table-row"))
                yield "table", "".join(map(self._row, rows))
            elif name == "list":
                style = _attribute(node, "style-name")
                own = "ol" if style in self.numbered else "ul"
                yield from self.blocks(node, own if style else listed)
            elif name == "tracked-changes":
                self.deletions += sum(1 for _ in node.iter("{*}deletion"))
            elif name not in _NOT_TEXT:
                yield from self.blocks(node, listed)

    def _row(self, row: _Node) -> str:
        if row.find("{*}trPr/{*}del") is not None:
            return ""
        cells = _nearest(row, ("tc", "table-cell"))
        texts = (" ".join(text for _, text in self.blocks(cell)) for cell in cells)
        return f"<tr><td>{'</td><td>'.join(texts)}</td></tr>"

    def inline(self, node: _Node) -> str:
        """Return the contents of a paragraph as HTML."""
        parts = [escape(node.text or "")] if self.is_mixed or local_name(node) == "t" else []
        for child in node:
            name = local_name(child)
            if name in _BREAKS:
                parts.append("" if _attribute(child, "type") == "page" else _BREAKS[name])
            elif name in _BOXES:
                self.boxes.append(child)
            elif name in _NOT_TEXT:
                self.deletions += name in _DELETED
                self.comments += name == "annotation"
                self.notes += child.findall("{*}note-body")
            elif (
                child.find("{*}rPr/{*}vanish") is None
                and _attribute(child, "style-name") not in self.hidden
            ):
                text = self.inline(child)
                href = self.link(child) if name in ("hyperlink", "a") else ""
                parts.append(f'<a href="{escape(href)}">{text}</a>' if href else text)
            if self.is_mixed:
                parts.append(escape(child.tail or ""))
        return "".join(parts)


# ---- where each format keeps its text, styles, lists and notes


class _DocxReader(_Reader):
    """The paragraphs of a .docx file."""

    def body(self) -> _Node:
        root = self._relations("")
        parts = (to for kind, to in root.values() if kind == "officeDocument")
        main = next(parts, "word/document.xml")
        self._links = self._relations(main)
        beside = dict(self._links.values())
        styles = self.xml(beside.get("styles", ""))
        self.styles = {_attribute(node, "styleId"): node for node in styles.iter("{*}style")}
        self._read_lists(self.xml(beside.get("numbering", "")))
        self.comments = len(self.xml(beside.get("comments", "")).findall("{*}comment"))
        document = self.required(main)
        for kind in ("footnote", "endnote"):
            notes = self.xml(beside.get(f"{kind}s", "")).iter(f"{{*}}{kind}")
            used = {_attribute(node, "id") for node in document.iter(f"{{*}}{kind}Reference")}
            self.notes += [note for note in notes if _attribute(note, "id") in used]
        self._merged = ""  # the text before a paragraph mark that was deleted, or a drop cap
        return document

    def _relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the kind and the target of each reference in a file, by id."""
        folder, file = posixpath.split(name)
        root = self.xml(posixpath.join(folder, "_rels", f"{file}.rels"))
        found = {}
        for node in root.iter("{*}Relationship"):
            to = _attribute(node, "Target")
            if _attribute(node, "TargetMode") != "External":
                to = posixpath.normpath(posixpath.join(folder, to)).lstrip("/")
            found[_attribute(node, "Id")] = _attribute(node, "Type").rpartition("/")[2], to
        return found

    def _read_lists(self, numbering: _Node) -> None:
        formats = {
            _attribute(node, "abstractNumId"): _attribute(node.find("{*}lvl/{*}numFmt"))
            for node in numbering.iter("{*}abstractNum")
        }
        for node in numbering.iter("{*}num"):
            if formats.get(_attribute(node.find("{*}abstractNumId"))) not in ("bullet", "none", ""):
                self.numbered.add(_attribute(node, "numId"))

    def named(self, style: str) -> tuple[str, str]:
        node = self.styles.get(style)
        if node is None:
            return style, ""
        return _attribute(node.find("{*}name")) or style, _attribute(node.find("{*}basedOn"))

    def link(self, node: _Node) -> str:
        return self._links.get(_attribute(node, "id"), ("", ""))[1]

    def paragraph(self, node: _Node, listed: str) -> _Block:
        style = _attribute(node.find("{*}pPr/{*}pStyle"))
        element = self.element(style)
        numbers = node.find("{*}pPr/{*}numPr/{*}numId")
        if numbers is None and style in self.styles:
            numbers = self.styles[style].find("{*}pPr/{*}numPr/{*}numId")
        if element == "p" and _attribute(numbers) not in ("", "0"):
            element = "ol" if _attribute(numbers) in self.numbered else "ul"
        text = self._merged + self.inline(node)
        is_merged = node.find("{*}pPr/{*}rPr/{*}del") is not None or bool(
            _attribute(node.find("{*}pPr/{*}framePr"), "dropCap")
        )
        self._merged = text if is_merged else ""
        return element, "" if is_merged else text


class _OdtReader(_Reader):
    """The paragraphs of an .odt file."""

    is_mixed = True

    def body(self) -> _Node:
        if self.xml("META-INF/manifest.xml").find(".//{*}encryption-data") is not None:
            hint = "save it without a password, and give that file"
            raise SourceError(f"{self.members.path} is protected by a password", hint=hint)
        content = self.required("content.xml")
        for root in (self.xml("styles.xml"), content):
            for node in root.iter("{*}style"):
                self.styles[_attribute(node, "name")] = node
                if _attribute(node.find("{*}text-properties"), "display") == "none":
                    self.hidden.add(_attribute(node, "name"))
            for node in root.iter("{*}list-style"):
                if len(node) and local_name(node[0]) == "list-level-style-number":
                    self.numbered.add(_attribute(node, "name"))
        text = content.find("{*}body/{*}text")
        if text is None:
            raise SourceError(f"{self.members.path} is not a text document")
        return text

    def named(self, style: str) -> tuple[str, str]:
        return style.replace("_20_", " "), _attribute(self.styles.get(style), "parent-style-name")

    def paragraph(self, node: _Node, listed: str) -> _Block:
        style = _attribute(node, "style-name")
        level = _attribute(node, "outline-level")
        heading = f"h{min(int(level), 6)}" if level.isdecimal() and int(level) else "h2"
        element = heading if local_name(node) == "h" else self.element(style)
        return listed if listed and element == "p" else element, self.inline(node)
