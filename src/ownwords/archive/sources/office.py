"""Source: a Word or LibreOffice document (.docx, .odt), or a folder of them.

A document is read as it shows with all changes accepted: what tracked changes inserted is text,
what they deleted is not. Comments are other people's words.
"""

import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath

from ownwords.archive import dates, untrusted_files
from ownwords.archive.document import ExpectedCount, RawDocument, SkippedItem, SourceItem
from ownwords.archive.sources.office_formats import DocxReader, OdtReader
from ownwords.archive.sources.office_xml import Block
from ownwords.core.errors import SourceError

LABEL = "a Word or LibreOffice document"

SUFFIXES = frozenset({".docx", ".odt"})
_OLE = b"\xd0\xcf\x11\xe0"  # of Word before 2007, and of encrypted .docx files


def detect(path: Path) -> str | None:
    """Recognise a document by its name, and a folder that holds more of them than other texts."""
    if not path.is_dir():
        return LABEL if path.suffix.lower() in SUFFIXES and path.is_file() else None
    is_ours = untrusted_files.holds_mostly(path, SUFFIXES)
    return "a folder of Word or LibreOffice documents" if is_ours else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield a document for each file."""
    if not path.is_dir():
        yield ExpectedCount(1)
        yield from _document(path, untrusted_files.normalize_filename(path.name))
        return
    missing = SourceError(f"{path} holds no documents", hint="give a folder with .docx or .odt")
    kind = "a Word or LibreOffice document"
    yield from untrusted_files.read_texts(path, SUFFIXES, _document, missing, kind=kind)


def _document(file: Path, name: str) -> Iterator[SourceItem]:
    if file.name.startswith(("~$", ".~lock")):
        return  # of a document that is open at the moment
    if untrusted_files.read_head(file, len(_OLE)) == _OLE:
        raise SourceError(
            f"{file} is locked with a password, or in the format of Word before 2007",
            hint="save it as .docx without a password, and give that file",
        )
    with untrusted_files.open_packed(file) as members:
        reader = (OdtReader if "content.xml" in members.names else DocxReader)(members)
        blocks = reader.document()
    path, known = PurePosixPath(name), reader.properties
    titles = [text for kind, text in blocks if kind == "title"]
    blocks = [block for block in blocks if block[0] != "title"]
    if not titles and blocks and blocks[0][0] == "h1":
        titles.append(blocks.pop(0)[1])
    title = unescape(re.sub(r"<[^<>]*>", " ", " ".join(titles))) or known.get("title", "")
    if reader.comments:
        yield SkippedItem("comment", "other people's words", reader.comments)
    if reader.deletions:
        reason = "deleted with tracked changes; a document is read as if its changes were accepted"
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


def _html(blocks: Iterable[Block]) -> str:
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
