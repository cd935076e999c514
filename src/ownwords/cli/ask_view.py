"""Prints an answer: its text and citations, or the passages."""

from collections.abc import Sequence
from datetime import date

from rich.console import Console
from rich.style import Style
from rich.text import Text

from ownwords.ask.answer import Answer
from ownwords.ask.citations import Citation
from ownwords.ask.index import MONTHS
from ownwords.ask.passages import Passage, PassageExcerpt, Whose, is_code, units
from ownwords.cli.output import StreamingWordWrap
from ownwords.view import format as say
from ownwords.view.terminal import ACCENT, LOUD, QUIET, TerminalWriter

_INDENT = 4
_QUOTED = 280
_NEAREST = 160
_MOST_LINES, _CODE_INDENT = 12, 2  # of a block of code
_WHOSE: dict[Whose, str] = {
    "quoted": "not your own words: a quotation or machine output",
    "other": "not your own words: somebody else's post",
}


class AskView(TerminalWriter):
    """Prints answers; `stream` prints the sentences of one as they are verified."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._flow: StreamingWordWrap | None = None

    def stream(self, sentence: str) -> None:
        """Print a sentence of the answer."""
        if self._flow is None:
            self.space()
            self._flow = self._new_flow()
        self._flow.add(sentence)

    def end(self) -> None:
        """End the line of a streamed sentence."""
        if self._flow is not None:
            self._flow.end()
            self._flow = None

    def show(self, answer: Answer, advice: str = "") -> None:
        """Print what was not streamed of the answer, citations or passages, notes and advice."""
        is_streamed = self._flow is not None
        self.end()
        if answer.answer and not is_streamed:
            self.space()
            self._new_flow().write([answer.answer])
        if answer.why:
            self.space()
            self.line(answer.why, QUIET if answer.answer else None)
        for number, citation in enumerate(answer.citations, 1):
            self._citation(number, citation)
        shows_passages = bool(answer.passages) and not answer.citations
        if shows_passages:
            self._notes(answer.notes)  # first, since they may say what the passages lack
            self._passages(answer)
        if answer.nearest:
            self._nearest(answer)
        self._notes((*(() if shows_passages else answer.notes), *([advice] if advice else ())))
        self.space()

    def _notes(self, notes: Sequence[str]) -> None:
        if notes:
            self.space()
        for note in notes:
            self.line(note, QUIET)

    def _new_flow(self) -> StreamingWordWrap:
        margin = self._margin
        return StreamingWordWrap(
            self._console.file,
            width=margin + self.width,
            margin=margin,
            shown=lambda word: self.text(word).plain,
        )

    def _citation(self, number: int, citation: Citation) -> None:
        passage = citation.passage
        self.space()
        self._head(f"[{number}]", passage.title, passage.date, citation.whose)
        self.line(f"“{say.plain(citation.quote, _QUOTED)}”", indent=_INDENT)
        self._address(passage.url)

    def _passages(self, answer: Answer) -> None:
        many = len(answer.passages) > 1
        self.heading("What your posts say" if many else "What your post says")
        for number, passage in enumerate(answer.passages, 1):
            self.space()
            self._head(f"{number}", passage.title, passage.date, passage.whose)
            if passage.heading:
                self.line(say.plain(passage.heading, 120), QUIET, indent=_INDENT)
            self._excerpt(passage, answer.excerpt(passage))
            self._address(passage.url)

    def _nearest(self, answer: Answer) -> None:
        self.space()
        self.line("The closest passages:", QUIET)
        for passage in answer.nearest:
            self.space()
            self.put(self._titled(passage.title, passage.date), indent=_INDENT)
            for begin, end in answer.excerpt(passage).matching[:1]:
                self.line(say.plain(passage.text[begin:end], _NEAREST), QUIET, indent=_INDENT)
            self._address(passage.url)

    def _head(self, number: str, title: str, day: str | None, whose: Whose) -> None:
        line = Text().append(number.ljust(_INDENT), ACCENT)
        line.append_text(self._titled(title, day, LOUD))
        self.put(line)
        if whose != "own":
            self.line(_WHOSE[whose], ACCENT, indent=_INDENT)

    def _titled(self, title: str, day: str | None, style: Style | None = None) -> Text:
        line = Text().append_text(self.text(say.title_of(title, 100), style))
        if day:
            line.append("  ").append_text(self.text(_when(day), QUIET))
        return line

    def _address(self, url: str) -> None:
        if url:
            self.line(say.plain(url, 300), QUIET, indent=_INDENT)

    def _excerpt(self, passage: Passage, excerpt: PassageExcerpt) -> None:
        """Print the part of the passage that answers, with its best units in bold; code as code."""
        text = passage.text
        first, last = excerpt.span
        line = Text("… " if text[:first].strip() else "", QUIET)
        for begin, end in units(text):
            if begin < first or end > last:
                continue
            style = LOUD if (begin, end) in excerpt.matching else QUIET
            if is_code(text[begin:end]):
                self._prose(line)
                line = Text()
                self._code(text[begin:end], style)
                continue
            if line.plain[-1:] not in ("", " "):
                line.append(" ")
            line.append(say.plain(text[begin:end]), style)
        if text[last:].strip():
            line.append(" …", QUIET)
        self._prose(line)

    def _prose(self, line: Text) -> None:
        plain = line.plain.strip()
        if plain:
            self.put(line if self._can_show(plain) else self.text(plain), indent=_INDENT)

    def _code(self, block: str, style: Style) -> None:
        lines = block.split("\n")[1:-1]
        for line in lines[:_MOST_LINES]:
            indentation = len(line) - len(line.lstrip())
            self.put(
                self.text(" " * indentation + say.plain(line), style), indent=_INDENT + _CODE_INDENT
            )
        if len(lines) > _MOST_LINES:
            self.line("…", QUIET, indent=_INDENT + _CODE_INDENT)


def _when(day: str) -> str:
    """3 May 2004."""
    try:
        known = date.fromisoformat(day[:10])
    except ValueError:
        return day[:20]
    return f"{known.day} {MONTHS[known.month - 1]} {known.year}"
