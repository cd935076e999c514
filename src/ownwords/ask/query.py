"""A question as it is searched for: its words, phrases and names, and what it asks for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from ownwords.archive.text_repair import repair_text
from ownwords.ask.reader import Reading, Window
from ownwords.language.words import (
    UNSPACED,
    WORD,
    detect_stop_words,
    filled,
    forms_of,
    in_all_languages,
    is_written_out,
    language,
    stems,
    stop_words,
    visible,
    without_particles,
    word_units,
)

# Longer texts are cut; their beginning says what they are about.
_MAX_CHARS = 10_000
MAX_WORDS = 64

_QUOTED = re.compile(
    r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»|‘([^‘’]+)’(?!\w)|\A\'(.+)\'\Z'
)


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word or a phrase to search for."""

    words: tuple[str, ...]

    @property
    def match(self) -> str:
        """The term as an FTS5 query of quoted strings."""
        forms = forms_of(self.words[0]) if len(self.words) == 1 else ()
        all_words = (" ".join(self.words), *forms)
        query = " OR ".join(f'"{form}"' for form in all_words)
        return f"({query})" if len(all_words) > 1 else query

    @property
    def label(self) -> str:
        """The term as in the question; without spaces between Chinese characters."""
        return ("" if UNSPACED.fullmatch("".join(self.words)) else " ").join(self.words)


@dataclass(frozen=True, slots=True)
class Query:
    """A question on one line, its content words and its quoted phrases.

    `has_subject` is False if it has only stop words, `is_bare` True if it has nothing but `words`;
    `names` are those of `words` that are numbers, or names by their capitals. `vectors` holds
    the question's vectors by the name of their encoder, `readings` what the reader found in each
    window.
    """

    text: str
    quotations: tuple[str, ...]
    words: tuple[QueryTerm, ...]
    phrases: tuple[QueryTerm, ...]
    has_subject: bool
    is_bare: bool
    names: frozenset[QueryTerm]
    vectors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict, compare=False)
    readings: dict[Window, Reading] = field(default_factory=dict, compare=False)

    @staticmethod
    @lru_cache(maxsize=8)  # everything that answers a question shares its Query
    def of(question: str) -> "Query":
        text = " ".join(visible(repair_text(question[:_MAX_CHARS])[0]).split())
        lower = text.lower()
        all_words = word_units(without_particles(lower)) or word_units(lower)
        code, empty = detect_stop_words([unit[0] for unit in all_words])
        content_words = _content_words(all_words, empty)
        words = tuple(dict.fromkeys(QueryTerm(x) for x in all_words if x in content_words))
        words = words[:MAX_WORDS]
        phrases = (QueryTerm(words_of(quotation)) for quotation in quotations(lower))
        return Query(
            text,
            quotations(text),
            words,
            tuple(dict.fromkeys(phrase for phrase in phrases if phrase.words)),
            any(x[0] not in (stop_words()["en"] if code == "en" else empty) for x in all_words),
            {*words_of(lower)} <= {part for word in words for part in word.words},
            frozenset(words) & _names(text, code),
        )


def _names(text: str, code: str) -> frozenset[QueryTerm]:
    """Return the words of a question with a digit, or with a capital that marks a name."""
    _, *others = words = WORD.findall(text) or [""]
    # A capital marks no name at the beginning, in German, or if every word has one.
    has_names = code != "de" and any(word[0].islower() for word in others)
    names = {word for word in others if has_names and word[0].isupper()}
    names |= {word for word in words if any(map(str.isdigit, word))}
    return frozenset(QueryTerm((word.lower(),)) for word in names)


def _content_words(all_words: list[tuple[str, ...]], empty: frozenset[str]) -> set[tuple[str, ...]]:
    for ignored in (empty, stop_words()["en"]):
        left = {unit for unit in all_words if unit[0] not in ignored}
        if left:
            return {unit for unit in left if not is_written_out(unit)} or left
    return set(all_words)


def words_of(text: str) -> tuple[str, ...]:
    """Return every word of a text in lower case, in order."""
    return tuple(part for unit in word_units(text.lower()) for part in unit)


def quotations(text: str) -> tuple[str, ...]:
    """Return the parts in quotation marks."""
    return tuple(next(filter(None, match.groups())) for match in _QUOTED.finditer(text))


@lru_cache(maxsize=64)
def telling_stems(text: str) -> frozenset[str]:
    """Return the stems of the words of a question or sentence that are not stop words."""
    words = ["".join(unit) for unit in word_units(text)]
    _, empty = detect_stop_words([word.lower() for word in words])
    return frozenset(stem for word in words if word.lower() not in empty for stem in stems(word))


# ---- what a question asks for


@cache
def _asked() -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """Return pairs of patterns: asks for a duration, count, number or name; is one."""
    asks = zip(*in_all_languages("asks").values(), strict=True)
    return [
        (re.compile(rf"\b(?:{'|'.join(filter(None, patterns))})\b"), re.compile(filled(answer)))
        for patterns, answer in zip(asks, language("en")["answers"], strict=True)
    ]


def has_asked(question: str, text: str, spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether each span has a number or name that the question asks for, and does not itself have.

    If any span has the duration or count that is asked for, other numbers do not count.
    """
    asked, has = question.casefold(), [False] * len(spans)
    for asks, answer in _asked():
        if not any(has) and asks.search(asked):
            found = (answer.findall(text[begin:end]) for begin, end in spans)
            has = [any(part.casefold() not in asked for part in each) for each in found]
    return has


def lacks_amount(question: str, text: str) -> bool:
    """Whether a question asks for a duration or a count that a text does not have."""
    asked = question.casefold()
    return any(
        asks.search(asked) and all(part.casefold() in asked for part in answer.findall(text))
        for asks, answer in _asked()[:2]
    )
