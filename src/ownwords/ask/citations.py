"""Verifies the citations of an answer: each quote is looked up in the passage that it names.

The prompt asks for `[2: "words of passage 2"]`. Other forms that models use are parsed, too: a
quote in the sentence with a number, or a list of sources below the answer. A number alone is enough
if a sentence of the passage says nearly the same. The quote that is shown is the passage's text,
never the model's copy. Only supported sentences become part of the answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ownwords.ask.passages import Passage, Whose, best_sentence
from ownwords.ask.servers import THINKING
from ownwords.core.text import Span, sentences
from ownwords.language.words import content_words, forms_of, stems
from ownwords.view.format import count, joined, plain

# Shorter quotes match by chance; 12 bytes are four characters of scripts without spaces.
MIN_QUOTE = 12  # bytes
LONGEST_QUOTE = 600  # characters


@dataclass(frozen=True, slots=True)
class Citation:
    """A verified citation: words of a passage, exactly as in the passage."""

    passage: Passage
    quote: str

    @property
    def whose(self) -> Whose:
        return self.passage.whose_is(self.quote)

    @property
    def year(self) -> int:
        """The year of the cited post, 0 if unknown."""
        return int((self.passage.date or "0")[:4])

    def to_dict(self, number: int) -> dict[str, Any]:
        """Return the citation for JSON, with its number in the answer."""
        names = ("title", "date", "url", "document", "heading")
        of_post = {name: getattr(self.passage, name) for name in names}
        return of_post | {
            "number": number,
            "quote": self.quote,
            "passage": self.passage.id,
            "whose": self.whose,
        }


# ---- what a model wrote

# Patterns for line beginnings do not cross lines: runs of blank lines would take too long.
_MARKDOWN = re.compile(r"\*\*|__|^#+\s+|^[^\S\n]*(?:[-*•]|\d{1,2}[.)])\s+", re.MULTILINE)
_BRACKETS = str.maketrans("【】［］", "[][]")
# [2](address) is a mark, [words](address) are words; links are removed.
_LINK = re.compile(r'!?\[([^\[\]\n]*)\]\([^()\s]*(?: "[^"\n]*")?\)')
# (passage 2) is a mark, too, and so is the beginning of a line in a list of sources.
_NAMED = re.compile(
    r"\((?:passages?|sources?)\s+(\d[^()\n]{0,40})\)|^[^\w\n]*(?:passage|source)\s+(\d{1,3})\s*[:–—-]",
    re.IGNORECASE | re.MULTILINE,
)
_HEADING = re.compile(
    r"^[^\w\n]*(?:sources?|citations?|references?|quotes?)[^\w\n]*$|\A\s*answer\s*:\s*",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = r"""(?:"[^"\n]{2,900}+"|“[^”\n]{2,900}+”|„[^“”\n]{2,900}+[“”]|«[^»\n]{2,900}+»)"""
_MARK = (
    r"\[\s*(?:(?:passages?|sources?|posts?|no\.?|#)\s*)?\d"
    rf"""[^\[\]\n"“„«]*(?:{_QUOTED}[^\[\]\n"“„«]*)*\]"""
)
_HELD = re.compile(f"{_MARK}|{_QUOTED}", re.IGNORECASE)
_IN_MARK = re.compile(f"({_QUOTED})")
_UNQUOTED = re.compile(r"\D*+(\d[\d\s,;&and]*+)[:–—-]\s*['‘]?(.+?)['’]?")
_MARKS, _QUOTES, _CUT = 0xF0000, 0x100000, "\U0010ffff"  # placeholders while a text is split
_PRIVATE = re.compile("[\U000f0000-\U0010ffff]")
_UNFINISHED = re.compile(r"\[\s*(?:passages?\s*)?\d", re.IGNORECASE)  # after the last "]"
# A mark after the full stop belongs to the sentence before it.
_AFTER_STOP = re.compile('([.!?…]["”’)]?)((?:[ \t]*\\(?[\U000f0000-\U000fffff]\\)?)+)\\.?')
_DISAGREES = re.compile(r"^\W*(?:they )?disagree[sd]?\b[\s:*–—-]*", re.IGNORECASE)
_NO_ANSWER = re.compile(r"\bnot in the passages\b", re.IGNORECASE)
_LONGEST = 20_000  # characters


@dataclass(slots=True)
class AnswerSentence:
    """A sentence of an answer without its marks; an entry of a list of sources has no text."""

    text: str = ""
    numbers: list[int] = field(default_factory=list)  # of the passages in its marks
    quotes: list[tuple[int, str]] = field(default_factory=list)  # with the number of the passage
    loose: list[str] = field(default_factory=list)  # other words in quotation marks
    begins_paragraph: bool = False
    disagrees: bool = False  # it names passages that contradict each other
    cited: list[Citation] = field(default_factory=list)  # verified
    failed: list[str] = field(default_factory=list)  # the reason for each citation that failed


def parse_answer(text: str, excerpts: Sequence[Passage]) -> list[AnswerSentence]:
    """Return the sentences of an answer, with their citations looked up in the excerpts."""
    text = _MARKDOWN.sub("", THINKING.sub("", text[:_LONGEST])).translate(_BRACKETS)
    text = _LINK.sub(lambda link: f"[{link[1]}]" if link[1].isdecimal() else link[1], text)
    text = _NAMED.sub(lambda name: f"[{name[1] or name[2]}] ", _HEADING.sub("", text))
    held: list[str] = []  # marks and quotes, which are never split

    def hold(match: re.Match[str]) -> str:
        held.append(match[0])
        return chr((_MARKS if match[0][0] == "[" else _QUOTES) + len(held) - 1)

    text = _HELD.sub(hold, _PRIVATE.sub("", text))
    if unfinished := _UNFINISHED.search(text, text.rfind("]") + 1):
        text = text[: unfinished.start()] + _CUT
    parsed: list[AnswerSentence] = []
    sources: list[tuple[int, str]] = []
    begins = False
    for line in _AFTER_STOP.sub(r"\2\1", text).split("\n"):
        begins = begins or not line.strip()
        disagrees = _DISAGREES.match(line) is not None
        line = _DISAGREES.sub("", line)  # noqa: PLW2901
        for at in sentences(line):
            each = _sentence_of(line[slice(*at)], held)
            if not each.text and not disagrees:
                sources += each.quotes or [(each.numbers[0], quote) for quote in each.loose]
                if parsed and not parsed[-1].numbers:
                    parsed[-1].numbers = each.numbers
            elif _CUT not in each.text:  # or the answer was cut within this citation
                each.begins_paragraph, each.disagrees = begins and bool(parsed), disagrees
                parsed.append(each)
                begins = False
    for each in parsed:
        _look_up(each, sources, excerpts)
    return [each for each in parsed if each.cited or not _NO_ANSWER.search(each.text)]


def _sentence_of(part: str, held: Sequence[str]) -> AnswerSentence:
    """Return a sentence, from its text with placeholders for marks and quotes."""
    each = AnswerSentence()

    def release(match: re.Match[str]) -> str:
        if match[0] == _CUT:
            return _CUT
        words = held[ord(match[0]) & 0xFFFF]
        if words[0] != "[":
            each.loose.append(words[1:-1])
            return words
        unquoted = _UNQUOTED.fullmatch(words[1:-1])
        if unquoted and not _IN_MARK.search(words):
            each.numbers += map(int, re.findall(r"\d{1,3}", unquoted[1]))
            each.quotes.append((each.numbers[-1], unquoted[2]))
            return ""
        for at, inside in enumerate(_IN_MARK.split(words)):
            if at % 2:
                each.quotes.append((each.numbers[-1], inside[1:-1]))
            else:
                each.numbers += map(int, re.findall(r"\d{1,3}", inside))
        return ""

    text = re.sub(r"\(\s*\)", "", _PRIVATE.sub(release, part))
    text = re.sub(r"\s([.,;:!?])", r"\1", " ".join(text.split()))
    begins_with_mark = "\U000f0000" <= part.lstrip("([ ")[:1] < "\U00100000"
    if not (begins_with_mark and not content_words(_PRIVATE.sub("", part))):
        each.text = text.strip(" -–—:")
    return each


# ---- whether the passages support it

# For a citation without a quote: the share of the statement that one sentence must contain.
_NEARLY_SAID = 0.6
_NUMBER = re.compile(r"\b\d{3,}\b")
_THOUSANDS = re.compile(r"(?<=\d)[,.\u2009\u202f ](?=\d{3}\b)")
_PARTED = re.compile(r"\[\s*(?:…|\.\.\.)\s*\]|…|\.\.\.")
_SAME = str.maketrans(
    dict.fromkeys("“”„‟«»＂″", '"') | dict.fromkeys("‘’‚‛′`´", "'") | dict.fromkeys("‐‑‒–—―−", "-")
)
_UNSEEN = re.compile(r"[\s\u00ad\u200b-\u200f\u2060\ufeff*_]")
_LINE_QUOTES = re.compile(r"^(?:> ?)+", re.MULTILINE)


def find_quote(quote: str, text: str) -> Span | None:
    """Return the span of a quote in a text, ignoring spaces, case, and forms of quotes and dashes.

    An ellipsis in the quote may stand for omitted words; the span then includes them. Returns None
    if the quote is not there, or too short to be evidence.
    """
    normalized, places = _normalized(text)
    parts = [part for each in _PARTED.split(quote) if (part := _normalized(each)[0])]
    if not parts or len("".join(parts).encode()) < MIN_QUOTE:
        return None
    begin, end = -1, 0
    for part in parts:
        for words in (part, part.rstrip(".,;:!?")):  # without the model's own full stop
            if words and (at := normalized.find(words, end)) >= 0:
                break
        else:
            return None
        begin = at if begin < 0 else begin
        end = at + len(words)
    span = places[begin], places[end - 1] + 1
    return span if span[1] - span[0] <= LONGEST_QUOTE else None


@lru_cache(maxsize=64)  # every quote is looked up in the same passages
def _normalized(text: str) -> tuple[str, list[int]]:
    """Return the text in the compared form, and the original position of each character."""
    skipped = {at for mark in _LINE_QUOTES.finditer(text) for at in range(*mark.span())}
    letters: list[str] = []
    places: list[int] = []
    for at, letter in enumerate(text):
        if at not in skipped and not _UNSEEN.match(letter):
            same = "..." if letter == "…" else letter.translate(_SAME).casefold()
            letters.append(same)
            places += [at] * len(same)
    return "".join(letters), places


def _look_up(
    sentence: AnswerSentence, sources: Sequence[tuple[int, str]], excerpts: Sequence[Passage]
) -> None:
    """Look up the citations of a sentence, and store the reasons of those that fail."""
    known = {number: each for number, each in enumerate(excerpts, 1) if number in sentence.numbers}
    unknown = [number for number in dict.fromkeys(sentence.numbers) if number not in known]
    sentence.failed = [f"there is no passage {number}" for number in unknown]
    cited: dict[Citation, None] = {}
    quotes = sentence.quotes
    if sentence.numbers and not quotes:
        found = (_find_in(quote, [*known.values(), *excerpts]) for quote in sentence.loose)
        cited = dict.fromkeys(each for each in found if each)
        quotes = [] if cited else [pair for pair in sources if pair[0] in known]
    for number, quote in dict.fromkeys(quotes):
        # Models mix up the numbers: the words decide.
        first = [known[number]] if number in known else []
        if citation := _find_in(quote, [*first, *excerpts]):
            cited[citation] = None
        else:
            sentence.failed.append(f"passage {number} does not contain “{plain(quote, 60)}”")
    for number, excerpt in known.items() if not cited and not quotes else ():
        if citation := _matching_sentence(sentence.text, excerpt):
            cited[citation] = None
        else:
            sentence.failed.append(f"passage {number} does not say that")
    sentence.cited = list(cited)


def _find_in(quote: str, excerpts: Iterable[Passage]) -> Citation | None:
    for excerpt in excerpts:
        if span := find_quote(quote, excerpt.text):
            return Citation(excerpt, excerpt.text[slice(*span)])
    return None


def _matching_sentence(statement: str, excerpt: Passage) -> Citation | None:
    """Return the sentence of a passage that says nearly the same as a statement, if any."""
    said = content_words(statement).keys()
    span = best_sentence(statement, excerpt.text) if said else None
    quote = excerpt.text[slice(*span)] if span else ""
    is_same = len(said & set(stems(quote))) >= _NEARLY_SAID * len(said)
    return Citation(excerpt, quote) if 0 < len(quote) <= LONGEST_QUOTE and is_same else None


def check_support(
    statement: str, cited: Sequence[Citation], question: str
) -> tuple[str, list[str]]:
    """Return why the citations cannot support a sentence, else "", and its words not in a quote.

    A sentence is unsupported if it has a number of three or more digits, such as a year, that is
    neither in the passages nor in the question, or if the quoted sentences have none of the words
    that it adds to the question.
    """
    context = " ".join(f"{quote.passage.text} {_around(quote)}" for quote in cited)
    known = set(_NUMBER.findall(_THOUSANDS.sub("", f"{context} {question}")))
    for number in _NUMBER.findall(_THOUSANDS.sub("", statement)):
        if number not in known:
            return f"it says {number}, but the cited passage does not", []
    asked = set(stems(question))
    quoted = {stem for quote in cited for stem in stems(_around(quote))}
    new = [word for word in content_words(statement).values() if not _occurs(word, asked)]
    unchecked = [word for word in new if not _occurs(word, quoted)]
    if new and len(unchecked) == len(new):
        return "the quote has none of its words", []
    return "", unchecked


def _around(quote: Citation) -> str:
    """Return the title of a quote's passage, and the sentences that contain the quote."""
    passage = quote.passage
    text = passage.text
    begin = text.find(quote.quote)
    end = begin + len(quote.quote)
    spans = [span for span in sentences(text) if span[0] < end and span[1] > begin]
    parts = (text[slice(*span)] for span in spans)
    return "\n".join([passage.title, passage.heading, passage.date or "", *parts])


def _occurs(word: str, known: set[str]) -> bool:
    """Whether a word or another form of it ("kept" for "keep") is among these stems."""
    return not known.isdisjoint(stems(" ".join([word, *forms_of(word)])))


# ---- the answer that is shown

_MAX_NAMED = 6  # words listed in a note
CHECKED = (
    "Checked: every quote is in its post, word for word. Not checked: whether the sentences"
    " around the quotes say what the post means."
)


class AnswerBuilder:
    """Reads an answer while it is written, and passes on each supported sentence once.

    A sentence is supported if one of its citations is verified and contains its words.
    """

    def __init__(
        self,
        excerpts: Sequence[Passage],
        question: str,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._excerpts, self._question, self._on_text = excerpts, question, on_text
        self._written = ""
        self._next_read = 0  # length at which the answer is parsed again
        self._judged = 0  # number of statements judged
        self._reasons: Counter[str] = Counter()
        self._left_out = 0
        self._unchecked: dict[str, None] = {}  # words of shown sentences that their quotes lack
        self.citations: list[Citation] = []  # in the order of their numbers
        self.text = ""  # the supported sentences with the numbers of their citations

    def add(self, piece: str) -> None:
        self._written += piece
        is_over = "]" in piece or "\n" in piece
        if self._on_text and is_over and len(self._written) >= self._next_read:
            self._next_read = len(self._written) * 9 // 8  # so that all parsing takes linear time
            # The last sentence may be unfinished; a list of sources may still complete citations.
            for statement in parse_answer(self._written, self._excerpts)[self._judged : -1]:
                if statement.failed:
                    return
                self._judge(statement)

    def end(self, *, is_cut: bool = False) -> None:
        """End the text; `is_cut` if the model was stopped in the middle."""
        statements = parse_answer(self._written, self._excerpts)[self._judged :]
        if is_cut and statements and not statements[-1].cited:
            statements = statements[:-1]
        for statement in statements:
            self._judge(statement)

    def notes(self) -> list[str]:
        """Return notes on omitted sentences, with the reasons, and on the citations."""
        notes = []
        if self._unchecked:
            words = ", ".join(f"“{word}”" for word in list(self._unchecked)[:_MAX_NAMED])
            notes.append(
                f"(unchecked) marks a sentence with words that are not in its quote: {words}."
            )
        if self._left_out:
            what = count(self._left_out, "sentence")
            notes.append(f"Left out: {what}. Reasons: {self.reasons()}.")
        elif self._reasons:
            notes.append(f"Some citations could not be verified: {self.reasons()}.")
        others = [f"[{at}]" for at, cited in enumerate(self.citations, 1) if cited.whose != "own"]
        if others:
            notes.append(f"Not your own words: {' '.join(others)}.")
        return notes

    def reasons(self) -> str:
        """Return the two most frequent reasons for omitted sentences and failed citations."""
        return "; ".join(why for why, _ in self._reasons.most_common(2))

    def why_nothing(self) -> str:
        """Return why no sentence can be shown, worded to follow the model's name."""
        if _NO_ANSWER.search(THINKING.sub("", self._written)):
            return "finds no answer in these passages."
        if self._reasons:
            return (
                "gave an answer, which is not shown because no sentence of it is supported:"
                f" {self.reasons()}."
            )
        return "gave no answer."

    def _judge(self, statement: AnswerSentence) -> None:
        self._judged += 1
        self._reasons.update(statement.failed)
        if statement.disagrees:
            self._contradict(statement)
        elif statement.cited:
            why, unchecked = check_support(statement.text, statement.cited, self._question)
            if why:
                self._leave_out(why)
                return
            marks = self._marks(statement.cited) + (" (unchecked)" if unchecked else "")
            self._unchecked.update(dict.fromkeys(unchecked))
            self._append(with_marks(_sentence(statement.text), marks), statement)
        else:
            self._leave_out("" if statement.failed else "no citation")

    def _contradict(self, statement: AnswerSentence) -> None:
        """Append what the author said first and last, if that was in different years."""
        own = {each.year: each for each in statement.cited if each.whose == "own" and each.year}
        if len(own) > 1:
            said = (
                f"in {year} “{plain(own[year].quote)}”{self._marks([own[year]])}"
                for year in (min(own), max(own))
            )
            statement.begins_paragraph = True
            self._append(f"You said {joined(said, 'and')}.", statement)

    def _leave_out(self, why: str) -> None:
        self._left_out += 1
        self._reasons.update([why] if why else [])

    def _append(self, text: str, statement: AnswerSentence) -> None:
        between = "\n\n" if statement.begins_paragraph else " "
        text = f"{between}{text}" if self.text else text
        self.text += text
        if self._on_text:
            self._on_text(text)

    def _marks(self, cited: Sequence[Citation]) -> str:
        numbers = sorted({self._number(quote) for quote in cited})
        return " " + "".join(f"[{number}]" for number in numbers)

    def _number(self, checked: Citation) -> int:
        """Return the number of a citation, a new one unless an earlier quote contains it."""
        for number, quote in enumerate(self.citations, 1):
            if quote.passage.id == checked.passage.id and checked.quote in quote.quote:
                return number
        self.citations.append(checked)
        return len(self.citations)


def _sentence(text: str) -> str:
    line = plain(text)
    return line[:1].upper() + line[1:] + ("" if not line or line[-1] in '.!?…:”"’)' else ".")


def with_marks(text: str, marks: str) -> str:
    """Return the text with the marks before its final full stop."""
    if text[-1:] in ".!?":
        return text[:-1] + marks + text[-1]
    return text + marks
