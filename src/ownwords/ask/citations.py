"""Verifies the citations of an answer: each quote is looked up in the passage it names.

A citation is the number of a passage and words from it. The number alone is enough if a sentence of
the passage says nearly the same. The quote shown is the passage's text, never the model's copy.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ownwords.ask.citation_marks import (
    LEAST_QUOTE,
    AnswerSentence,
    parse_sentences,
    strip_reasoning,
)
from ownwords.ask.passage import RetrievedPassage, Whose
from ownwords.ask.prompt_injection import looks_like_injection, without_injections
from ownwords.ask.query_terms import forms_of
from ownwords.ask.sentence_matching import (
    Span,
    best_sentences,
    content_stems,
    content_words,
    covered_share,
    sentences,
    stems,
)

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


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The part of a passage in the prompt, and its number there."""

    number: int
    passage: RetrievedPassage
    text: str


@dataclass(frozen=True, slots=True)
class VerifiedQuote:
    """A verified citation: words of a passage, exactly as in the passage."""

    passage: RetrievedPassage
    quote: str
    whose: Whose


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of an answer without its marks, its verified citations and the failed ones."""

    text: str
    cited: tuple[VerifiedQuote, ...] = ()
    failed: tuple[str, ...] = ()  # the reason for each citation that failed
    moved: int = 0  # citations whose words were found in another passage than the cited one
    begins_paragraph: bool = False


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The sentences of an answer and the contradictions it names."""

    statements: tuple[Statement, ...] = ()
    disagreements: tuple[tuple[VerifiedQuote, VerifiedQuote], ...] = ()
    failed: tuple[str, ...] = ()
    has_no_answer: bool = False


def parse_answer(text: str, excerpts: Sequence[Excerpt], question: str) -> ParsedAnswer:
    """Parse an answer and verify its citations in the excerpts."""
    has_no_answer = NOT_THERE.search(strip_reasoning(text)) is not None
    numbered = {excerpt.number: excerpt for excerpt in excerpts}
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
    """The span of a quote in a text, ignoring spaces, case and the forms of quotes and dashes.

    Dots in the quote may stand for words left out; the span then includes them. None if it is not
    there or too short to be evidence.
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
    """Why the cited passages cannot support a sentence; empty if they may.

    A sentence is unsupported if too few of its content words occur in the passages or the
    question, or if one of its numbers of three or more digits, such as a year, does not. It is also
    unsupported if it has words that are not in the question and no quoted sentence contains any of
    them. Sentences that look like prompt injections support nothing.
    """
    context = " ".join(
        f"{quote.passage.title} {quote.passage.heading} {quote.passage.date or ''}"
        f" {without_injections(quote.passage.text)}"
        for quote in cited
    )
    known = set(stems(context)) | set(stems(question))
    if number := _unknown_number(statement, f"{context} {question}"):
        return f"it says {number}, and the cited passage does not"
    if covered_share(content_stems(statement), known) < _SUPPORTED:
        return "its words are not in the cited passage"
    new = _new_words(statement, question)
    if new and len(unchecked_words(statement, cited, question)) == len(new):
        return "its words are not in the quote"
    return ""


def unchecked_words(statement: str, cited: Sequence[VerifiedQuote], question: str) -> list[str]:
    """The content words of a sentence that are neither in the question nor in a quoted sentence."""
    quoted = _quoted_stems(cited)
    return [word for word in _new_words(statement, question) if not _occurs(word, quoted)]


def _new_words(statement: str, question: str) -> list[str]:
    """The content words of a statement that are not in the question."""
    known = set(stems(question))
    return [word for word in content_words(statement).values() if not _occurs(word, known)]


def _occurs(word: str, known: set[str]) -> bool:
    """Whether a word or another form of it ("kept" for "keep") is among these stems."""
    return not known.isdisjoint(stems(" ".join([word, *forms_of(word)])))


def _quoted_stems(cited: Sequence[VerifiedQuote]) -> set[str]:
    """The stems of the sentences that are quoted, and of the titles and dates of their posts."""
    quoted: set[str] = set()
    for quote in cited:
        passage, begin = quote.passage, quote.passage.text.find(quote.quote)
        whole = [
            passage.text[start:end]
            for start, end in sentences(passage.text)
            if start < begin + len(quote.quote) and end > begin
        ]
        context = [passage.title, passage.heading, passage.date or "", *whole]
        quoted.update(stems(quote.quote), stems(without_injections("\n".join(context))))
    return quoted


def repeats_known(statement: str, cited: Sequence[VerifiedQuote], question: str) -> bool:
    """Whether a sentence without citations adds nothing: all its words are in the quotes."""
    sentence_text = " ".join(
        f"{quote.passage.title} {quote.passage.date or ''} {quote.quote}" for quote in cited
    )
    known = set(stems(without_injections(sentence_text))) | set(stems(question))
    return content_stems(statement) <= known and not _unknown_number(
        statement, f"{sentence_text} {question}"
    )


def _unknown_number(statement: str, known: str) -> str:
    """A number of three or more digits in the statement that is not in the known text."""
    numbers = _YEAR.findall(_THOUSANDS.sub("", statement))
    known_numbers = set(_YEAR.findall(_THOUSANDS.sub("", known)))
    return next((number for number in numbers if number not in known_numbers), "")


def _cited(
    sentence: AnswerSentence, numbered: dict[int, Excerpt], question: str
) -> tuple[list[VerifiedQuote], list[str], int]:
    """The verified citations of a sentence, the reasons for failed ones, the number reassigned."""
    cited: list[VerifiedQuote] = []
    failed: list[str] = []
    moved = 0
    for mark in dict.fromkeys(sentence.marks):
        cited_excerpts = [numbered[number] for number in mark.numbers if number in numbered]
        for number in mark.numbers:
            if number not in numbered:
                failed.append(f"there is no passage {number}")
        if not mark.quotes:
            for excerpt in cited_excerpts:
                match = _matching_sentence(sentence.text, excerpt)
                if match is None:
                    failed.append(f"passage {excerpt.number} does not say that")
                else:
                    cited.append(match)
            continue
        for quote in mark.quotes:
            quote_found = _find_in(quote, cited_excerpts)
            if quote_found is None and (quote_found := _find_in(quote, list(numbered.values()))):
                moved += 1
            if quote_found is None:
                number = cited_excerpts[0].number if cited_excerpts else mark.numbers[0]
                failed.append(f"passage {number} does not contain “{_shortened(quote)}”")
            else:
                cited.append(quote_found)
    accepted = [
        quote for quote in dict.fromkeys(cited) if not _is_unwanted_injection(quote.quote, question)
    ]
    if len(accepted) < len(set(cited)):
        failed.append("text that looks like an instruction to a program is no evidence")
    return accepted, failed, moved


def _is_unwanted_injection(quote: str, question: str) -> bool:
    """Whether a quote looks like a prompt injection that the question does not ask about."""
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
    """The sentence of a passage that says nearly the same as a statement, if there is one."""
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
    """The earliest and the latest of the author's own quotes, if from different years."""
    own = [quote for quote in cited if quote.whose == "own" and quote.passage.date]
    own.sort(key=lambda quote: quote.passage.date or "")
    if len(own) < 2 or year_of(own[0]) == year_of(own[-1]):
        return None
    return own[0], own[-1]


def year_of(checked: VerifiedQuote) -> int:
    """The year of a cited post, 0 if unknown."""
    date = checked.passage.date or ""
    return int(date[:4]) if date[:4].isdecimal() else 0


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


def _shortened(quote: str) -> str:
    line = " ".join(quote.split())
    return line if len(line) <= 60 else line[:59] + "…"
