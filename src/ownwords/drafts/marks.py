"""Marks for editors: what `check` and `rewrite` find in a text, judged again where it changed."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ownwords.core.errors import OwnwordsError
from ownwords.core.text import Span, sentences, unwrapped
from ownwords.drafts.check import AuthorStyle, CheckedSentence
from ownwords.drafts.mark_choices import UNLIKE, MarkChoices
from ownwords.drafts.prose import prose_of
from ownwords.drafts.rewriting import Edit, Habits

_EVEN = 0.5
_NOT_YOURS = "This sentence is more like other people’s or a language model’s than like yours"
_UNUSUAL = "One in ten of your own sentences is as unusual as this one"
_MAX_PARAGRAPHS = 4096  # that are kept with their marks
_PARAGRAPH = re.compile(r"\S.*(?:\n[ \t]*\S.*)*")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


class Mark(NamedTuple):
    """Characters of a text that an editor marks, and why."""

    start: int
    end: int
    kind: str  # of an `Edit`, or `UNLIKE`
    message: str
    sentence: str
    replacement: str | None = None
    new_words: tuple[str, ...] = ()


class TextMarker:
    """Finds the marks of a text by paragraph; a paragraph judged before takes no time.

    Without a style, sentences are not judged.
    """

    def __init__(self, style: AuthorStyle | None, habits: Habits) -> None:
        self._style, self._habits = style, habits
        self._edits = lru_cache(_MAX_PARAGRAPHS)(self._edits_with_sentences)
        self._unlike = lru_cache(_MAX_PARAGRAPHS)(self._judge)

    @property
    def language(self) -> str:
        """The code of the posts' language."""
        return self._habits.code

    def marks(self, text: str, is_wanted: Callable[[str], bool]) -> list[Mark]:
        """Return the marks of the kinds that are wanted, in order; no two overlap."""
        text = text.replace("\r\n", " \n").replace("\r", "\n")
        prose, headings = prose_of(text)
        choices = replace(self._habits.choices_made(), choice=())  # which are only counted
        found = self._edit_marks(text, prose, choices)
        marks = [mark for mark in found if is_wanted(mark.kind)]
        if is_wanted(UNLIKE):
            marks += [*self._sentence_marks(text, prose, headings, tuple(marks), choices)]
        return sorted(marks)

    def _edit_marks(self, text: str, prose: str, choices: MarkChoices) -> Iterator[Mark]:
        for paragraph in _PARAGRAPH.finditer(prose):
            begin = paragraph.start()
            for edit, (first, last) in self._edits(paragraph[0], choices):
                start, end = (begin + place for place in (edit.start, edit.end))
                if text[start:end] == edit.before:
                    sentence = text[begin + first : begin + last]
                    yield Mark(start, end, edit.kind, _message(edit), sentence, edit.after)

    def _edits_with_sentences(self, paragraph: str, _: MarkChoices) -> list[tuple[Edit, Span]]:
        """Return the edits of a paragraph, each with the span of its sentence."""
        edits = self._habits.edits(paragraph)
        spans = sentences(unwrapped(paragraph)) if edits else []
        end = len(paragraph)
        return [(each, spans[bisect_right(spans, (each.start, end)) - 1]) for each in edits]

    def _sentence_marks(
        self,
        text: str,
        prose: str,
        headings: Sequence[Span],
        edits: Sequence[Mark],
        choices: MarkChoices,
    ) -> Iterator[Mark]:
        first = _PARAGRAPH.search(prose)
        for start, end in headings:
            prose = prose[:start] + re.sub(r"\S", " ", prose[start:end]) + prose[end:]
        for paragraph in _PARAGRAPH.finditer(prose):
            begin, shown = paragraph.start(), paragraph[0]
            if first and begin == first.start() and _BLANK_LINE.match(prose, paragraph.end()):
                shown += "\n\n"  # it may be the title
            for sentence in self._unlike(shown, choices):
                start, end = begin + sentence.start, begin + sentence.end
                # The longest part of the sentence that no edit marks.
                inside = [edit for edit in edits if start < edit.end and edit.start < end]
                bounds = [start, *(at for edit in inside for at in (edit.start, edit.end)), end]
                gaps = zip(bounds[::2], bounds[1::2], strict=True)
                start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
                if marked := text[start:end].strip():
                    start = text.index(marked, start)
                    others = _NOT_YOURS if sentence.yours < _EVEN else ""
                    because = ": ".join(filter(None, (others, "; ".join(sentence.because))))
                    message, end = f"{because or _UNUSUAL}.", start + len(marked)
                    yield Mark(
                        start, end, UNLIKE, message, sentence.text, new_words=sentence.new_words
                    )

    def _judge(self, paragraph: str, _: MarkChoices) -> Sequence[CheckedSentence]:
        try:
            found = self._style.check(paragraph).sentences if self._style else ()
        except OwnwordsError:  # without prose, such as a title
            found = ()
        return [sentence for sentence in found if sentence.is_marked]


def _message(edit: Edit) -> str:
    if edit.kind == "long_sentence":
        return f"Split it: {edit.because}."
    if edit.kind == "rule":
        return f"A rule of yours: “{edit.after}” instead of “{edit.before}”."
    if edit.kind == "stock_phrase" and len(edit.after) < 2:
        return f"You never write “{edit.before.rpartition(' ')[0]}”: {edit.because}."
    return f"You write “{edit.after}” rather than “{edit.before}”: {edit.because}."
