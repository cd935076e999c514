"""Safe, tolerant XML parsing: no entities, no network; damage is repaired or reported."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from lxml import etree

from ownwords.archive import untrusted_files
from ownwords.core.errors import SourceError


class _RepairedXmlStream:
    """An XML stream with invalid characters replaced, for which a parser would drop whole passages.

    Control characters, which old editors leave in exports, become spaces; U+FFFE and U+FFFF become
    U+FFFD. Byte offsets do not change. UTF-16, which is full of zero bytes, is left unchanged.
    """

    def __init__(self, opened: IO[bytes], wide: bool) -> None:
        self._opened, self._wide = opened, wide
        self._held = b""
        self.repaired = 0
        self.last = b""
        self.ended = False

    def read(self, size: int = -1) -> bytes:
        fresh = self._opened.read(size)
        self.ended = not fresh
        self.last = (self.last + fresh)[-256:]
        if self._wide:
            return fresh
        data = self._held + fresh
        # Hold back the beginning of a three-byte character that two reads split.
        keep = 0 if self.ended else next((n for n in (2, 1) if data.endswith(_MARK[:n])), 0)
        data, self._held = data[: len(data) - keep], data[len(data) - keep :]
        if not data and self._held:
            return self.read(size)
        self.repaired += len(data) - len(data.translate(None, _CONTROLS))
        return _NON_CHARACTERS.sub(_MARK + b"\xbd", data.translate(_SPACED))


_MARK = b"\xef\xbf"
_NON_CHARACTERS = re.compile(_MARK + b"[\xbe\xbf]")
_CONTROLS = bytes(n for n in range(32) if n not in b"\t\n\r")
_SPACED = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
_PROLOG = re.compile(rb"(?:\s|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)
# A doctype without an internal subset (declarations in brackets).
_PLAIN_DOCTYPE = re.compile(rb"""<!DOCTYPE(?:[^\[>"']|"[^"]*"|'[^']*')*>""")


def iter_elements(
    path: Path, opened: IO[bytes], tags: tuple[str, ...], damage: list[str] | None = None
) -> Iterator[etree._Element]:
    """Yield the complete elements with these tags (including namespace); each is freed after use.

    Reads as much of a damaged file as possible: an element cut off by the end of the file is left
    out, and at the end a clause on each kind of damage is added to `damage`.
    Entities are never expanded and nothing is fetched; a file that declares entities is refused.
    """
    head = opened.read(untrusted_files.HEAD_BYTES)
    opened.seek(0)
    wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head[:4]
    refuse_entities(path, head)
    stream = _RepairedXmlStream(opened, wide)
    cut = False
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
                cut = True
                continue
            yield element
            element.clear()
            while element.getprevious() is not None:
                parent = element.getparent()
                if parent is None:
                    break
                del parent[0]
    except etree.XMLSyntaxError as error:
        raise SourceError(f"{path} is not XML: {error.msg}") from error
    if damage is not None:
        errors = [entry for entry in events.error_log if entry.level >= etree.ErrorLevels.ERROR]
        is_complete = not errors or (events.root is not None and _closes(stream.last, events.root))
        damage.extend(_damage(errors, stream.repaired, cut or not is_complete))


def element_text(element: etree._Element) -> str:
    """All text inside an element."""
    return etree.tostring(element, method="text", encoding="unicode", with_tail=False)


def refuse_entities(path: Path, head: bytes) -> None:
    """Raise SourceError if the beginning of an XML file declares entities."""
    plain = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    prolog = _PROLOG.match(plain)
    rest = plain[prolog.end() :] if prolog else plain
    # Declarations precede the first element; the same words in a post are harmless.
    if _PLAIN_DOCTYPE.match(rest) or (rest and not rest.startswith((b"<!", b"<?"))):
        return
    if b"<!ENTITY" in rest or len(head) == untrusted_files.HEAD_BYTES:
        raise SourceError(
            f"{path} declares XML entities, which can read other files or fill the memory; refused",
            hint="remove the <!DOCTYPE ...> at its top if you trust it",
        )


def _closes(last: bytes, element: etree._Element) -> bool:
    """Whether the file ends with the closing tag of this element or the root: it is complete."""
    ending = re.search(rb"</([^<>]+?)\s*>$", last.replace(b"\0", b"").rstrip())
    closed = ending[1].rpartition(b":")[2].decode(errors="replace") if ending else ""
    return closed in {
        str(tag_element.tag).rpartition("}")[2].rpartition(":")[2]
        for tag_element in (element, element.getroottree().getroot())
    }


def _damage(errors: list[etree._LogEntry], repaired: int, cut: bool) -> Iterator[str]:
    if repaired:
        yield f"{repaired:,} control characters, which XML does not allow, were read as spaces"
    if cut:
        yield "it breaks off before its end; an entry cut in two there was left out"
    if errors:
        first = errors[0].message.strip().splitlines()[0]
        yield f"it is not well-formed (line {errors[0].line}: {first}); text may be missing there"
