"""Cuts posts into passages, and passages into units and windows; selects excerpts.

A post is cut by heading, then by paragraph, into chunks, which a search finds. A unit of a passage
is a sentence, a list item or a fenced block of code; an excerpt shows whole units. A window is what
an encoder reads at once: as many whole paragraphs, lists and blocks of code as fit, after the title
and the heading. Words are compared by their stems (`language.words`).
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import sqrt
from operator import itemgetter
from typing import Literal, NamedTuple

from ownwords.archive.document import Document, Segment, SegmentKind
from ownwords.ask.query import has_asked, telling_stems
from ownwords.core.text import Span, sentences, stripped
from ownwords.language.words import stems, visible

Whose = Literal["own", "quoted", "other"]

QUOTED_LINE = ">"  # begins each line of somebody else's words, as in Markdown


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a post with its title, date, address and score.

    `date` is an ISO day, or None if the post has no date. `url` is a web address, a path on the
    site, or empty. `heading` names the section ("Rain › Gauges"). In `text`, lines that begin with
    ">" are quoted. `whose` is "other" for a post that was left out as somebody else's, "quoted"
    if most of the passage is a quotation or a machine's output. `score` orders the passages of
    one search and cannot be compared across searches. `found_by` holds "title", "phrase",
    "text", "vectors", "date".
    """

    id: int
    document: str
    title: str
    date: str | None
    url: str
    heading: str
    text: str
    whose: Whose
    score: float
    found_by: tuple[str, ...]

    def whose_is(self, quote: str) -> Whose:
        """Return whose words a quote is: "quoted" if only its quoted lines contain it."""
        lines = self.text.split("\n")
        own = _plain(line for line in lines if not line.startswith(QUOTED_LINE))
        quoted = _plain(line for line in lines if line.startswith(QUOTED_LINE))
        words = _plain(quote.split("\n"))
        is_quoted = words in quoted and words not in own
        return "quoted" if self.whose == "own" and is_quoted else self.whose


def _plain(lines: Iterable[str]) -> str:
    return " ".join(" ".join(line.removeprefix(QUOTED_LINE) for line in lines).split()).casefold()


MOST = 350  # words of a chunk; eight chunks fit into 4,096 tokens
# Sections shorter than this are joined to the one before or after.
_SHORT_SECTION = 100
# Code is split only above this length, which only data files reach.
_LONGEST_CODE = 20_000  # characters
_BETWEEN_HEADINGS = " › "
_QUOTED_KINDS = frozenset({"quote", "log"})

# Chinese and Japanese have no spaces: each ideograph and kana counts as a word.
_ALONE = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
# A longer run is an address, a key, or a sentence of a script without spaces.
_LONGEST_WORD = 24  # characters
_LETTERS = 6  # this many characters of such a run count as one word
_WORD = re.compile(_ALONE.pattern + r"|[^\s\u3005-\u3007\u3040-\u30ff\u3400-\u9fff]{1,24}")


class Chunk(NamedTuple):
    """A part of one document that is searched, shown and quoted on its own.

    `heading` names the section it begins in, outer headings first.
    """

    heading: str
    text: str
    whose: Whose


class _Piece(NamedTuple):
    """An indivisible part: a paragraph, a sentence of a long one, a block of code.

    `text` ends with the space that separates it from the next piece of the same segment.
    """

    kind: SegmentKind
    text: str
    words: int
    segment: int
    detail: str = ""


_Section = tuple[str, list[_Piece]]  # a heading, and the pieces below it


def chunks_of(document: Document, *, is_left_out: bool = False) -> list[Chunk]:
    """Return the chunks of a document, in order; at least one, so that its title can be found.

    The chunks of a document that was left out are marked as somebody else's words.
    """
    own: Whose = "other" if is_left_out else "own"
    chunks: list[Chunk] = []
    for heading, section in _merged(_sections(document.segments)):
        for pieces in _divided(section):
            quoted = _words_in(piece for piece in pieces if piece.kind in _QUOTED_KINDS)
            is_quoted = 2 * quoted > _words_in(pieces) and not is_left_out
            chunks.append(Chunk(heading, _put_together(pieces), "quoted" if is_quoted else own))
    return chunks or [Chunk("", "", own)]


def _words_in(pieces: Iterable[_Piece]) -> int:
    return sum(piece.words for piece in pieces)


def apart(text: str) -> str:
    """Return the text with spaces between ideographs and kana, for the index's tokenizer."""
    return text if text.isascii() else _ALONE.sub(r" \g<0> ", text)


def count_words(text: str) -> int:
    """Return the number of words, by spaces; very long words are estimated by length."""
    words = apart(text).split()
    return len(words) + sum(len(word) // _LETTERS for word in words if len(word) > _LONGEST_WORD)


def _sections(segments: Iterable[Segment]) -> Iterator[_Section]:
    path: list[tuple[int, str]] = []  # levels and texts of the enclosing headings
    pieces: list[_Piece] = []

    def section() -> _Section:
        return _BETWEEN_HEADINGS.join(text for _, text in path if text), pieces

    for position, segment in enumerate(segments):
        text = visible(segment.text)
        if segment.kind == "heading":
            if pieces:
                yield section()
                pieces = []
            level = int(segment.detail) if segment.detail.isdecimal() else 2
            path = [opened for opened in path if opened[0] < level]
            path.append((level, " ".join(text.split())))
        elif text.strip():
            for part in _parts(text, is_code=segment.kind == "code"):
                detail = visible(segment.detail)
                pieces.append(_Piece(segment.kind, part, count_words(part), position, detail))
    if pieces or path:
        yield section()


def _parts(text: str, *, is_code: bool) -> Iterator[str]:
    """Yield a text, or its sentences if it exceeds a chunk; code is cut at the ends of lines."""
    if is_code:
        while len(text) > _LONGEST_CODE:
            end = text.rfind("\n", 0, _LONGEST_CODE) + 1 or _LONGEST_CODE
            yield text[:end]
            text = text[end:]
        yield text
    elif count_words(text) <= MOST:
        yield text
    else:
        starts = [begin for begin, _ in sentences(text)]
        for begin, end in pairwise([0, *starts[1:], len(text)]):
            # An overlong sentence, such as a list of names, is cut between words.
            words = [word.start() for word in _WORD.finditer(text, begin, end)]
            parts = -(-count_words(text[begin:end]) // MOST)
            cuts = [words[len(words) * part // parts] for part in range(1, parts)]
            for first, last in pairwise([begin, *cuts, end]):
                yield text[first:last]


def _put_together(pieces: list[_Piece]) -> str:
    """Join the texts of the pieces, with quotations marked and code fenced."""
    parts: list[str] = []
    for (_, kind), group in groupby(pieces, key=lambda piece: (piece.segment, piece.kind)):
        same = list(group)
        detail = same[0].detail
        text = "".join(piece.text for piece in same).rstrip()
        if kind in ("code", "log"):
            fence = "````" if "```" in text else "```"
            text = f"{fence}{detail if kind == 'code' else ''}\n{text}\n{fence}"
        elif kind == "quote":
            lines = [*text.split("\n"), *([f"— {detail}"] if detail else [])]
            text = "\n".join(f"{QUOTED_LINE} {line}".rstrip() for line in lines)
        parts.append(text)
    return "\n\n".join(parts)


def _merged(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Join short sections to adjacent ones; inner headings stay as lines."""
    gathered: _Section | None = None
    for heading, pieces in sections:
        if gathered is None or not gathered[1]:
            gathered = heading, pieces
            continue
        words, before = _words_in(pieces), _words_in(gathered[1])
        if min(before, words) >= _SHORT_SECTION or before + words > MOST:
            yield gathered
            gathered = heading, pieces
        else:
            text = heading.rpartition(_BETWEEN_HEADINGS)[2]
            at = pieces[0].segment - 1 if pieces else gathered[1][-1].segment + 1
            lines = [_Piece("heading", text, count_words(text), at)] if text else []
            gathered = gathered[0], [*gathered[1], *lines, *pieces]
    if gathered is not None:
        yield gathered


def _divided(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Group pieces into runs of about equal length, of at most `MOST` words if possible."""
    chunk: list[_Piece] = []
    words = 0
    left = _words_in(pieces)
    for piece in pieces:
        # Equal lengths avoid a short last chunk.
        aim = left / max(1, -(-left // MOST))
        too_long = words + piece.words > MOST
        if chunk and (too_long or abs(words - aim) <= abs(words + piece.words - aim)):
            yield chunk
            left -= words
            chunk, words = [], 0
        chunk.append(piece)
        words += piece.words
    if chunk:
        yield chunk


def best_sentence(question: str, text: str) -> Span | None:
    """Return the sentence of a text that matches a question best; None if none matches."""
    spans = sentences(text)
    scores = _matches(question, text, spans)
    return spans[scores.index(max(scores))] if any(scores) else None


def _matches(question: str, text: str, spans: Sequence[Span]) -> list[float]:
    """Sum up for each span, over the question's stems in it, 1 / (spans with the stem)."""
    asked = telling_stems(question)
    matched = [asked & set(stems(text[begin:end])) for begin, end in spans]
    spans_with = Counter(word for each in matched for word in each)
    return [sum(1 / spans_with[word] for word in sorted(each)) for each in matched]


# all-MiniLM-L6-v2 reads 256 tokens, about 4 bytes of English and 3 of code each; the title and the
# heading take some of them.
WINDOW_BYTES = 600
_HEAD_BYTES = 200  # of the title, and of the heading
_FENCE = re.compile(r"^(`{3,}+)(.*)$", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]")


def units(text: str) -> list[Span]:
    """Return the spans of the sentences, list items and blocks of code of a passage."""
    return [unit for block in _blocks(text) for unit in _units_of(text, block)]


def is_code(text: str) -> bool:
    """Whether a block is fenced code."""
    return text.startswith("```")


def windows(title: str, heading: str, text: str) -> list[str]:
    """Return the texts to embed for a passage; at least one, so that its title has a vector."""
    head = head_of(title, heading)
    parts = [text[slice(*at)].strip() for at in window_spans(text)]
    return [f"{head}\n{part}" if head else part for part in parts] or [head]


def head_of(title: str, heading: str) -> str:
    """Return the text that precedes each window of a passage."""
    return "\n".join(_cut(part, _HEAD_BYTES) for part in (title, heading) if part)


def window_spans(text: str) -> list[Span]:
    """Return the spans of the windows of a passage."""
    found: list[Span] = []
    size = 0
    for begin, end in _pieces(text):
        added = len(text[begin:end].strip().encode())
        if found and size + 1 + added <= WINDOW_BYTES:
            found[-1] = (found[-1][0], end)
            size += 1 + added
        else:
            found.append((begin, end))
            size = added
    return found


def _blocks(text: str) -> Iterator[Span]:
    """Yield the spans of the paragraphs, lists and blocks of code of a passage."""
    fences = list(_FENCE.finditer(text))
    closing: dict[str, int] = {}  # by fence, the end of the next line that closes it
    ends = []
    for fence in reversed(fences):
        ends.append(closing.get(fence[1]))
        if not fence[2].strip(" \t"):
            closing[fence[1]] = fence.end()
    start = 0
    for fence, end in zip(fences, reversed(ends), strict=True):
        if end and fence.start() >= start:
            yield from _paragraphs(text, start, fence.start())
            yield fence.start(), end
            start = end
    yield from _paragraphs(text, start, len(text))


def _paragraphs(text: str, start: int, end: int) -> Iterator[Span]:
    for blank in _BLANK.finditer(text, start, end):
        yield from stripped(text, start, blank.start())
        start = blank.end()
    yield from stripped(text, start, end)


def _units_of(text: str, block: Span) -> list[Span]:
    begin, end = block
    if is_code(text[begin:end]):
        return [block]
    spans: list[Span] = []
    item = -1  # the line of the previous list item, which may have several sentences
    for at, stop in sentences(text[begin:end]):
        first, last = begin + at, begin + stop
        line = text.rfind("\n", 0, first) + 1
        is_item = _ITEM.match(text, line) is not None
        if is_item and line == item:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
        item = line if is_item else -1
    return spans


def _pieces(text: str) -> Iterator[Span]:
    """Yield the spans of the blocks, or of the parts of a block too long for a window."""
    for block in _blocks(text):
        if len(text[slice(*block)].encode()) <= WINDOW_BYTES:
            yield block
            continue
        for unit in _units_of(text, block):
            begin, end = unit
            # A long unit is cut at the ends of lines, or of words if a line is too long.
            while len(text[begin:end].encode()) > WINDOW_BYTES:
                most = begin + len(_cut(text[begin:end], WINDOW_BYTES))
                space = text.rfind(" ", begin + (most - begin) // 2, most)
                cut = max(max(text.rfind("\n", begin, most), space, 0) or most, begin + 1)
                yield begin, cut
                begin = cut
            yield begin, end


def _cut(text: str, size: int) -> str:
    """Return the beginning of a text, at most `size` bytes."""
    return text.encode()[:size].decode("utf-8", "ignore")


SHOWN = 480  # characters of a passage, about five lines
# The answer often follows the words of the question: a unit gains this share of the score that the
# previous unit has or has gained for its words; code gains all of that score.
_BEFORE_SHARE = 0.6
# Weights of the reader's share for a unit, and of a number or name that the question asks for,
# relative to the share of the question's words. Measured: docs/log.md.
_READING, _FITTING = 2.0, 1.5
_WEAK = 0.3  # units with less than this share of the best score are not marked


class PassageExcerpt(NamedTuple):
    """The part of a passage to show: the `span` of adjacent units, about `SHOWN` characters.

    `matching` are the spans of the units that match the question best, best first; they may be
    outside `span`.
    """

    span: Span
    matching: tuple[Span, ...]


def excerpt_of(question: str, text: str, shares: Sequence[float] = ()) -> PassageExcerpt:
    """Select the excerpt of a passage by words, and by the reader's `shares` of its units, if any.

    The matching units are the best two adjacent ones, because often one names what the other is
    about, and the best of the others.
    """
    spans = units(text) or [(0, 0)]
    own = _matches(question, text, spans)
    most = max(own) or 1.0
    scores = [0.0] * len(spans)
    if any(own) or shares:
        scores = [_FITTING * fits for fits in has_asked(question, text, spans)]
    before = 0.0
    for at, (begin, end) in enumerate(spans):
        share = 1.0 if is_code(text[begin:end]) else _BEFORE_SHARE
        scores[at] += (own[at] + share * before) / most
        before = max(own[at], _BEFORE_SHARE * before)
        scores[at] += _READING * shares[at] if shares else 0.0
    ranked = sorted(range(len(spans)), key=lambda at: -scores[at])
    first = max(range(len(spans)), key=lambda at: sum(scores[at : at + 2]))
    other = next((at for at in ranked if at not in (first, first + 1)), first)
    least = max(1e-9, _WEAK * max(scores))
    chosen = [at for at in ranked if at in (first, first + 1, other) and scores[at] >= least]
    # The adjacent units that fit, with the highest sum of score * sqrt(length): the root keeps a
    # few short units from outweighing a long one, or the reverse.
    worth = [max(0.0, x) * sqrt(min(b - a, SHOWN)) for x, (a, b) in zip(scores, spans, strict=True)]
    ends = [
        bisect_right(spans, a + SHOWN, i + 1, key=itemgetter(1)) for i, (a, _) in enumerate(spans)
    ]
    i = max(range(len(spans)), key=lambda i: sum(worth[i : ends[i]]))
    return PassageExcerpt((spans[i][0], spans[ends[i] - 1][1]), tuple(spans[at] for at in chosen))
