"""Where the sentences of a text are; the formal signs of it, in any script."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

Span = tuple[int, int]

# Before a name, or before a number or a small letter, their period does not end a sentence.
_TITLES = (
    "mr mrs ms dr st prof rev hon gen col capt lt sgt maj gov sen messrs mme mlle hr fr sr sra mt"
)
_SHORTENED = (
    "no nos vol vols fig figs ch chap sec art pp ed etc vs viz cf eg ie al jr inc ltd co corp dept"
    " est approx ca p eds op cit ft am pm jan feb mar apr jun jul aug sep sept oct nov dec"
)
_BEFORE_NAMES, ABBREVIATIONS = (frozenset(words.split()) for words in (_TITLES, _SHORTENED))
_ROMAN = re.compile(r"[ivxlc]+")
# The lookbehind keeps a long run of dots from being tried again from each of them.
END_MARK: Final = re.compile(
    r"""(?<![.!?…؟۔।])(?:[.!?…]|[؟۔।])+['"”’“»«)\]*_]*(?=\s|$)|[。！？]+[」』”’）]*"""
)
_END = re.compile(rf"{END_MARK.pattern}|\n+")
_WRAP = re.compile(r"^(?![#>|`~])(.{40,})\n(?![ \t]*(?:$|[#>|`~]|[-*+] |\d+[.)] ))", re.MULTILINE)
_BEFORE = re.compile(r"[\w.'’]*$")
_MAX_ABBREVIATION = 40  # characters; longer words are no abbreviations
_FOLLOWING = re.compile(r"""\s*["'“”„«»‘’(\[*_]*(.?)""", re.DOTALL)
# The period after the day of a German date does not end it.
_MONTH = re.compile(
    r"\s+(?:(?:Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember)\b"
    r"|(?:April|August|September|November)\s+(?:19|20)\d\d\b)"  # which English has, too
)
_ABBREVIATED = re.compile(r"\b([^\W\d_]+)\.\s+(?=([^\W\d_]))")


def sentences(text: str, abbreviations: frozenset[str] = ABBREVIATIONS) -> list[Span]:
    """The spans of the sentences, without surrounding space; a newline ends a sentence."""
    spans: list[Span] = []
    start = 0
    for mark in _END.finditer(text):
        if mark[0][0] == "\n" or mark.end() == len(text) or _ends(text, mark, abbreviations):
            spans += stripped(text, start, mark.end())
            start = mark.end()
    return spans + list(stripped(text, start, len(text)))


def unwrapped(text: str) -> str:
    """A hard-wrapped text as long as before: a newline within a paragraph becomes a space."""
    return _WRAP.sub(r"\1 ", text)


def abbreviations_of(texts: Iterable[str]) -> frozenset[str]:
    """The usual abbreviations, and those that these texts have before small letters."""
    within: Counter[str] = Counter()
    for text in texts:
        for match in _ABBREVIATED.finditer(text):
            within[match[1].casefold()] += 1 if match[2].islower() else -1
    return ABBREVIATIONS | {word for word, more in within.items() if more >= 2}


def stripped(text: str, begin: int, end: int) -> Iterator[Span]:
    """The span without the space at its ends; nothing if it is all space."""
    part = text[begin:end]
    if inner := part.strip():
        begin += len(part) - len(part.lstrip())
        yield begin, begin + len(inner)


def _ends(text: str, mark: re.Match[str], abbreviations: frozenset[str]) -> bool:
    match = _FOLLOWING.match(text, mark.end())
    following = match[1] if match else ""
    if mark[0] != ".":
        return not following.islower()  # "What!" he cried; and so on ... until the end.
    before = _BEFORE.search(text[max(0, mark.start() - _MAX_ABBREVIATION) : mark.start()])
    word = before[0].casefold() if before else ""
    if "." in word or word in abbreviations or _ROMAN.fullmatch(word):
        return not (following.islower() or following.isdigit())
    if word.isdecimal() and len(word) <= 2 and _MONTH.match(text, mark.end()):
        return False
    is_initial = len(word) == 1 and word.isalpha()
    return not (is_initial or word in _BEFORE_NAMES)
