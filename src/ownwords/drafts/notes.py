"""Makes notes from paragraphs by rule; for English.

Pairs of notes and paragraphs teach a model to write from notes, without a teacher model. Each
sentence becomes a line, which keeps its names, numbers, links, quotations, negations, conditions
and quantities, and most content words in order. How much else a line keeps, and in which form,
differs from paragraph to paragraph, as it does between people.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ownwords.archive.corpus import TrainingText
from ownwords.base import catalogue
from ownwords.base.trimming import are_english
from ownwords.core.fingerprint import digest
from ownwords.core.text import sentences
from ownwords.drafts.facts import (
    BOUNDS,
    DROPPED,
    EXACT,
    NEGATIONS,
    PERSONS,
    PREPOSITIONS,
    QUALIFIERS,
    QUOTE,
    TOKEN,
    is_name,
    is_negation,
)
from ownwords.drafts.prose import is_prose
from ownwords.language.words import dictionary_form, language, number_words

_MAX_BEFORE: Final = 12  # words of the paragraph before
_IRREGULAR_NOT = {"can't": "cannot", "won't": "will not", "shan't": "shall not"}
_NUMBER = re.compile(
    r"[$£€#]?\d|(?!one\b)(?:{})\b".format(
        "|".join(word for kind in ("numbers", "tens", "multiples") for word in number_words(kind))
    ),
    re.IGNORECASE,
)
_ALWAYS: Final = QUALIFIERS | BOUNDS
_SHORTHAND: Final = [
    (re.compile(short), long) for short, long in language("en")["notes"]["shorthand"].items()
]


@dataclass(frozen=True)
class Manner:
    """How a person takes notes: which kinds of words they keep, and in which form."""

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
    """Return the prompt for a text from notes; ordinary words, no new tokens."""
    head = f"Title: {title}\n" if title else ""
    head += f"Before: {before}\n" if before else ""
    return f"{head}Notes:\n" + "".join(f"- {note}\n" for note in notes) + "Text:\n"


def sentences_of_note(line: str) -> list[str]:
    """Split a line of notes into its sentences, with words for its signs and short forms.

    Text in quotation marks or parentheses stays together.
    """
    pieces = EXACT.split(line)  # every second piece is one of these
    for short, long in _SHORTHAND:
        pieces[::2] = [short.sub(long, piece) for piece in pieces[::2]]
    line = "".join(pieces)
    # In notes, a sentence often begins with a small letter.
    capital = re.sub(r"(?<=[.!?] )[a-z]", lambda letter: letter[0].upper(), line)
    spans = sentences(capital)
    parts = [part.rstrip(".") for begin, end in spans for part in line[begin:end].split("; ")]
    whole = all(part.count('"') % 2 == 0 and part.count("(") == part.count(")") for part in parts)
    return list(filter(None, parts)) if whole else [line]


def beginning_of(paragraph: str) -> str:
    """Return the first words of a paragraph, which the prompt of the next one repeats."""
    return " ".join(paragraph.split()[:_MAX_BEFORE])


def lessons(base: Path, texts: Iterable[TrainingText]) -> tuple[list[TrainingText], Path | None]:
    """Return the pairs that a base is tuned on besides the texts, and the adapter it starts with.

    There are none for a small base, and for texts that are not English.
    """
    if not (catalogue.is_large(base) and are_english([text.text for text in texts])):
        return [], None
    return [pair for text in texts for pair in pairs(text)], catalogue.notes_adapter(base)


def pairs(text: TrainingText) -> Iterator[TrainingText]:
    """Yield the paragraphs of a text with their notes, the same for the same text."""
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


def notes_of(paragraph: str, rng: random.Random) -> list[str]:
    """Return the notes of a paragraph, one line per sentence."""
    manner = Manner.draw(rng)
    lines = (note_of(paragraph[slice(*at)], manner, rng) for at in sentences(paragraph))
    return list(filter(None, lines))


def note_of(sentence: str, manner: Manner, rng: random.Random) -> str:
    """Return a sentence as a line of notes, "" if it has no word worth noting."""
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
        elif lower in PREPOSITIONS:
            if counted or not manner.drops_prepositions:
                parts.append(lower)
        elif rng.random() >= manner.dropped_share or counted:
            plain = dictionary_form(lower) if manner.plain_forms else lower
            parts.append(lower if _NUMBER.match(plain) else plain)
    asks = "?" if sentence.rstrip('”"’)').endswith("?") else ""
    return " ".join(parts).rstrip(",") + asks if parts else ""


def _negation(lower: str) -> str:
    """Return a negation as notes have it: "would not" for "wouldn't", "not" for "isn't"."""
    if lower in NEGATIONS:
        return lower
    verb = lower.removesuffix("n't")
    return _IRREGULAR_NOT.get(lower, f"{verb} not" if verb in QUALIFIERS else "not")
