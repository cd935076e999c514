"""Splits passages into blocks, units and windows.

A block is a paragraph, a list or a fenced block of code; a unit is what an excerpt shows as one: a
sentence, a list item, a block of code. A window is what an encoder reads at once: whole blocks
while they fit, with the title and the heading before them.
"""

import re
from collections.abc import Iterator

from ownwords.ask.sentence_matching import Span, sentences

# all-MiniLM-L6-v2 reads 256 tokens, about 4 bytes of English and 3 of code each; the title and the
# heading take some of them.
WINDOW_BYTES = 600
_HEAD_BYTES = 200  # of the title, and of the heading
_CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_BLANK = re.compile(r"\n\s*\n")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]")


def blocks(text: str) -> list[Span]:
    """The spans of the paragraphs, lists and blocks of code of a passage."""
    spans: list[Span] = []
    start = 0
    for code in _CODE.finditer(text):
        spans += _paragraphs(text, start, code.start())
        spans.append(code.span())
        start = code.end()
    return spans + list(_paragraphs(text, start, len(text)))


def units(text: str) -> list[Span]:
    """The spans of the sentences, list items and blocks of code of a passage."""
    return [unit for block in blocks(text) for unit in _units_of(text, block)]


def is_code(text: str) -> bool:
    """Whether a block is fenced code."""
    return text.startswith("```")


def windows(title: str, heading: str, text: str) -> list[str]:
    """The texts to embed for a passage; at least one, so that its title has a vector."""
    head = "\n".join(_cut(part, _HEAD_BYTES) for part in (title, heading) if part)
    parts = ["\n".join(text[slice(*piece)].strip() for piece in group) for group in _groups(text)]
    return [f"{head}\n{part}" if head else part for part in parts] or [head]


def window_spans(text: str) -> list[Span]:
    """The span of each of the `windows` of a passage; none if it has no text."""
    return [(group[0][0], group[-1][1]) for group in _groups(text)]


def _groups(text: str) -> list[list[Span]]:
    """The pieces of each window."""
    groups: list[list[Span]] = []
    size = 0
    for begin, end in _pieces(text):
        added = len(text[begin:end].strip().encode()) + 1  # with the line's end before it
        if groups and size + added <= WINDOW_BYTES:
            groups[-1].append((begin, end))
            size += added
        else:
            groups.append([(begin, end)])
            size = added - 1
    return groups


def _paragraphs(text: str, start: int, end: int) -> Iterator[Span]:
    for blank in _BLANK.finditer(text, start, end):
        yield from _stripped(text, start, blank.start())
        start = blank.end()
    yield from _stripped(text, start, end)


def _units_of(text: str, block: Span) -> Iterator[Span]:
    begin, end = block
    if is_code(text[begin:end]):
        yield block
        return
    item: Span | None = None  # an item may have several lines, and several sentences
    for first, last in sentences(text[begin:end]):
        span = (begin + first, begin + last)
        line = text.rfind("\n", 0, span[0]) + 1
        if _ITEM.match(text, line):
            if item and text.rfind("\n", 0, item[0]) + 1 == line:
                item = (item[0], span[1])
                continue
            if item:
                yield item
            item = span
        else:
            if item:
                yield item
            item = None
            yield span
    if item:
        yield item


def _pieces(text: str) -> Iterator[Span]:
    """Blocks, or the parts of those that are too long for a window."""
    for block in blocks(text):
        if len(text[slice(*block)].encode()) <= WINDOW_BYTES:
            yield block
            continue
        for begin, end in _units_of(text, block):
            yield from _lines(text, begin, end)


def _lines(text: str, begin: int, end: int) -> Iterator[Span]:
    """A long unit cut at the ends of lines, or of words where a line is too long."""
    while len(text[begin:end].encode()) > WINDOW_BYTES:
        cut = begin + len(_cut(text[begin:end], WINDOW_BYTES))
        cut = (
            max(text.rfind("\n", begin, cut), text.rfind(" ", begin + (cut - begin) // 2, cut), 0)
            or cut
        )
        yield begin, max(cut, begin + 1)
        begin = max(cut, begin + 1)
    yield begin, end


def _stripped(text: str, begin: int, end: int) -> Iterator[Span]:
    part = text[begin:end]
    if stripped := part.strip():
        begin += len(part) - len(part.lstrip())
        yield begin, begin + len(stripped)


def _cut(text: str, size: int) -> str:
    """The beginning of a text, at most `size` bytes."""
    return text.encode()[:size].decode("utf-8", "ignore")
