"""Whether a sentence keeps the facts of a note, or of another sentence, and adds none; for English.

Facts are names, links and quotations; numbers with their sign, unit, bound ("over 5", "before 6")
and what they count; which way something goes ("up", "less"); what a negation denies. The words that
say so are in `words.toml`. Numbers keep their order, and two names their sides of a verb, because a
small model swaps them. What no such word shows, for example a wrong verb, is not found.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from ownwords.core.package_data import toml_beside
from ownwords.drafts import notes
from ownwords.drafts.notes import MULTIPLES, NUMBERS, TENS, dictionary_form


def _either(forms: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))


_DATA: Final = toml_beside(__file__, "words.toml")
_PLAIN: Final = [(re.compile(other, re.I), form) for other, form in _DATA["plain"].items()]
_UNITS: Final = {
    form: forms[0]
    for forms in (line.split(" = ") for line in _DATA["units"].strip().split("\n"))
    for form in forms
}
_UNIT = re.compile(
    rf"[ -]?({_either(unit for unit in _UNITS if len(unit) == 1)}"
    rf"|(?i:{_either(unit for unit in _UNITS if len(unit) > 1)}))(?!\w)"
)
_DIGITS = re.compile(r"([$£€#]?)(\d(?:[\d.,:/]*\d)?)(.*)")
_DECIMAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?")
_YEAR = re.compile(r"1\d{3}|20\d\d")
_MINUS = re.compile(r"(?<![^\s(])[-–−]")
_BOUNDARY = re.compile(r"[,;!?()—–]|\.\s+(?=[A-Z])|\s-\s")
_SMALL = rf"(?:(?:{_either(TENS)})(?:[ -](?:{_either(NUMBERS)}))?|{_either(NUMBERS)})"
_LARGE = rf"(?:(?:\d{{1,12}}(?:\.\d{{1,6}})?|an?|{_SMALL})[ -])?(?:{_either(MULTIPLES)})\b"
_NUMBER_WORDS = re.compile(
    rf"(?<![\w'.,-])(?:\d{{1,12}}k\b|{_LARGE}(?:[ -]{_LARGE}){{0,3}}(?:(?: and |[ -]){_SMALL})?"
    rf"|{_SMALL})(?![\w'])",
    re.IGNORECASE,
)
_SOFT: Final = {"one": ("1", ""), "first": ("1", "th"), "second": ("2", "th")}
_PLURALS: Final = frozenset(("people", "children", "men", "women", "feet", "teeth", "mice"))
_SKIPPED: Final = (notes.DROPPED | notes.PERSONS | {"by"}) - {
    "to"
}  # between a number and its bound
_RUN: Final = 3  # content words after a number, among which is what it counts
_NOT: Final = (-1, 0)

Sides = frozenset[tuple[int, int]]  # a line of opposites, and the side of it


class _Part(NamedTuple):
    """A word or number of a text in order; a mark that ends a clause has no key."""

    key: str  # a dictionary form, or a fact
    word: str = ""  # as it stands, in lower case
    is_content: bool = False
    sides: Sides = frozenset()


class _Number(NamedTuple):
    value: str
    unit: str
    place: int  # among the parts
    is_soft: bool  # "one", "first" and "second" need not be numbers


@dataclass(frozen=True)
class Content:
    """What a text says, as far as words show it."""

    text: str
    plain: str  # in lower case, with numbers in digits
    parts: tuple[_Part, ...]
    numbers: tuple[_Number, ...]
    facts: frozenset[str]  # names, links and quotations
    words: frozenset[str]  # other content words, in dictionary form
    opening: str  # the first word, if it may be a name

    @classmethod
    def of(cls, text: str) -> "Content":
        plain = _NUMBER_WORDS.sub(_in_digits, text.replace("’", "'"))
        for pattern, form in _PLAIN:
            plain = pattern.sub(form, plain)
        parts, numbers, facts, words = list[_Part](), list[_Number](), set[str](), set[str]()
        opening, at, is_negative = "", 0, False
        for token in notes.TOKEN.finditer(plain):
            if token.start() < at:  # a unit
                continue
            if _BOUNDARY.search(plain, at, token.start() + 1):
                parts.append(_Part(""))
            lower, at = token[0].lower().removesuffix("'s"), token.end()
            sides, is_content = _opposites(lower), True
            if token[0].startswith(notes.QUOTE):
                key = lower = lower.strip('“”" .,!?')
                facts.add(key)
            elif lower in _SOFT or _DIGITS.fullmatch(token[0]):
                key, unit, at = _SOFT[lower] + (at,) if lower in _SOFT else _measure(token)
                numbers.append(_Number(key, unit, len(parts), lower in _SOFT))
            elif notes.is_negation(lower):
                if is_negative and lower == "nor":
                    continue
                key, sides, is_content, is_negative = lower, frozenset([_NOT]), False, True
            elif notes.is_name(token):
                key = lower
                facts.add(key)
            else:
                key, is_content = dictionary_form(lower), lower not in notes.NO_CONTENT
                if is_content:
                    words.add(key)
                    if not parts and token[0][0].isupper() and notes.may_be_name(lower):
                        opening = lower
            parts.append(_Part(key, lower, is_content, sides))
        return cls(
            text,
            plain.lower(),
            tuple(parts),
            tuple(numbers),
            frozenset(facts),
            frozenset(words),
            opening,
        )

    def share_of(self, note: "Content") -> float:
        """The share of the note's content words that this has; 1 if it has none."""
        said = self.words | self.facts  # a word at the beginning can look like a name
        return len(note.words & said) / len(note.words) if note.words else 1.0

    def keeps_facts_of(self, note: "Content", known: "Content | None" = None) -> bool:
        """Whether this has all facts of a note, and no other than are in it or in `known`."""
        return (
            self._names_as(note)
            and self._has_numbers_of(note)
            and not self.invented(known or note)
            and self._goes_the_way_of(note)
        )

    def invented(self, known: "Content") -> frozenset[str]:
        """The names, links, quotations and numbers that are not in what is known."""
        words = set(re.findall(r"\w+", known.plain)).union(*(part[:2] for part in known.parts))
        names = {*self.facts, *self.opening.split()}
        numbers = {number[:2] for number in self.numbers if not number.is_soft}
        numbers -= {number[:2] for number in known.numbers}
        return frozenset(
            [name for name in names if not words.issuperset(re.findall(r"\w+", name))]
            + [" ".join(number).strip() for number in numbers]
        )

    def _names_as(self, note: "Content") -> bool:
        """Whether all names of a note are here, and each on its side of the verb."""
        if not all(_stands(fact, self.plain) for fact in note.facts):
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
            if first is None or second is None:  # within a link, say
                continue
            low, high = sorted((first, second))
            between = _contents(self.parts[low + 1 : high]) & _contents(note.parts[one + 1 : other])
            is_passive = self._follows_by(high) and not note._follows_by(other)
            if between and (first > second) != is_passive:
                return False
        return True

    def _has_numbers_of(self, note: "Content") -> bool:
        """Whether the numbers of a note are here in order, and each that is here is one of them."""
        mine, values = iter(self.numbers), {number.value for number in note.numbers}
        return all(
            number.is_soft or any(self._has_as(other, number, note) for other in mine)
            for number in note.numbers
        ) and all(
            other.is_soft
            or other.value not in values
            or any(self._has_as(other, number, note) for number in note.numbers)
            for other in self.numbers
        )

    def _has_as(self, mine: _Number, number: _Number, note: "Content") -> bool:
        """Whether a number here is one of a note, with its unit, its bound and what it counts."""
        (before, after), (wanted, others) = self._bounds(mine), note._bounds(number)
        return (
            mine[:2] == number[:2]
            and (not before or bool(before & (wanted | others)))
            and (not wanted or bool(wanted & (before | after)))
            and (bool(number.unit) or self._counts(mine, number, note))
        )

    def _bounds(self, number: _Number) -> tuple[Sides, Sides]:
        """The sides of what stands right before a number, and right after it."""
        before = (p for p in reversed(self.parts[: number.place]) if p.word not in _SKIPPED)
        after = iter(self.parts[number.place + 1 :])
        sides = [next(each, _Part("")).sides for each in (before, after)]
        return _bounds_of(sides[0]), _bounds_of(sides[1])

    def _counts(self, mine: _Number, number: _Number, note: "Content") -> bool:
        """Whether a number counts here what it counts in a note, which may lack the plural."""
        wanted, run = note._counted(number), self._counted(mine)
        if not wanted or _YEAR.fullmatch(number.value):
            return True
        if _is_plural(wanted[0]):
            return any(wanted[0].word in part[:2] or wanted[0].key == part.key for part in run)
        other = next(filter(_is_plural, run), None)
        return not other or not {self._place(wanted[0].key), note._place(other.key)} <= {None}

    def _counted(self, number: _Number) -> list[_Part]:
        """The content words that follow a number."""
        after = takewhile(
            lambda p: p.is_content or p.word in _SKIPPED, self.parts[number.place + 1 :]
        )
        return [part for part in after if part.is_content][:_RUN]

    def _goes_the_way_of(self, note: "Content") -> bool:
        """Whether nothing becomes its opposite: no side of a line is lost for another.

        What is said of both sides, and what is denied, is said of the same.
        """
        mine, others = (frozenset(s for p in each.parts for s in p.sides) for each in (self, note))
        for line in {line for line, _ in mine | others}:
            here, there = ({side for side in sides if side[0] == line} for sides in (mine, others))
            is_bound = line == _NOT[0] or len(_bounds_of(there)) > 1
            if there - here and (here - there or is_bound):
                return False
            if is_bound and not all(self._stands_before_the_same(side, note) for side in there):
                return False
        return _NOT in others or _NOT not in mine

    def _stands_before_the_same(self, side: tuple[int, int], note: "Content") -> bool:
        """Whether each part on a side is before what it is before in a note, or else after it."""
        keys = _contents(self.parts) & _contents(note.parts)
        mine, others = self._scopes(side, keys), note._scopes(side, keys)
        if side == _NOT and len(mine) != len(others):
            return False
        for (after, before), (wanted, preceding) in zip(mine, others, strict=False):
            if after and after[0] not in (wanted or preceding):
                return False
            if wanted and not after and not {*before} & {*wanted, *preceding}:
                return False
        return True

    def _scopes(self, side: tuple[int, int], keys: set[str]) -> list[tuple[list[str], list[str]]]:
        """What follows each part on a side within its clause, at most two, and what precedes it."""
        return [
            (_clause(self.parts[n + 1 :], keys)[:2], _clause(reversed(self.parts[:n]), keys)[:1])
            for n, part in enumerate(self.parts)
            if side in part.sides
        ]

    def _place(self, key: str) -> int | None:
        return next((n for n, part in enumerate(self.parts) if key in part[:2]), None)

    def _follows_by(self, place: int) -> bool:
        return place > 0 and self.parts[place - 1].word == "by"


def _contents(parts: Iterable[_Part]) -> set[str]:
    return {part.key for part in parts if part.is_content}


def _clause(parts: Iterable[_Part], keys: set[str]) -> list[str]:
    return [part.key for part in takewhile(lambda part: part.key, parts) if part.key in keys]


def _stands(fact: str, plain: str) -> bool:
    return bool(re.search(rf"(?:(?<!\w)|(?=\W)){re.escape(fact)}(?!\w)", plain))


def _is_plural(part: _Part) -> bool:
    return part.word in _PLURALS or (part.word.endswith("s") and part.word != part.key)


def _in_digits(words: re.Match[str]) -> str:
    """A number in words as digits; "one" stays, because it often is none."""
    total = current = 0.0
    for word in re.findall(r"\d+(?:\.\d+)?|[a-z]+", words[0].lower()):
        if factor := MULTIPLES.get(word):
            current = (current or 1) * factor
            if factor >= MULTIPLES["thousand"]:
                total, current = total + current, 0.0
        else:
            current += float(word) if word[0].isdigit() else (TENS | NUMBERS).get(word, 0)
    return words[0] if words[0].lower() == "one" else f"{total + current:.15g}"


def _measure(token: re.Match[str]) -> tuple[str, str, int]:
    """A number with its sign, its unit, and where that ends."""
    text, end = token.string, token.end()
    currency, digits, letters = _DIGITS.findall(token[0])[0]
    sign = "-" if _MINUS.match(text, max(0, token.start() - 1)) else ""
    unit = _unit(currency) + _unit(letters)
    if not unit and (found := _UNIT.match(text, end)):
        unit, end = _unit(found[1]), found.end()
    return sign + _decimal(digits), unit, end


def _decimal(digits: str) -> str:
    """A number without needless signs; a time, a date or a version as it stands."""
    if not (found := _DECIMAL.fullmatch(digits)):
        return digits
    whole, part = found[1].replace(",", "").lstrip("0") or "0", (found[2] or "").rstrip("0")
    return f"{whole}.{part}" if part else whole


def _unit(form: str) -> str:
    return _UNITS.get(form) or _UNITS.get(form.lower()) or form.lower()


@cache
def _sides() -> dict[str, Sides]:
    """The lines and sides of each word of `bounds` and `opposites`."""
    found: dict[str, Sides] = {}
    for number, line in enumerate((_DATA["bounds"] + _DATA["opposites"]).split("\n")):
        for side, words in enumerate(line.split(" | ")):
            for word in words.split():
                found[word] = found.get(word, frozenset()) | {(number, side)}
    return found


def _opposites(lower: str) -> Sides:
    return _sides().get(lower) or _sides().get(dictionary_form(lower)) or frozenset()


def _bounds_of(sides: Iterable[tuple[int, int]]) -> Sides:
    return frozenset(side for side in sides if 0 <= side[0] < _DATA["bounds"].count("\n"))
