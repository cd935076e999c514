"""Verifies the citations of an answer: each quote is looked up in the passage it names.

The prompt asks for `[2: "words of passage 2"]`. Other forms that models use are parsed as well: the
quote after the number, the quote before it, a list of sources below the answer. The number alone is
enough if a sentence of the passage says nearly the same. The quote shown is the passage's text,
never the model's copy. Only supported sentences become part of the answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ownwords.ask.passages import (
    Passage,
    Whose,
    best_sentence,
    content_stems,
    content_words,
    covered_share,
    stems,
)
from ownwords.ask.query import forms_of
from ownwords.core.sentences import Span, sentences
from ownwords.view.format import count, plain

# Shorter quotes match by chance; 12 bytes are four characters of scripts without spaces.
MIN_QUOTE = 12  # bytes

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
_MAX_QUOTES = 20  # of one passage in a list of sources
# Placeholders for marks and quotes while a text is split into sentences.
_MARK_AT, _QUOTE_AT, _CUT = 0xF0000, 0x100000, "\U0010ffff"
_PRIVATE = re.compile("[\U000f0000-\U0010ffff]")
_TRAILING = re.compile("(?:\\s*\\(?[\U000f0000-\U000fffff]\\)?)+\\.?")
_SOURCES = re.compile(r"\W*(?:sources?|citations?|references?|quotes?|answer)\W*\Z", re.IGNORECASE)
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


class CitationMark(NamedTuple):
    """Numbers of passages, and the words quoted from them, if any."""

    numbers: tuple[int, ...]
    quotes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Citation:
    """A verified citation: words of a passage, exactly as in the passage."""

    passage: Passage
    quote: str

    @property
    def whose(self) -> Whose:
        """Whose words the quote is."""
        return self.passage.whose_is(self.quote)

    @property
    def year(self) -> int:
        """The year of the cited post, 0 if unknown."""
        return int((self.passage.date or "0")[:4])

    def to_dict(self, number: int) -> dict[str, Any]:
        """The citation for JSON, with its number in the answer."""
        passage = self.passage
        return {
            "number": number,
            "title": passage.title,
            "date": passage.date,
            "url": passage.url,
            "quote": self.quote,
            "passage": passage.id,
            "document": passage.document,
            "heading": passage.heading,
            "whose": self.whose,
        }


@dataclass(slots=True)
class AnswerSentence:
    """A sentence of an answer without its marks."""

    text: str
    marks: list[CitationMark]
    quotes: list[str]  # words in quotation marks
    is_source: bool  # a line of a list of sources: a number and a quote, nothing else
    cited: list[Citation] = field(default_factory=list)  # verified
    failed: list[str] = field(default_factory=list)  # the reason for each citation that failed


def strip_reasoning(text: str) -> str:
    """The answer without <think> blocks."""
    return _THINKING.sub("", text)


def parse_sentences(text: str) -> list[AnswerSentence]:
    """The sentences of an answer with their marks, completed from its list of sources."""
    text = _EMPHASIS.sub("", strip_reasoning(text)).translate(_BRACKETS)
    text = _LINK.sub(lambda link: f"[{link[1]}]" if link[1].isdecimal() else link[1], text)
    text = _NAMED.sub(lambda name: f"[{name[1] or name[2]}] ", _BEGINNING.sub("", text))
    closed, bracket, rest = _PRIVATE.sub("", text[:_LONGEST]).rpartition("]")
    text = _SEVERAL.sub(r"\1] [", closed + bracket + _UNFINISHED.sub(_CUT, rest))
    parsed: list[AnswerSentence] = []
    sources: dict[int, list[str]] = {}
    for line in text.split("\n"):
        for sentence in () if _SOURCES.match(line) else _sentences_of_line(line):
            if sentence.is_source:
                for mark in dict.fromkeys(sentence.marks):
                    for number in mark.numbers:
                        sources.setdefault(number, []).extend([*mark.quotes, *sentence.quotes])
                if parsed and not parsed[-1].marks:
                    parsed[-1].marks += sentence.marks
            # Not if the answer was cut within this citation.
            elif _CUT not in sentence.text and (sentence.text or sentence.marks):
                parsed.append(sentence)
    for sentence in parsed:
        sentence.marks = [_with_source_quotes(mark, sources) for mark in sentence.marks]
    return parsed


def _with_source_quotes(mark: CitationMark, sources: dict[int, list[str]]) -> CitationMark:
    if mark.quotes:
        return mark
    quotes = (quote for number in mark.numbers for quote in sources.get(number, ())[:_MAX_QUOTES])
    return CitationMark(mark.numbers, tuple(quotes))


def _sentences_of_line(line: str) -> Iterator[AnswerSentence]:
    """The sentences of a line; marks and quotes are never split."""
    marks: dict[str, CitationMark] = {}
    quotes: dict[str, str] = {}

    def replace_mark(match: re.Match[str]) -> str:
        numbers = tuple(int(number) for number in re.findall(r"\d+", match["numbers"]))
        inside = (match["inside"] or "").strip()
        quoted = [quote[0][1:-1] for quote in _LONE_QUOTE.finditer(inside)]
        quoted = quoted or [inside.strip("'‘’\"“”")]
        place = chr(_MARK_AT + len(marks))
        marks[place] = CitationMark(numbers, tuple(filter(None, quoted)))
        return place

    def replace_quote(match: re.Match[str]) -> str:
        place = chr(_QUOTE_AT + len(quotes))
        quotes[place] = match[0]
        return place

    masked = _LONE_QUOTE.sub(replace_quote, _MARK.sub(replace_mark, _LIST_MARK.sub("", line)))
    for part in _split_sentences(masked):
        found = [marks[letter] for letter in part if letter in marks]
        quoted = [quotes[letter][1:-1] for letter in part if letter in quotes]
        if quoted and not any(mark.quotes for mark in found):
            # A quote in the sentence belongs to the mark next to it.
            found = _marks_with_adjacent_quotes(part, marks, quotes)
        bare = "".join(letter for letter in part if letter not in marks)
        is_source = part.lstrip("([ ")[:1] in marks and not content_stems(_PRIVATE.sub("", bare))
        text = "".join(quotes.get(letter, letter) for letter in bare)
        yield AnswerSentence(_tidy(text), found, quoted, is_source)


def _marks_with_adjacent_quotes(
    part: str, marks: dict[str, CitationMark], quotes: dict[str, str]
) -> list[CitationMark]:
    """Each mark with the quotes before it, or else the quote after it."""
    result: list[CitationMark] = []
    pending: list[str] = []
    for letter in part:
        if letter in marks:
            result.append(CitationMark(marks[letter].numbers, tuple(pending)))
            pending = []
        elif letter in quotes and len((quote := quotes[letter][1:-1]).encode()) >= MIN_QUOTE:
            if result and not result[-1].quotes and not pending:
                result[-1] = CitationMark(result[-1].numbers, (quote,))
            else:
                pending.append(quote)
    return result


def _split_sentences(line: str) -> Iterator[str]:
    """Split a line into sentences; marks after a full stop belong to the sentence before."""
    begin = 0
    for _, end in [*sentences(line), (0, len(line))]:
        if end < begin:
            continue
        trailing = _TRAILING.match(line, end)
        stop = trailing.end() if trailing else end
        if part := line[begin:stop].strip():
            yield part
        begin = stop


def _tidy(text: str) -> str:
    """Remove the spaces and brackets that removed marks leave."""
    text = re.sub(r"\(\s*\)", "", text)
    text = re.sub(r"\s([.,;:!?])", r"\1", re.sub(r"\s+", " ", text))
    return re.sub(r"([.!?])\.$", r"\1", text).strip(" -–—:")


# Narrow on purpose: "ignore the previous owner" is harmless.
_INJECTION = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override|overrule|bypass)\b(?:
        [^.!?\n]{0,40}\b(?:instructions?|prompts?|guidelines)\b
        | [^.!?\n]{0,20}\babove\b
        | [^.!?\n]{0,20}\b(?:previous|prior|preceding|earlier)\s
            (?:texts?|messages?|context|passages?|rules?|commands?|directions?|words|lines?)\b)
    | \bnew\ instructions?\s*:
    | \b(?:system\ prompt|developer\ (?:prompt|message))\b
    | \byou\ are\ now\b[^.!?\n]{0,30}\b(?:assistant|mode|ai|chatbot|bot|model|jailbroken)\b
    | (?:^|[.!?:;,]\s*|\b(?:and|then|please|now|instead)\s)
        (?:print|output|reply|respond|answer|say|write|repeat|return)\b
        (?:\s+back)?\s+(?:(?:with|only|exactly)\s+)*
        (?:only|exactly|verbatim|nothing\ but|the\ following|with\ the\ words?
            |(?-i:["“'‘`]|[A-Z]{4,}\b))
    | \b(?:dear|attention|hey|to\ (?:the|any|all))\ (?:ai|llm|chatbot|assistant|language\ model)s?\b
    | \bdo\ not\ (?:tell|inform|reveal|cite)\b[^.!?\n]{0,20}\bthe\ (?:user|reader)\b
    | <\|[a-z_]+\|> | \[/?INST\] | <</?SYS>> | <(?:start|end)_of_turn>
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)


def looks_like_injection(text: str) -> bool:
    """Whether a text looks like an instruction to a program."""
    return _INJECTION.search(text) is not None


def without_injections(text: str) -> str:
    """The text without the sentences that look like prompt injections."""
    parts = (text[begin:end] for begin, end in sentences(text))
    return "\n".join(part for part in parts if not looks_like_injection(part))


LONGEST_QUOTE = 600  # characters
# The share of a sentence's content words that must occur in the passages it cites, in their titles
# or in the question: an answer may paraphrase, but not every word.
_SUPPORTED = 1 / 4
# The share that must occur in one sentence of the passage for a citation without a quote.
_NEARLY_SAID = 0.6
_YEAR = re.compile(r"\b\d{3,}\b")
_THOUSANDS = re.compile(r"(?<=\d)[,.\u2009\u202f ](?=\d{3}\b)")
_PARTED = re.compile(r"\[\s*(?:…|\.\.\.)\s*\]|…|\.\.\.")
NOT_THERE = re.compile(r"\bnot in the passages\b", re.IGNORECASE)


def parse_answer(text: str, excerpts: Sequence[Passage], question: str) -> list[AnswerSentence]:
    """The sentences of an answer, each with its citations looked up in the numbered excerpts."""
    parsed = parse_sentences(text)
    for sentence in parsed:
        _look_up(sentence, excerpts, question)
    return [each for each in parsed if each.cited or not NOT_THERE.search(each.text)]


def find_quote(quote: str, text: str) -> Span | None:
    """The span of a quote in a text, ignoring spaces, case and the forms of quotes and dashes.

    Dots in the quote may stand for words left out; the span then includes them. None if it is not
    there or too short to be evidence.
    """
    normalized, places = _normalized(text)
    parts = [part for each in _PARTED.split(quote) if (part := _normalized(each)[0])]
    if not parts or len("".join(parts).encode()) < MIN_QUOTE:
        return None
    begin = end = -1
    for part in parts:
        at = normalized.find(part, max(end, 0))
        if at < 0:
            part = part.rstrip(".,;:!?")  # noqa: PLW2901 - the end of the model's sentence
            at = normalized.find(part, max(end, 0)) if part else -1
        if at < 0:
            return None
        begin = at if begin < 0 else begin
        end = at + len(part)
    span = places[begin], places[end - 1] + 1
    return span if span[1] - span[0] <= LONGEST_QUOTE else None


def check_support(
    statement: str, cited: Sequence[Citation], question: str
) -> tuple[str, list[str]]:
    """Why the cited passages cannot support a sentence, or else its words that no quote has.

    A sentence is unsupported if too few of its content words occur in the passages or the
    question, or if one of its numbers of three or more digits, such as a year, does not. It is also
    unsupported if it has words that are not in the question and no quoted sentence contains any of
    them. Sentences that look like prompt injections support nothing.
    """
    context = " ".join(
        f"{_head(quote)} {without_injections(quote.passage.text)}" for quote in cited
    )
    asked = set(stems(question))
    if number := _unknown_number(statement, f"{context} {question}"):
        return f"it says {number}, and the cited passage does not", []
    if covered_share(content_stems(statement), asked | set(stems(context))) < _SUPPORTED:
        return "its words are not in the cited passage", []
    quoted = {
        stem
        for quote in cited
        for text in (quote.quote, without_injections(f"{_head(quote)}\n{_around(quote)}"))
        for stem in stems(text)
    }
    new = [word for word in content_words(statement).values() if not _occurs(word, asked)]
    unchecked = [word for word in new if not _occurs(word, quoted)]
    if new and len(unchecked) == len(new):
        return "its words are not in the quote", []
    return "", unchecked


def _head(quote: Citation) -> str:
    return f"{quote.passage.title} {quote.passage.heading} {quote.passage.date or ''}"


def _around(quote: Citation) -> str:
    """The sentences that a quote is from."""
    text = quote.passage.text
    begin = text.find(quote.quote)
    end = begin + len(quote.quote)
    spans = [span for span in sentences(text) if span[0] < end and span[1] > begin]
    return "\n".join(text[slice(*span)] for span in spans)


def _occurs(word: str, known: set[str]) -> bool:
    """Whether a word or another form of it ("kept" for "keep") is among these stems."""
    return not known.isdisjoint(stems(" ".join([word, *forms_of(word)])))


def repeats_known(statement: str, cited: Sequence[Citation], question: str) -> bool:
    """Whether a sentence without citations adds nothing: all its words are in the quotes."""
    known = " ".join(
        f"{each.passage.title} {each.passage.date or ''} {each.quote}" for each in cited
    )
    known_stems = set(stems(without_injections(known))) | set(stems(question))
    is_known = content_stems(statement) <= known_stems
    return is_known and not _unknown_number(statement, f"{known} {question}")


def _unknown_number(statement: str, known: str) -> str:
    """A number of three or more digits in the statement that is not in the known text."""
    numbers = _YEAR.findall(_THOUSANDS.sub("", statement))
    known_numbers = set(_YEAR.findall(_THOUSANDS.sub("", known)))
    return next((number for number in numbers if number not in known_numbers), "")


def _look_up(sentence: AnswerSentence, excerpts: Sequence[Passage], question: str) -> None:
    """Look up the citations of a sentence, and note those that fail."""
    cited: dict[Citation, None] = {}
    for numbers, quotes in dict.fromkeys(sentence.marks):
        there = {number: excerpts[number - 1] for number in numbers if 0 < number <= len(excerpts)}
        sentence.failed += [f"there is no passage {each}" for each in numbers if each not in there]
        for number, excerpt in there.items() if not quotes else ():
            if match := _matching_sentence(sentence.text, excerpt):
                cited[match] = None
            else:
                sentence.failed.append(f"passage {number} does not say that")
        for quote in quotes:
            # Models mix up the numbers: the words decide.
            if found := _find_in(quote, [*there.values(), *excerpts]):
                cited[found] = None
            else:
                number = next(iter(there), numbers[0])
                sentence.failed.append(f"passage {number} does not contain “{plain(quote, 60)}”")
    sentence.cited = [each for each in cited if not _is_unwanted_injection(each.quote, question)]
    if len(sentence.cited) < len(cited):
        sentence.failed.append("text that looks like an instruction to a program is no evidence")


def _is_unwanted_injection(quote: str, question: str) -> bool:
    """Whether a quote looks like a prompt injection that the question does not ask about."""
    return looks_like_injection(quote) and len(content_stems(question) & set(stems(quote))) < 2


def _find_in(quote: str, excerpts: Iterable[Passage]) -> Citation | None:
    for excerpt in excerpts:
        if span := find_quote(quote, excerpt.text):
            return Citation(excerpt, excerpt.text[slice(*span)])
    return None


def _matching_sentence(statement: str, excerpt: Passage) -> Citation | None:
    """The sentence of a passage that says nearly the same as a statement, if there is one."""
    said = content_stems(statement)
    if said and (span := best_sentence(statement, excerpt.text)):
        quote = excerpt.text[slice(*span)]
        share = covered_share(said, set(stems(quote)))
        if len(quote) <= LONGEST_QUOTE and share >= _NEARLY_SAID:
            return Citation(excerpt, quote)
    return None


_SAME = str.maketrans(
    dict.fromkeys("“”„‟«»＂″", '"') | dict.fromkeys("‘’‚‛′`´", "'") | dict.fromkeys("‐‑‒–—―−", "-")
)
_UNSEEN = re.compile(r"[\s\u00ad\u200b-\u200f\u2060\ufeff*_]")
_LINE_QUOTES = re.compile(r"^(?:> ?)+", re.MULTILINE)


@lru_cache(maxsize=64)  # every quote is looked up in the same passages
def _normalized(text: str) -> tuple[str, list[int]]:
    """The text in the form that is compared, and the original position of each character."""
    skipped = {at for mark in _LINE_QUOTES.finditer(text) for at in range(*mark.span())}
    letters: list[str] = []
    places: list[int] = []
    for at, letter in enumerate(text):
        if at in skipped or _UNSEEN.match(letter):
            continue
        same = "..." if letter == "…" else letter.translate(_SAME).casefold()
        letters.append(same)
        places += [at] * len(same)
    return "".join(letters), places


# Quotes from posts this many years apart get a note about their ages.
_YEARS_TO_MENTION = 5
_MAX_UNCHECKED = 6  # words named in a note
CHECKED = (
    "Checked: every quote is in its post, word for word. Not checked: whether the sentences"
    " around the quotes say what the post means."
)
_GROWTH = 1.05  # of the text from one reading to the next
_MAX_REASONS = 2  # reasons named for sentences left out


class AnswerBuilder:
    """Reads an answer while it is written and passes on each supported sentence once.

    A sentence is supported if one of its citations is verified and contains its words. A sentence
    without citations is passed on only next to such a sentence, and if it adds nothing.
    """

    def __init__(
        self,
        excerpts: Sequence[Passage],
        question: str,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._excerpts, self._question, self._on_text = excerpts, question, on_text
        self._pieces: list[str] = []
        self._length = self._length_read = 0  # characters
        self._judged = 0  # number of statements judged
        self._pending: list[AnswerSentence] = []  # without citations, until one with some follows
        self._cited: list[Citation] = []
        self._parts: list[str] = []
        self._reasons: Counter[str] = Counter()
        self._left_out = 0
        self._unchecked: dict[str, None] = {}  # words of shown sentences that their quotes lack
        self.has_no_answer = False

    def add(self, piece: str) -> None:
        """Add a piece of the model's text."""
        self._pieces.append(piece)
        self._length += len(piece)
        if not self._on_text or not ("]" in piece or "\n" in piece):
            return
        # Each reading begins anew: if it waits for new text in proportion, all of them together
        # take no longer than a few dozen of the whole text.
        if self._length >= _GROWTH * self._length_read:
            self._length_read = self._length
            # The last sentence may be unfinished; a list of sources may still complete citations.
            for statement in self._read()[self._judged : -1]:
                if statement.failed:
                    return
                self._judge(statement)

    def end(self, *, is_cut: bool = False) -> None:
        """End the text; `is_cut` if the model was stopped in the middle."""
        statements = self._read()[self._judged :]
        if is_cut and statements and not statements[-1].cited:
            statements = statements[:-1]
        for statement in statements:
            self._judge(statement)
        self.has_no_answer = NOT_THERE.search(strip_reasoning("".join(self._pieces))) is not None
        if self._cited:
            self._flush()
        else:
            self._left_out += len(self._pending)

    @property
    def text(self) -> str:
        """The supported sentences with the numbers of their citations."""
        return "".join(self._parts)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations in the order of their numbers."""
        return tuple(self._cited)

    def notes(self) -> list[str]:
        """Notes on sentences left out, with the reasons, and on the citations."""
        notes = []
        if self._unchecked:
            words = ", ".join(f"“{word}”" for word in list(self._unchecked)[:_MAX_UNCHECKED])
            notes.append(f"(unchecked): the sentence has words that its quote lacks: {words}.")
        if self._left_out:
            what = count(self._left_out, "sentence")
            were = "was" if self._left_out == 1 else "were"
            notes.append(f"{what} {were} left out: {self.reasons()}.")
        elif self._reasons:
            notes.append(f"Some citations could not be verified: {self.reasons()}.")
        others = [f"[{at}]" for at, cited in enumerate(self._cited, 1) if cited.whose != "own"]
        if others:
            notes.append(f"Not your own words: {' '.join(others)}.")
        years = sorted(cited.year for cited in self._cited if cited.whose == "own" and cited.year)
        if years and years[-1] - years[0] >= _YEARS_TO_MENTION:
            notes.append(
                f"The citations are from {years[0]} to {years[-1]}: you may have changed your mind"
                " in between."
            )
        return notes

    def reasons(self) -> str:
        """The reasons for left-out sentences and failed citations, most frequent first."""
        common = [why for why, _ in self._reasons.most_common(_MAX_REASONS)]
        more = len(self._reasons) - len(common)
        return "; ".join(common) + (f"; and {count(more, 'more reason')}" if more > 0 else "")

    def _read(self) -> list[AnswerSentence]:
        """The sentences so far."""
        return parse_answer("".join(self._pieces), self._excerpts, self._question)

    def _judge(self, statement: AnswerSentence) -> None:
        self._judged += 1
        self._reasons.update(statement.failed)
        if not statement.cited:
            if not statement.failed and repeats_known(statement.text, self._cited, self._question):
                self._pending.append(statement)
            else:
                self._leave_out("" if statement.failed else "it has no citation")
            return
        why, unchecked = check_support(statement.text, statement.cited, self._question)
        if why:
            self._leave_out(why)
            return
        self._flush()
        marks = self._marks(statement.cited) + (" (unchecked)" if unchecked else "")
        self._unchecked.update(dict.fromkeys(unchecked))
        self._append(with_marks(_sentence(statement.text), marks))

    def _leave_out(self, why: str) -> None:
        self._left_out += 1
        if why:
            self._reasons[why] += 1

    def _flush(self) -> None:
        for statement in self._pending:
            self._append(_sentence(statement.text))
        self._pending = []

    def _append(self, text: str) -> None:
        self._parts.append(f" {text}" if self._parts else text)
        if self._on_text:
            self._on_text(self._parts[-1])

    def _marks(self, cited: Sequence[Citation]) -> str:
        numbers = sorted({self._number(quote) for quote in cited})
        return " " + "".join(f"[{number}]" for number in numbers)

    def _number(self, checked: Citation) -> int:
        """The number of a citation, a new one unless the quote is part of an earlier quote."""
        for number, quote in enumerate(self._cited, 1):
            if quote.passage.id == checked.passage.id and checked.quote in quote.quote:
                return number
        self._cited.append(checked)
        return len(self._cited)


def _sentence(text: str) -> str:
    line = plain(text)
    return line[:1].upper() + line[1:] + ("" if not line or line[-1] in '.!?…:”"’)' else ".")


def with_marks(text: str, marks: str) -> str:
    """The text with the marks before its final full stop."""
    if text[-1:] in ".!?":
        return text[:-1] + marks + text[-1]
    return text + marks
