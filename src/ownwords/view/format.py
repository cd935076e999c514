"""Format numbers, dates and titles for display."""

import re
from collections.abc import Iterable
from datetime import date

_SPACES = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")
# A bidirectional override in a title could reorder the text around it.
_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def plain(text: str, limit: int = 0) -> str:
    """Return `text` on one line without control characters, cut to `limit` characters if given."""
    line = _OVERRIDES.sub("", _SPACES.sub(" ", text)).strip()
    line = _UNPRINTABLE.sub("\ufffd", line)
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def inline(text: str) -> str:
    """Return `plain` text, keeping a space at either end: it matters between two spans."""
    lead = " " if text[:1].isspace() else ""
    return lead + plain(text) + (" " if text[-1:].isspace() and text.strip() else "")


def title_of(text: str, limit: int = 160) -> str:
    """Return a title for display: one line, cut to `limit`, "(untitled)" if empty."""
    return plain(text, limit) or "(untitled)"


def quoted(text: str, limit: int = 160) -> str:
    """Return a title in quotation marks."""
    return f"“{title_of(text, limit)}”"


def sentence(text: str, limit: int = 300) -> str:
    """Return `text` with a capital letter first and a full stop last."""
    line = plain(text, limit)
    return line[:1].upper() + line[1:] + ("" if not line or line[-1] in ".!?…" else ".")


def joined(names: Iterable[str], word: str = "and") -> str:
    """Return the names as in a sentence: "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last


def count(number: int, word: str = "") -> str:
    """Return "12,345", or with a noun "1 post", "12,345 posts"."""
    if not word:
        return f"{number:,}"
    return f"{number:,} {noun(number, word)}"


def noun(number: int, word: str) -> str:
    """Return the singular or plural of a noun: "post", "posts"."""
    if number == 1 or word.endswith("s"):
        return word
    return word[:-1] + "ies" if re.search(r"[^aeiou]y$", word) else word + "s"


def percent(share: float) -> str:
    """Return a percentage such as 54%; "0%" only for nothing, "100%" only for everything."""
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def times(often: float) -> str:
    """Return a frequency: "once", "twice", "0.4 times", "12 times"."""
    if 0.95 <= often < 1.05:
        return "once"
    if 1.95 <= often < 2.05:
        return "twice"
    return f"{often:.1f} times" if often < 9.95 else f"{often:.0f} times"


def number(amount: float) -> str:
    """Return a number to three significant figures: 261, 1,540, 12.3 million."""
    for unit, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if amount >= 0.9995 * unit:
            return f"{amount / unit:.3g}{name}"
    return f"{float(f'{amount:.3g}'):,.0f}" if amount >= 100 else f"{amount:.3g}"


def size(number: float) -> str:
    """Return a number of bytes: 812 bytes, 268 kB, 1.24 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= 0.9995 * unit:
            return f"{number / unit:.3g} {name}"
    return count(round(number), "byte")


def ratio(part: int, total: int) -> float:
    """Return `part / total`, or 0 if the total is 0."""
    return part / total if total else 0.0


def day(iso: str) -> str:
    """Return "2014-03-09" as "9 March 2014", anything else unchanged."""
    try:
        parsed = date.fromisoformat(iso)
    except ValueError:
        return plain(iso, 40)
    return f"{parsed.day} {parsed:%B} {parsed.year}"
