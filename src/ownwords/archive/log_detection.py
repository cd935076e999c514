"""Detect logs and other machine output in text, with a reason for each verdict."""

import re
import zlib
from collections import Counter
from collections.abc import Sequence

from ownwords.archive.document import Segment
from ownwords.core.text import LETTERS

_MIN_LINES = 8
_MIN_CHARACTERS = 600
_SAMPLE_CHARACTERS = 60_000  # sample size that keeps a block of any size under 20 ms

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
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*[A-Za-z])"
    r"|\b0x[0-9a-fA-F]{6,}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b"
)
_HEX_TOKEN = re.compile(r"(?:0x)?[0-9a-fA-F]{2,64}[:,;h]?")
_ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
# People also write after dates with times, in diaries and chats: these patterns find their words.
_WRITTEN_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_AROUND_WORDS = ".,;:!?…()<>\"“”‘’'«»*—–-~"
_PROGRAM = re.compile(
    r"\{?\.?(?:c|cc|cpp|c\+\+|h|c#|csharp|cs|java|kotlin|scala|swift|go|golang|rust|rs|python|py|ruby|rb"
    r"|perl|php|lua|r|julia|haskell|hs|elixir|erlang|clojure|lisp|scheme|zig|nim|dart|javascript|js|jsx"
    r"|typescript|ts|tsx|css|scss|less|html|xml|svg|sql|asm|nasm|armasm|x86asm|verilog|vhdl|glsl|matlab)"
)
_CODE_END = re.compile(r"(?:[,;{}()\[\]]|\*/)\s*$")
_NUMBER = re.compile(r"\d+")
_SIGNS = re.compile(r"[\d_]|[^\w\s]")


def log_reason(text: str) -> str | None:
    """The reason why a block of lines looks like machine output, or None if it does not.

    Pure and fast. A block of fewer than 8 lines and 600 characters is never judged; source code,
    poems, recipes, dialogue, lists of names or chapters and short configurations are not dumps.
    """
    if len(text) < _MIN_CHARACTERS and text.count("\n") + 1 < _MIN_LINES:
        return None
    all_lines = [line for line in text.split("\n") if line and not line.isspace()]
    if len(text) < _MIN_CHARACTERS and len(all_lines) < _MIN_LINES:
        return None
    lines = _sample(all_lines)
    if _kept_by_a_person(lines):
        return None
    return (
        _by_lines(lines, len(all_lines))
        or _by_characters(lines)
        or _by_shape(lines, len(all_lines))
        or _by_repetition(lines)
    )


def is_log_line(line: str) -> bool:
    """Whether a single line could come from a log or a dump."""
    line = line[:200]
    if _LEVEL.match(line) or _STACK.match(line):
        return True
    if not _NUMBER.search(line):  # all further patterns need digits
        return False
    if _STAMP.match(line) or _ADDRESS.search(line):
        return True
    visible = "".join(line.split())
    return len(visible) >= 12 and (
        _letters(visible) < 0.4 * len(visible) or bool(_encoded(visible)) or _hexadecimal(line)
    )


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
        dumped = segment.kind == "code" and _code_is_dump(segment)
        result.append(Segment("log", segment.text, segment.detail) if dumped else segment)
    return result + _split_prose(prose)


def _code_is_dump(code: Segment) -> bool:
    if not log_reason(code.text):
        return False
    lines = [line for line in code.text.split("\n") if line and not line.isspace()]
    ends = sum(1 for line in lines if _CODE_END.search(line[-80:]))
    if not _PROGRAM.fullmatch(code.detail.lower()) and (len(lines) < 3 or ends < 0.6 * len(lines)):
        return True
    # Tables of constants are source code, however many digits they hold; program output is a log,
    # whatever language the code block declares.
    return _by_lines(_sample(lines), len(lines), only_marks=True) is not None


def _split_prose(paragraphs: list[Segment]) -> list[Segment]:
    if not paragraphs:
        return paragraphs
    lines = [
        (number, line)
        for number, segment in enumerate(paragraphs)
        for line in segment.text.split("\n")
    ]
    if len(lines) < _MIN_LINES:
        return paragraphs
    marked = [is_log_line(line) for _, line in lines]
    runs = [run for run in _runs(marked) if log_reason("\n".join(t for _, t in lines[slice(*run)]))]
    if not runs:
        return paragraphs
    result: list[Segment] = []
    position = 0
    for start, end in runs:
        result += _regrouped(lines[position:start])
        result.append(Segment("log", "\n".join(line for _, line in lines[start:end])))
        position = end
    return result + _regrouped(lines[position:])


def _runs(marked: list[bool]) -> list[tuple[int, int]]:
    """Spans of at least eight lines that start and end marked, with few unmarked lines between."""
    runs: list[tuple[int, int]] = []
    start, last, misses = -1, -1, 0
    for number, hit in enumerate([*marked, False, False, False]):
        if hit:
            if start < 0:
                start, misses = number, 0
            last = number
        elif start >= 0:
            misses += 1
            if number - last > 2 or misses * 5 > number - start + 4:
                if last + 1 - start >= _MIN_LINES:
                    runs.append((start, last + 1))
                start = -1
    return runs


def _regrouped(lines: list[tuple[int, str]]) -> list[Segment]:
    """Rebuild prose segments from (paragraph number, line) pairs."""
    paragraphs: dict[int, list[str]] = {}
    for number, line in lines:
        paragraphs.setdefault(number, []).append(line)
    return [Segment("prose", "\n".join(prose_lines)) for prose_lines in paragraphs.values()]


def _sample(lines: list[str]) -> list[str]:
    """The lines, or evenly spaced ones if there is too much text; long lines are then cut."""
    total = sum(map(len, lines))
    if total <= _SAMPLE_CHARACTERS:
        return lines
    step = max(1, -(-total // _SAMPLE_CHARACTERS)) if len(lines) >= 4 * _MIN_LINES else 1
    most = _SAMPLE_CHARACTERS // max(1, len(lines) // step)
    return [line[:most] for line in lines[::step]]


def _by_lines(lines: list[str], count: int, only_marks: bool = False) -> str | None:
    if len(lines) < _MIN_LINES:
        return None

    def share(pattern: re.Pattern[str]) -> float:
        return sum(1 for line in lines if pattern.match(line)) / len(lines)

    if (stamped := share(_STAMP)) >= 0.6:
        return f"{stamped:.0%} of its {count} lines begin with a time stamp"
    if (marked := share(_LEVEL)) >= 0.7:
        return f"{marked:.0%} of its {count} lines are marked INFO, WARNING, ERROR or the like"
    if (stacked := share(_STACK)) >= 0.4:
        return f"{stacked:.0%} of its {count} lines are places in a program"
    if len(lines) >= 12 and not only_marks:
        numbered = (line for line in filter(_NUMBER.search, lines) if _ADDRESS.search(line))
        addressed = sum(not _is_written(_ADDRESS.sub("", line), 6) for line in numbered) / len(
            lines
        )
        if addressed >= 0.7:
            return f"{addressed:.0%} of its {count} lines hold a machine's address"
    return None


def _kept_by_a_person(lines: list[str]) -> bool:
    """Whether sentences follow the time stamps of most lines, as in a diary or a chat."""
    written = 0
    for line in lines:
        # A stamp such as "2024-01-02T03:04:05" is a machine's, whatever follows.
        if (stamp := _STAMP.match(line)) and stamp["by"] and stamp["by"] not in "T:":
            written += _is_written(line[stamp.end() : stamp.end() + 300])
    return written >= 0.6 * len(lines)


def _is_written(text: str, least: int = 3) -> bool:
    """Whether a text has only words (at least `least`) and short numbers."""
    words = 0
    for token in text.split():
        word = token.strip(_AROUND_WORDS)
        if _WRITTEN_WORD.fullmatch(word) or not word:
            words += bool(word)
        elif not word.isdecimal() or len(word) > 4:
            return False
    return words >= least


def _by_characters(lines: list[str]) -> str | None:
    joined = "\n".join(lines)
    visible = sum(map(len, joined.split()))
    if not visible:
        return None
    if (encoded := _encoded(joined) / visible) >= 0.6:
        return f"{encoded:.0%} of its characters are encoded data"
    tokens = joined.split()
    hexadecimal = [token for token in tokens if _hexadecimal_token(token)]
    # Decimal numbers match too; require letters, so that columns of decimals do not count.
    lettered = sum(1 for token in hexadecimal if not token.isdecimal())
    if (
        len(tokens) >= 40
        and len(hexadecimal) >= 0.6 * len(tokens)
        and lettered >= 0.2 * len(tokens)
    ):
        return f"{len(hexadecimal) / len(tokens):.0%} of its words are hexadecimal numbers"
    signs = 1 - _letters(joined) / visible
    # Require digits, so that rules and ASCII art do not count.
    digits = sum(map(len, _NUMBER.findall(joined)))
    if signs >= 0.7 and digits >= 0.4 * visible:
        return f"{signs:.0%} of its characters are digits and symbols"
    return None


def _by_shape(lines: list[str], count: int) -> str | None:
    """The reason if most lines repeat one pattern of numbers, words and signs, else None."""
    if len(lines) < 20:
        return None
    shapes = Counter(LETTERS.sub("a", _NUMBER.sub("0", line)) for line in lines)
    shape, times = shapes.most_common(1)[0]
    if times < 0.6 * len(lines) or shape.count("0") < 4 or len(_SIGNS.findall(shape)) < 10:
        return None
    return f"{times / len(lines):.0%} of its {count} lines repeat one pattern"


def _by_repetition(lines: list[str]) -> str | None:
    data = "\n".join(lines).encode("utf-8", "replace")
    if len(data) < 2000:
        return None
    left = len(zlib.compress(data, 1)) / len(data)
    return f"it repeats itself: packed, {left:.0%} of it is left" if left < 0.08 else None


def _letters(text: str) -> int:
    return sum(map(len, LETTERS.findall(text)))


def _encoded(text: str) -> int:
    """The number of characters in long words of both cases with digits, such as base64."""
    return sum(
        len(word)
        for word in _ENCODED.findall(text)
        if not word.islower() and not word.isupper() and any(map(str.isdigit, word))
    )


def _hexadecimal(line: str) -> bool:
    tokens = line.split()
    return len(tokens) >= 6 and sum(map(_hexadecimal_token, tokens)) >= 0.6 * len(tokens)


def _hexadecimal_token(token: str) -> bool:
    """Whether a token is a hexadecimal number; "added" and "cafe" are words."""
    return (
        _HEX_TOKEN.fullmatch(token) is not None
        and (not token.isalpha() or len(token) == 2)
        and not token.isdecimal()
    ) or (token.isdecimal() and len(token) in (2, 4, 8))
