"""Parses the citation marks of an answer.

The prompt asks for `[2: "words of passage 2"]`. Other forms that models use are parsed as well: the
quote after the number, the quote before it, a list of sources below the answer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ownwords.ask.sentence_matching import content_stems, sentences

# Shorter quotes match by chance; 12 bytes are four characters of scripts without spaces.
LEAST_QUOTE = 12  # bytes

_DISAGREES = re.compile(r"^\W*(?:they )?disagree[sd]?\b[\s:*–—-]*", re.IGNORECASE)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)\s*", re.DOTALL | re.IGNORECASE)

_BRACKETS = str.maketrans("【】［］", "[][]")
_NUMBERS = r"\d{1,3}(?:\s*(?:,|;|&|and)\s*\d{1,3})*"
_QUOTED = r"""(?:"[^"\n]{2,900}"|“[^”\n]{2,900}”|„[^“”\n]{2,900}[“”]|«[^»\n]{2,900}»)"""
# [2: "a"; 3: "b"] is [2: "a"] [3: "b"].
_SEVERAL = re.compile(r"""(["”“»])\s*[;,]\s*(?=(?:passage\s*)?\d{1,3}\s*:)""", re.IGNORECASE)
_MARK = re.compile(
    rf"""
    \[\s*(?:(?:passages?|sources?|posts?|quotes?|no\.?|\#)\s*)?(?P<numbers>{_NUMBERS})\s*
    (?:[:,–—-](?P<inside>\s*["“„«'‘].{{0,900}}?["”“»'’]\s*(?=\])|[^\]\n]{{0,900}}))?
    \]
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_LONE_QUOTE = re.compile(_QUOTED)
_UNFINISHED = re.compile(r"\[\s*(?:passages?\s*)?\d{1,3}\s*(?::[^\]]*)?\Z", re.IGNORECASE)
_LONGEST = 20_000  # characters
_MOST_QUOTES = 20  # of one passage in a list of sources
# Placeholders for marks and quotes while a text is split into sentences.
_MARK_AT, _QUOTE_AT = 0xE000, 0xE800
_MOST_PLACES = 0x800
_SOURCES = re.compile(r"\W*(?:sources?|citations?|references?|quotes?|answer)\W*\Z", re.IGNORECASE)
_PLACES = re.compile("[\ue000-\uefff]")
_CUT, _FOREIGN = "\uf000", re.compile("[\ue000-\uf8ff]")
_TRAILING = re.compile("(?:\\s*\\(?[\ue000-\ue7ff]\\)?)+\\.?")
_LIST_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
# [2](address) is a mark, [words](address) are words; links are removed.
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)")
# (passage 2) is a mark, too, and so is the beginning of a line in a list of sources.
_NAMED = re.compile(
    r"\((?:passages?|sources?)\s+(\d[^()\n]{0,40})\)|^[^\w\n]*(?:passage|source)\s+(\d{1,3})\s*[:–—-]",
    re.IGNORECASE | re.MULTILINE,
)
_BEGINNING = re.compile(r"\A\s*answer\s*:\s*", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*\*|__|^#+\s+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CitationMark:
    """Numbers of passages, and the words quoted from them, if any."""

    numbers: tuple[int, ...]
    quotes: tuple[str, ...]


@dataclass(slots=True)
class AnswerSentence:
    """A sentence of an answer without its marks; `disagrees` if it names a contradiction."""

    text: str
    marks: list[CitationMark]
    begins_paragraph: bool
    disagrees: bool = False
    quotes: list[str] = field(default_factory=list)  # words in quotation marks
    begins_with_mark: bool = False


def strip_reasoning(text: str) -> str:
    """The answer without <think> blocks."""
    return _THINKING.sub("", text)


def parse_sentences(text: str) -> list[AnswerSentence]:
    """The sentences of an answer with their marks, completed from its list of sources."""
    parsed: list[AnswerSentence] = []
    sources: dict[int, list[str]] = {}
    begins = True
    text_to_parse = _EMPHASIS.sub("", strip_reasoning(text)).translate(_BRACKETS)
    text_to_parse = _LINK.sub(
        lambda link: f"[{link[1]}]" if link[1].isdecimal() else link[1], text_to_parse
    )
    text_to_parse = _NAMED.sub(
        lambda name: f"[{name[1] or name[2]}] ", _BEGINNING.sub("", text_to_parse)
    )
    closed, bracket, rest = _FOREIGN.sub("", text_to_parse[:_LONGEST]).rpartition("]")
    text_to_parse = closed + bracket + _UNFINISHED.sub(_CUT, rest)
    for line in _SEVERAL.sub(r"\1] [", text_to_parse).split("\n"):
        if not line.strip() or _SOURCES.match(line):
            begins = True
            continue
        disagrees = _DISAGREES.match(line)
        for sentence in _sentences_of_line(_DISAGREES.sub("", line) if disagrees else line):
            sentence.disagrees = disagrees is not None
            sentence.begins_paragraph = begins and bool(parsed)
            if _is_source_line(sentence):
                for mark in dict.fromkeys(sentence.marks):
                    for number in mark.numbers:
                        sources.setdefault(number, []).extend([*mark.quotes, *sentence.quotes])
                if parsed and not parsed[-1].marks and not parsed[-1].disagrees:
                    parsed[-1].marks += sentence.marks
            elif _CUT in sentence.text:
                continue  # the answer was cut within this citation
            elif sentence.text or sentence.marks:
                parsed.append(sentence)
                begins = False
    for sentence in parsed:
        sentence.marks = [_with_source_quotes(mark, sources) for mark in sentence.marks]
    return parsed


def _is_source_line(sentence: AnswerSentence) -> bool:
    """Whether it is a line of a list of sources: a number and a quote, nothing else."""
    if sentence.disagrees or not sentence.begins_with_mark:
        return False
    rest = sentence.text
    for quote in sentence.quotes:
        rest = rest.replace(quote, "")
    return not content_stems(rest)


def _with_source_quotes(mark: CitationMark, sources: dict[int, list[str]]) -> CitationMark:
    if mark.quotes:
        return mark
    quotes = (quote for number in mark.numbers for quote in sources.get(number, ())[:_MOST_QUOTES])
    return CitationMark(mark.numbers, tuple(quotes))


def _sentences_of_line(line: str) -> Iterator[AnswerSentence]:
    """The sentences of a line; marks and quotes are never split."""
    marks: list[CitationMark] = []
    quotes: list[str] = []

    def replace_mark(match: re.Match[str]) -> str:
        if len(marks) == _MOST_PLACES:
            return ""
        numbers = tuple(int(number) for number in re.findall(r"\d+", match["numbers"]))
        inside = (match["inside"] or "").strip()
        quotes_inside = [match[0][1:-1] for match in _LONE_QUOTE.finditer(inside)] or [
            inside.strip("'‘’\"“”")
        ]
        marks.append(CitationMark(numbers, tuple(filter(None, quotes_inside))))
        return chr(_MARK_AT + len(marks) - 1)

    def replace_quote(match: re.Match[str]) -> str:
        if len(quotes) == _MOST_PLACES:
            return match[0]
        quotes.append(match[0])
        return chr(_QUOTE_AT + len(quotes) - 1)

    masked = _LONE_QUOTE.sub(replace_quote, _MARK.sub(replace_mark, _LIST_MARK.sub("", line)))
    for part in _split_sentences(masked):
        sentence_marks = [marks[ord(c) - _MARK_AT] for c in part if _MARK_AT <= ord(c) < _QUOTE_AT]
        text = "".join(
            "" if _MARK_AT <= ord(c) < _QUOTE_AT
            else quotes[ord(c) - _QUOTE_AT] if _PLACES.match(c)
            else c
            for c in part
        )  # fmt: skip
        quoted = [
            quotes[ord(c) - _QUOTE_AT][1:-1]
            for c in part
            if ord(c) - _QUOTE_AT in range(_MOST_PLACES)
        ]
        if sentence_marks and quoted and not any(mark.quotes for mark in sentence_marks):
            # A quote in the sentence belongs to the mark next to it.
            sentence_marks = _marks_with_adjacent_quotes(part, marks, quotes)
        first = part.lstrip("([ ")[:1]
        yield AnswerSentence(
            _tidy(text),
            sentence_marks,
            begins_paragraph=False,
            quotes=quoted,
            begins_with_mark=bool(first) and _MARK_AT <= ord(first) < _QUOTE_AT,
        )


def _marks_with_adjacent_quotes(
    part: str, marks: list[CitationMark], quotes: list[str]
) -> list[CitationMark]:
    """Each mark with the quotes before it, or else the quote after it."""
    result: list[CitationMark] = []
    pending: list[str] = []
    for letter in part:
        code = ord(letter)
        if _QUOTE_AT <= code < _QUOTE_AT + _MOST_PLACES:
            quote = quotes[code - _QUOTE_AT][1:-1]
            if len(quote.encode()) < LEAST_QUOTE:
                continue
            if result and not result[-1].quotes and not pending:
                result[-1] = CitationMark(result[-1].numbers, (quote,))
            else:
                pending.append(quote)
        elif _MARK_AT <= code < _QUOTE_AT:
            result.append(CitationMark(marks[code - _MARK_AT].numbers, tuple(pending)))
            pending = []
    return result


def _split_sentences(line: str) -> Iterator[str]:
    """Split a line into sentences; marks after a full stop belong to the sentence before."""
    begin = 0
    for _, end in sentences(line):
        if end <= begin:
            continue
        stop = end
        if trailing := _TRAILING.match(line, end):
            stop = trailing.end()
        if line[begin:stop].strip():
            yield line[begin:stop].strip()
        begin = stop
    if line[begin:].strip():
        yield line[begin:].strip()


def _tidy(text: str) -> str:
    """Remove the spaces and brackets that removed marks leave."""
    text = re.sub(r"\(\s*\)", "", text)
    text = re.sub(r"\s([.,;:!?])", r"\1", re.sub(r"\s+", " ", text))
    return re.sub(r"([.!?])\.$", r"\1", text).strip(" -–—:")
