"""Split plain text into paragraphs, and rejoin lines that were wrapped at a fixed width."""

import re
from collections.abc import Iterator
from itertools import islice, pairwise

from ownwords.archive.log_detection import is_log_line

_LEAST_BREAKS = 8  # too few line breaks to infer a width
_MOST_BREAKS = 20_000
_WIDTHS = range(55, 101)
_RAGGED = 8  # columns by which a full line may fall short of the width
_ITEM = re.compile(r"\s*(?:[-*+•·]|\d{1,3}[.)])\s")
_IN_COLUMNS = re.compile(r"\s*[>|]|.*\S(?: {3}|\t)")  # also lines quoted with ">"


def split_paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph, stripped.

    Line breaks stay unless most of the document's lines fill a common width of 55 to 100 columns.
    Even then verse, list items, columns, logs and lines that end early keep their breaks.
    """
    blocks = list(_blocks(text))
    width = _width(blocks)
    for lines in blocks:
        wrapped = width and len(lines) > 1 and _is_wrapped(lines, width)
        yield list(_flowing(lines, width)) if wrapped else [" ".join(s.split()) for s in lines]


def _blocks(text: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line and not line.isspace():
            lines.append(line.rstrip())
        elif lines:
            yield lines
            lines = []


def _width(blocks: list[list[str]]) -> int:
    """The width at which the document's lines were wrapped, or 0."""
    pairs = ((lines[n], lines[n + 1]) for lines in blocks for n in range(len(lines) - 1))
    breaks = list(islice(pairs, _MOST_BREAKS))
    if len(breaks) < _LEAST_BREAKS:
        return 0
    lengths = sorted(len(line) for line, _ in breaks)
    width = lengths[int(0.98 * (len(lengths) - 1))]
    if width not in _WIDTHS:
        return 0
    full = sum(_is_full(line, following, width) for line, following in breaks)
    return width if full >= 0.6 * len(breaks) else 0


def _is_full(line: str, following: str, width: int) -> bool:
    """Whether the next word would not have fitted on the line."""
    return len(line) + 1 + len(following.split(None, 1)[0]) > width - _RAGGED


def _is_wrapped(lines: list[str], width: int) -> bool:
    breaks = len(lines) - 1
    full = sum(_is_full(lines[n], lines[n + 1], width) for n in range(breaks))
    if full < 0.6 * breaks or any(map(_IN_COLUMNS.match, lines)):
        return False
    capitals = sum(line.lstrip("\"'“‘«—- \t")[:1].isupper() for line in lines[1:])
    if breaks >= 3 and capitals > 0.7 * breaks:
        return False  # verse
    if sum(map(len, lines)) > 20 * sum(len(line.split()) for line in lines):
        return False  # a script without spaces between words, so lines must not be joined with one
    return sum(map(is_log_line, lines)) < 0.4 * len(lines)


def _flowing(lines: list[str], width: int) -> Iterator[str]:
    items = sum(1 for line in lines if _ITEM.match(line))
    listed = items > 1 or _ITEM.match(lines[0])
    flowing = " ".join(lines[0].split())
    for line, following in pairwise(lines):
        words = " ".join(following.split())
        goes_on = _is_full(line, following, width) or words[0].islower()
        deeper = _indent(following) > _indent(line) and not (listed and _ITEM.match(line))
        if not goes_on or deeper or (listed and _ITEM.match(following)):
            yield flowing
            flowing = words
        elif flowing.endswith("-") and flowing[-2:-1].isalpha():
            flowing += words
        else:
            flowing += " " + words
    yield flowing


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
