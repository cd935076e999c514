"""The words of an archive, and substitutes for words that it lacks: spellings, forms, typos."""

import sqlite3
import threading
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from ownwords.ask.index import SearchIndex
from ownwords.ask.index_schema import TOKENIZER
from ownwords.ask.query_terms import detect_stop_words
from ownwords.ask.stop_words import OTHERS
from ownwords.evaluation.lexicon import Lexicon

_MOST = 6  # maximum number of substitutes for a word
# Letters that many keyboards lack, and that Unicode does not decompose.
_TYPED = str.maketrans(
    {"ß": "ss", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"}
)
_UMLAUTS = (("ae", "a"), ("oe", "o"), ("ue", "u"))
# Forms of a word share at least 4 letters and differ in at most 3 at the end.
_BEGINNING, _ENDING = 4, 3
_COMPOUND = 5  # minimum letters of a word to look for in compounds
# Shorter words are too often one letter away from another word.
_MISTYPED = 7
# An archive is taken to be in another language, too, if words that only that language has are at
# least this frequent, relative to English stop words: a German post among eight English ones.
_OTHER_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class _VocabularySnapshot:
    """The stems in an index, sorted, without accents."""

    generation: str
    ordered: list[str]
    by_spelling: dict[str, list[str]]
    is_english: bool


class IndexVocabulary:
    """The words of an index, read when first needed."""

    def __init__(self, index: SearchIndex) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._snapshot: _VocabularySnapshot | None = None

    def substitutes(self, word: str, language: str = "en") -> tuple[str, ...]:
        """The words of the archive to search for in place of a word that it lacks.

        Other spellings first ("strasse", "email"); in languages other than English, other forms and
        compounds; last, words at one typo's distance.
        """
        snapshot = self._current()
        (stem,) = _stems([word])
        is_english = snapshot.is_english and language == "en"
        words_found = (
            snapshot.by_spelling.get(_plain_spelling(stem, is_english), [])
            or self._split_word(word, snapshot.ordered)
            or ([] if is_english else _forms(stem, snapshot.ordered))
            or ([] if is_english else _compounds(stem, snapshot.ordered))
            or ([] if _is_english_word(word) else _misspellings(stem, snapshot.ordered))
        )
        return tuple(words_found[:_MOST])

    def _split_word(self, word: str, ordered: Sequence[str]) -> list[str]:
        """The word as two adjacent words of the archive: "e mail"."""
        pairs = [(word[:at], word[at:]) for at in range(1, len(word))]
        stems = dict(zip(words := sum(pairs, ()), _stems(words), strict=True))
        pairs_present = [
            f"{a} {b}"
            for a, b in pairs
            if _contains(ordered, stems[a]) and _contains(ordered, stems[b])
        ]
        with self._index.reading() as db:
            query = "SELECT 1 FROM chunk_search WHERE chunk_search MATCH ? LIMIT 1"
            return [two for two in pairs_present if db.execute(query, (f'"{two}"',)).fetchone()]

    def _current(self) -> _VocabularySnapshot:
        generation = self._index.generation()
        with self._lock:
            if self._snapshot is None or self._snapshot.generation != generation:
                self._snapshot = _read(self._index, generation)
            return self._snapshot


def _read(index: SearchIndex, generation: str) -> _VocabularySnapshot:
    with index.reading() as db:
        db.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, chunk_search, row)"
        )
        frequencies: dict[str, int] = dict(db.execute("SELECT term, cnt FROM temp.words"))
    ordered = sorted(frequencies)
    is_english = _is_english(frequencies)
    by_spelling: dict[str, list[str]] = {}
    for term in ordered:
        if not is_english or not term.isascii():
            by_spelling.setdefault(_plain_spelling(term, is_english), []).append(term)
    return _VocabularySnapshot(generation, ordered, by_spelling, is_english)


def _is_english(frequencies: Mapping[str, int]) -> bool:
    """Whether the words are English, judged by how often stop words occur.

    Not by whether they occur: notes with code contain most of the short words of any language.
    """

    def frequency(words: Iterable[str]) -> int:
        return sum(frequencies.get(stem, 0) for stem in set(_stems(sorted(words))))

    _, english = detect_stop_words(())
    others = (
        frequency(word for word in words if word not in english and not _lexicon().knows(word))
        for words in OTHERS
    )
    return max(others) <= _OTHER_SHARE * frequency(english)


@cache
def _lexicon() -> Lexicon:
    return Lexicon.load(Path(str(files("ownwords") / "base" / "reference")))


def _is_english_word(word: str) -> bool:
    """Whether a word is English ("drought" is no typo of "draught") or too short to be a typo."""
    return len(word) < _MISTYPED or _lexicon().knows(word)


def _stems(words: Iterable[str]) -> list[str]:
    """The stems of words, made by the tokenizer of the index."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE VIRTUAL TABLE said USING fts5(word, tokenize='{TOKENIZER}')")
        db.execute("CREATE VIRTUAL TABLE kept USING fts5vocab(said, instance)")
        db.executemany("INSERT INTO said VALUES (?)", ((word,) for word in words))
        words_found = dict(db.execute("SELECT doc, group_concat(term, ' ') FROM kept GROUP BY doc"))
        (many,) = db.execute("SELECT count(*) FROM said").fetchone()
    return [words_found.get(number, "") for number in range(1, many + 1)]


def _plain_spelling(stem: str, is_english: bool) -> str:
    """A word as typed on a keyboard without accents."""
    parts = unicodedata.normalize("NFKD", stem.translate(_TYPED))
    plain = "".join(letter for letter in parts if not unicodedata.combining(letter))
    if not is_english:
        for two, one in _UMLAUTS:
            plain = plain.replace(two, one)
    return plain


def _contains(ordered: Sequence[str], stem: str) -> bool:
    at = bisect_left(ordered, stem)
    return bool(stem) and at < len(ordered) and ordered[at] == stem


def _with_prefix(ordered: Sequence[str], start: str) -> Iterator[str]:
    for at in range(bisect_left(ordered, start), len(ordered)):
        if not ordered[at].startswith(start):
            return
        yield ordered[at]


def _forms(stem: str, ordered: Sequence[str]) -> list[str]:
    """The words with the longest common prefix that differ only in a few last letters."""
    start = stem[: max(_BEGINNING, len(stem) - _ENDING)]
    if len(start) < _BEGINNING:
        return []
    words_found = []
    for term in _with_prefix(ordered, start):
        prefix = _common_prefix(stem, term)
        if len(term) - prefix <= _ENDING:
            words_found.append((prefix, term))
    most = max((prefix for prefix, _ in words_found), default=0)
    return [term for prefix, term in words_found if prefix == most]


def _common_prefix(a: str, b: str) -> int:
    """The length of the common prefix."""
    return next((at for at, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))  # noqa: B905


def _compounds(stem: str, ordered: Sequence[str]) -> list[str]:
    """Longer words that begin or end with the word, shortest first."""
    if len(stem) < _COMPOUND:
        return []
    part = _plain_spelling(stem, is_english=False)
    keys = ((term, _plain_spelling(term, is_english=False)) for term in ordered)
    words_found = [term for term, key in keys if key.startswith(part) or key.endswith(part)]
    return sorted(words_found, key=lambda term: (len(term), term))


def _misspellings(stem: str, ordered: Sequence[str]) -> list[str]:
    """Words at a distance of one replaced, missing, added or swapped letter."""
    if any(sign.isdigit() for sign in stem):
        return []
    return [
        term
        for term in _with_prefix(ordered, stem[:1])
        if abs(len(term) - len(stem)) <= 1 and _is_misspelling(stem, term)
    ]


def _is_misspelling(a: str, b: str) -> bool:
    at = _common_prefix(a, b)
    rest_a, rest_b = a[at:], b[at:]
    return (
        rest_a[1:] == rest_b[1:]
        or rest_a[1:] == rest_b
        or rest_a == rest_b[1:]
        or (rest_a[:2] == rest_b[1::-1] and len(rest_b) > 1 and rest_a[2:] == rest_b[2:])
    )
