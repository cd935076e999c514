"""The words of a text in any script, their forms, and the word lists of each language.

Each language has one TOML file here, named by its ISO 639 code, which is read when a word of it is
first needed. English has most sections; the comments in `en.toml` say what each is for.
"""

import lzma
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ownwords.core.errors import OwnwordsError

FOLDER: Final = Path(__file__).parent
WORDS_FILE: Final = "en_words.txt.xz"
# The first nine have stop words. Japanese is before Chinese, whose characters it uses.
LANGUAGES: Final = (
    *("en", "de", "pl", "fr", "es", "it", "pt", "nl", "sv", "da", "cs", "hu", "tr", "fi", "ru"),
    *("uk", "ja", "zh", "ko", "el", "he", "ar", "hi", "th"),
)


@cache
def language(code: str) -> Mapping[str, Any]:
    """Return the sections of a language's file."""
    return tomllib.loads((FOLDER / f"{code}.toml").read_text("utf-8"))


def in_all_languages(section: str) -> dict[str, Any]:
    """Return a section of every language that has it, by code."""
    return {code: words[section] for code in LANGUAGES if section in (words := language(code))}


def word_set(text: str) -> frozenset[str]:
    """Return the words of a section as a set."""
    return frozenset(text.split())


@cache
def months() -> list[str]:
    """Return the English names of the months."""
    return str(language("en")["months"]).split()


def month_number(name: str) -> int:
    """Return the number of an English month by its first three letters, 0 for none."""
    numbers = (n for n, month in enumerate(months(), 1) if month[:3].lower() == name[:3].lower())
    return next(numbers, 0)


@cache
def number_words(section: str = "numbers") -> dict[str, int]:
    """Return the English words of `numbers`, `tens` or `multiples` with their values."""
    words = language("en")[section].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def either(forms: Iterable[str]) -> str:
    """Return an expression for any of the forms, which tries the longest first."""
    return "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))


def filled(pattern: str) -> str:
    """Return a pattern of a TOML file with words in its places, such as {months}."""
    english = language("en")
    places = {
        "count": english["count"],
        "amounts": "|".join(in_all_languages("amounts").values()),
        "units": "|".join(in_all_languages("units").values()),
        "months": "|".join(months()).lower(),
        "numbers": "|".join(list(number_words())[1:13]),
        "write": english["dates"]["write"],
        "post": english["dates"]["post"],
    }
    for name, words in places.items():
        pattern = pattern.replace(f"{{{name}}}", words)
    return pattern


# ---- words in any script

_MAX_BEGINNING = 2000  # characters of a text by which its language is detected
# Invisible characters that the archive keeps because some scripts and emoji need single ones. Text
# could be hidden in runs of them, or in tag characters, which only flags need.
_HIDDEN = re.compile(
    "(\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f)"
    "|[\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a\U000e0000-\U000e01ef]+"
    "|[\u180b-\u180f\ufe00-\ufe0f]{2,}"
    # Letters of alphabets have no variants; a selector would only cut a word in two.
    "|(?<![0-9#*©®\u1800-\U0010ffff])[\u180b-\u180f\ufe00-\ufe0f]"
)
_BLANKS = re.compile("[\u2800\u2000-\u200a\u3000]")
# Letters and digits, with the vowel marks of India and South-East Asia. Terms are passed to FTS5 in
# quotes, so they must not contain operators or quotation marks.
WORD: Final = re.compile(
    "(?:[^\\W_]|[\u064b-\u065f\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])+"
)
UNSPACED: Final = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_KANA = re.compile("[\u3040-\u309f]")
_NOT = re.compile(r"(?<=\w)n['’]t\b", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")


def visible(text: str) -> str:
    """Return the text without invisible characters."""
    return text if text.isascii() else _BLANKS.sub(" ", _HIDDEN.sub(r"\1", text))


def word_units(text: str) -> list[tuple[str, ...]]:
    """Return the words in order; pairs of characters for scripts without spaces."""
    units: list[tuple[str, ...]] = []
    for word in WORD.findall(_APOSTROPHE.sub(" ", _NOT.sub(" ", text))):
        start = 0
        for run in UNSPACED.finditer(word):
            if before := word[start : run.start()]:
                units.append((before,))
            units += list(pairwise(run[0])) if len(run[0]) > 1 else [(run[0],)]
            start = run.end()
        if rest := word[start:]:
            units.append((rest,))
    return units


def without_particles(text: str) -> str:
    """Return a Chinese question with spaces in place of its stop words."""
    if text.isascii() or _KANA.search(text):
        return text
    return re.sub(language("zh")["particles"], " ", text)


def is_written_out(unit: Sequence[str]) -> bool:
    """Whether single characters include hiragana, as Japanese endings and particles do."""
    return all(len(sign) == 1 for sign in unit) and any(map(_KANA.match, unit))


@cache
def stop_words() -> dict[str, frozenset[str]]:
    """Return the stop words of each language that has some."""
    return {code: word_set(text) for code, text in in_all_languages("stop_words").items()}


@cache
def content_free() -> dict[str, frozenset[str]]:
    """Return the stop words of each language and its words about posts in general."""
    return {**stop_words(), "en": stop_words()["en"] | word_set(language("en")["posts"])}


def detect_stop_words(words: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Return the language of most of the lower-case words, "en" if in doubt, and its stop words."""
    code = max(content_free(), key=lambda code: sum(word in content_free()[code] for word in words))
    return code, content_free()[code]


def language_of(texts: Iterable[str]) -> str:
    """Return the code of the language that most words of the texts are in, by their beginnings."""
    words = Counter[str]()
    for text in texts:
        beginning = re.findall(r"[^\W\d_]+", text[:_MAX_BEGINNING].lower())
        words[detect_stop_words(beginning)[0]] += len(text)
    return max(words, key=lambda code: words[code], default="en")


def is_content_word(word: str) -> bool:
    """Whether a word is neither an English stop word nor a word about posts in general."""
    return word.casefold() not in content_free()["en"]


# ---- forms of words

_MIN_STEM = 3  # letters
_ENDINGS = ("ings", "ing", "edly", "ed", "ies", "es", "ly", "s", "e", "y")


def stems(text: str) -> list[str]:
    """Return the stems of the words of a text, in order."""
    return [_stem("".join(unit)) for unit in word_units(text)]


def content_words(text: str) -> dict[str, str]:
    """Return the words that say what a text is about, by their stems."""
    words = map("".join, word_units(text))
    return {_stem(word): word for word in words if is_content_word(word)}


@lru_cache(maxsize=1 << 16)  # a search stems the words of all passages it shows
def _stem(word: str) -> str:
    letters = unicodedata.normalize("NFD", word.casefold())
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    for ending in _ENDINGS:
        if plain.endswith(ending) and len(plain) - len(ending) >= _MIN_STEM:
            return plain.removesuffix(ending)
    return plain


@cache
def _irregular() -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the other forms of each irregular English word, and its dictionary form."""
    others: dict[str, tuple[str, ...]] = {}
    bases: dict[str, str] = {}
    for group in map(str.split, language("en")["irregular"].split(",")):
        for form in group:
            others[form] = (*others.get(form, ()), *(each for each in group if each != form))
        bases.update(dict.fromkeys(group[1:], group[0]))
    return others, bases


def forms_of(word: str) -> tuple[str, ...]:
    """Return the other forms of an irregular English word: "kept" for "keep"."""
    return _irregular()[0].get(word.lower(), ())


@cache
def dictionary_form(word: str) -> str:
    """Return an English word in lower case as a dictionary lists it, or itself if unknown."""
    if base := _irregular()[1].get(word):
        return base
    words = Lexicon.load().words
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


# ---- the English lexicon

# Minimum share of a text's words that are among the 400 most frequent of the language: 0.55 to 0.75
# in English prose of any kind, less than 0.1 in other European languages.
_MIN_FREQUENT = 0.35
_MAX_CHARS = 100_000  # of each text used to identify its language
_WRITTEN_WORD = re.compile(r"\w+(?:['’]\w+)*")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)\S+@\S+")
_DIGIT = re.compile(r"\d")
_ENDING = re.compile(r"['’][^\W\d_]+$")  # the author's, he'd, they'll
_BEGINNING = re.compile(r"(?:^|[.!?…:\n])[^\w\n]*$")


def words_in(text: str) -> list[re.Match[str]]:
    """Find the words of a text as written, without addresses and anything that contains a digit."""
    cleared = _ADDRESS.sub(lambda match: " " * len(match[0]), text)
    return [match for match in _WRITTEN_WORD.finditer(cleared) if not _DIGIT.search(match[0])]


def begins_sentence(word: re.Match[str]) -> bool:
    """Whether a word found in a text is the first of a sentence or line."""
    near = max(0, word.start() - 12)
    return _BEGINNING.search(word.string, near, word.start()) is not None


def folded(word: str) -> str:
    """Return the form of a word in the lexicon: case-folded, with straight apostrophes."""
    return word.replace("’", "'").strip("_").casefold()


def is_in_the_language(texts: Sequence[str], frequent: Sequence[str]) -> bool:
    """Whether texts are in the language with these most frequent words; true without any words."""
    known = frozenset(frequent)
    is_known = [folded(word[0]) in known for text in texts for word in words_in(text[:_MAX_CHARS])]
    return not is_known or sum(is_known) / len(is_known) >= _MIN_FREQUENT


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A set of case-folded words, and the most frequent among them."""

    words: frozenset[str]
    frequent: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Lexicon":
        words = {folded(word[0]) for text in texts for word in words_in(text)}
        return cls(frozenset(words - {""}))

    def knows(self, word: str) -> bool:
        """Whether the lexicon has a word in any case, or the word without an ending like 's."""
        plain = folded(word)
        return plain in self.words or _ENDING.sub("", plain) in self.words

    @staticmethod
    @cache
    def load(folder: Path = FOLDER) -> "Lexicon":
        """Read words, one per line: the frequent ones, a blank line, the rest."""
        text = unpacked(folder / WORDS_FILE).decode()
        frequent, _, others = f"\n{text}".partition("\n\n")
        first = tuple(frequent.split())
        return Lexicon(frozenset([*first, *others.split()]), first)


def unpacked(path: Path) -> bytes:
    """Return the content of a packed data file of this package; OwnwordsError if it is damaged."""
    try:
        return lzma.decompress(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise OwnwordsError(
            f"the reference data in {path} cannot be read: {error}",
            hint="install ownwords again, or make them with `python base/reference.py`",
        ) from error
