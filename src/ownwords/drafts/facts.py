"""Whether a sentence keeps the facts of a note, or of another sentence, and adds none; for English.

Facts are names, links and quotations; numbers with their sign, unit, bound ("over 5", "before 6")
and what they count; directions ("up", "less"); and what a negation denies. The words for these are
in the language's TOML file. Numbers keep their order and two names their sides of a verb, because a
small model swaps them. A mistake in any other word, such as a wrong verb, is not found.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, takewhile
from typing import Any, Final, NamedTuple

from ownwords.core.text import sentences
from ownwords.language.words import (
    Lexicon,
    dictionary_form,
    either,
    filled,
    language,
    months,
    number_words,
    word_set,
)

# ---- the tokens of a sentence

# A quotation, an address, a number with its signs, or a word with its apostrophes and hyphens.
TOKEN: Final = re.compile(
    r"“[^“”]{2,120}”|\"[^\"]{2,120}\"|https?://[^\s)>\]]*[^\s)>\].,;:!?]"
    r"|[$£€#]?\d(?:[\d.,:/]*\d)?(?:%|[A-Za-z]+\b)?|[^\W\d_][\w]*(?:[-'’.][\w]+)*",
)
QUOTE: Final = ("“", '"', "http")
EXACT: Final = re.compile(r"(https?://\S+|`[^`]*`|[\"“][^\"“”]*[\"”])")  # links, code, quotations

DROPPED, PERSONS, PREPOSITIONS, QUALIFIERS, NEGATIONS = (
    word_set(language("en")["notes"][kind])
    for kind in ("dropped", "persons", "prepositions", "qualifiers", "negations")
)
NO_CONTENT: Final = DROPPED | PERSONS | PREPOSITIONS | QUALIFIERS


def is_negation(lower: str) -> bool:
    """Whether a word in lower case negates its sentence."""
    return lower in NEGATIONS or lower.endswith("n't")


def is_name(token: re.Match[str]) -> bool:
    """Whether a word is a name: a capital within a sentence, a second one, `_` or a digit."""
    word = token[0].replace("’", "'")
    if re.search(r"[\d_]", word):  # parking_lot, c2t
        return True
    if not any(map(str.isupper, word)) or word.partition("'")[0] == "I":
        return False
    if any(map(str.isupper, word[1:])) and not word.isupper():
        return True
    before = token.string[max(0, token.start() - 9) : token.start()].rstrip(" \"“”‘’'()")
    if before and before[-1] not in ".!?…:\n-":
        return True
    return not Lexicon.load().knows(word)


def _may_be_name(lower: str) -> bool:
    """Whether the first word of a sentence, in lower case, is uncommon and so may be a name."""
    is_common = lower in Lexicon.load().frequent or lower.endswith("ly")
    return not is_common and dictionary_form(lower) == lower


# ---- numbers, units and opposites

_FACTS: Final[dict[str, Any]] = language("en")["facts"]
BOUNDS: Final = word_set(_FACTS["bounds"])
_PLAIN: Final = [(re.compile(filled(x), re.I), form) for x, form in _FACTS["plain"].items()]
_MONTHS: Final = {month[:3].lower(): month for month in months() if len(month) > 3}
_MONTH = re.compile(rf"\b({either(_MONTHS)})t?(?!\w)", re.I)  # "Feb", "Sept"
_UNITS: Final = {
    form: forms[0]
    for forms in (line.split(" = ") for line in _FACTS["units"].strip().split("\n"))
    for form in forms
}
_UNIT = re.compile(
    rf"[ -]?({either(unit for unit in _UNITS if len(unit) == 1)}"
    rf"|(?i:{either(unit for unit in _UNITS if len(unit) > 1)}))(?!\w)"
)
_DIGITS = re.compile(r"([$£€#]?)(\d(?:[\d.,:/]*\d)?)(.*)")
_DECIMAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?")
_YEAR = re.compile(r"1\d{3}|20\d\d")
_PART_OF = re.compile(r" (?:of )?an?(?= )")  # half an hour, 0.3 of a metre
_MINUS = re.compile(r"(?<![^\s(=:<>~“\"])[-–−]")
_BOUNDARY = re.compile(r"[,;!?()—–]|\.\s+(?=[A-Z])|\s-\s")
_ONES, _TENS, _MULTIPLES = map(number_words, ("numbers", "tens", "multiples"))
_SMALL = rf"(?:(?:{either(_TENS)})(?:[ -](?:{either(_ONES)}))?|{either(_ONES)})"
_LARGE = rf"(?:(?:\d{{1,12}}(?:\.\d{{1,6}})?|an?|{_SMALL})[ -])?(?:{either(_MULTIPLES)})\b"
_NUMBER_WORDS = re.compile(
    rf"(?<![\w'.,-])(?:\d{{1,12}}k\b|{_LARGE}(?:[ -]{_LARGE}){{0,3}}(?:(?: and |[ -]){_SMALL})?"
    rf"|{_SMALL})(?![\w'])",
    re.IGNORECASE,
)
_SOFT: Final = {"one": ("1", ""), "first": ("1", "th"), "second": ("2", "th")}
_PLURALS: Final = frozenset(("people", "children", "men", "women", "feet", "teeth", "mice"))
_SKIPPED: Final = (DROPPED | PERSONS | {"by"}) - {"to"}  # between a number and its bound
_MAX_COUNTED: Final = 3  # content words after a number, one of which is what it counts
_NOT: Final = (-1, 0)
_MIN_SHARE: Final = 0.2  # of a line's content words in a sentence that keeps it; others paraphrase

Sides = frozenset[tuple[int, int]]  # a line of opposites in the TOML file, and the side of it


class _Part(NamedTuple):
    """A word or number of a text in order; a mark that ends a clause has no key."""

    key: str  # a dictionary form, a fact, or the value of a number
    word: str = ""  # as in the text, in lower case
    is_content: bool = False
    sides: Sides = frozenset()
    unit: str | None = None  # of a number, "" if it has none

    @property
    def is_soft(self) -> bool:
        """Whether it need not be a number, such as "one", "first" and "second"."""
        return self.word in _SOFT


@dataclass(frozen=True)
class Content:
    """What a text says, as far as single words show it."""

    text: str
    plain: str  # in lower case, with numbers in digits
    parts: tuple[_Part, ...]
    facts: frozenset[str]  # names, links and quotations
    words: frozenset[str]  # other content words, in dictionary form
    opening: str  # the first word, if it may be a name

    @classmethod
    def of(cls, text: str) -> "Content":
        plain = _NUMBER_WORDS.sub(_in_digits, text.replace("’", "'"))
        plain = _MONTH.sub(lambda month: _MONTHS[month[1].lower()], plain)
        for pattern, form in _PLAIN:
            plain = pattern.sub(form, plain)
        parts, facts, words = list[_Part](), set[str](), set[str]()
        opening, at, is_negative = "", 0, False
        for token in TOKEN.finditer(plain):
            if token.start() < at:  # a unit
                continue
            if _BOUNDARY.search(plain, at, token.start() + 1):
                parts.append(_Part(""))
            lower, at = token[0].lower().removesuffix("'s"), token.end()
            part = _Part(lower, lower, True, _sides_of(lower))
            if token[0].startswith(QUOTE):
                lower = lower.strip('“”" .,!?')
                part = part._replace(key=lower, word=lower)
                facts.add(lower)
            elif part.is_soft or _DIGITS.fullmatch(token[0]):
                value, unit, at = (*_SOFT[lower], at) if part.is_soft else _measure(token)
                part = part._replace(key=value, unit=unit)
            elif is_negation(lower):
                if is_negative and lower == "nor":
                    continue
                part, is_negative = _Part(lower, lower, sides=frozenset([_NOT])), True
            elif is_name(token):
                facts.add(lower)
            else:
                is_content = lower not in NO_CONTENT
                part = part._replace(key=dictionary_form(lower), is_content=is_content)
                if is_content:
                    words.add(part.key)
                    if not parts and token[0][0].isupper() and _may_be_name(lower):
                        opening = lower
            parts.append(part)
        return cls(text, plain.lower(), tuple(parts), frozenset(facts), frozenset(words), opening)

    @property
    def _numbers(self) -> list[int]:
        """The places of the numbers."""
        return [place for place, part in enumerate(self.parts) if part.unit is not None]

    def share_of(self, note: "Content") -> float:
        """Return the share of the note's content words that this has; 1 if it has none."""
        own = self.words | self.facts  # a word at the beginning can look like a name
        return len(note.words & own) / len(note.words) if note.words else 1.0

    def keeps_facts_of(self, note: "Content", known: "Content | None" = None) -> bool:
        """Whether this has all facts of a note, and no others unless they are in `known`."""
        return self._has_facts_of(note) and not self.invented(known or note)

    def _has_facts_of(self, note: "Content", *, is_part: bool = False) -> bool:
        """Whether this has the facts of a note, which may be only part of what this says."""
        return (
            self._has_names_of(note)
            and self._has_numbers_of(note)
            and self._has_directions_of(note, is_part=is_part)
        )

    def invented(self, known: "Content") -> frozenset[str]:
        """Return the names, links, quotations and numbers that are not in `known`."""
        words = set(re.findall(r"\w+", known.plain)).union(*(part[:2] for part in known.parts))
        names = {*self.facts, *self.opening.split()}
        measures = {(known.parts[place].key, known.parts[place].unit) for place in known._numbers}
        numbers = (self.parts[place] for place in self._numbers)
        return frozenset(
            [name for name in names if not words.issuperset(re.findall(r"\w+", name))]
            + [
                f"{part.key} {part.unit}".strip()
                for part in numbers
                if not part.is_soft and (part.key, part.unit) not in measures
            ]
        )

    def _has_names_of(self, note: "Content") -> bool:
        """Whether all names of a note are here, and each on its side of the verb."""
        for fact in note.facts:
            if not re.search(rf"(?:(?<!\w)|(?=\W)){re.escape(fact)}(?!\w)", self.plain):
                return False
        names = [
            (place, self._place(part.key))
            for place, part in enumerate(note.parts)
            if (part.key in note.facts or (note.opening and not place))
            and note._place(part.key) == place
        ]
        if note.opening and names[0][1] is None:
            return False
        for (one, first), (other, second) in pairwise(names):
            if first is None or second is None:  # within a link, for example
                continue
            low, high = sorted((first, second))
            between = _contents(self.parts[low + 1 : high]) & _contents(note.parts[one + 1 : other])
            is_passive = self._follows_by(high) and not note._follows_by(other)
            if between and (first > second) != is_passive:
                return False
        return True

    def _has_numbers_of(self, note: "Content") -> bool:
        """Whether the numbers of a note are here in order, and equal numbers here mean the same."""
        own, theirs = iter(self._numbers), note._numbers
        values = {note.parts[place].key for place in theirs}
        return all(
            note.parts[place].is_soft or any(self._is_same(mine, place, note) for mine in own)
            for place in theirs
        ) and all(
            self.parts[mine].is_soft
            or self.parts[mine].key not in values
            or any(self._is_same(mine, place, note) for place in theirs)
            for mine in self._numbers
        )

    def _is_same(self, mine: int, place: int, note: "Content") -> bool:
        """Whether two numbers have the same value, unit and bound, and count the same."""
        (before, after), (wanted, others) = self._bounds(mine), note._bounds(place)
        here, there = self.parts[mine], note.parts[place]
        return (
            (here.key, here.unit) == (there.key, there.unit)
            and (not before or bool(before & (wanted | others)))
            and (not wanted or bool(wanted & (before | after)))
            and (bool(there.unit) or self._counts_same(mine, place, note))
        )

    def _bounds(self, place: int) -> tuple[Sides, Sides]:
        """Return the bounds right before a number, and right after it."""
        before = (part for part in reversed(self.parts[:place]) if part.word not in _SKIPPED)
        return _bounds_in(next(before, None)), _bounds_in(next(iter(self.parts[place + 1 :]), None))

    def _counts_same(self, mine: int, place: int, note: "Content") -> bool:
        """Whether a number counts the same thing as in a note, where the plural may be missing."""
        wanted, run = note._counted(place), self._counted(mine)
        if not wanted or _YEAR.fullmatch(note.parts[place].key):
            return True
        if _is_plural(wanted[0]):
            return any(wanted[0].word in part[:2] or wanted[0].key == part.key for part in run)
        other = next(filter(_is_plural, run), None)
        return not other or not {self._place(wanted[0].key), note._place(other.key)} <= {None}

    def _counted(self, place: int) -> list[_Part]:
        """Return the content words that follow a number."""
        after = takewhile(lambda p: p.is_content or p.word in _SKIPPED, self.parts[place + 1 :])
        return [part for part in after if part.is_content][:_MAX_COUNTED]

    def _has_directions_of(self, note: "Content", *, is_part: bool) -> bool:
        """Whether nothing becomes its opposite: no side of a line is replaced by another.

        With both sides, and with a negation, each applies to the same word as in the note.
        """
        if is_part and not self._negates_same(note):
            return False
        own, theirs = (frozenset(s for p in each.parts for s in p.sides) for each in (self, note))
        for line in {line for line, _ in own | theirs} - ({_NOT[0]} if is_part else set()):
            here, there = ({side for side in sides if side[0] == line} for sides in (own, theirs))
            is_scoped = line == _NOT[0] or (line < _BOUND_LINES and len(there) > 1)
            if there - here and (here - there or is_scoped):
                return False
            if is_scoped and not all(self._applies_to_same(side, note) for side in there):
                return False
        return is_part or _NOT in theirs or _NOT not in own

    def _negates_same(self, note: "Content") -> bool:
        """Whether a note's negations are here, in any order, and others deny none of its words."""
        keys = _contents(self.parts) & _contents(note.parts)
        own = [{*after, *before} for after, before in self._scopes(_NOT, keys)]
        for after, before in note._scopes(_NOT, keys):
            wanted = {*after, *before}
            same = max(own, key=lambda scope: len(scope & wanted), default=None)
            if same is None or (after and not same & wanted):
                return False
            own.remove(same)
        often = Counter(part.key for part in self.parts)
        return all(often[key] > 1 for scope in own for key in scope)

    def _applies_to_same(self, side: tuple[int, int], note: "Content") -> bool:
        """Whether each part on a side is before the same words as in a note, or else after them."""
        keys = _contents(self.parts) & _contents(note.parts)
        own, theirs = self._scopes(side, keys), note._scopes(side, keys)
        if side == _NOT and len(own) != len(theirs):
            return False
        for (after, before), (wanted, preceding) in zip(own, theirs, strict=False):
            if after and after[0] not in (wanted or preceding):
                return False
            if wanted and not after and not {*before} & {*wanted, *preceding}:
                return False
        return True

    def _scopes(self, side: tuple[int, int], keys: set[str]) -> list[tuple[list[str], list[str]]]:
        """Return for each part on a side the next two words of its clause, and the one before."""
        return [
            (_clause(self.parts[n + 1 :], keys)[:2], _clause(reversed(self.parts[:n]), keys)[:1])
            for n, part in enumerate(self.parts)
            if side in part.sides
        ]

    def _place(self, key: str) -> int | None:
        return next((n for n, part in enumerate(self.parts) if key in part[:2]), None)

    def _follows_by(self, place: int) -> bool:
        return place > 0 and self.parts[place - 1].word == "by"


def lines_not_shown_in(text: str, notes: Iterable[str]) -> Iterator[str]:
    """Yield the lines of notes that cannot be shown to be kept in a text.

    A line is kept if a sentence, or two in a row, have some of its words and all its facts. Even
    a careful writer keeps a few lines in ways that cannot be shown (measured: docs/log.md).
    """
    parts = [text[begin:end] for begin, end in sentences(text)]
    found = [Content.of(part) for part in [*parts, *map(" ".join, pairwise(parts))]]
    for line in notes:
        note = Content.of(line)
        shares = (each for each in found if each.share_of(note) >= _MIN_SHARE)
        if not any(each._has_facts_of(note, is_part=True) for each in shares):
            yield line


def _contents(parts: Iterable[_Part]) -> set[str]:
    return {part.key for part in parts if part.is_content}


def _clause(parts: Iterable[_Part], keys: set[str]) -> list[str]:
    return [part.key for part in takewhile(lambda part: part.key, parts) if part.key in keys]


def _is_plural(part: _Part) -> bool:
    return part.word in _PLURALS or (part.word.endswith("s") and part.word != part.key)


def _in_digits(words: re.Match[str]) -> str:
    """Return a number word in digits; "one" stays, because often it is not a number."""
    total = current = 0.0
    for word in re.findall(r"\d+(?:\.\d+)?|[a-z]+", words[0].lower()):
        if factor := _MULTIPLES.get(word):
            current = (current or 1) * factor
            if factor >= _MULTIPLES["thousand"]:
                total, current = total + current, 0.0
        else:
            current += float(word) if word[0].isdigit() else (_TENS | _ONES).get(word, 0)
    return words[0] if words[0].lower() == "one" else f"{total + current:.15g}"


def _measure(token: re.Match[str]) -> tuple[str, str, int]:
    """Return a number with its sign, its unit, and where that ends."""
    text, end = token.string, token.end()
    currency, digits, letters = _DIGITS.findall(token[0])[0]
    if decimal := _DECIMAL.fullmatch(digits):  # not a time, a date or a version
        whole, part = decimal[1].replace(",", "").lstrip("0") or "0", (decimal[2] or "").rstrip("0")
        digits = f"{whole}.{part}" if part else whole
    sign = "-" if _MINUS.match(text, max(0, token.start() - 1)) else ""
    unit = _unit(currency) + _unit(letters)
    part_of = _PART_OF.match(text, end) if "/" in digits or "." in digits else None
    if not unit and (found := _UNIT.match(text, part_of.end() if part_of else end)):
        unit, end = _unit(found[1]), found.end()
    return sign + digits, unit, end


def _unit(form: str) -> str:
    return _UNITS.get(form) or _UNITS.get(form.lower()) or form.lower()


@cache
def _sides() -> dict[str, Sides]:
    """Return the lines and sides of each word of `bounds` and `opposites`."""
    found: dict[str, Sides] = {}
    for number, line in enumerate((_FACTS["bounds"] + _FACTS["opposites"]).split("\n")):
        for side, words in enumerate(line.split(" | ")):
            for word in words.split():
                found[word] = found.get(word, frozenset()) | {(number, side)}
    return found


_BOUND_LINES: Final = _FACTS["bounds"].count("\n")


def _sides_of(lower: str) -> Sides:
    return _sides().get(lower) or _sides().get(dictionary_form(lower)) or frozenset()


def _bounds_in(part: _Part | None) -> Sides:
    sides = part.sides if part else ()
    return frozenset(side for side in sides if 0 <= side[0] < _BOUND_LINES)
