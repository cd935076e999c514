"""Notes from paragraphs by rule; for English.

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
from ownwords.evaluation.reference_data import Lexicon

_WORDS_OF_PARAGRAPH: Final = range(8, 160)
_BEFORE: Final = 12  # words of the paragraph before, at most
# A quotation, an address, a number with its signs, or a word with its apostrophes and hyphens.
TOKEN = re.compile(
    r"“[^“”]{2,120}”|\"[^\"]{2,120}\"|https?://[^\s)>\]]*[^\s)>\].,;:!?]"
    r"|[$£€#]?\d(?:[\d.,:/]*\d)?(?:%|[A-Za-z]+\b)?|[^\W\d_][\w]*(?:[-'’.][\w]+)*",
)
QUOTE = ("“", '"', "http")
EXACT = re.compile(r"(https?://\S+|`[^`]*`|[\"“][^\"“”]*[\"”])")  # links, code, quotations
_IRREGULAR_NOT = {"can't": "cannot", "won't": "will not", "shan't": "shall not"}
_UNPROSAIC = re.compile(r"https?:\S{60}|[|{}<>\[\]\\]| = |\n")

_DATA: Final = toml_beside(__file__, "words.toml")
DROPPED, PERSONS, _PREPOSITIONS, _QUALIFIERS, _NEGATIONS = (
    frozenset(_DATA[kind].split())
    for kind in ("dropped", "persons", "prepositions", "qualifiers", "negations")
)
NUMBERS, TENS, MULTIPLES = (
    dict(zip(words[::2], map(int, words[1::2]), strict=True))
    for words in (_DATA[kind].split() for kind in ("numbers", "tens", "multiples"))
)
_NUMBER = re.compile(rf"[$£€#]?\d|(?!one\b)(?:{'|'.join([*NUMBERS, *TENS, *MULTIPLES])})\b", re.I)
_ALWAYS: Final = _QUALIFIERS.union(_DATA["bounds"].split())
_SHORTHAND: Final = [(re.compile(short), long) for short, long in _DATA["shorthand"].items()]
NO_CONTENT: Final = DROPPED | PERSONS | _PREPOSITIONS | _QUALIFIERS


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
    for token in TOKEN.finditer(sentence):
        word, lower = token[0], token[0].lower().replace("’", "'")
        if parts and re.search(r"[,;:—–(]", sentence[at : token.start()]) and rng.random() < 0.5:
            parts[-1] += ","
        at = token.end()
        counted = bool(parts and _NUMBER.match(parts[-1]))
        if word.startswith(QUOTE) or _NUMBER.match(word):
            parts.append(word)
        elif is_negation(lower):
            parts.append(_negation(lower))
        elif is_name(token):
            parts.append(lower if manner.small_letters else word)
        elif lower in _ALWAYS or (lower == "to" and (counted or _NUMBER.match(sentence, at + 1))):
            parts.append(lower)
        elif lower in DROPPED or lower in PERSONS:
            who, will, _ = lower.partition("'ll")
            if who in PERSONS and not manner.drops_persons:
                parts.append("I" if who == "i" else who)
            if will:
                parts.append("will")
        elif lower in _PREPOSITIONS:
            if counted or not manner.drops_prepositions:
                parts.append(lower)
        elif rng.random() >= manner.dropped_share or counted:
            plain = dictionary_form(lower) if manner.plain_forms else lower
            parts.append(lower if _NUMBER.match(plain) else plain)
    asks = "?" if sentence.rstrip('”"’)').endswith("?") else ""
    return " ".join(parts).rstrip(",") + asks if parts else ""


def is_negation(lower: str) -> bool:
    """Whether a word in lower case makes a sentence say no."""
    return lower in _NEGATIONS or lower.endswith("n't")


def _negation(lower: str) -> str:
    """A negation as it stands in notes: "wouldn't" is "would not", "isn't" just "not"."""
    if lower in _NEGATIONS:
        return lower
    verb = lower.removesuffix("n't")
    return _IRREGULAR_NOT.get(lower, f"{verb} not" if verb in _QUALIFIERS else "not")


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
    return not _lexicon().knows(word)


def may_be_name(lower: str) -> bool:
    """Whether the first word of a sentence, in lower case, is not plainly an ordinary one."""
    is_common = lower in _lexicon().frequent or lower.endswith("ly")
    return not is_common and dictionary_form(lower) == lower


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
