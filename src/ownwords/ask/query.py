"""The words and phrases that a question searches for: stop words, irregular forms."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ownwords.archive.text_repair import repair_text
from ownwords.core.package_data import toml_beside

# Word lists of nine languages and irregular forms of English, with their purpose.
_DATA: Final = toml_beside(__file__, "words.toml")
# Pairs of patterns: what asks for a time, a count, any number or a name, and what is one.
ASKED: Final = [(asks, a.replace("{count}", _DATA["count"])) for asks, a in _DATA["asked"]]
_WORDS: Final = {name: frozenset(text.split()) for name, text in _DATA["stop_words"].items()}
_EMPTY: Final = _WORDS["en"]
_WORDS["en"] |= frozenset(_DATA["posts"].split())

DATES: Final[dict[str, str]] = _DATA["dates"]
IN_ENGLISH: Final[list[tuple[str, str]]] = _DATA["german_dates"]
# Groups of irregular forms, the dictionary's first: "keep", "kept".
IRREGULAR: Final = [group.split() for group in _DATA["forms"].split(",")]
_SAME: Final[dict[str, tuple[str, ...]]] = {}
for _group in IRREGULAR:
    for _form in _group:
        _SAME[_form] = (*_SAME.get(_form, ()), *(x for x in _group if x != _form))

# Chinese stop words, which no spaces delimit; single characters only if few words contain them.
_PARTICLES = re.compile(
    "为什么|为何|什么时候|什么|怎么样|怎么|怎样|如何|哪里|哪儿|哪个|哪些|哪|谁|多少|有没有|没有|"
    "是不是|关于|对于|我们|你们|他们|我|你|您|的|了|吗|呢|是|说过|写过|说了|写了|提到|看法|文章|博客"
)
_KANA = re.compile("[\u3040-\u309f]")


def without_particles(text: str) -> str:
    """A Chinese question with spaces in place of its stop words."""
    return text if text.isascii() or _KANA.search(text) else _PARTICLES.sub(" ", text)


def is_written_out(unit: Sequence[str]) -> bool:
    """Whether single characters include hiragana, as Japanese endings and particles do."""
    return all(len(sign) == 1 for sign in unit) and any(map(_KANA.match, unit))


# Invisible characters that the archive keeps because some scripts and emoji need a single one of
# them: text could be hidden in runs of these, and in tags, of which only flags are made.
_HIDDEN = re.compile(
    "(\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f)"
    "|[\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a\U000e0000-\U000e01ef]+"
    "|[\u180b-\u180f\ufe00-\ufe0f]{2,}"
    # Letters of alphabets have no variants; a selector would only cut a word in two.
    "|(?<![0-9#*©®\u1800-\U0010ffff])[\u180b-\u180f\ufe00-\ufe0f]"
)
_BLANKS = re.compile("[\u2800\u2000-\u200a\u3000]")

# Longer texts are cut; their beginning says what they are about.
_LONGEST = 10_000  # characters
MAX_WORDS = 64

# Letters and digits, with the vowel marks of India and South-East Asia. Terms are passed to FTS5 in
# quotes, so they must not contain operators or quotation marks.
_WORD = re.compile(
    "(?:[^\\W_]|[\u064b-\u065f\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])+"
)
_UNSPACED = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_QUOTED = re.compile(
    r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»|‘([^‘’]+)’(?!\w)|\A\'(.+)\'\Z'
)
_NOT = re.compile(r"(?<=\w)n['’]t\b", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")


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
        return ("" if _UNSPACED.fullmatch("".join(self.words)) else " ").join(self.words)


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """The content words and the quoted phrases of a question.

    `has_subject` is False if it has only stop words, `is_bare` True if it has nothing but `words`;
    `names` are those of `words` that are numbers, or names by their capitals.
    """

    words: tuple[QueryTerm, ...]
    phrases: tuple[QueryTerm, ...]
    has_subject: bool
    is_bare: bool = False
    names: frozenset[QueryTerm] = frozenset()

    @classmethod
    def of(cls, question: str) -> "QueryTerms":
        asked = normalized_question(question)
        text = asked.lower()
        all_words = word_units(without_particles(text)) or word_units(text)
        language, empty = detect_stop_words([unit[0] for unit in all_words])
        content_words = _content_words(all_words, empty)
        words = list(dict.fromkeys(QueryTerm(unit) for unit in all_words if unit in content_words))
        words = words[:MAX_WORDS]
        phrases = [
            QueryTerm(tuple(part for unit in word_units(quotation) for part in unit))
            for quotation in quotations(text)
        ]
        return cls(
            tuple(words),
            tuple(dict.fromkeys(phrase for phrase in phrases if phrase.words)),
            any(unit[0] not in (_EMPTY if language == "en" else empty) for unit in all_words),
            {part for unit in word_units(text) for part in unit}
            <= {part for word in words for part in word.words},
            frozenset(words) & _names(asked, language),
        )


def _names(asked: str, language: str) -> frozenset[QueryTerm]:
    """The words of a question with a digit, or with a capital where one marks a name."""
    _, *others = words = _WORD.findall(asked) or [""]
    # Not so at the beginning, in German, or where every word has one.
    has_names = language != "de" and any(word[0].islower() for word in others)
    names = {word for word in others if has_names and word[0].isupper()}
    names |= {word for word in words if any(map(str.isdigit, word))}
    return frozenset(QueryTerm((word.lower(),)) for word in names)


def visible(text: str) -> str:
    """The text without invisible characters."""
    return text if text.isascii() else _BLANKS.sub(" ", _HIDDEN.sub(r"\1", text))


def normalized_question(question: str) -> str:
    """The question on one line, without invisible characters, shortened."""
    return " ".join(visible(repair_text(question[:_LONGEST])[0]).split())


def is_content_word(word: str) -> bool:
    """Whether a word is neither a stop word nor a word about posts in general."""
    return word.casefold() not in _WORDS["en"]


def detect_stop_words(words: Sequence[str]) -> tuple[str, frozenset[str]]:
    """The language of most of the lower-case words, "en" if in doubt, and its stop words."""
    language = max(_WORDS, key=lambda name: sum(word in _WORDS[name] for word in words))
    return language, _WORDS[language]


def forms_of(word: str) -> tuple[str, ...]:
    """The irregular forms of an English word: "kept" for "keep"."""
    return _SAME.get(word.lower(), ())


def words_of(text: str) -> list[str]:
    """Every word of a text, in order."""
    return [part for unit in word_units(normalized_question(text).lower()) for part in unit]


def quotations(question: str) -> list[str]:
    """The parts in quotation marks."""
    marked = _QUOTED.finditer(normalized_question(question))
    return [next(filter(None, match.groups())) for match in marked]


def word_units(text: str) -> list[tuple[str, ...]]:
    """The words in order; pairs of characters for scripts without spaces."""
    units: list[tuple[str, ...]] = []
    for word in _WORD.findall(_APOSTROPHE.sub(" ", _NOT.sub(" ", text))):
        start = 0
        for run in _UNSPACED.finditer(word):
            if before := word[start : run.start()]:
                units.append((before,))
            signs = run[0]
            units += list(pairwise(signs)) if len(signs) > 1 else [(signs,)]
            start = run.end()
        if rest := word[start:]:
            units.append((rest,))
    return units


def _content_words(all_words: list[tuple[str, ...]], empty: frozenset[str]) -> set[tuple[str, ...]]:
    for ignored in (empty, _EMPTY):
        left = {unit for unit in all_words if unit[0] not in ignored}
        if left:
            return {unit for unit in left if not is_written_out(unit)} or left
    return set(all_words)
