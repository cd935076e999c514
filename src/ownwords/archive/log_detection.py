"""Detect logs and other machine output in text, with a reason for each verdict."""

import re
from collections import Counter
from collections.abc import Sequence

from ownwords.archive.document import Segment
from ownwords.core.text import LETTERS

_MIN_LINES = 8
_MIN_CHARACTERS = 600
_MAX_LINE_CHARS = 200  # of a line are examined

_DATE = (
    r"(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d?[-/.]\d\d?[-/.]\d{4}"
    r"|\d\d?[ /](?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*[ /]\d{4}"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d\d?(?: \d{4})?)"
)
# A date with a time of day; a bare "12:30:05" does not count, as chapter lists begin with it too.
_STAMP = re.compile(
    r"(?=.{0,42}?\d)(?:"  # fast rejection of most lines
    rf".{{0,40}}?{_DATE}(?P<by>T|:|,? {{1,2}}(?:\d{{4}} )?)\d\d?:\d\d(?::\d\d)?"
    r"|\W{0,3}(?:\d\d?:)?\d\d?:\d\d[.,]\d{3}"  # 12:30:05.123
    r"|\[ {0,6}\d{1,7}\.\d{3,9}\]"  # kernel log: [    1.234567]
    r"|\W?1[0-9]{9}(?:\d{3})?(?:\.\d+)?\W"  # seconds or milliseconds since 1970
    r"|.{0,20}?\d{8}T\d{6})"
)
_LEVEL = re.compile(
    r"(?=.{0,60}?[A-Z]{3}).{0,60}?(?<![A-Za-z_.])(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR!|FATAL|CRITICAL)\b(?!\s*=|[,;()])"
)
_STACK = re.compile(r'\s*(?:at \S+[ (:]\S*:\d+|File "[^"\n]*", line \d+|#\d+\s+0x[0-9a-f]+ in )')
_MARKS = (
    (_STAMP, 0.6, "begin with a time stamp"),
    (_LEVEL, 0.7, "are marked INFO, WARNING, ERROR or the like"),
    (_STACK, 0.4, "are lines of a stack trace"),
)
_IP_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*[A-Za-z])")
_HEXADECIMAL = re.compile(r"\b(?:0x)?(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{2,16}\b")
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
# Signs that people do not write after the date and time of a diary entry or chat message.
_MACHINE_SIGN = re.compile(r"[\[\]{}=<>/|#@_\\]|\d[^\W\d_]|[^\W\d_]-?\d|\w[.:]\w|\d{5}")
_CODE_END = re.compile(r"(?:[,;{}()\[\]]|\*/)\s*$")
_NUMBER = re.compile(r"\d+")
_SIGNS = re.compile(r"[\d_]|[^\w\s]")


def log_reason(text: str) -> str | None:
    """Return why a block of lines looks like machine output, or None if it does not.

    A block of fewer than 8 lines and 600 characters is not judged; source code, poems, recipes,
    dialogue, lists of names or chapters and short configurations are not machine output.
    """
    lines = _lines(text)
    if len(text) < _MIN_CHARACTERS and len(lines) < _MIN_LINES:
        return None
    if _is_diary(lines):
        return None
    return _by_marks(lines) or _by_characters(text) or _by_shape(lines)


def is_log_line(line: str) -> bool:
    """Return whether a single line could come from a log or a dump."""
    line = line[:_MAX_LINE_CHARS]
    if _LEVEL.match(line) or _STACK.match(line):
        return True
    if not _NUMBER.search(line):  # all further patterns need digits
        return False
    if _STAMP.match(line) or _IP_ADDRESS.search(line):
        return True
    visible = "".join(_HEXADECIMAL.sub(_as_digits, line).split())
    return len(visible) >= 12 and (_letters(visible) < 0.4 * len(visible) or _encoded(line) > 0)


def separate_logs(segments: Sequence[Segment]) -> list[Segment]:
    """Move the logs in segments of code and prose to segments of their own.

    Code that is a dump becomes a log. Eight or more consecutive lines of prose that together look
    like a log become one log segment, across paragraphs if need be.
    """
    result: list[Segment] = []
    prose: list[Segment] = []
    for segment in segments:
        if segment.kind == "prose":
            prose.append(segment)
            continue
        result += _split_prose(prose)
        prose = []
        dumped = segment.kind == "code" and _is_dump(segment.text)
        result.append(Segment("log", segment.text, segment.detail) if dumped else segment)
    return result + _split_prose(prose)


def _is_dump(code: str) -> bool:
    if not log_reason(code):
        return False
    # Tables of constants are source code, however many digits they hold.
    lines = _lines(code)
    ends = sum(1 for line in lines if _CODE_END.search(line[-80:]))
    return ends < 0.6 * len(lines) or _by_marks(lines) is not None


def _split_prose(paragraphs: list[Segment]) -> list[Segment]:
    lines = [
        (number, line)
        for number, segment in enumerate(paragraphs)
        for line in segment.text.split("\n")
    ]
    result: list[Segment] = []
    position = 0
    for start, end in _runs([is_log_line(line) for _, line in lines]):
        block = "\n".join(line for _, line in lines[start:end])
        if log_reason(block):
            result += [*_paragraphs(lines[position:start]), Segment("log", block)]
            position = end
    return result + _paragraphs(lines[position:]) if position else paragraphs


def _runs(marked: list[bool]) -> list[tuple[int, int]]:
    """Return spans of eight lines or more that start and end marked, with few unmarked between."""
    runs: list[tuple[int, int]] = []
    start = last = -4
    for number in (number for number, hit in enumerate(marked) if hit):
        if number - last > 3:
            runs.append((start, last + 1))
            start = number
        last = number
    runs.append((start, last + 1))
    return [(start, end) for start, end in runs if end - start >= _MIN_LINES]


def _paragraphs(lines: list[tuple[int, str]]) -> list[Segment]:
    """Rebuild prose segments from (paragraph number, line) pairs."""
    paragraphs: dict[int, list[str]] = {}
    for number, line in lines:
        paragraphs.setdefault(number, []).append(line)
    return [Segment("prose", "\n".join(prose_lines)) for prose_lines in paragraphs.values()]


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line and not line.isspace()]


def _by_marks(lines: list[str]) -> str | None:
    if len(lines) < _MIN_LINES:
        return None
    for pattern, least, what in _MARKS:
        # Only the beginnings, because a hostile line takes time quadratic in its length.
        share = sum(1 for line in lines if pattern.match(line[:_MAX_LINE_CHARS])) / len(lines)
        if share >= least:
            return f"{share:.0%} of its {len(lines)} lines {what}"
    return None


def _is_diary(lines: list[str]) -> bool:
    """Return whether sentences follow most lines' time stamps, as in a diary or a chat."""
    written = 0
    for line in lines:
        # A stamp such as "2024-01-02T03:04:05" is a machine's, whatever follows it.
        if (stamp := _STAMP.match(line)) and stamp["by"] and stamp["by"] not in "T:":
            entry = line[stamp.end() : stamp.end() + 300]
            written += len(LETTERS.findall(entry)) >= 3 and not _MACHINE_SIGN.search(entry)
    return written >= 0.6 * len(lines)


def _by_characters(text: str) -> str | None:
    visible = sum(map(len, text.split()))
    if not visible:
        return None
    if (encoded := _encoded(text) / visible) >= 0.6:
        return f"{encoded:.0%} of its characters are encoded data"
    text = _HEXADECIMAL.sub(_as_digits, text)
    signs = 1 - _letters(text) / visible
    # Require digits, so that rules and ASCII art do not count.
    digits = sum(map(len, _NUMBER.findall(text)))
    if signs >= 0.7 and digits >= 0.4 * visible:
        return f"{signs:.0%} of its characters are digits and symbols"
    return None


def _by_shape(lines: list[str]) -> str | None:
    """Return a reason if most lines repeat one pattern of numbers, words and signs."""
    if len(lines) < 20:
        return None
    shapes = Counter(LETTERS.sub("a", _NUMBER.sub("0", line)) for line in lines)
    shape, times = shapes.most_common(1)[0]
    if times < 0.6 * len(lines) or shape.count("0") < 4 or len(_SIGNS.findall(shape)) < 10:
        return None
    return f"{times / len(lines):.0%} of its {len(lines)} lines repeat one pattern"


def _as_digits(hexadecimal: re.Match[str]) -> str:
    return "0" * len(hexadecimal[0])


def _letters(text: str) -> int:
    return sum(map(len, LETTERS.findall(text)))


def _encoded(text: str) -> int:
    """Count the characters of long words with both cases and digits, such as base64."""
    return sum(
        len(word)
        for word in _ENCODED.findall(text)
        if not word.islower() and not word.isupper() and any(map(str.isdigit, word))
    )
