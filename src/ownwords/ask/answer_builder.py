"""Builds an answer from the supported sentences and numbers its citations."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ownwords.ask.citations import (
    Excerpt,
    ParsedAnswer,
    Statement,
    VerifiedQuote,
    parse_answer,
    repeats_known,
    unchecked_words,
    unsupported_reason,
    year_of,
)
from ownwords.ask.passage import Whose
from ownwords.view.format import count, plain

# Quotes from posts this many years apart get a note about their ages.
YEARS_TO_MENTION = 5
_MOST_UNCHECKED = 6  # words named in a note
CHECKED = (
    "Checked: every quote is in its post, word for word. Not checked: whether the sentences"
    " around the quotes say what the post means."
)
_GROWTH = 1.05  # of the text from one reading to the next
_MOST_REASONS = 2  # reasons named for sentences left out


@dataclass(frozen=True, slots=True)
class Citation:
    """A quote from a post and where to find it.

    `number` is its number in the answer, `passage` the id of the passage.
    """

    number: int
    title: str
    date: str | None
    url: str
    quote: str
    passage: int
    document: str
    heading: str
    whose: Whose


class AnswerBuilder:
    """Reads an answer while it is written and passes on each supported sentence once.

    A sentence is supported if one of its citations is verified and contains its words. A sentence
    without citations is passed on only next to such a sentence, and if it adds nothing.
    """

    def __init__(
        self,
        excerpts: Sequence[Excerpt],
        question: str,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._excerpts, self._question, self._on_text = excerpts, question, on_text
        self._pieces: list[str] = []
        self._length = self._length_read = 0  # characters
        self._judged = 0  # number of statements judged
        self._pending: list[Statement] = []  # without citations, until one with citations follows
        self._cited: list[VerifiedQuote] = []
        self._parts: list[str] = []
        self._reasons: Counter[str] = Counter()
        self._left_out = self._moved = 0
        self._contradictions: tuple[tuple[VerifiedQuote, VerifiedQuote], ...] = ()
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
            for statement in self._read().statements[self._judged : -1]:
                if statement.failed:
                    return
                self._judge(statement)

    def end(self, *, is_cut: bool = False) -> None:
        """End the text; `is_cut` if the model was stopped in the middle."""
        reading = self._read()
        statements = reading.statements[self._judged :]
        if is_cut and statements and not statements[-1].cited:
            statements = statements[:-1]
        for statement in statements:
            self._judge(statement)
        self.has_no_answer = reading.has_no_answer
        self._contradictions = reading.disagreements
        for why in reading.failed:
            self._reasons[why] += 1
        if not self._cited:
            self._left_out += len(self._pending)
            return
        self._flush()
        for first, second in self._contradictions:
            self._append(
                f"You said “{plain(first.quote)}” in {year_of(first)}{self._marks([first])}, and"
                f" “{plain(second.quote)}” in {year_of(second)}{self._marks([second])}.",
                begins_paragraph=True,
            )

    @property
    def text(self) -> str:
        """The supported sentences with the numbers of their citations."""
        return "".join(self._parts)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations in the order of their numbers."""
        return tuple(citation(number, quote) for number, quote in enumerate(self._cited, 1))

    def notes(self) -> list[str]:
        """Notes on sentences left out, with the reasons, and on the citations."""
        notes = []
        if self._unchecked:
            words = ", ".join(f"“{word}”" for word in list(self._unchecked)[:_MOST_UNCHECKED])
            notes.append(f"(unchecked): the sentence has words that its quote lacks: {words}.")
        if self._left_out:
            what = count(self._left_out, "sentence")
            were = "was" if self._left_out == 1 else "were"
            notes.append(f"{what} {were} left out: {self.reasons()}.")
        elif self._reasons:
            notes.append(f"Some citations could not be verified: {self.reasons()}.")
        if self._moved:
            notes.append(
                f"{count(self._moved, 'citation')} named the wrong passage and"
                f" {'was' if self._moved == 1 else 'were'} corrected."
            )
        numbers = [cited.number for cited in self.citations if cited.whose != "own"]
        if numbers:
            listed = " ".join(f"[{number}]" for number in numbers)
            notes.append(f"Not your own words: {listed}.")
        if not self._contradictions and (years := self._year_range()):
            notes.append(
                f"The citations are from {years[0]} to {years[1]}: you may have changed your mind"
                " in between."
            )
        return notes

    def reasons(self) -> str:
        """The reasons for left-out sentences and failed citations, most frequent first."""
        common = [why for why, _ in self._reasons.most_common(_MOST_REASONS)]
        more = len(self._reasons) - len(common)
        return "; ".join(common) + (f"; and {count(more, 'more reason')}" if more > 0 else "")

    def _read(self) -> ParsedAnswer:
        return parse_answer("".join(self._pieces), self._excerpts, self._question)

    def _judge(self, statement: Statement) -> None:
        self._judged += 1
        for why in statement.failed:
            self._reasons[why] += 1
        if not statement.cited:
            if statement.failed:
                self._left_out += 1
            elif repeats_known(statement.text, self._cited, self._question):
                self._pending.append(statement)
            else:
                self._left_out += 1
                self._reasons["it has no citation"] += 1
            return
        if why := unsupported_reason(statement.text, statement.cited, self._question):
            self._left_out += 1
            self._reasons[why] += 1
            return
        self._moved += statement.moved
        self._flush()
        marks = self._marks(statement.cited)
        if unchecked := unchecked_words(statement.text, statement.cited, self._question):
            self._unchecked.update(dict.fromkeys(unchecked))
            marks += " (unchecked)"
        self._append(with_marks(_sentence(statement.text), marks), statement.begins_paragraph)

    def _flush(self) -> None:
        for statement in self._pending:
            self._append(_sentence(statement.text), statement.begins_paragraph)
        self._pending = []

    def _append(self, text: str, begins_paragraph: bool) -> None:
        separator = "" if not self._parts else "\n\n" if begins_paragraph else " "
        self._parts.append(separator + text)
        if self._on_text:
            self._on_text(separator + text)

    def _marks(self, cited: Sequence[VerifiedQuote]) -> str:
        numbers = sorted({self._number(quote) for quote in cited})
        return " " + "".join(f"[{number}]" for number in numbers)

    def _number(self, checked: VerifiedQuote) -> int:
        """The number of a citation, a new one unless the quote is part of an earlier quote."""
        for number, quote in enumerate(self._cited, 1):
            if quote.passage.id == checked.passage.id and checked.quote in quote.quote:
                return number
        self._cited.append(checked)
        return len(self._cited)

    def _year_range(self) -> tuple[int, int] | None:
        years = [year for quote in self._cited if quote.whose == "own" and (year := year_of(quote))]
        if not years or max(years) - min(years) < YEARS_TO_MENTION:
            return None
        return min(years), max(years)


def citation(number: int, checked: VerifiedQuote) -> Citation:
    """The numbered citation for a verified quote."""
    passage = checked.passage
    return Citation(
        number=number,
        title=passage.title,
        date=passage.date,
        url=passage.url,
        quote=checked.quote,
        passage=passage.id,
        document=passage.document,
        heading=passage.heading,
        whose=checked.whose,
    )


def _sentence(text: str) -> str:
    line = plain(text)
    return line[:1].upper() + line[1:] + ("" if not line or line[-1] in '.!?…:”"’)' else ".")


def with_marks(text: str, marks: str) -> str:
    """The text with the marks before its final full stop."""
    if text[-1:] in ".!?":
        return text[:-1] + marks + text[-1]
    return text + marks
