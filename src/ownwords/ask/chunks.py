"""Splits documents into chunks for the search: by heading, then by paragraph."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ownwords.archive.document import Document, Segment, SegmentKind
from ownwords.ask.passage import Whose, as_quoted

if TYPE_CHECKING:
    from ownwords.archive.selection import Decision

# Increase this whenever chunking changes, so that archives are indexed again.
CHUNKS_VERSION = "1"

# Minimum and maximum words of a chunk of a long section. Eight chunks fit into 4,096 tokens.
LEAST, MOST = 200, 350
# Sections shorter than this are joined to a neighbour.
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
_SENTENCE_END = re.compile(
    r"""[.!?…]['"”’»)\]]*\s+(?=["'“‘„«(\[]*[^\W\d_a-z])|[。！？][」』”’）]*|\n"""
)
_ANY_SPACE = re.compile(r"\s+")

# Invisible characters that `archive.clean` keeps because some scripts and emoji need them: text
# could be hidden in runs of these.
_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a]+")
_VARIATIONS = re.compile("[\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
# Characters with variants, besides all from `_AFTER_ALPHABETS` on: symbols, ideographs.
_VARIED = frozenset("0123456789#*©®")
_AFTER_ALPHABETS = "\u1800"
_BLANKS = re.compile("[\u2800\u2000-\u200a\u3000]")
_TAGS = re.compile("[\U000e0000-\U000e007f]+")
_FLAG_TAGS = re.compile("[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_FLAG = "\U0001f3f4"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of one document that is searched, shown and quoted on its own.

    `number` counts the document's chunks from 0; `segments` are the positions of the document's
    segments it contains. `heading` names the section it begins in, outer headings first.
    """

    document: str
    number: int
    heading: str
    text: str
    words: int
    whose: Whose
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """An indivisible part: a paragraph, a sentence of a long one, a block of code.

    `text` ends with the space that separates it from the next piece of the same segment.
    """

    kind: SegmentKind
    text: str
    words: int
    segment: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    heading: str
    pieces: tuple[_Piece, ...]

    @property
    def words(self) -> int:
        return sum(piece.words for piece in self.pieces)


def chunks_of(document: Document, decision: "Decision | str" = "keep") -> list[Chunk]:
    """The chunks of a document, in order; at least one, so that its title can be found.

    With the `decision` "leave out", the chunks are marked as somebody else's words.
    """
    left_out = decision == "leave out"
    chunks: list[Chunk] = []
    for section in _merged(_sections(document.segments)):
        for pieces in _divided(section.pieces):
            words = sum(piece.words for piece in pieces)
            quoted = sum(piece.words for piece in pieces if piece.kind in _QUOTED_KINDS)
            whose: Whose = "other" if left_out else "quoted" if 2 * quoted > words else "own"
            chunks.append(
                Chunk(
                    document=document.id,
                    number=len(chunks),
                    heading=section.heading,
                    text=_put_together(pieces),
                    words=words,
                    whose=whose,
                    segments=tuple(dict.fromkeys(piece.segment for piece in pieces)),
                )
            )
    if not chunks:
        chunks.append(Chunk(document.id, 0, "", "", 0, "other" if left_out else "own", ()))
    return chunks


def visible(text: str) -> str:
    """The text without invisible characters."""
    if text.isascii():
        return text
    text = _FILLERS.sub("", text)
    text = _VARIATIONS.sub(_variation, text)
    text = _TAGS.sub(_flag, text)
    return _BLANKS.sub(" ", text)


def apart(text: str) -> str:
    """The text with spaces between ideographs and kana, for the tokenizer of the index."""
    return text if text.isascii() else _ALONE.sub(r" \g<0> ", text)


def count_words(text: str) -> int:
    """The number of words, by spaces, or estimated by length for very long words."""
    words = apart(text).split()
    long = sum(len(word) // _LETTERS for word in words if len(word) > _LONGEST_WORD)
    return len(words) + long


def _variation(run: re.Match[str]) -> str:
    """The first variation selector of a run, or nothing if the character before has no variants."""
    before = run.string[run.start() - 1 : run.start()]
    return run[0][0] if before in _VARIED or before >= _AFTER_ALPHABETS else ""


def _flag(tags: re.Match[str]) -> str:
    """The tag characters if they form a flag such as Scotland's, otherwise nothing."""
    before = tags.string[tags.start() - 1 : tags.start()]
    flag = _FLAG_TAGS.match(tags[0]) if before == _FLAG else None
    return flag[0] if flag else ""


def _sections(segments: Iterable[Segment]) -> Iterator[_Section]:
    path: list[tuple[int, str]] = []  # levels and texts of the enclosing headings
    pieces: list[_Piece] = []
    for position, segment in enumerate(segments):
        text = visible(segment.text)
        if segment.kind == "heading":
            if pieces:
                yield _Section(_named(path), tuple(pieces))
                pieces = []
            level = int(segment.detail) if segment.detail.isdecimal() else 2
            path = [opened for opened in path if opened[0] < level]
            path.append((level, _ANY_SPACE.sub(" ", text).strip()))
        elif text.strip():
            pieces += _pieces(replace(segment, text=text), position)
    if pieces or path:
        yield _Section(_named(path), tuple(pieces))


def _named(path: list[tuple[int, str]]) -> str:
    return _BETWEEN_HEADINGS.join(text for _, text in path if text)


def _pieces(segment: Segment, position: int) -> Iterator[_Piece]:
    text, kind, detail = segment.text, segment.kind, visible(segment.detail)
    if kind == "code":
        parts: Iterable[str] = _by_lines(text) if len(text) > _LONGEST_CODE else [text]
    elif count_words(text) > MOST:
        parts = _sentences(text)
    else:
        parts = [text]
    for part in parts:
        yield _Piece(kind, part, count_words(part), position, detail)


def _put_together(pieces: list[_Piece]) -> str:
    """Join the texts of the pieces, with quotations marked and code fenced."""
    parts: list[str] = []
    for (_, kind), group in groupby(pieces, key=lambda piece: (piece.segment, piece.kind)):
        same = list(group)
        text = "".join(piece.text for piece in same).rstrip()
        if kind in ("code", "log"):
            fence = "````" if "```" in text else "```"
            text = f"{fence}{same[0].detail if kind == 'code' else ''}\n{text}\n{fence}"
        elif kind == "quote":
            author = same[0].detail
            text = as_quoted(f"{text}\n— {author}" if author else text)
        parts.append(text)
    return "\n\n".join(parts)


def _sentences(text: str) -> Iterator[str]:
    """Split a text into parts of at most `MOST` words, at sentence ends if possible."""
    start = 0
    for mark in _SENTENCE_END.finditer(text):
        yield from _short_enough(text[start : mark.end()])
        start = mark.end()
    if text[start:]:
        yield from _short_enough(text[start:])


def _short_enough(sentence: str) -> Iterator[str]:
    """Split an overlong sentence, such as a list of names, between words."""
    words = count_words(sentence)
    ends = [match.end() for match in _WORD.finditer(sentence)] if words > MOST else []
    parts = -(-words // MOST)
    start = 0
    for part in range(1, parts if len(ends) >= parts else 1):
        cut = ends[len(ends) * part // parts - 1]
        space = _ANY_SPACE.match(sentence, cut)
        yield sentence[start : (cut := space.end() if space else cut)]
        start = cut
    if sentence[start:]:
        yield sentence[start:]


def _by_lines(code: str) -> Iterator[str]:
    part: list[str] = []
    size = 0
    for line in code.split("\n"):
        for at in range(0, max(1, len(line)), _LONGEST_CODE):
            cut = line[at : at + _LONGEST_CODE]
            if part and size + len(cut) > _LONGEST_CODE:
                yield "\n".join(part) + "\n"
                part, size = [], 0
            part.append(cut)
            size += len(cut) + 1
    if part:
        yield "\n".join(part)


def _merged(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Join short sections to their neighbours; inner headings stay as lines."""
    gathered: _Section | None = None
    for section in sections:
        if gathered is None:
            gathered = section
        elif min(gathered.words, section.words) < _SHORT_SECTION and (
            gathered.words + section.words <= MOST
        ):
            lines = _heading_line(gathered, section)
            heading = gathered.heading if gathered.pieces else section.heading
            gathered = _Section(heading, (*gathered.pieces, *lines, *section.pieces))
        else:
            yield gathered
            gathered = section
    if gathered is not None:
        yield gathered


def _heading_line(before: _Section, section: _Section) -> Iterator[_Piece]:
    """The heading of a joined section, as a line."""
    text = section.heading.rpartition(_BETWEEN_HEADINGS)[2]
    if text and before.pieces:
        at = section.pieces[0].segment if section.pieces else before.pieces[-1].segment + 2
        yield _Piece("heading", text, count_words(text), at - 1)


def _divided(pieces: tuple[_Piece, ...]) -> Iterator[list[_Piece]]:
    """Group pieces into runs of about equal length, of at most `MOST` words if possible."""
    total = sum(piece.words for piece in pieces)
    chunk: list[_Piece] = []
    words = 0
    left = total
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
