"""Splits text into sentences and detects formal faults that need no understanding of the meaning.

A text consists of lines (a newline in an archive's text is a visible break), a line of sentences.
A short line without an end mark is a heading or a list item, not a sentence. A passage cut from a
longer text may begin within quotes and end anywhere: neither counts as a fault.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Fault = Literal["no end", "unpaired", "small letter", "too long", "doubled word"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

HEADING_WORDS = 12  # a longer line should have an end mark
LEAST_LIMIT = 60  # words; no sentence up to this length counts as too long

# Abbreviations whose period does not end a sentence: before a name, a number or a lowercase letter.
# `SentenceConventions.of` learns further ones from the author's texts.
_TITLES = (
    "mr mrs ms dr st prof rev hon gen col capt lt sgt maj gov sen messrs mme mlle hr fr sr sra mt"
)
_COUNTED = "no nos vol vols fig figs ch chap sec art pp ed"
_SHORTENED = (
    "etc vs viz cf eg ie al jr inc ltd co corp dept est approx ca p eds op cit ft am pm jan feb "
    "mar apr jun jul aug sep sept oct nov dec"
)
_BEFORE_NAMES, _BEFORE_NUMBERS, _BEFORE_SMALL = (
    frozenset(words.split()) for words in (_TITLES, _COUNTED, _SHORTENED)
)
_ROMAN = re.compile(r"[ivxlc]+")
# Doubled words that are correct English: "all that that means", "he had had enough".
_SAID_TWICE = frozenset({"that", "had"})
_MARKER = re.compile(r"^(?:[-–—*•·▪◦]|\(?\w{1,2}[.)])\s+(?=\S)")
# The lookbehind keeps a long run of dots from being tried again from each of them.
_END = re.compile(
    r"""(?<![.!?…؟۔।])(?:[.!?…]|[؟۔।])+['"”’“»«)\]*_]*(?=\s|$)|[。！？]+[」』”’）]*""",
)
_BEFORE = re.compile(r"[\w.'’]*$")
_LONGEST_BEFORE = 40  # characters; longer words are no abbreviations
_FOLLOWING = re.compile(r"""\s*["'“”„«»‘’(\[*_]*(.?)""", re.DOTALL)
_DOUBLED = re.compile(r"\b([^\W\d_]+)\s+\1\b", re.IGNORECASE)
_ABBREVIATED = re.compile(r"\b([^\W\d_]+)\.\s+(?=([^\W\d_]))")
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_QUOTES = '"“”„«»'
_SMILEY = re.compile(r"[:;=]-?[()]")
_OPENS_AFTER = frozenset(" \t\n\u00a0([{—–-/*_'‘")
_CLOSES_BEFORE = frozenset(".,;:!?)]}")
_GOES_ON = (":", ";", ",", "—", "–", "-")  # continues below with a list or a quotation


@dataclass(frozen=True, slots=True)
class Sentence:
    """The text of a sentence and its faults."""

    text: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class SentenceConventions:
    """An author's conventions, so that his own habits do not count as faults."""

    abbreviations: frozenset[str] = frozenset()  # words he writes with a period within sentences
    doubled: frozenset[str] = _SAID_TWICE
    longest: int = LEAST_LIMIT  # words

    @classmethod
    def of(cls, texts: Sequence[str]) -> "SentenceConventions":
        """Learn the conventions from texts.

        The length limit is 1.5 times the 99.5th percentile of sentence lengths, at least
        `LEAST_LIMIT`.
        """
        within: Counter[str] = Counter()
        for text in texts:
            for match in _ABBREVIATED.finditer(text):
                within[match[1].casefold()] += 1 if match[2].islower() else -1
        abbreviations = frozenset({word for word, more in within.items() if more >= 2})
        doubled = {match[1].casefold() for text in texts for match in _DOUBLED.finditer(text)}
        lengths = [
            _count(text[start:end])
            for text in texts
            for line in _lines(text)
            for start, end in _split(line, abbreviations)
        ]
        usual = float(np.quantile(lengths, 0.995)) if lengths else 0.0
        return cls(abbreviations, _SAID_TWICE | doubled, max(LEAST_LIMIT, round(1.5 * usual)))


def sentences(text: str, habits: SentenceConventions) -> list[Sentence]:
    """Split a text into sentences with their faults; skip the last one if the text cuts it off."""
    lines = list(_lines(text))
    judged: list[Sentence] = []
    after_end = False  # whether the line before ended a sentence
    for number, line in enumerate(lines):
        spans = list(_split(line, habits.abbreviations))
        ended = _is_ended(line)
        if not ended and len(spans) == 1 and _count(line) <= HEADING_WORDS:
            after_end = False
            continue
        last = number == len(lines) - 1
        cut_from = spans[-1][0] if last else len(line)
        following = "" if last else lines[number + 1]
        unpaired = [
            *_unpaired_brackets(line, begins=number == 0, cut_from=cut_from),
            *_unpaired_quotes(line, following, begins=number == 0, cut=last),
        ]
        for start, end in spans:
            sentence = line[start:end]
            if end == len(line) and not ended and last:
                break
            faults: list[Fault] = []
            if end == len(line) and not ended and not line.endswith(_GOES_ON):
                faults.append("no end")
            if any(start <= at < end for at in unpaired):
                faults.append("unpaired")
            if (start or after_end) and _begins_small(sentence):
                faults.append("small letter")
            words = _count(sentence)
            if words > habits.longest:
                faults.append("too long")
            if any(
                match[1].casefold() not in habits.doubled for match in _DOUBLED.finditer(sentence)
            ):
                faults.append("doubled word")
            if words:
                judged.append(Sentence(sentence.strip(), tuple(faults)))
        after_end = ended
    return judged


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if stripped := _MARKER.sub("", line.strip(), count=1).strip():
            yield stripped


def _count(text: str) -> int:
    return len(_WORD.findall(text))


def _is_ended(line: str) -> bool:
    matches = list(_END.finditer(line))
    return bool(matches) and matches[-1].end() == len(line)


def _split(line: str, abbreviations: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of each sentence in a line."""
    start = 0
    for mark in _END.finditer(line):
        if mark.end() == len(line) or not _ends(line, mark, abbreviations):
            continue
        yield start, mark.end()
        start = mark.end()
    if line[start:].strip():
        yield start, len(line)


def _ends(line: str, mark: re.Match[str], abbreviations: frozenset[str]) -> bool:
    """Whether this mark ends a sentence, judged by the text before and after it."""
    match = _FOLLOWING.match(line, mark.end())
    following = match[1] if match else ""
    small = following.islower()
    if mark[0] != ".":
        # Does not end the sentence: "What!" he cried; and so on ... until the end.
        return not small
    before = _BEFORE.search(line[max(0, mark.start() - _LONGEST_BEFORE) : mark.start()])
    word = before[0].casefold() if before else ""
    if word in _BEFORE_NUMBERS and following.isdigit():
        return False
    is_numeral = _ROMAN.fullmatch(word) is not None
    if "." in word or word in _BEFORE_SMALL or word in abbreviations or is_numeral:
        return not (small or following.isdigit())
    is_initial = len(word) == 1 and word.isalpha()
    return not (is_initial or word in _BEFORE_NAMES)


def _begins_small(sentence: str) -> bool:
    letter = next((letter for letter in sentence if letter.isalnum()), "")
    return letter.islower()


def _unpaired_brackets(line: str, *, begins: bool, cut_from: int) -> list[int]:
    """Return the positions of unpaired brackets, except where the text was cut.

    `begins`: this is the first line, so a closing bracket before any opening one is allowed.
    Brackets opened at or after `cut_from` may be closed beyond the cut.
    """
    unpaired: list[int] = []
    opened: list[int] = []
    smileys = {at for smiley in _SMILEY.finditer(line) for at in range(*smiley.span())}
    for at, char in enumerate(line):
        if char not in "()[]" or at in smileys:
            continue
        if char in "([":
            begins = False
            opened.append(at)
        elif opened and line[opened[-1]] + char in ("()", "[]"):
            opened.pop()
        elif not begins:
            unpaired.append(at)
    return unpaired + [at for at in opened if at < cut_from]


def _unpaired_quotes(line: str, following: str, *, begins: bool, cut: bool) -> list[int]:
    """Return the positions of unpaired double quotes, except where the text was cut.

    Single quotes are not checked: they cannot be distinguished from apostrophes.
    """
    unpaired: list[int] = []
    opened = -1
    for at, char in enumerate(line):
        if char not in _QUOTES:
            continue
        if _opens(line, at, opened >= 0):
            begins = False
            if opened >= 0:
                unpaired.append(opened)
            opened = at
        elif opened >= 0:
            opened = -1
        elif not begins:
            unpaired.append(at)
    # Speech that continues in the next paragraph is opened again there.
    goes_on = cut or (following != "" and following[0] in _QUOTES)
    return unpaired if opened < 0 or goes_on else [*unpaired, opened]


def _opens(line: str, at: int, is_open: bool) -> bool:
    """Whether a quote opens: judged by the space around it, or else by its shape."""
    before = at == 0 or line[at - 1] in _OPENS_AFTER
    after = at + 1 == len(line) or line[at + 1].isspace() or line[at + 1] in _CLOSES_BEFORE
    if before != after:
        return before
    return not is_open if line[at] == '"' else line[at] in "“„«"
