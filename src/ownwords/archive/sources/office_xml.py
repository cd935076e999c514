"""The paragraphs of a Word or LibreOffice document, in order: what both formats share."""

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from lxml import etree

from ownwords.archive.safe_xml import parse_xml
from ownwords.archive.untrusted_files import ExportFiles
from ownwords.core.errors import SourceError
from ownwords.core.package_data import toml_beside

Block = tuple[str, str]  # the element of a paragraph or table, and the HTML inside it
Node = etree._Element

_DATA: Final = toml_beside(__file__, "office.toml")
_BY_STYLE = tuple((re.compile(style), element) for style, element in _DATA["styles"].items())
_MOST_PARENTS = 20  # of a style
_BREAKS: Mapping[str, str] = _DATA["breaks"]
_DELETED = frozenset(_DATA["elements"]["deleted"])
_BOXES = frozenset(_DATA["elements"]["boxes"])
_NOT_TEXT = _DELETED.union(_DATA["elements"]["not_text"])


def local_name(node: Node) -> str:
    """The name of an element without its namespace."""
    return str(node.tag).rpartition("}")[2]


def attribute(node: Node | None, name: str = "val") -> str:
    """The attribute of this name in any namespace: of each there are an old and a strict one."""
    items = () if node is None else node.items()
    return next((str(value) for key, value in items if str(key).rpartition("}")[2] == name), "")


def _nearest(node: Node, names: tuple[str, ...]) -> Iterator[Node]:
    """The elements of these names in a table or row, however deep, but not inside another one."""
    for child in node:
        if local_name(child) in names:
            yield child
        else:
            yield from _nearest(child, names)


class Reader:
    """A document of either format; each adds where its parts are and how they are marked."""

    is_mixed = False  # text stands between elements, not only in <t>

    def __init__(self, members: ExportFiles) -> None:
        self.members = members
        self.deletions = self.comments = 0
        self.properties: dict[str, str] = {}  # the title and so on
        self.styles: dict[str, Node] = {}
        self.hidden: set[str] = set()  # styles
        self.numbered: set[str] = set()  # lists
        self.notes: list[Node] = []
        self.boxes: list[Node] = []  # of the paragraph being read

    def body(self) -> Node:
        raise NotImplementedError

    def paragraph(self, node: Node, listed: str) -> Block:
        raise NotImplementedError

    def named(self, style: str) -> tuple[str, str]:
        """The English name of a style, and the style that it is derived from."""
        raise NotImplementedError

    def link(self, node: Node) -> str:
        return attribute(node, "href")

    def document(self) -> list[Block]:
        """The paragraphs and tables that are not empty, then the notes."""
        for part in ("docProps/core.xml", "meta.xml"):
            for node in self.xml(part).iter():
                self.properties.setdefault(local_name(node), " ".join((node.text or "").split()))
        blocks = list(self.blocks(self.body()))
        blocks += [block for note in self.notes for block in self.blocks(note)]
        return [(kind, text) for kind, text in blocks if kind and text.strip()]

    def xml(self, name: str) -> Node:
        """The root of a file in the document; an element without content if there is none."""
        if name not in self.members.names:
            return etree.Element("none")
        if (root := parse_xml(self.members.read(name))) is None:
            raise SourceError(f"{self.members.path} is damaged: {name!r} in it is not XML")
        return root

    def required(self, name: str) -> Node:
        if name not in self.members.names:
            raise SourceError(f"{self.members.path} is no whole document: it has no {name!r}")
        return self.xml(name)

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

    def blocks(self, parent: Node, listed: str = "") -> Iterator[Block]:
        """The paragraphs and tables below an element."""
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
                style = attribute(node, "style-name")
                own = "ol" if style in self.numbered else "ul"
                yield from self.blocks(node, own if style else listed)
            elif name == "tracked-changes":
                self.deletions += sum(1 for _ in node.iter("{*}deletion"))
            elif name not in _NOT_TEXT:
                yield from self.blocks(node, listed)

    def _row(self, row: Node) -> str:
        if row.find("{*}trPr/{*}del") is not None:
            return ""
        cells = _nearest(row, ("tc", "table-cell"))
        texts = (" ".join(text for _, text in self.blocks(cell)) for cell in cells)
        return f"<tr><td>{'</td><td>'.join(texts)}</td></tr>"

    def inline(self, node: Node) -> str:
        """The HTML of what is inside a paragraph."""
        parts = [escape(node.text or "")] if self.is_mixed or local_name(node) == "t" else []
        for child in node:
            name = local_name(child)
            if name in _BREAKS:
                parts.append("" if attribute(child, "type") == "page" else _BREAKS[name])
            elif name in _BOXES:
                self.boxes.append(child)
            elif name in _NOT_TEXT:
                self.deletions += name in _DELETED
                self.comments += name == "annotation"
                self.notes += child.findall("{*}note-body")
            elif (
                child.find("{*}rPr/{*}vanish") is None
                and attribute(child, "style-name") not in self.hidden
            ):
                text = self.inline(child)
                href = self.link(child) if name in ("hyperlink", "a") else ""
                parts.append(f'<a href="{escape(href)}">{text}</a>' if href else text)
            if self.is_mixed:
                parts.append(escape(child.tail or ""))
        return "".join(parts)
