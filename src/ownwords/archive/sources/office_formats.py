"""Where .docx and .odt files keep their text, styles, lists and notes."""

import posixpath

from ownwords.archive.sources.office_xml import Block, Node, Reader, attribute, local_name
from ownwords.core.errors import SourceError


class DocxReader(Reader):
    """The paragraphs of a .docx file."""

    def body(self) -> Node:
        root = self._relations("")
        parts = (to for kind, to in root.values() if kind == "officeDocument")
        main = next(parts, "word/document.xml")
        self._links = self._relations(main)
        beside = dict(self._links.values())
        styles = self.xml(beside.get("styles", ""))
        self.styles = {attribute(node, "styleId"): node for node in styles.iter("{*}style")}
        self._read_lists(self.xml(beside.get("numbering", "")))
        self.comments = len(self.xml(beside.get("comments", "")).findall("{*}comment"))
        document = self.required(main)
        for kind in ("footnote", "endnote"):
            notes = self.xml(beside.get(f"{kind}s", "")).iter(f"{{*}}{kind}")
            used = {attribute(node, "id") for node in document.iter(f"{{*}}{kind}Reference")}
            self.notes += [note for note in notes if attribute(note, "id") in used]
        self._merged = ""  # the text before a paragraph mark that was deleted, or a drop cap
        return document

    def _relations(self, name: str) -> dict[str, tuple[str, str]]:
        """The kind and the address, or the file, of each thing that a file refers to, by id."""
        folder, file = posixpath.split(name)
        root = self.xml(posixpath.join(folder, "_rels", f"{file}.rels"))
        found = {}
        for node in root.iter("{*}Relationship"):
            to = attribute(node, "Target")
            if attribute(node, "TargetMode") != "External":
                to = posixpath.normpath(posixpath.join(folder, to)).lstrip("/")
            found[attribute(node, "Id")] = attribute(node, "Type").rpartition("/")[2], to
        return found

    def _read_lists(self, numbering: Node) -> None:
        formats = {
            attribute(node, "abstractNumId"): attribute(node.find("{*}lvl/{*}numFmt"))
            for node in numbering.iter("{*}abstractNum")
        }
        for node in numbering.iter("{*}num"):
            if formats.get(attribute(node.find("{*}abstractNumId"))) not in ("bullet", "none", ""):
                self.numbered.add(attribute(node, "numId"))

    def named(self, style: str) -> tuple[str, str]:
        node = self.styles.get(style)
        if node is None:
            return style, ""
        return attribute(node.find("{*}name")) or style, attribute(node.find("{*}basedOn"))

    def link(self, node: Node) -> str:
        return self._links.get(attribute(node, "id"), ("", ""))[1]

    def paragraph(self, node: Node, listed: str) -> Block:
        style = attribute(node.find("{*}pPr/{*}pStyle"))
        element = self.element(style)
        numbers = node.find("{*}pPr/{*}numPr/{*}numId")
        if numbers is None and style in self.styles:
            numbers = self.styles[style].find("{*}pPr/{*}numPr/{*}numId")
        if element == "p" and attribute(numbers) not in ("", "0"):
            element = "ol" if attribute(numbers) in self.numbered else "ul"
        text = self._merged + self.inline(node)
        is_merged = node.find("{*}pPr/{*}rPr/{*}del") is not None or bool(
            attribute(node.find("{*}pPr/{*}framePr"), "dropCap")
        )
        self._merged = text if is_merged else ""
        return element, "" if is_merged else text


class OdtReader(Reader):
    """The paragraphs of an .odt file."""

    is_mixed = True

    def body(self) -> Node:
        if self.xml("META-INF/manifest.xml").find(".//{*}encryption-data") is not None:
            hint = "save it without a password, and give that file"
            raise SourceError(f"{self.members.path} is locked with a password", hint=hint)
        content = self.required("content.xml")
        for root in (self.xml("styles.xml"), content):
            for node in root.iter("{*}style"):
                self.styles[attribute(node, "name")] = node
                if attribute(node.find("{*}text-properties"), "display") == "none":
                    self.hidden.add(attribute(node, "name"))
            for node in root.iter("{*}list-style"):
                if len(node) and local_name(node[0]) == "list-level-style-number":
                    self.numbered.add(attribute(node, "name"))
        text = content.find("{*}body/{*}text")
        if text is None:
            raise SourceError(f"{self.members.path} is no text document")
        return text

    def named(self, style: str) -> tuple[str, str]:
        return style.replace("_20_", " "), attribute(self.styles.get(style), "parent-style-name")

    def paragraph(self, node: Node, listed: str) -> Block:
        style = attribute(node, "style-name")
        level = attribute(node, "outline-level")
        heading = f"h{min(int(level), 6)}" if level.isdecimal() and int(level) else "h2"
        element = heading if local_name(node) == "h" else self.element(style)
        return listed if listed and element == "p" else element, self.inline(node)
