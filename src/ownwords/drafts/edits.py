"""A light rewrite: single edits towards the author's habits, each of which can be undone alone.

What a draft says stays by construction: an edit replaces one form by another of the same, such as
"do not" by "don't", where the author's texts have the other form nearly always, or ends a sentence
that is longer than almost all of his at a place where another begins.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ownwords.core.package_data import toml_beside
from ownwords.core.sentences import sentences
from ownwords.drafts.facts import Content
from ownwords.drafts.notes import EXACT

_LEAST = 3  # times that the author has a form
_ENOUGH = 10_000  # words of his, to say that he never has one
_CONSISTENT = 0.85  # of his uses are that form
_TOGETHER = ("spelling", "numerals")
_LONG = 0.95  # of his sentences are shorter than one that is split
_MIN_LONG = 25  # words
# Marks that are typed in several ways, each with the expression that finds it.
_MARKS: Mapping[str, Mapping[str, str]] = {
    "apostrophes": {"’": r"(?<=\w)’(?=\w)", "'": r"(?<=\w)'(?=\w)"},
    "quotation marks": {"“": "“", '"': r'(?<![^\s(])"(?=\w)'},
    "closing quotation marks": {"”": "”", '"': r'(?<=[\w.,!?])"(?!\w)'},
    "dashes": {"—": "(?<=[^ ])—(?=[^ ])", " — ": " — ", " – ": " – ", " - ": "(?<=[^-\n]) - "},
    "ellipses": {"…": "…", "...": r"(?<!\.)\.\.\.(?!\.)"},
}
_SERIAL = re.compile(r"\w, \w+(,?) (?:and|or) \w")
# Code, addresses, others' words and front matter.
_UNTOUCHED = re.compile(
    r"^```.*?^```|`[^`\n]*`|https?://\S+|^>.*?$|\A---\n.*?^---$", re.DOTALL | re.MULTILINE
)
_JOINED = re.compile(r"(?:;|,? (?:and|but|so))( )(?=(?:I|we|you|he|she|it|they|there|this)\b)")
_OPENING = re.compile(r",? (and|but|so) $")
# A word, a number with its point, or a sign; of the marks of punctuation only what ends a sentence.
_MEANT = re.compile(r"(?<!\S)[-–](?=\d)|\w+(?:[.,:'-]\w+)*|'\w+|\(\)|[^\w\s,;:'\"“”()–—…-]")
_SPELT_OUT = {"can't": "cannot", "won't": "will not", "n't": " not", "'s": " is", "'m": " am"}
_SPELT_OUT |= {"'re": " are", "'ve": " have", "'ll": " will"}
_CONTRACTED = re.compile(
    r"\b(?:can't|won't)\b|(?:n't|'m|'re|'ve|'ll|(?:(?<=\bit)|(?<=he)|(?<=re)|(?<=\bthat))'s)\b"
)
_SAME = {"which": "that", "who": "that", "an": "a"}
_COUNTING = frozenset(("few", "little", "lot", "bit", "number", "couple", "one", "other"))
_SUBJECTS = frozenset(("I", "we", "you", "he", "she", "it", "they", "there"))


class Use(NamedTuple):
    """A place where one of several forms stands: their kind, all of them, and which it is."""

    kind: str
    forms: tuple[str, ...]
    choice: int
    start: int
    text: str


@dataclass(frozen=True)
class Edit:
    """One change: the characters from `start` on, what they are and what they become, and why."""

    start: int
    before: str
    after: str
    because: str

    @property
    def end(self) -> int:
        return self.start + len(self.before)


class Habits:
    """How often the author has each form, and how long his sentences are."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._counts: dict[str, Counter[int]] = defaultdict(Counter)
        self._phrases = set[str]()  # that he has
        lengths: list[int] = []
        for text in texts:
            self._phrases.update(_lower(phrase[0]) for phrase in _phrase().finditer(text))
            for use in _uses(text):
                self._counts[use.kind][use.choice] += 1
            lengths += [len(text[begin:end].split()) for begin, end in sentences(text)]
        if sum(lengths) < _ENOUGH:
            self._phrases.update(_phrases())
        self._long = max(_MIN_LONG, float(np.quantile(lengths, _LONG)) if lengths else 0.0)

    def edits(self, text: str) -> list[Edit]:
        """The edits that a draft needs, in order; no two overlap."""
        found = [*self.forms(text), *self._splits(text)]
        untouched = [each.span() for each in _UNTOUCHED.finditer(text)]
        chosen: list[Edit] = []
        for edit in sorted(found, key=lambda edit: (edit.start, -edit.end)):
            if any(begin < edit.end and edit.start < end for begin, end in untouched):
                continue
            if not chosen or edit.start >= chosen[-1].end:
                chosen.append(edit)
        return chosen

    def forms(self, text: str) -> Iterator[Edit]:
        """Where the author never has a phrase, or nearly always has another form."""
        for phrase in _phrase().finditer(text):
            if _lower(phrase[0]) not in self._phrases:
                after = _like(phrase[0], _phrases()[_lower(phrase[0])])
                yield Edit(phrase.start(), phrase[0], after, "you never write so")
        for use in _uses(text):
            counts = self._counts[use.kind]
            ((choice, count),) = counts.most_common(1) or [(use.choice, 0)]
            if choice != use.choice and count >= max(_LEAST, _CONSISTENT * counts.total()):
                after = _like(use.text, use.forms[choice])
                others = counts.total() - count
                because = f"{count:,} times so in your texts, {others:,} times otherwise"
                yield Edit(use.start, use.text, after, because)

    def _splits(self, text: str) -> Iterator[Edit]:
        """Where a sentence much longer than the author's ends, and the next one begins."""
        for begin, end in sentences(text):
            words = len(text[begin:end].split())
            if words <= self._long:
                continue
            middle = (begin + end) / 2
            places = [*_JOINED.finditer(text, begin, end)]
            place = min(places, key=lambda each: abs(each.start() - middle), default=None)
            if place is None or not 0.25 < (place.start() - begin) / (end - begin) < 0.75:
                continue
            first = text[place.end()]
            opening = _OPENING.fullmatch(place[0])
            word = f"{opening[1].capitalize()} {first}" if opening else first.upper()
            yield Edit(
                place.start(),
                text[place.start() : place.end() + 1],
                f". {word}",
                f"a sentence of {words} words; {_LONG:.0%} of yours have at most {self._long:.0f}",
            )


def variants(sentence: str) -> Iterator[str]:
    """The sentence with one form of `words.toml` replaced by another of the same."""
    for use in _pattern().finditer(sentence):
        for form in _groups()[_lower(use[0])][1]:
            yield sentence[: use.start()] + _like(use[0], form) + sentence[use.end() :]


def says_the_same(one: str, other: str) -> bool:
    """Whether two sentences have all words and signs in common, in order, and so differ in manner.

    Links, code and quotations are the same letter for letter. Not counted are the marks within
    them, a "that" which may be left out, which of the forms of `words.toml` they have, and an
    article that only one of them has.
    """
    words, others = _meant(one), _meant(other)
    return (
        len(words) == len(others)
        and all(
            word == same and (not article or not another or article == another)
            for (article, word), (another, same) in zip(words, others, strict=True)
        )
        and Content.of(one).keeps_facts_of(Content.of(other))
    )


def _meant(sentence: str) -> list[tuple[str, str]]:
    """The words and signs, each with the article before it, then what must be exact."""
    plain = _phrase().sub(lambda phrase: _phrases()[_lower(phrase[0])], sentence.replace("’", "'"))
    plain = _pattern().sub(lambda use: _groups()[_lower(use[0])][1][0], plain)
    plain = _CONTRACTED.sub(lambda use: _SPELT_OUT[use[0]], plain[:1].lower() + plain[1:])
    words = [_SAME.get(word, word) for word in _MEANT.findall(plain)]
    found, article = list[tuple[str, str]](), ""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word in ("a", "the") and following not in _COUNTING:
            article = word
        elif not (word == "that" and following in _SUBJECTS):
            found.append((article, word))
            article = ""
    return found + [("", exact.strip('"“”')) for exact in EXACT.findall(sentence)]


def applied(text: str, edits: Sequence[Edit]) -> str:
    """The text with these edits, which are in order and do not overlap."""
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], edit.after]
        at = edit.end
    return "".join([*parts, text[at:]])


@cache
def _groups() -> dict[str, tuple[str, tuple[str, ...], int]]:
    """The kind, the alternatives and the choice of each form in lower case."""
    return {
        form.lower(): (section if section in _TOGETHER else line, forms, choice)
        for section, lines in _words()["same"].items()
        for line in lines.split("\n")
        for forms in [tuple(line.split(" = "))]
        for choice, form in enumerate(forms)
        if form
    }


@cache
def _words() -> dict[str, Any]:
    return toml_beside(__file__, "words.toml")


@cache
def _phrases() -> dict[str, str]:
    """The long phrases in lower case, each with what says the same."""
    pairs = (line.partition(" = ") for line in _words()["phrases"].strip().split("\n"))
    return {long: short for long, _, short in pairs}


@cache
def _phrase() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(_phrases())})\b", re.IGNORECASE)


@cache
def _pattern() -> re.Pattern[str]:
    """Every form as a word of its own: contractions before a word, numerals before a plural."""
    either: dict[str, str] = {}
    for section, lines in _words()["same"].items():
        forms = sorted(re.split(r" = |\n", lines.strip()), key=len, reverse=True)
        either[section] = "|".join(re.escape(form).replace("'", "['’]") for form in forms)
    return re.compile(
        rf"(?<![\w’'-])(?:{either['contractions']})(?= [\w(“])"
        rf"|(?<=[a-z] )(?:{either['numerals']})(?= [a-z]{{3,}}s\b)"
        rf"|(?<![\w’'-])(?:{either['spelling']}|{either['words']})(?![\w’'-])",
        re.IGNORECASE,
    )


def _uses(text: str) -> Iterator[Use]:
    for use in _pattern().finditer(text):
        kind, forms, choice = _groups()[_lower(use[0])]
        yield Use(kind, forms, choice, use.start(), use[0])
    for kind, patterns in _MARKS.items():
        for choice, pattern in enumerate(patterns.values()):
            for use in re.finditer(pattern, text):
                yield Use(kind, tuple(patterns), choice, use.start(), use[0])
    for use in _SERIAL.finditer(text):
        yield Use("serial commas", ("", ","), len(use[1]), use.start(1), use[1])


def _lower(text: str) -> str:
    return text.lower().replace("’", "'")


def _like(before: str, form: str) -> str:
    """A form with a capital if what it replaces has one."""
    return form[:1].upper() + form[1:] if before[:1].isupper() else form
