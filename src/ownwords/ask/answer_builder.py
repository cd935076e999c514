"""An answer put together of the sentences that hold, its citations numbered as they come."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ownwords.archive.report.formatting import count, plain
from ownwords.ask.citations import (
    Excerpt,
    ParsedAnswer,
    Statement,
    VerifiedQuote,
    parse_answer,
    repeats_known,
    unsupported_reason,
    year_of,
)
from ownwords.ask.passage import Whose

# As far apart as this people change their minds, and what they write about.
YEARS_TO_MENTION = 5
_REASONS = 2  # told of why sentences were left out


@dataclass(frozen=True, slots=True)
class Citation:
    """Words of a post that an answer rests on, as they stand there, and where to find them.

    `number` is the one in the answer's text, `passage` the id of the passage.
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
    """Takes an answer as it is written, and lets through the sentences that hold, once and whole.

    A sentence holds if something it cites does, and bears it out. One that cites nothing may stand
    before or after such a one if it says nothing that is not known from there.
    """

    def __init__(
        self,
        excerpts: Sequence[Excerpt],
        question: str,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._excerpts, self._question, self._on_text = excerpts, question, on_text
        self._text = ""
        self._judged = 0  # statements of the text that were judged
        self._pending: list[Statement] = []  # that cite nothing, until one that does
        self._cited: list[VerifiedQuote] = []
        self._parts: list[str] = []
        self._reasons: Counter[str] = Counter()
        self._left_out = self._moved = 0
        self._contradictions: tuple[tuple[VerifiedQuote, VerifiedQuote], ...] = ()
        self.has_no_answer = False

    def add(self, piece: str) -> None:
        """Some more of what the model writes."""
        self._text += piece
        if self._on_text and ("]" in piece or "\n" in piece):
            # The last sentence may go on, and one whose words are told below is not judged yet.
            for statement in self._read().statements[self._judged : -1]:
                if statement.failed:
                    return
                self._judge(statement)

    def end(self, *, is_cut: bool = False) -> None:
        """The model has written all it will; `is_cut` where it would have written more."""
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
        """The sentences that hold, each with the numbers of its citations."""
        return "".join(self._parts)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """What the text cites, in the order of its numbers, and nothing else."""
        return tuple(citation(number, one) for number, one in enumerate(self._cited, 1))

    def notes(self) -> list[str]:
        """What was left out and why, and what to bear in mind."""
        notes = []
        if self._left_out:
            what = count(self._left_out, "sentence")
            were = "was" if self._left_out == 1 else "were"
            notes.append(f"{what} {were} left out: {self.reasons()}.")
        elif self._reasons:
            notes.append(f"Not every citation held: {self.reasons()}.")
        if self._moved:
            notes.append(
                f"{count(self._moved, 'citation')} named another passage than the one that holds"
                " the words; here it is put right."
            )
        numbers = [one.number for one in self.citations if one.whose != "own"]
        if numbers:
            listed = " ".join(f"[{number}]" for number in numbers)
            notes.append(f"Not your own words: {listed}.")
        if not self._contradictions and (years := self._year_range()):
            notes.append(
                f"What is cited is from {years[0]} to {years[1]}: you may have come to think"
                " otherwise in between."
            )
        return notes

    def reasons(self) -> str:
        """Why what was left out was, the commonest first."""
        common = [why for why, _ in self._reasons.most_common(_REASONS)]
        more = len(self._reasons) - len(common)
        return "; ".join(common) + (f"; and {count(more, 'more reason')}" if more > 0 else "")

    def _read(self) -> ParsedAnswer:
        return parse_answer(self._text, self._excerpts, self._question)

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
                self._reasons["it cites nothing"] += 1
            return
        if why := unsupported_reason(statement.text, statement.cited, self._question):
            self._left_out += 1
            self._reasons[why] += 1
            return
        self._moved += statement.moved
        self._flush()
        self._append(
            with_marks(_sentence(statement.text), self._marks(statement.cited)),
            statement.begins_paragraph,
        )

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
        numbers = sorted({self._number(one) for one in cited})
        return " " + "".join(f"[{number}]" for number in numbers)

    def _number(self, checked: VerifiedQuote) -> int:
        """Where it is listed; words that stand within others of the passage need no place."""
        for number, one in enumerate(self._cited, 1):
            if one.passage.id == checked.passage.id and checked.quote in one.quote:
                return number
        self._cited.append(checked)
        return len(self._cited)

    def _year_range(self) -> tuple[int, int] | None:
        years = [year for one in self._cited if one.whose == "own" and (year := year_of(one))]
        if not years or max(years) - min(years) < YEARS_TO_MENTION:
            return None
        return min(years), max(years)


def citation(number: int, checked: VerifiedQuote) -> Citation:
    """A citation that holds, as it is shown."""
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
    """The numbers stand before the point that ends a sentence."""
    if text[-1:] in ".!?":
        return text[:-1] + marks + text[-1]
    return text + marks
