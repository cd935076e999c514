"""Rewrites a draft in the author's manner, by single edits.

An edit keeps what the draft says: it replaces a form by an equivalent one that the author nearly
always uses, such as "do not" by "don't", or splits a sentence that is longer than almost all of the
author's. Each edit can be undone alone. A model on a server may rewrite the sentences first
(`endpoint_drafting`).
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from ownwords.archive.store import Archive
from ownwords.core.errors import OwnwordsError
from ownwords.core.text import sentences, unwrapped
from ownwords.drafts.mark_choices import MarkChoices, MarksFile
from ownwords.drafts.prose import is_prose, prose_of
from ownwords.language.words import begins_sentence, language, language_of, number_words

_WORDS: Final[dict[str, Any]] = language("en")["edits"]
_MIN_USES = 3  # of a form by the author
_MIN_CHOICES = 6  # to say what the author chooses
_MIN_WORDS = 10_000  # of the author's, before a phrase counts as one that they never use
_CONSISTENT = 0.85  # of the author's uses are that form
_TOGETHER = ("spelling", "numerals")  # kinds of which all forms are chosen together
_LONG = 0.95  # of the author's sentences are shorter than one that is split
_MIN_LONG = 25  # words
# Marks that are typed in several ways, each with the expression that finds it.
MARKS: Final[Mapping[str, Mapping[str, str]]] = {
    "apostrophes": {"’": r"(?<=\w)’(?=\w)", "'": r"(?<=\w)'(?=\w)"},
    "quotation marks": {"“": "“", '"': r'(?<![^\s(])"(?=\w)'},
    "closing quotation marks": {"”": "”", '"': r'(?<=[\w.,!?])"(?!\w)'},
    "dashes": {"—": "(?<=[^ ])—(?=[^ ])", " — ": " — ", " – ": " – ", " - ": "(?<=[^-\n]) - "},
    "ellipses": {"…": "…", "...": r"(?<!\.)\.\.\.(?!\.)"},
}
_SERIAL = re.compile(r"\w, \w+(,?) (?:and|or) \w")
_WORD = re.compile(r"\w+")
_JOINED = re.compile(r"(?:;|,? (?:and|but|so))( )(?=(?:I|we|you|he|she|it|they|there|this)\b)")
_OPENING = re.compile(r",? (and|but|so) $")
_FOLLOWING = re.compile(r" (\w)")
_PARAGRAPH = re.compile(r"\S.*(?:\n[ \t]*\S.*)*")
_UNMARKED = str.maketrans("*_", "  ")  # emphasis may stay


class Use(NamedTuple):
    """A place where the text has one of several equivalent forms."""

    kind: str
    forms: tuple[str, ...]
    choice: int  # which of them the text has
    start: int
    text: str


@dataclass(frozen=True)
class Edit:
    """One change: the characters at `start`, what replaces them, and why.

    Its kind is "stock_phrase", "long_sentence", "spelling", "numerals", "serial commas", one of
    `MARKS`, "wording", or "rule".
    """

    start: int
    before: str
    after: str
    because: str
    kind: str

    @property
    def end(self) -> int:
        return self.start + len(self.before)


class Habits:
    """How often the author uses each form, how long their sentences are, and what they decided."""

    def __init__(self, texts: Iterable[str], code: str = "en") -> None:
        self.code = code  # only English has phrases and equivalent words
        self.choices_made: Callable[[], MarkChoices] = MarkChoices
        self._counts: dict[str, Counter[int]] = defaultdict(Counter)
        self._phrases = set[str]()  # that the author uses
        self._words = Counter[str]()
        self._lengths: list[int] = []
        for text in texts:
            if code == "en":
                self._phrases.update(_lower(phrase[0]) for phrase in _phrase().finditer(text))
                self._words.update(_WORD.findall(text.lower()))
            for use in self._uses(text):
                self._counts[use.kind][use.choice] += 1
            self._lengths += [len(text[begin:end].split()) for begin, end in sentences(text)]
        self._long = max(_MIN_LONG, self.words_of_sentences(_LONG))

    @classmethod
    def of(cls, archive: Archive) -> "Habits":
        """Learn from the author's texts in full, without those that are left out."""
        texts = [text for text, is_left_out in archive.own_texts() if not is_left_out]
        habits = cls(texts, language_of(texts))
        habits.choices_made = MarksFile.beside(archive.path)
        return habits

    def to_dict(self) -> dict[str, Any]:
        """Return what was learned, for JSON."""
        phrases = sorted(self._phrases)
        counts, words, lengths = self._counts, self._words, self._lengths
        return {
            "code": self.code,
            "counts": counts,
            "phrases": phrases,
            "words": words,
            "lengths": lengths,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Habits":
        habits = cls((), stored["code"])
        for kind, choices in stored["counts"].items():
            habits._counts[kind].update({int(choice): n for choice, n in choices.items()})
        habits._phrases, habits._words = set(stored["phrases"]), Counter(stored["words"])
        habits._lengths = stored["lengths"]
        habits._long = max(_MIN_LONG, habits.words_of_sentences(_LONG))
        return habits

    def choices(self) -> Iterator[tuple[str, str, str, int, int]]:
        """Yield the form that the author nearly always chooses of equivalent ones.

        Each is the kind, the form, the others, how often it was chosen, and out of how many.
        """
        forms = {kind: alternatives for kind, alternatives, _ in _groups().values()}
        forms |= {kind: tuple(patterns) for kind, patterns in MARKS.items()}
        forms |= {"spelling": ("British", "American"), "numerals": ("words", "digits")}
        for kind, counts in self._counts.items():
            if not counts:  # asked for, and never used
                continue
            ((choice, count),) = counts.most_common(1)
            if count >= max(_MIN_CHOICES, _CONSISTENT * counts.total()) and kind in forms:
                others = (form for n, form in enumerate(forms[kind]) if n != choice)
                yield kind, forms[kind][choice], ", ".join(others), count, counts.total()

    def spellings(self) -> tuple[int, int]:
        """Return how many words are spelt as in British, and as in American English."""
        return self._counts["spelling"][0], self._counts["spelling"][1]

    def words_of_sentences(self, share: float) -> float:
        """Return how many words this share of the author's sentences do not exceed."""
        return float(np.quantile(self._lengths, share)) if self._lengths else 0.0

    def spread_of_sentences(self) -> float:
        """Return the standard deviation of the words of the author's sentences."""
        return float(np.std(self._lengths or [0]))

    def edits(self, draft: str) -> list[Edit]:
        """Return the edits that the prose of a draft needs, in order; no two overlap."""
        text = unwrapped(prose_of(draft)[0])
        chosen: list[Edit] = []
        kept = self.choices_made().kept_spans(text)
        for edit in sorted(
            [*self.forms(text), *self._splits(text)], key=lambda edit: (edit.start, -edit.end)
        ):
            line = draft[draft.rfind("\n", 0, edit.start) + 1 : edit.start]
            is_prose = draft[edit.start : edit.end] == edit.before
            is_kept = any(start <= edit.start < end for start, end in kept)
            begins_item = edit.after.startswith(" ") and not line.strip()  # a dash would be a mark
            is_free = not (chosen and edit.start < chosen[-1].end)
            if is_prose and is_free and not begins_item and not is_kept:
                chosen.append(edit)
        return chosen

    def forms(self, text: str) -> Iterator[Edit]:
        """Yield edits for phrases that the author never uses, and forms that they rarely use.

        The author's decisions are followed, and their rules are edits, too.
        """
        choices = self.choices_made()
        for start, before, after in choices.replacements(text):
            yield Edit(start, before, after, "a rule of yours", "rule")
        for edit in (*self._phrase_edits(text), *self._form_edits(text)):
            if not choices.hides(edit.kind, edit.before):
                yield edit

    def _form_edits(self, text: str) -> Iterator[Edit]:
        for use in self._uses(text):
            counts = self._counts[use.kind]
            ((choice, count),) = counts.most_common(1) or [(use.choice, 0)]
            if use.text.lower() == "about":  # has other meanings: a story about two boys
                continue
            if choice != use.choice and count >= max(_MIN_USES, _CONSISTENT * counts.total()):
                after = _like(use.text, use.forms[choice])
                because = f"{count:,} of {counts.total():,} times in your texts"
                kind = "wording" if "/" in use.kind else use.kind
                yield Edit(use.start, use.text, after, because, kind)

    def _phrase_edits(self, text: str) -> Iterator[Edit]:
        words = self._words.total()
        for phrase in _phrase().finditer(text) if words >= _MIN_WORDS else ():
            if (long := _lower(phrase[0])) in self._phrases:
                continue
            because = f"never in your {words:,} words"
            if not any(_phrases()[long]):
                # The phrase goes, and the next word begins in its place.
                if following := _FOLLOWING.match(text, phrase.end()):
                    before = phrase[0] + following[0]
                    after = _like(phrase[0], following[1])
                    yield Edit(phrase.start(), before, after, because, "stock_phrase")
                continue
            count, short = max((self._uses_of(short), short) for short in _phrases()[long])
            if count >= _MIN_USES:
                after = _like(phrase[0], short)
                yield Edit(phrase.start(), phrase[0], after, because, "stock_phrase")

    def _uses(self, text: str) -> Iterator[Use]:
        """Yield the forms in a text; in other languages than English, only marks common to all."""
        if self.code == "en":
            yield from _uses(text)
        else:
            yield from _marks(text, ("apostrophes", "dashes", "ellipses"))

    def _uses_of(self, words: str) -> int:
        """Return how often the author uses the rarest of some words."""
        return min(self._words[word] for word in words.split())

    def _splits(self, text: str) -> Iterator[Edit]:
        """Yield an edit for each sentence that is much longer than the author's: it is split."""
        is_hidden = self.code != "en" or self.choices_made().hides("long_sentence")
        for begin, end in () if is_hidden else sentences(text):
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
                "long_sentence",
            )


# ---- a rewritten draft


@dataclass(frozen=True)
class Sentence:
    """A sentence of the draft and its replacement, which may be the same."""

    start: int  # in the draft
    before: str
    after: str

    @property
    def is_rewritten(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Rewrite:
    """A rewritten draft: the sentences that a model has read, then single edits."""

    text: str  # before the edits, which are by its characters
    edits: tuple[Edit, ...]
    sentences: tuple[Sentence, ...] = ()
    problem: str = ""  # why a model on a server left the rest as it was

    def __str__(self) -> str:
        return applied(self.text, self.edits)

    def without(self, numbers: Collection[int]) -> "Rewrite":
        """Return the rewrite with some edits undone, by their numbers from 1."""
        kept = (edit for number, edit in enumerate(self.edits, 1) if number not in numbers)
        return replace(self, edits=tuple(kept))

    @property
    def unchanged(self) -> int:
        """The number of sentences that neither the model nor an edit has changed."""
        places = [edit.start for edit in self.edits]
        longer = count = 0
        for sentence in self.sentences:
            begin = sentence.start + longer
            longer += len(sentence.after) - len(sentence.before)
            edits = bisect_left(places, begin + len(sentence.after)) - bisect_left(places, begin)
            count += not (sentence.is_rewritten or edits)
        return count

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": str(self),
            "edits": [{"number": n, **vars(edit)} for n, edit in enumerate(self.edits, 1)],
            "sentences": [vars(sentence) for sentence in self.sentences],
            "unchanged": self.unchanged,
            "problem": self.problem,
        }


class SentenceRewriter(Protocol):
    """Rewrites sentences with a model on a server; `problem` is why it stopped before the end."""

    problem: str

    def rewritten(self, own: Sequence[str]) -> Iterator[str]: ...


def rewrite(text: str, habits: Habits, endpoint: SentenceRewriter | None = None) -> Rewrite:
    """Rewrite a draft by single edits; with an endpoint, first sentence by sentence."""
    if not text.strip():
        raise OwnwordsError("the draft is empty", hint="give a text file, or pipe a text in")
    replaced = tuple(_rewritten_sentences(text, endpoint)) if endpoint else ()
    parts, at = [], 0
    for sentence in replaced:
        parts += [text[at : sentence.start], sentence.after]
        at = sentence.start + len(sentence.before)
    written = "".join([*parts, text[at:]])
    problem = endpoint.problem if endpoint else ""
    return Rewrite(written, tuple(habits.edits(written)), replaced, problem)


def _rewritten_sentences(text: str, endpoint: SentenceRewriter) -> Iterator[Sentence]:
    """Yield the sentences of the paragraphs that are all prose, in order."""
    masked, _ = prose_of(text)
    for match in _PARAGRAPH.finditer(text):
        paragraph, start = match[0], match.start()
        if paragraph.translate(_UNMARKED) != masked[start : match.end()].translate(_UNMARKED):
            continue
        if not is_prose(plain := unwrapped(paragraph)):
            continue
        spans = sentences(plain)
        own = [plain[begin:end] for begin, end in spans]
        for sentence, after, (begin, end) in zip(own, endpoint.rewritten(own), spans, strict=True):
            before = paragraph[begin:end]
            yield Sentence(start + begin, before, before if after == sentence else after)


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with these edits, which are in order and do not overlap."""
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], edit.after]
        at = edit.end
    return "".join([*parts, text[at:]])


# ---- the forms and phrases of the language


@cache
def _groups() -> dict[str, tuple[str, tuple[str, ...], int]]:
    """Return the kind, the alternatives and the choice of each form in lower case."""
    return {
        form.lower(): (kind if kind in _TOGETHER else "/".join(forms), forms, choice)
        for kind, groups in _same().items()
        for forms in groups
        for choice, form in enumerate(forms)
    }


@cache
def _same() -> dict[str, list[tuple[str, ...]]]:
    """Return the groups of equivalent forms of each kind."""
    groups = {
        kind: [tuple(line.split(" = ")) for line in lines.strip().split("\n")]
        for kind, lines in _WORDS["same"].items()
    }
    numerals = [(word, str(n)) for word, n in number_words().items() if 2 <= n <= 12]
    return {**groups, "numerals": numerals}


@cache
def _phrases() -> dict[str, tuple[str, ...]]:
    """Return the plain words for each stock phrase in lower case; "" if it needs none."""
    pairs = (line.partition(" =") for line in _WORDS["phrases"].strip().split("\n"))
    return {long: tuple(short.strip().split(" | ")) for long, _, short in pairs}


@cache
def _phrase() -> re.Pattern[str]:
    return re.compile(rf"\b{_any_of(_phrases())}(?!\w)", re.IGNORECASE)


def _any_of(forms: Iterable[str]) -> str:
    """Return an expression that tries the forms by their first letter, the longest first."""
    letters: dict[str, list[str]] = defaultdict(list)
    for form in sorted(forms, key=len, reverse=True):
        letters[form[0].lower()].append(re.escape(form[1:]).replace("'", "['’]"))
    return "(?:{})".format("|".join(f"{one}(?:{'|'.join(to)})" for one, to in letters.items()))


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of all forms: contractions before a word, numerals before a plural."""
    forms = {kind: [form for each in groups for form in each] for kind, groups in _same().items()}
    positive, negative = (
        [form for form in forms["contractions"] if bool(re.search("n[o']t", form)) == is_negative]
        for is_negative in (False, True)
    )
    no_short, no_numeral = (
        "".join(rf"(?<!\b{word} )" for word in _WORDS[kind].split())
        for kind in ("no_short_form_after", "no_numeral_after")
    )
    has = r"(?!(?<=['’]s) (?:been|got|had|become|gone|come|\w+(?:ed|en))\b)"  # "it's been"
    words = {**number_words(), **number_words("tens")}
    numbers = [word for word, number in words.items() if number > 1]
    amounts = "|".join([*numbers, "half", f"(?:an?|one) (?:{_WORDS['measures']})"])
    number = rf"(?:[$£€]?(?!(?:1[5-9]|20)\d\d\b)\d|(?:{amounts})\b)"  # no year
    return re.compile(
        rf"(?<![\w’'/-])(?:(?:{no_short}{_any_of(positive)}{has}|{_any_of(negative)})(?= [\w(“])"
        rf"|{_any_of(forms['estimates'])}(?= {number})"
        rf"|{_any_of([*forms['spelling'], *forms['words']])}(?![\w’'/-])"
        rf"|(?<=[a-z] ){no_numeral}{_any_of(forms['numerals'])}(?= [a-z]{{3,}}s\b))",
        re.IGNORECASE,
    )


def _uses(text: str) -> Iterator[Use]:
    for use in _pattern().finditer(text):
        kind, forms, choice = _groups()[_lower(use[0])]
        is_capital = use[0][0].isupper() and forms[choice][0].islower()
        # A name: the "Labour Party", the "Seven Sisters".
        if kind in _TOGETHER and is_capital and not begins_sentence(use):
            continue
        yield Use(kind, forms, choice, use.start(), use[0])
    yield from _marks(text, MARKS)
    for use in _SERIAL.finditer(text):
        yield Use("serial commas", ("", ","), len(use[1]), use.start(1), use[1])


def _marks(text: str, kinds: Iterable[str]) -> Iterator[Use]:
    for kind in kinds:
        for choice, pattern in enumerate(MARKS[kind].values()):
            for use in re.finditer(pattern, text):
                yield Use(kind, tuple(MARKS[kind]), choice, use.start(), use[0])


def _lower(text: str) -> str:
    return text.lower().replace("’", "'")


def _like(before: str, form: str) -> str:
    """Return a form with a capital if the form that it replaces has one."""
    return form[:1].upper() + form[1:] if before[:1].isupper() else form
