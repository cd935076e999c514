"""Splits texts into sentences and compares them by word stems.

A few rules cut off English endings; words of other languages are mostly compared as they are.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ownwords.ask.query_terms import detect_stop_words, is_content_word

Span = tuple[int, int]

_WORD = re.compile(r"[^\W_]+")
# The lookbehind keeps a long run of dots from being tried again from each of them.
_END = re.compile(
    r"""(?<![.!?…؟۔।])(?:[.!?…]|[؟۔।])+['"”’»)\]*_]*(?=\s|$)|[。！？]+[」』”’）]*|\n+"""
)
# A full stop after these abbreviations does not end a sentence.
_SHORTENED = (
    "mr mrs ms dr st prof gen col capt rev no nos vol fig ch vs eg ie cf etc ca approx jr sr"
)
_BEFORE = re.compile(r"[\w.'’]*$")
_LONGEST_BEFORE = 40  # characters; longer words are no abbreviations
_FOLLOWING = re.compile(r"""\s*["'“”„«»‘’(\[*_]*(.?)""", re.DOTALL)
_STEM = 3  # minimum letters of a stem
_ENDINGS = ("ings", "ing", "edly", "ed", "ies", "es", "ly", "s", "e", "y")
# Scripts without spaces: every two adjacent characters count as a word.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_NO_END = frozenset(_SHORTENED.split())


def stems(text: str) -> list[str]:
    """The stems of the words of a text, in order."""
    return [_stem(word) for word in _words(text)]


def content_words(text: str) -> dict[str, str]:
    """The words that say what a text is about, by their stems."""
    return {_stem(word): word for word in _words(text) if is_content_word(word)}


def content_stems(text: str) -> set[str]:
    """The stems of the words that say what a text is about."""
    return set(content_words(text))


def sentences(text: str) -> list[Span]:
    """The spans of the sentences, without surrounding space; a newline ends a sentence."""
    spans: list[Span] = []
    start = 0
    for mark in _END.finditer(text):
        if mark[0][0] != "\n" and mark.end() < len(text) and not _ends_sentence(text, start, mark):
            continue
        _add_span(spans, text, start, mark.end())
        start = mark.end()
    _add_span(spans, text, start, len(text))
    return spans


def best_sentences(question: str, text: str, limit: int = 2) -> list[Span]:
    """The sentences of a text that match a question best, in order; none if none matches.

    Each word is weighted by 1 / the number of sentences that contain it.
    """
    asked = query_stems(question)
    spans = sentences(text)
    words = [asked & set(stems(text[start:end])) for start, end in spans]
    in_sentences = Counter(word for each in words for word in each)
    scores = [sum(1 / in_sentences[word] for word in sorted(each)) for each in words]
    order = sorted((at for at, score in enumerate(scores) if score), key=lambda at: -scores[at])
    chosen: list[int] = []
    covered: set[str] = set()
    for at in order:
        # Each further sentence must contain a query word not yet covered.
        if len(chosen) < limit and not words[at] <= covered:
            chosen.append(at)
            covered |= words[at]
    return [spans[at] for at in sorted(chosen)]


def covered_share(words: Iterable[str], known: set[str]) -> float:
    """The share of the words that are in `known`; 1 if there are no words."""
    stems_to_check = list(words)
    return (
        sum(word in known for word in stems_to_check) / len(stems_to_check)
        if stems_to_check
        else 1.0
    )


def query_stems(question: str) -> set[str]:
    """The stems of the words of a question that are no stop words of its language."""
    words = list(_words(question))
    _, empty = detect_stop_words([word.lower() for word in words])
    return {_stem(word) for word in words if word.lower() not in empty}


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        begin = 0
        for run in _UNSPACED.finditer(word):
            yield from filter(None, [word[begin : run.start()]])
            signs = run[0]
            yield from (map("".join, pairwise(signs)) if len(signs) > 1 else [signs])
            begin = run.end()
        yield from filter(None, [word[begin:]])


def _ends_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    following = _FOLLOWING.match(text, mark.end())
    if following and following[1].islower():
        return False
    before = _BEFORE.search(text[max(start, mark.start() - _LONGEST_BEFORE) : mark.start()])
    word = before[0].casefold() if before else ""
    is_initial = len(word) == 1 and word.isalpha() and word != "i"
    return not (mark[0] == "." and (is_initial or word.replace(".", "") in _NO_END))


def _add_span(spans: list[Span], text: str, start: int, end: int) -> None:
    segment = text[start:end]
    if stripped := segment.strip():
        start += len(segment) - len(segment.lstrip())
        spans.append((start, start + len(stripped)))


def _without_accents(word: str) -> str:
    parts = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in parts if not unicodedata.combining(letter))


def _stem(word: str) -> str:
    plain = _without_accents(word)
    for ending in _ENDINGS:
        if plain.endswith(ending) and len(plain) - len(ending) >= _STEM:
            return plain.removesuffix(ending)
    return plain
