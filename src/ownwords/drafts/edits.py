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

from ownwords.archive.store import Archive
from ownwords.core.package_data import toml_beside
from ownwords.core.sentences import sentences, unwrapped
from ownwords.drafts.facts import Content
from ownwords.drafts.notes import EXACT
from ownwords.drafts.prose import prose_of
from ownwords.evaluation.reference_data import begins_sentence

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
_WORD = re.compile(r"\w+")
# After these, "it is" may end its clause, and has no short form: "what it is now".
_NO_SHORT = "".join(
    rf"(?<!\b{word} )" for word in ("what", "where", "who", "how", "than", "as", "here")
)
_HAS = r"(?!(?<=['’]s) (?:been|got|had|become|gone|come|\w+(?:ed|en))\b)"  # "it's been" has no "is"
# Before these, a numeral names one of several: "chapter 2 describes".
_NUMERALS = "".join(
    rf"(?<!\b{word} )"
    for word in ("chapter", "page", "part", "step", "version", "figure", "section", "number", "day")
)
_MANY_MEANINGS = ("about",)  # a story about two boys
# A number that is no year, as a figure or in words.
_NUMBER = (
    r"(?:[$£€]?(?!(?:1[5-9]|20)\d\d\b)\d|(?:two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve|fifteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|half|(?:an?|one) (?:"
    r"dozen|hundred|thousand|million|billion|second|minute|hour|day|week|month|year|half|third|quarter"
    r"|inch|foot|mile))\b)"
)
_JOINED = re.compile(r"(?:;|,? (?:and|but|so))( )(?=(?:I|we|you|he|she|it|they|there|this)\b)")
_OPENING = re.compile(r",? (and|but|so) $")
_FOLLOWING = re.compile(r" (\w)")
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
        self._phrases = set[str]()  # that the author has
        self._words = Counter[str]()
        self._lengths: list[int] = []
        for text in texts:
            self._phrases.update(_lower(phrase[0]) for phrase in _phrase().finditer(text))
            self._words.update(_WORD.findall(text.lower()))
            for use in _uses(text):
                self._counts[use.kind][use.choice] += 1
            self._lengths += [len(text[begin:end].split()) for begin, end in sentences(text)]
        self._long = max(_MIN_LONG, self.words_of_sentences(_LONG))

    @classmethod
    def of(cls, archive: Archive) -> "Habits":
        """Learn from whole texts, those also of which a model reads a part, but none left out."""
        return cls(text for text, is_left_out in archive.own_texts() if not is_left_out)

    def words_of_sentences(self, share: float) -> float:
        """The words of a sentence that this share of the author's do not exceed."""
        return float(np.quantile(self._lengths, share)) if self._lengths else 0.0

    def edits(self, draft: str) -> list[Edit]:
        """The edits that the prose of a draft needs, in order; no two overlap."""
        text = unwrapped(prose_of(draft)[0])
        chosen: list[Edit] = []
        for edit in sorted(
            [*self.forms(text), *self._splits(text)], key=lambda edit: (edit.start, -edit.end)
        ):
            line = draft[draft.rfind("\n", 0, edit.start) + 1 : edit.start]
            is_prose = draft[edit.start : edit.end] == edit.before
            begins_item = edit.after.startswith(" ") and not line.strip()  # a dash would be a mark
            if is_prose and not begins_item and not (chosen and edit.start < chosen[-1].end):
                chosen.append(edit)
        return chosen

    def forms(self, text: str) -> Iterator[Edit]:
        """Where the author never has a phrase, or nearly always has another form."""
        yield from self._phrase_edits(text)
        for use in _uses(text):
            counts = self._counts[use.kind]
            ((choice, count),) = counts.most_common(1) or [(use.choice, 0)]
            if use.text.lower() in _MANY_MEANINGS:
                continue
            if choice != use.choice and count >= max(_LEAST, _CONSISTENT * counts.total()):
                after = _like(use.text, use.forms[choice])
                because = f"so {count:,} of {counts.total():,} times in your texts"
                yield Edit(use.start, use.text, after, because)

    def _phrase_edits(self, text: str) -> Iterator[Edit]:
        words = self._words.total()
        for phrase in _phrase().finditer(text) if words >= _ENOUGH else ():
            if (long := _lower(phrase[0])) in self._phrases:
                continue
            because = f"never in your {words:,} words"
            if not any(_phrases()[long]):
                # The phrase goes, and the next word begins in its place.
                if following := _FOLLOWING.match(text, phrase.end()):
                    before = phrase[0] + following[0]
                    after = _like(phrase[0], following[1])
                    yield Edit(phrase.start(), before, after, because)
                continue
            count, short = max((self._uses_of(short), short) for short in _phrases()[long])
            if count >= _LEAST:
                yield Edit(phrase.start(), phrase[0], _like(phrase[0], short), because)

    def _uses_of(self, words: str) -> int:
        """How often the author has the rarest of some words."""
        return min(self._words[word] for word in words.split())

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
    plain = _phrase().sub(
        lambda phrase: _phrases()[_lower(phrase[0])][0], sentence.replace("’", "'")
    )
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
def _phrases() -> dict[str, tuple[str, ...]]:
    """The stock phrases in lower case, each with the plain words for it; "" if it needs none."""
    pairs = (line.partition(" =") for line in _words()["phrases"].strip().split("\n"))
    return {long: tuple(short.strip().split(" | ")) for long, _, short in pairs}


@cache
def _phrase() -> re.Pattern[str]:
    return re.compile(rf"\b{_either(_phrases())}(?!\w)", re.IGNORECASE)


def _either(forms: Iterable[str]) -> str:
    """An expression that tries the forms with the letter that is there, the longest first."""
    letters: dict[str, list[str]] = defaultdict(list)
    for form in sorted(forms, key=len, reverse=True):
        letters[form[0].lower()].append(re.escape(form[1:]).replace("'", "['’]"))
    return "(?:{})".format("|".join(f"{one}(?:{'|'.join(to)})" for one, to in letters.items()))


@cache
def _pattern() -> re.Pattern[str]:
    """Every form as a word of its own: contractions before a word, numerals before a plural."""
    forms = {kind: re.split(r" = |\n", of.strip()) for kind, of in _words()["same"].items()}
    says_yes, says_no = (
        [form for form in forms["contractions"] if bool(re.search("n[o']t", form)) == is_no]
        for is_no in (False, True)
    )
    return re.compile(
        rf"(?<![\w’'/-])(?:(?:{_NO_SHORT}{_either(says_yes)}{_HAS}|{_either(says_no)})(?= [\w(“])"
        rf"|{_either(forms['estimates'])}(?= {_NUMBER})"
        rf"|{_either([*forms['spelling'], *forms['words']])}(?![\w’'/-])"
        rf"|(?<=[a-z] ){_NUMERALS}{_either(forms['numerals'])}(?= [a-z]{{3,}}s\b))",
        re.IGNORECASE,
    )


def _uses(text: str) -> Iterator[Use]:
    for use in _pattern().finditer(text):
        kind, forms, choice = _groups()[_lower(use[0])]
        is_capital = use[0][0].isupper() and forms[choice][0].islower()
        if is_capital and not begins_sentence(use):  # a name: the "Labour Party"
            continue
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
