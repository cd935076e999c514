"""The paragraphs of a Word or LibreOffice document, in order, from its XML."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from lxml import etree

from ownwords.archive.safe_xml import parse_xml
from ownwords.archive.untrusted_files import ExportFiles
from ownwords.core.config import toml_beside
from ownwords.core.errors import SourceError

Block = tuple[str, str]  # the element of a paragraph or table, and the HTML inside it
_Node = etree._Element

_DATA: Final = toml_beside(__file__, "office.toml")
_BY_STYLE = tuple((re.compile(style), element) for style, element in _DATA["styles"].items())
_MAIN = "word/document.xml"
_MOST_PARENTS = 20  # of a style
_BREAKS: Mapping[str, str] = _DATA["breaks"]
_DELETED = frozenset(_DATA["elements"]["deleted"])
_NOT_TEXT = _DELETED.union(_DATA["elements"]["not_text"])


def _name(node: _Node) -> str:
    return str(node.tag).rpartition("}")[2]


def _value(node: _Node | None, name: str = "val") -> str:
    """The attribute of this name in any namespace: of each there are an old and a strict one."""
    items = () if node is None else node.items()
    return next((str(value) for key, value in items if str(key).rpartition("}")[2] == name), "")


def _nearest(node: _Node, names: tuple[str, ...], of: tuple[str, ...]) -> list[_Node]:
    """The elements of these names in a table or row, however deep, but not in an inner one."""
    return [each for each in node.iter(*names) if next(each.iterancestors(*of)) is node]


class Reader:
    """What the two formats have in common."""

    is_mixed = False  # text stands between elements, not only in <t>

    def __init__(self, members: ExportFiles) -> None:
        self.members = members
        self.deletions = self.comments = 0
        self.properties: dict[str, str] = {}  # the title and so on
        self.styles: dict[str, _Node] = {}
        self.hidden: set[str] = set()  # styles
        self.numbered: set[str] = set()  # lists
        self.notes: list[_Node] = []

    def body(self) -> _Node:
        raise NotImplementedError

    def paragraph(self, node: _Node, listed: str) -> Block:
        raise NotImplementedError

    def named(self, style: str) -> tuple[str, str]:
        """The English name of a style, and the style that it is derived from."""
        raise NotImplementedError

    def link(self, node: _Node) -> str:
        return _value(node, "href")

    def document(self) -> list[Block]:
        """The paragraphs and tables that are not empty, then the notes."""
        for root in map(self.xml, ("docProps/core.xml", "meta.xml")):
            for node in () if root is None else root.iter():
                self.properties.setdefault(_name(node), " ".join((node.text or "").split()))
        blocks = list(self.blocks(self.body()))
        blocks += [block for note in self.notes for block in self.blocks(note)]
        return [(kind, text) for kind, text in blocks if kind and text.strip()]

    def xml(self, name: str) -> _Node | None:
        """The root of a file in the document; None if there is no such file."""
        if name not in self.members.names:
            return None
        if (root := parse_xml(self.members.read(name))) is None:
            raise SourceError(f"{self.members.path} is damaged: {name!r} in it is not XML")
        return root

    def required(self, name: str) -> _Node:
        if (root := self.xml(name)) is None:
            raise SourceError(f"{self.members.path} is no whole document: it has no {name!r}")
        return root

    def element(self, style: str) -> str:
        """The element for paragraphs of a style; "" leaves them out."""
        for _ in range(_MOST_PARENTS):
            name, parent = self.named(style)
            for pattern, element in _BY_STYLE:
                if match := pattern.match(name.casefold()):
                    return match.expand(element)
            if not parent:
                break
            style = parent
        return "p"

    def blocks(self, parent: _Node, listed: str = "") -> Iterator[Block]:
        """The paragraphs and tables below an element."""
        for node in parent:
            name = _name(node)
            if name in ("p", "h"):
                yield self.paragraph(node, listed)
                for box in node.iter("{*}txbxContent", "{*}text-box"):
                    if next(box.iterancestors("{*}Fallback"), None) is None:
                        yield from self.blocks(box)
            elif name in ("tbl", "table"):
                rows = _nearest(node, ("{*}tr", "{*}table-row"), ("{*}tbl", "{*}table"))
                yield "table", "".join(map(self._row, rows))
            elif name == "list":
                style = _value(node, "style-name")
                own = "ol" if style in self.numbered else "ul"
                yield from self.blocks(node, own if style else listed)
            elif name == "tracked-changes":
                self.deletions += sum(1 for _ in node.iter("{*}deletion"))
            elif name not in _NOT_TEXT:
                yield from self.blocks(node, listed)

    def _row(self, row: _Node) -> str:
        if row.find("{*}trPr/{*}del") is not None:
            return ""
        cells = _nearest(row, ("{*}tc", "{*}table-cell"), ("{*}tr", "{*}table-row"))
        texts = (" ".join(text for _, text in self.blocks(cell)) for cell in cells)
        return f"<tr><td>{'</td><td>'.join(texts)}</td></tr>"

    def inline(self, node: _Node) -> str:
        """The HTML of what is inside a paragraph."""
        parts = [escape(node.text or "")] if self.is_mixed or _name(node) == "t" else []
        for child in node:
            name = _name(child)
            if name in _BREAKS:
                parts.append("" if _value(child, "type") == "page" else _BREAKS[name])
            elif name in _NOT_TEXT:
                self._pass_over(child, name)
            elif not self._is_hidden(child):
                text, href = self.inline(child), ""
                if name in ("hyperlink", "a"):
                    href = self.link(child)
                parts.append(f'<a href="{escape(href)}">{text}</a>' if href else text)
            if self.is_mixed:
                parts.append(escape(child.tail or ""))
        return "".join(parts)

    def _is_hidden(self, node: _Node) -> bool:
        vanish = node.find("{*}rPr/{*}vanish")
        return vanish is not None or _value(node, "style-name") in self.hidden

    def _pass_over(self, node: _Node, name: str) -> None:
        self.deletions += name in _DELETED
        self.comments += name == "annotation"
        if name == "note":
            self.notes += node.findall("{*}note-body")


class DocxReader(Reader):
    """The paragraphs of a .docx file."""

    def body(self) -> _Node:
        root = self._relations("")
        main = next((to for kind, to in root.values() if kind == "officeDocument"), _MAIN)
        self._links = self._relations(main)
        beside = dict(self._links.values())
        if (styles := self.xml(beside.get("styles", ""))) is not None:
            self.styles = {_value(node, "styleId"): node for node in styles.iter("{*}style")}
        if (numbering := self.xml(beside.get("numbering", ""))) is not None:
            self._read_lists(numbering)
        if (comments := self.xml(beside.get("comments", ""))) is not None:
            self.comments = sum(1 for _ in comments.iter("{*}comment"))
        document = self.required(main)
        for kind in ("footnote", "endnote"):
            if (notes := self.xml(beside.get(f"{kind}s", ""))) is not None:
                used = {_value(node, "id") for node in document.iter(f"{{*}}{kind}Reference")}
                self.notes += [n for n in notes.iter(f"{{*}}{kind}") if _value(n, "id") in used]
        self._merged = ""  # the text before a paragraph mark that was deleted, or a drop cap
        return document

    def _relations(self, name: str) -> dict[str, tuple[str, str]]:
        """The kind and the address, or the file, of each thing that a file refers to, by id."""
        folder, file = posixpath.split(name)
        root = self.xml(posixpath.join(folder, "_rels", f"{file}.rels"))
        found = {}
        for node in () if root is None else root.iter("{*}Relationship"):
            to = _value(node, "Target")
            if _value(node, "TargetMode") != "External":
                to = posixpath.normpath(posixpath.join(folder, to)).lstrip("/")
            found[_value(node, "Id")] = _value(node, "Type").rpartition("/")[2], to
        return found

    def _read_lists(self, numbering: _Node) -> None:
        formats = {
            _value(node, "abstractNumId"): _value(node.find("{*}lvl/{*}numFmt"))
            for node in numbering.iter("{*}abstractNum")
        }
        for node in numbering.iter("{*}num"):
            if formats.get(_value(node.find("{*}abstractNumId"))) not in ("bullet", "none", ""):
                self.numbered.add(_value(node, "numId"))

    def named(self, style: str) -> tuple[str, str]:
        node = self.styles.get(style)
        if node is None:
            return style, ""
        return _value(node.find("{*}name")) or style, _value(node.find("{*}basedOn"))

    def link(self, node: _Node) -> str:
        return self._links.get(_value(node, "id"), ("", ""))[1]

    def paragraph(self, node: _Node, listed: str) -> Block:
        style = _value(node.find("{*}pPr/{*}pStyle"))
        element = self.element(style)
        numbers = node.find("{*}pPr/{*}numPr/{*}numId")
        if numbers is None and style in self.styles:
            numbers = self.styles[style].find("{*}pPr/{*}numPr/{*}numId")
        if element == "p" and _value(numbers) not in ("", "0"):
            element = "ol" if _value(numbers) in self.numbered else "ul"
        text = self._merged + self.inline(node)
        is_merged = node.find("{*}pPr/{*}rPr/{*}del") is not None or bool(
            _value(node.find("{*}pPr/{*}framePr"), "dropCap")
        )
        self._merged = text if is_merged else ""
        return element, "" if is_merged else text


class OdtReader(Reader):
    """The paragraphs of an .odt file."""

    is_mixed = True

    def body(self) -> _Node:
        manifest = self.xml("META-INF/manifest.xml")
        if manifest is not None and next(manifest.iter("{*}encryption-data"), None) is not None:
            hint = "save it without a password, and give that file"
            raise SourceError(f"{self.members.path} is locked with a password", hint=hint)
        content = self.required("content.xml")
        for root in (self.xml("styles.xml"), content):
            for node in () if root is None else root.iter("{*}style"):
                self.styles[_value(node, "name")] = node
                if _value(node.find("{*}text-properties"), "display") == "none":
                    self.hidden.add(_value(node, "name"))
            for node in () if root is None else root.iter("{*}list-style"):
                if len(node) and _name(node[0]) == "list-level-style-number":
                    self.numbered.add(_value(node, "name"))
        text = content.find("{*}body/{*}text")
        if text is None:
            raise SourceError(f"{self.members.path} is no text document")
        return text

    def named(self, style: str) -> tuple[str, str]:
        return style.replace("_20_", " "), _value(self.styles.get(style), "parent-style-name")

    def paragraph(self, node: _Node, listed: str) -> Block:
        style = _value(node, "style-name")
        level = _value(node, "outline-level")
        heading = f"h{min(int(level), 6)}" if level.isdecimal() and int(level) else "h2"
        element = heading if _name(node) == "h" else self.element(style)
        return listed if listed and element == "p" else element, self.inline(node)
