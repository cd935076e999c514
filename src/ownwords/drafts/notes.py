"""Notes from paragraphs by rule, and what of the notes a text keeps; for English.

A model learns to write from notes by pairs that need no teacher: each sentence of a paragraph
becomes a line of notes, which keeps its names, numbers, links, quotations and negations, what says
how sure, how many and on what condition, and most content words in order. How much else is kept,
and in which form, differs from paragraph to paragraph, as it does between people.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from ownwords.archive.corpus import TrainingText
from ownwords.ask.query import IRREGULAR
from ownwords.base import catalogue
from ownwords.base.trimming import are_english
from ownwords.core.fingerprint import digest
from ownwords.core.package_data import toml_beside
from ownwords.core.sentences import sentences
from ownwords.drafts.edits import EXACT
from ownwords.evaluation.reference_data import Lexicon

_WORDS_OF_PARAGRAPH: Final = range(8, 160)
_BEFORE: Final = 12  # words of the paragraph before, at most
# A quotation, an address, a number with its signs, or a word with its apostrophes and hyphens.
_TOKEN = re.compile(
    r"“[^“”]{2,120}”|\"[^\"]{2,120}\"|https?://[^\s)>\]]*[^\s)>\].,;:!?]"
    r"|[$£€#]?\d(?:[\d.,:/]*\d)?(?:%|[A-Za-z]+\b)?|[^\W\d_][\w]*(?:[-'’.][\w]+)*",
)
_QUOTE = ("“", '"', "http")
_NUMBER = re.compile(r"[$£€#]?\d")
_IRREGULAR_NOT = {"can't": "cannot", "won't": "will not", "shan't": "shall not"}
_UNPROSAIC = re.compile(r"https?:\S{60}|[|{}<>\[\]\\]| = |\n")

_DATA: Final = toml_beside(__file__, "words.toml")
_DROPPED, _PERSONS, _PREPOSITIONS, _QUALIFIERS, _NEGATIONS = (
    frozenset(_DATA[kind].split())
    for kind in ("dropped", "persons", "prepositions", "qualifiers", "negations")
)
_SHORTHAND: Final = [(re.compile(short), long) for short, long in _DATA["shorthand"].items()]
_NO_CONTENT: Final = _DROPPED | _PERSONS | _PREPOSITIONS | _QUALIFIERS


@dataclass(frozen=True)
class Manner:
    """How somebody takes notes: which kinds of words are kept, and in which form."""

    drops_prepositions: bool
    drops_persons: bool
    dropped_share: float  # of the other words
    plain_forms: bool  # dictionary forms
    small_letters: bool

    @classmethod
    def draw(cls, rng: random.Random) -> "Manner":
        terseness = rng.random()
        return cls(
            drops_prepositions=terseness > 0.75,
            drops_persons=terseness > 0.5,
            dropped_share=0.0 if terseness < 0.4 else 0.3 * (terseness - 0.4),
            plain_forms=rng.random() < 0.5,
            small_letters=rng.random() < 0.2,
        )


def prompt_of(notes: Sequence[str], title: str = "", before: str = "") -> str:
    """What stands before a text that is written from notes; ordinary words, no new tokens."""
    head = f"Title: {title}\n" if title else ""
    head += f"Before: {before}\n" if before else ""
    return f"{head}Notes:\n" + "".join(f"- {note}\n" for note in notes) + "Text:\n"


def sentences_of_note(line: str) -> list[str]:
    """A line that somebody jotted down as the sentences in it, its signs and short forms as words.

    What stands in quotation marks or parentheses stays together.
    """
    pieces = EXACT.split(line)  # every second piece is one of these
    for short, long in _SHORTHAND:
        pieces[::2] = [short.sub(long, piece) for piece in pieces[::2]]
    line = "".join(pieces)
    # In notes a sentence often begins with a small letter.
    capital = re.sub(r"(?<=[.!?] )[a-z]", lambda letter: letter[0].upper(), line)
    spans = sentences(capital)
    parts = [part.rstrip(".") for begin, end in spans for part in line[begin:end].split("; ")]
    whole = all(part.count('"') % 2 == 0 and part.count("(") == part.count(")") for part in parts)
    return list(filter(None, parts)) if whole else [line]


def beginning_of(paragraph: str) -> str:
    """The first words of a paragraph, which tell the next what came before it."""
    return " ".join(paragraph.split()[:_BEFORE])


def lessons(base: Path, texts: Iterable[TrainingText]) -> tuple[list[TrainingText], Path | None]:
    """The pairs that a tuned base learns beside the texts, and the adapter it begins with.

    None for a small base, and for texts that are not English.
    """
    if not (catalogue.is_large(base) and are_english([text.text for text in texts])):
        return [], None
    return [pair for text in texts for pair in pairs(text)], catalogue.notes_adapter(base)


def pairs(text: TrainingText) -> Iterator[TrainingText]:
    """The paragraphs of a text, each after its notes; the same text gives the same pairs."""
    title, body = text.head_and_body
    before = ""
    for number, paragraph in enumerate(body.split("\n\n")):
        rng = random.Random(digest(text.id, str(number)))  # noqa: S311 - not a secret
        words = len(paragraph.split())
        if is_prose(paragraph):
            prompt = prompt_of(
                notes_of(paragraph, rng),
                title.strip() if rng.random() < (0.6 if before else 0.9) else "",
                before if rng.random() < 0.6 else "",
            )
            yield TrainingText(f"{text.id}/{number}", paragraph, prompt=prompt)
        before = beginning_of(paragraph) if words > 2 else before


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph is one of sentences, neither too short nor too long for notes."""
    return (
        len(paragraph.split()) in _WORDS_OF_PARAGRAPH
        and paragraph.rstrip()[-1] in '.!?”")…'
        and not _UNPROSAIC.search(paragraph)
    )


def notes_of(paragraph: str, rng: random.Random) -> list[str]:
    """Notes of a paragraph, a line a sentence."""
    manner = Manner.draw(rng)
    lines = (note_of(paragraph[slice(*at)], manner, rng) for at in sentences(paragraph))
    return list(filter(None, lines))


def note_of(sentence: str, manner: Manner, rng: random.Random) -> str:
    """A sentence as a line of notes; empty if nothing of it is worth one."""
    parts: list[str] = []
    at = 0
    for token in _TOKEN.finditer(sentence):
        word, lower = token[0], token[0].lower().replace("’", "'")
        if parts and re.search(r"[,;:—–(]", sentence[at : token.start()]) and rng.random() < 0.5:
            parts[-1] += ","
        at = token.end()
        if word.startswith(_QUOTE) or _NUMBER.match(word):
            parts.append(word)
        elif _is_negation(lower):
            parts.append(_negation(lower))
        elif _is_name(token):
            parts.append(lower if manner.small_letters else word)
        elif lower in _DROPPED or lower in _PERSONS:
            who, will, _ = lower.partition("'ll")
            if who in _PERSONS and not manner.drops_persons:
                parts.append("I" if who == "i" else who)
            if will:
                parts.append("will")
        elif lower in _PREPOSITIONS:
            if not manner.drops_prepositions:
                parts.append(lower)
        elif lower in _QUALIFIERS:
            parts.append(lower)
        elif rng.random() >= manner.dropped_share:
            parts.append(dictionary_form(lower) if manner.plain_forms else lower)
    asks = "?" if sentence.rstrip('”"’)').endswith("?") else ""
    return " ".join(parts).rstrip(",") + asks if parts else ""


def _is_negation(lower: str) -> bool:
    return lower in _NEGATIONS or lower.endswith("n't")


def _negation(lower: str) -> str:
    """A negation as it stands in notes: "wouldn't" is "would not", "isn't" just "not"."""
    if lower in _NEGATIONS:
        return lower
    verb = lower.removesuffix("n't")
    return _IRREGULAR_NOT.get(lower, f"{verb} not" if verb in _QUALIFIERS else "not")


def _is_name(token: re.Match[str]) -> bool:
    """Whether a word is a name: a capital within a sentence, a second one, `_` or a digit."""
    word = token[0].replace("’", "'")
    if re.search(r"[\d_]", word):  # parking_lot, c2t
        return True
    if not any(map(str.isupper, word)) or word.partition("'")[0] == "I":
        return False
    if any(map(str.isupper, word[1:])) and not word.isupper():
        return True
    before = token.string[: token.start()].rstrip(" \"“”‘’'()")
    if before and before[-1] not in ".!?…:\n-":
        return True
    return not _lexicon().knows(word)


# --- forms of words -------------------------------------------------------------------------------


@cache
def _lexicon() -> Lexicon:
    return Lexicon.load()


@cache
def _irregular() -> dict[str, str]:
    """The dictionary forms of irregular ones, such as "keep" of "kept"."""
    return {form: group[0] for group in IRREGULAR for form in group[1:]}


@cache
def dictionary_form(word: str) -> str:
    """A word in lower case as a dictionary lists it; itself where the rules find no other."""
    if base := _irregular().get(word):
        return base
    words = _lexicon().words
    for ending in ("'s", "ies", "ied", "ing", "ed", "es", "s"):
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < 3 or not re.search("[aeiouy]", stem):
            continue
        if ending == "s" and stem[-1] in "sui":
            continue
        tries = [stem, f"{stem}e"]
        if ending in ("ies", "ied"):
            tries = [f"{stem}y"]
        elif ending in ("'s", "s"):
            tries = [stem]
        elif stem[-1] == stem[-2:-1] and stem[-1] not in "ls" and ending in ("ing", "ed"):
            tries = [stem[:-1], stem]
        elif re.search("[aeiou][^aeiouwxy]$", stem) and not re.search("[aeiou]{2}.$", stem):
            tries.reverse()  # hoping: hope, not hop
        if known := [each for each in tries if each in words]:
            # A verb or noun has a form with an s; "chang", a name, and "ad" of "added" have none.
            return next((each for each in known if _with_s(each) in words), known[0])
    return word


def _with_s(word: str) -> str:
    return word + ("es" if re.search("(?:[sxzo]|[cs]h)$", word) else "s")


# --- what a text keeps of its notes ---------------------------------------------------------------


@dataclass(frozen=True)
class Content:
    """What a text says, as far as words show it: facts to keep exactly, and content words."""

    facts: frozenset[str]  # numbers, names, links and quotations
    words: frozenset[str]  # in dictionary form
    is_negative: bool

    @classmethod
    def of(cls, text: str) -> "Content":
        facts, words = set[str](), set[str]()
        is_negative = False
        for token in _TOKEN.finditer(text):
            lower = token[0].lower().replace("’", "'").removesuffix("'s")
            if token[0].startswith(_QUOTE):
                facts.add(lower.strip('“”" .,!?'))
            elif _NUMBER.match(lower) or _is_name(token):
                facts.add(lower)
            elif _is_negation(lower):
                is_negative = True
            elif lower not in _NO_CONTENT:
                words.add(dictionary_form(lower))
        return cls(frozenset(facts), frozenset(words), is_negative)

    def keeps_facts_of(self, note: "Content", text: str) -> bool:
        """Whether `text`, whose content this is, has all facts of a note, and says no for no."""
        plain = text.lower().replace("’", "'")
        return self.is_negative == note.is_negative and all(
            re.search(rf"(?:(?<!\w)|(?=\W)){re.escape(fact)}(?!\w)", plain) for fact in note.facts
        )

    def invented(self, sources: str) -> frozenset[str]:
        """The facts that are in none of the sources."""
        known = set(re.findall(r"\w+", sources.lower()))
        return frozenset(
            fact for fact in self.facts if not known.issuperset(re.findall(r"\w+", fact))
        )

    def share_of(self, note: "Content") -> float:
        """The share of the note's content words that this has; 1 if it has none."""
        said = self.words | self.facts  # a word at the beginning can look like a name
        return len(note.words & said) / len(note.words) if note.words else 1.0
