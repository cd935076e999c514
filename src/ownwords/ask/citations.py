"""From the text of an answer to what of it holds: each citation looked up in the passage it names.

A citation is a number and words of the passage of that number; the number alone will do where one
sentence of the passage says nearly the same. What is shown of a citation is the passage's own text,
never the model's copy of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ownwords.ask.citation_marks import (
    LEAST_QUOTE,
    AnswerSentence,
    parse_sentences,
    strip_reasoning,
)
from ownwords.ask.passage import RetrievedPassage, Whose
from ownwords.ask.prompt_injection import looks_like_injection, without_injections
from ownwords.ask.sentence_matching import Span, best_sentences, content_stems, covered_share, stems

LONGEST_QUOTE = 600  # characters
# Of the words of a sentence that say something, this share must stand in what it cites, in the
# question or in the posts' titles: an answer puts things in other words, but not in all others.
_SUPPORTED = 1 / 4
# And this share in one sentence of the passage for that to be taken as what the model meant.
_NEARLY_SAID = 0.6
_YEAR = re.compile(r"\b\d{3,}\b")
_THOUSANDS = re.compile(r"(?<=\d)[,.\u2009\u202f ](?=\d{3}\b)")
_PARTED = re.compile(r"\s*(?:\[\s*(?:…|\.\.\.)\s*\]|…|\.\.\.)\s*")
NOT_THERE = re.compile(r"\bnot in the passages\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a model was shown of a passage, and the number it was told to cite it by."""

    number: int
    passage: RetrievedPassage
    text: str


@dataclass(frozen=True, slots=True)
class VerifiedQuote:
    """A citation that holds: a stretch of a passage, word for word as it stands there."""

    passage: RetrievedPassage
    quote: str
    whose: Whose


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of an answer, without its marks; what it cites and holds, and what was wrong."""

    text: str
    cited: tuple[VerifiedQuote, ...] = ()
    failed: tuple[str, ...] = ()  # of each citation that does not hold, why
    moved: int = 0  # citations whose words stand in another passage than they name
    begins_paragraph: bool = False


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer's text, read: its sentences, pairs said to disagree, and whether it was refused."""

    statements: tuple[Statement, ...] = ()
    disagreements: tuple[tuple[VerifiedQuote, VerifiedQuote], ...] = ()
    failed: tuple[str, ...] = ()
    has_no_answer: bool = False


def parse_answer(text: str, excerpts: Sequence[Excerpt], question: str) -> ParsedAnswer:
    """What an answer says, and which of its citations hold in the excerpts."""
    has_no_answer = NOT_THERE.search(strip_reasoning(text)) is not None
    numbered = {one.number: one for one in excerpts}
    statements: list[Statement] = []
    pairs: list[tuple[VerifiedQuote, VerifiedQuote]] = []
    failed: list[str] = []
    for sentence in parse_sentences(text):
        cited, wrong, moved = _cited(sentence, numbered, question)
        if sentence.disagrees:
            failed += wrong
            if pair := _contradiction(cited):
                pairs.append(pair)
            continue
        if NOT_THERE.search(sentence.text) and not cited:
            continue
        statements.append(
            Statement(sentence.text, tuple(cited), tuple(wrong), moved, sentence.begins_paragraph)
        )
    return ParsedAnswer(tuple(statements), tuple(pairs), tuple(failed), has_no_answer)


def find_quote(quote: str, text: str) -> Span | None:
    """Where a quote stands in a text; spaces, quotation marks, dashes and capitals may differ.

    Words left out of the quote may be marked by dots; the stretch then holds them. None where it
    stands nowhere, or is too short to be evidence.
    """
    normalized, places = _normalized(text)
    parts = [part for each in _PARTED.split(quote) if (part := _normalized(each)[0])]
    if not parts or len("".join(parts).encode()) < LEAST_QUOTE:
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


def unsupported_reason(statement: str, cited: Sequence[VerifiedQuote], question: str) -> str:
    """Why what is cited does not bear a sentence out; empty where it may.

    No machine can judge that; but a sentence whose words and years stand neither there nor in the
    question is about something else. Words that read like orders bear nothing out.
    """
    context = " ".join(
        f"{one.passage.title} {one.passage.heading} {one.passage.date or ''}"
        f" {without_injections(one.passage.text)}"
        for one in cited
    )
    known = set(stems(context)) | set(stems(question))
    if number := _unknown_number(statement, f"{context} {question}"):
        return f"says {number}, which what it cites does not"
    if covered_share(content_stems(statement), known) < _SUPPORTED:
        return "says something else than what it cites"
    return ""


def repeats_known(statement: str, cited: Sequence[VerifiedQuote], question: str) -> bool:
    """Whether a sentence without citations only leads over: all its words are known already."""
    sentence_text = " ".join(
        f"{one.passage.title} {one.passage.date or ''} {one.quote}" for one in cited
    )
    known = set(stems(without_injections(sentence_text))) | set(stems(question))
    return content_stems(statement) <= known and not _unknown_number(
        statement, f"{sentence_text} {question}"
    )


def _unknown_number(statement: str, known: str) -> str:
    """A year or another large number of the statement that is not among what is known."""
    numbers = _YEAR.findall(_THOUSANDS.sub("", statement))
    known_numbers = set(_YEAR.findall(_THOUSANDS.sub("", known)))
    return next((number for number in numbers if number not in known_numbers), "")


def _cited(
    sentence: AnswerSentence, numbered: dict[int, Excerpt], question: str
) -> tuple[list[VerifiedQuote], list[str], int]:
    """The citations of a sentence that hold, why the others do not, and how many were moved."""
    cited: list[VerifiedQuote] = []
    failed: list[str] = []
    moved = 0
    for mark in sentence.marks:
        cited_excerpts = [numbered[number] for number in mark.numbers if number in numbered]
        for number in mark.numbers:
            if number not in numbered:
                failed.append(f"there is no passage {number}")
        if not mark.quotes:
            for excerpt in cited_excerpts:
                match = _matching_sentence(sentence.text, excerpt)
                if match is None:
                    failed.append(f"nothing in passage {excerpt.number} says that")
                else:
                    cited.append(match)
            continue
        for quote in mark.quotes:
            quote_found = _find_in(quote, cited_excerpts)
            if quote_found is None and (quote_found := _find_in(quote, list(numbered.values()))):
                moved += 1
            if quote_found is None:
                number = cited_excerpts[0].number if cited_excerpts else mark.numbers[0]
                failed.append(f"passage {number} does not hold the words “{_shortened(quote)}”")
            else:
                cited.append(quote_found)
    accepted = [
        one for one in dict.fromkeys(cited) if not _is_unwanted_injection(one.quote, question)
    ]
    if len(accepted) < len(set(cited)):
        failed.append("words that read like an order to a program are no evidence")
    return accepted, failed, moved


def _is_unwanted_injection(quote: str, question: str) -> bool:
    """An order is quoted where the question is about it, and nowhere else."""
    return looks_like_injection(quote) and len(content_stems(question) & set(stems(quote))) < 2


def _find_in(quote: str, excerpts: Sequence[Excerpt]) -> VerifiedQuote | None:
    for excerpt in excerpts:
        if span := find_quote(quote, excerpt.text):
            return _verified(excerpt, span)
    return None


def _verified(excerpt: Excerpt, span: Span) -> VerifiedQuote:
    quote = excerpt.text[span[0] : span[1]]
    return VerifiedQuote(excerpt.passage, quote, excerpt.passage.whose_is(quote))


def _matching_sentence(statement: str, excerpt: Excerpt) -> VerifiedQuote | None:
    """The sentence of a passage that says what a statement does, where one nearly says it."""
    spans = best_sentences(statement, excerpt.text, limit=1)
    if not spans or spans[0][1] - spans[0][0] > LONGEST_QUOTE:
        return None
    sentence_text = excerpt.text[spans[0][0] : spans[0][1]]
    if (
        not content_stems(statement)
        or covered_share(content_stems(statement), set(stems(sentence_text))) < _NEARLY_SAID
    ):
        return None
    return _verified(excerpt, spans[0])


def _contradiction(cited: Sequence[VerifiedQuote]) -> tuple[VerifiedQuote, VerifiedQuote] | None:
    """The earliest and the latest, if they are the author's own and of different years."""
    own = [one for one in cited if one.whose == "own" and one.passage.date]
    own.sort(key=lambda one: one.passage.date or "")
    if len(own) < 2 or year_of(own[0]) == year_of(own[-1]):
        return None
    return own[0], own[-1]


def year_of(checked: VerifiedQuote) -> int:
    """The year a cited post is of, 0 where nobody knows."""
    date = checked.passage.date or ""
    return int(date[:4]) if date[:4].isdecimal() else 0


_SAME = str.maketrans(
    dict.fromkeys("“”„‟«»＂″", '"') | dict.fromkeys("‘’‚‛′`´", "'") | dict.fromkeys("‐‑‒–—―−", "-")
)
_UNSEEN = re.compile(r"[\s\u00ad\u200b-\u200f\u2060\ufeff*_]")
_LINE_QUOTES = re.compile(r"^(?:> ?)+", re.MULTILINE)


def _normalized(text: str) -> tuple[str, list[int]]:
    """The text as it is compared, and of each of its characters where it stands."""
    skipped = {at for one in _LINE_QUOTES.finditer(text) for at in range(*one.span())}
    letters: list[str] = []
    places: list[int] = []
    for at, letter in enumerate(text):
        if at in skipped or _UNSEEN.match(letter):
            continue
        same = "..." if letter == "…" else letter.translate(_SAME).casefold()
        letters.append(same)
        places += [at] * len(same)
    return "".join(letters), places


def _shortened(quote: str) -> str:
    line = " ".join(quote.split())
    return line if len(line) <= 60 else line[:59] + "…"
