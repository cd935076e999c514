"""Safe, tolerant XML parsing: no entities, no network; damage is repaired or reported."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from lxml import etree

from ownwords.archive.untrusted_files import ExportFiles
from ownwords.core.errors import SourceError

_CONTROLS = bytes(n for n in range(32) if n not in b"\t\n\r")
_SPACED = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
_MARK = b"\xef\xbf"
_NON_CHARACTERS = re.compile(_MARK + b"[\xbe\xbf]")  # U+FFFE and U+FFFF


class _RepairedXmlStream:
    """An XML stream with invalid characters replaced, because a parser would drop whole passages.

    Control characters, which old editors leave in exports, become spaces.
    """

    def __init__(self, opened: IO[bytes]) -> None:
        self._opened = opened
        self.repaired = 0
        self.last = b""
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        data = self._opened.read(size)
        self.ended = not data
        if data.endswith((_MARK, _MARK[:1])):
            data += self._opened.read(2)  # the rest of a character of three bytes
        self.last = (self.last + data)[-256:]
        self.repaired += len(data) - len(data.translate(None, _CONTROLS))
        return _NON_CHARACTERS.sub(_MARK + b"\xbd", data.translate(_SPACED))


def iter_elements(
    path: Path, opened: IO[bytes], tags: tuple[str, ...], damage: list[str]
) -> Iterator[etree._Element]:
    """Yield the complete elements with these tags (including namespace); each is freed after use.

    Reads as much of a damaged file as possible: an element cut off by the end of the file is left
    out, and at the end a clause on each kind of damage is added to `damage`.
    Entities are never expanded, and nothing is fetched.
    """
    stream = _RepairedXmlStream(opened)
    is_cut = False
    events = etree.iterparse(
        cast(IO[bytes], stream),
        events=("end",),
        tag=tags,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=True,
        recover=True,
    )
    try:
        for _, element in events:
            # At the end of the file the parser closes all open elements itself.
            if stream.ended and not _closes(stream.last, element):
                is_cut = True
                continue
            yield element
            element.clear()
            parent = element.getparent()
            while parent is not None and element.getprevious() is not None:
                del parent[0]
    except etree.XMLSyntaxError as error:
        raise SourceError(f"{path} is not XML: {error.msg}") from error
    errors = [entry for entry in events.error_log if entry.level >= etree.ErrorLevels.ERROR]
    if stream.repaired:
        damage.append(
            f"{stream.repaired:,} control characters, which XML does not allow, were read as spaces"
        )
    if is_cut or (errors and (events.root is None or not _closes(stream.last, events.root))):
        damage.append("it is cut off before its end; the entry at the cut was left out")
    if errors:
        first = errors[0].message.strip().splitlines()[0]
        damage.append(
            f"it is not well-formed (line {errors[0].line}: {first}); text may be missing there"
        )


def read_xml(members: ExportFiles, name: str) -> etree._Element:
    """Parse a file in a document that is a zip; raises SourceError if it is missing or damaged."""
    if name not in members.names:
        missing = f"{name or 'its package file'!r} is missing from it"
        raise SourceError(f"{members.path} is not complete: {missing}")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        recover=True,
        remove_comments=True,
        remove_pis=True,
    )
    root: etree._Element | None = None
    with suppress(etree.XMLSyntaxError, ValueError):
        root = etree.fromstring(members.read(name), parser)
    if root is None:
        raise SourceError(f"{members.path} is damaged: {name!r} in it is not XML")
    return root


def local_name(element: etree._Element) -> str:
    """Return an element's name without its namespace or prefix; "" for a comment."""
    tag = element.tag
    return tag.rpartition("}")[2].rpartition(":")[2] if isinstance(tag, str) else ""


def element_text(element: etree._Element | None) -> str:
    """Return all text inside an element."""
    if element is None:
        return ""
    return etree.tostring(element, method="text", encoding="unicode", with_tail=False)


def _closes(last: bytes, element: etree._Element) -> bool:
    """Return whether the file ends with the closing tag of this element or of the root."""
    ending = re.search(rb"</(?:[^<>:]+:)?([^<>:]+?)\s*>\s*$", last)
    closed = ending[1].decode(errors="replace") if ending else ""
    root = element.getroottree().getroot()
    return closed in {local_name(node) for node in (element, root)}
