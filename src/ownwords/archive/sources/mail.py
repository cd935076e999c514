"""Source: what you sent by mail, in .mbox or .eml files, a folder of them, or Takeout's zip."""

import email.policy
import re
from collections import Counter
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from email.parser import BytesHeaderParser, BytesParser
from email.utils import parseaddr
from pathlib import Path
from typing import IO

from ownwords.archive import dates, readability, untrusted_files
from ownwords.archive.document import (
    ExpectedCount,
    Markup,
    RawDocument,
    SkippedItem,
    SourceItem,
    SourceNote,
    Status,
)
from ownwords.archive.sources import holds_mostly
from ownwords.archive.text_repair import repair_surrogates
from ownwords.core.errors import SourceError

NAME = "sent mail"

SUFFIXES = frozenset({".eml", ".mbox"})
_HEADERS = (
    rb"Return-Path|Received|Delivered-To|From|To|Subject|Date|Message-ID|MIME-Version|X-[\w-]+"
)
_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb"\A(?:From .*\d\d:\d\d|(?:" + _HEADERS + rb"):\s)", re.IGNORECASE),
    ("**/*.eml", "**/*.mbox", "**/mbox"),
    (*SUFFIXES, "/mbox"),
)
_SEPARATOR = re.compile(rb"(?:\A|\r?\n\r?\n)From (?=[^\n]*\d\d:\d\d)[^\n]*\n")
_CHUNK_BYTES = 8 << 20
_SENT = re.compile(r"\b(sent|gesendet|envoy|enviad|inviat|wys[lł]an|verzonden|skickat)", re.I)
_TRASH = re.compile(r"\b(spam|trash|junk|papierkorb|corbeille|papelera|kosz)\b", re.I)
_DRAFT = re.compile(r"\b(drafts?|entw[üu]rfe?|brouillons?|borradores|szkice)\b", re.I)
_EXPUNGED = 0x8  # of Thunderbird, which removes deleted messages later
_PREFIX = re.compile(r"^(?:(?:re|aw|fwd?|wg|sv|vs|rv|tr|odp)(?:\[\d+\])?\s*:\s*)+", re.I)
_ATTRIBUTION = (
    r"^[ \t]*(?:On|Am|Le|El|Il|W dniu|Op)\b[^\n]{5,200}(?:\n[^\n]{1,120})?"
    r"(?:wrote|schrieb[^\n]{0,80}|a écrit|escribió|ha scritto|pisze|schreef)\s?:[ \t]*$"
)
_QUOTED = re.compile(rf"(?:{_ATTRIBUTION}\n+(?=[ \t]*>))|^[ \t]*>.*\n?", re.MULTILINE)
# What follows is a signature, or other people's mail below one's own.
_END = re.compile(
    rf"{_ATTRIBUTION}|^-- ?$|^_{{10,}}$|^[ \t]*-{{2,}} ?(?:Original Message|Forwarded message|Urspr"
    r"üngliche Nachricht|Weitergeleitete Nachricht|Message d'origine|Mensaje original)\b"
    r"|^Begin forwarded message:|^Sent from my |^\*?From:.*\n\*?(?:Sent|Date|To):",
    re.MULTILINE,
)
_FLOWED = re.compile(r"(?<=[^\s-]) \r?\n(?!>)")
# Quoted mail and signatures.
_CHROME = """
blockquote[type=cite], .gmail_quote, .gmail_attr, .gmail_signature, .moz-cite-prefix,
.moz-signature, .yahoo_quoted, .protonmail_quote, .protonmail_signature_block, #Signature
"""
_OUTLOOK_QUOTE = "#appendonsend, #divRplyFwdMsg"


def detect(path: Path) -> str | None:
    """Recognise a file or zip by its beginning, and a folder that holds more mail than texts."""
    if path.is_dir():
        return "a folder of mail" if holds_mostly(path, SUFFIXES) else None
    is_named = path.suffix.lower() in SUFFIXES | {".zip"} or path.name == "mbox"
    return "mail (.mbox or .eml)" if is_named and _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield the user's mail: that in a sent folder, or else that of the most frequent sender."""
    headers = BytesHeaderParser(policy=email.policy.default)
    parser = BytesParser(policy=email.policy.default)
    senders: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for name, data in _mails(path):
        try:
            message = headers.parsebytes(data)
            address = _sender(message)
            senders[address] += 1
            sent[address] += bool(_SENT.search(f"{name} {message['X-Gmail-Labels'] or ''}"))
        except Exception:  # noqa: S112 - the parser may raise anything; `_document` reports it
            continue
    own = {address for address, count in sent.items() if count and address}
    if not own:
        address, count = senders.most_common(1)[0] if senders else ("", 0)
        if count * 2 <= senders.total() or not address:
            raise SourceError(
                f"{path} holds mail from {len(senders)} sender{'s' * (len(senders) != 1)},"
                " and nothing shows which one is you",
                hint="give your folder of sent mail, or an export that holds it",
            )
        own = {address}
    yield SourceNote(
        f"Only the mail that {', '.join(sorted(own))} sent is read, without quoted mail. Mail"
        " mentions other people: consider that before you share a model."
    )
    yield ExpectedCount(sum(senders[address] for address in own))
    seen: set[str] = set()
    for number, (name, data) in enumerate(_mails(path), 1):
        try:
            message = parser.parsebytes(data.replace(b"\n>From ", b"\nFrom "))
            document = _document(message, name, number) if _sender(message) in own else None
        except Exception:
            yield SkippedItem("mail", "damaged")
            continue
        if document is None:
            yield SkippedItem("mail", "from other people")
        elif document.ref in seen:
            yield SkippedItem("mail", "twice in the mailbox")
        elif not document.body.strip():
            yield SkippedItem("mail", "without words of your own")
        else:
            seen.add(document.ref)
            yield document


def _mails(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the file and the bytes of each message."""
    for name, opened in _EXPORTS.open(path):
        within = Path(name).relative_to(path).as_posix() if path.is_dir() else path.name
        yield from ((within, data) for data in _split(opened) if data.strip())


def _split(opened: IO[bytes]) -> Iterator[bytes]:
    """Yield the messages of an mbox, or the only one of an .eml file."""
    rest = b""
    while chunk := opened.read(_CHUNK_BYTES):
        *whole, rest = _SEPARATOR.split(rest + chunk)
        yield from whole
        rest = rest[: untrusted_files.MAX_TEXT_BYTES]  # of a longer one, attachments are cut off
    yield rest


def _sender(message: EmailMessage) -> str:
    return repair_surrogates(parseaddr(str(message["From"] or ""))[1])[0].casefold()


def _document(message: EmailMessage, name: str, number: int) -> RawDocument:
    part = message.get_body(("plain", "html"))
    markup: Markup = "text"
    body = ""
    if part is not None and part.get_content_subtype() == "html":
        body, markup = _html(_content(part)), "html"
    elif part is not None:
        body = _text(part)
    id_ = str(message["Message-ID"] or "").strip("<> ")
    labels = str(message["X-Gmail-Labels"] or name)
    status: Status = "published"
    if _TRASH.search(labels) or int(str(message["X-Mozilla-Status"] or "0"), 16) & _EXPUNGED:
        status = "trashed"
    elif _DRAFT.search(labels):
        status = "draft"
    return RawDocument(
        ref=f"mail/{repair_surrogates(id_)[0] or number}",
        title=_PREFIX.sub("", repair_surrogates(str(message["Subject"] or ""))[0]).strip(),
        body=repair_surrogates(body)[0],
        markup=markup,
        status=status,
        date=dates.parse_date(message["Date"].datetime if message["Date"] else None),
        author=repair_surrogates(parseaddr(str(message["From"]))[0])[0],
    )


def _content(part: MIMEPart) -> str:
    data = part.get_payload(decode=True)
    assert isinstance(data, bytes)  # no part with text has parts itself
    try:
        return data.decode(part.get_content_charset("us-ascii"))
    except (LookupError, UnicodeDecodeError):
        return untrusted_files.decode_text(data)


def _text(part: MIMEPart) -> str:
    text = _content(part)
    if part.get_param("format") == "flowed":
        text = _FLOWED.sub(" ", text)
    text = _QUOTED.sub("", text.replace("\r\n", "\n"))
    end = _END.search(text)
    return text[: end.start()] if end else text


def _html(html: str) -> str:
    body = readability.parse(html)
    for mark in body.css(_OUTLOOK_QUOTE):
        while mark.next is not None:
            mark.next.decompose()
        mark.decompose()
    return readability.remove_chrome(body.inner_html or "", _CHROME)
