"""Repair text: fix encoding damage (mojibake) and remove invisible characters."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any

ENCODING = "encoding errors repaired"
ZERO_WIDTH = "zero-width characters"
DIRECTION = "text-direction marks"
CONTROL = "control characters"
BROKEN = "broken characters replaced"

_CONTROLS_ASCII = bytes([*range(9), *range(11, 32), 127])

# Mojibake comes from bytes above 0x7F decoded one by one, so it contains two adjacent characters in
# these ranges, a C1 control, or the remains of a non-breaking space. The ranges exclude Asian
# scripts; ordinary text has few such pairs, and only those are checked with the slow ftfy.
# (Both begin with a set, which makes the search three times as fast.)
_DOUBTFUL = r"[\x80-\u05ff\u2000-\u26ff\uf000-\uffff]"
_NEIGHBOURS = re.compile(f"{_DOUBTFUL}{_DOUBTFUL}+")
_LONE_SIGNS = re.compile(r"[\x80-\x9fÃÂ](?:(?<=[\x80-\x9f])|(?= ))")

# "MANHÃ”" in capitals ends in a quotation mark; it is not mojibake of "MANHÔ".
_CAPITAL_AND_SIGN = re.compile(r"(?<=[A-ZÀ-Þ])[ÂÃÎÏÐÑÕØÙÛ](?=[“”‘’»…–—™]+(?![^\W\d_]))")
# In lines about encodings, mojibake is a quoted example.
_ON_ENCODINGS = re.compile(
    r"mojibake|unicode|utf-?(?:8|16)|latin-?1|iso-?8859|(?:cp|windows)-?125\d|encoding|charset",
    re.IGNORECASE,
)

_NEWLINES = re.compile("\r\n?|[\x0b\x0c\u2028\u2029]")
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]{0,40}[ -/]{0,4}[@-~]")
_UNSEEN = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSEEN_RUN = re.compile(f"[{_UNSEEN}]+")
_ANY_UNSEEN = re.compile(f"[\r\x0b\x0c\u2028\u2029{_UNSEEN}]")

# Scripts with joined letters (Arabic, Indic, Mongolian) and emoji start here.
_FIRST_JOINING = "\u0600"
# Thai, Lao, Burmese and Khmer are written without spaces; there U+200B separates words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\uaa7f]")
_FLAG = "\U0001f3f4"
_FLAG_TAGS = re.compile("[\U000e0020-\U000e007e]{1,8}\U000e007f")
_DIRECTION_MARKS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f]")


def repair_text(text: str, encoding: bool = True) -> tuple[str, dict[str, int]]:
    """Repair a text; returns it with the counts of repairs and removals by reason.

    Without `encoding`, mojibake is kept, because in code it may be intended. Encoding repairs are
    counted by line, everything else by character. Newlines become `\\n`; tabs, indentation, quotes
    and ligatures stay as they are; letters are composed (NFC). Ordinary text in any script is
    returned unchanged.
    """
    if text.isascii():
        plain = text.encode("ascii")
        if len(plain.translate(None, _CONTROLS_ASCII)) == len(plain):
            return text, {}
    counts: Counter[str] = Counter()
    if encoding and may_be_mojibake(text):
        text = _mend_encoding(text, counts)
    if _ANY_UNSEEN.search(text):
        text = _take_out_unseen(_NEWLINES.sub("\n", text), counts)
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    return text, {reason: count for reason, count in counts.items() if count}


def repair_line(text: str) -> str:
    """Repair a text and collapse its whitespace to one line, for titles and anchors."""
    return " ".join(repair_text(text)[0].split())


def repair_surrogates(text: str) -> tuple[str, int]:
    """Join paired surrogates and replace lone ones; returns the text and the number replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return mended, mended.count("\ufffd") - text.count("\ufffd")
    return text, 0


def parse_json(text: str) -> object:
    """Parse JSON; returns None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def text_value(row: Mapping[str, Any], name: str) -> str:
    """Return a text of a JSON object, its surrogates repaired; "" if it is not a text."""
    value = row.get(name)
    return repair_surrogates(value)[0] if isinstance(value, str) else ""


def as_object(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, or else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a JSON list; none if it is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def may_be_mojibake(text: str) -> bool:
    """Return whether a text may contain mojibake, with false positives."""
    if text.isascii():
        return False
    return bool(_LONE_SIGNS.search(text)) or any(
        _is_bad(text[max(0, run.start() - 2) : run.end() + 2]) for run in _NEIGHBOURS.finditer(text)
    )


@lru_cache(maxsize=1 << 16)
def _is_bad(fragment: str) -> bool:
    # Imported here because it takes 60 ms, and most texts do not need it.
    from ftfy.badness import is_bad  # noqa: PLC0415

    return is_bad(fragment)


def _mend_encoding(text: str, counts: Counter[str]) -> str:
    # Line by line, because damage in one line says nothing about the next, and repair is slow.
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if may_be_mojibake(_CAPITAL_AND_SIGN.sub("A", line)) and not _ON_ENCODINGS.search(line):
            lines[number] = _mender()(line)
            counts[ENCODING] += lines[number] != line
    return "\n".join(lines)


@cache
def _mender() -> Callable[[str], str]:
    from ftfy import TextFixerConfig, fix_encoding  # noqa: PLC0415 (late, as above)

    # Fix only the encoding: quotes, ligatures, width and entities are the author's choice.
    return partial(fix_encoding, config=TextFixerConfig(explain=False))


def _take_out_unseen(text: str, counts: Counter[str]) -> str:
    text, broken = repair_surrogates(text)
    counts[BROKEN] += broken
    if "\x1b" in text:
        before = len(text)
        text = _TERMINAL_CODES.sub("", text)
        counts[CONTROL] += before - len(text)

    def without(run: re.Match[str]) -> str:
        needed = _needed(run)
        counts.update(map(_reason, run.group()))
        counts.subtract(map(_reason, needed))
        return needed

    return _UNSEEN_RUN.sub(without, text)


def _needed(run: re.Match[str]) -> str:
    """Return the part of a run of invisible characters to keep: joiners and flag tags."""
    text, (start, end) = run.string, run.span()
    before, after = text[start - 1 : start], text[end : end + 1]
    unseen = run.group()
    if before == _FLAG and (tags := _FLAG_TAGS.match(unseen)):
        return tags.group()
    if "\u200b" in unseen and _UNSPACED.match(before) and _UNSPACED.match(after):
        return "\u200b"
    if before < _FIRST_JOINING:
        return ""
    if "\u200c" in unseen and after >= _FIRST_JOINING:
        return "\u200c"
    return "\u200d" if "\u200d" in unseen else ""


def _reason(character: str) -> str:
    if _DIRECTION_MARKS.match(character):
        return DIRECTION
    if character < "\xa0" or "\ufff9" <= character <= "\uffff":
        return CONTROL
    return ZERO_WIDTH
