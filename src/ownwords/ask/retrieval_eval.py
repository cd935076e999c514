"""Evaluates the search on an archive's own questions: ranking metrics and the share refused."""

import math
import statistics
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from ownwords.archive.store import Archive
from ownwords.ask.eval_questions import KINDS, EvalQuestion, EvalQuestions, Kind, eval_questions_of
from ownwords.core.progress import Progress

if TYPE_CHECKING:
    from ownwords.ask.index import SearchIndex
    from ownwords.ask.search import ArchiveSearcher

SearchMode = Literal["text", "vectors", "both"]
Measure = Literal["hit@1", "hit@5", "MRR@10", "nDCG@10", "refused"]

DEPTH = 10  # ranks evaluated
_SPARE = 3  # extra passages to request for each excluded source; a post has at most 3
_Z = 1.96  # for 95% intervals

_HEADINGS: Final[Mapping[Kind, str]] = {
    "links": "The words of your links, for the post they lead to",
    "titles": "Titles, exactly",
    "bodies": "Titles, searched for in the text alone",
    "summaries": "Summaries, for the rest of their post",
    "paraphrases": "First sentences and headings without their rare words",
    "unanswerable": "What your posts say nothing about",
}
_LABELS: Final[Mapping[Measure, str]] = {
    "hit@1": "first",
    "hit@5": "among the first 5",
    "MRR@10": "MRR@10",
    "nDCG@10": "nDCG@10",
    "refused": "“not in your archive”",
}
_COLUMN, _LABEL, _WIDE = 18, 26, 78


@dataclass(frozen=True, slots=True)
class RetrievalFigure:
    """A metric's value and the bounds of its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """The metrics for one kind of question and one search mode."""

    kind: Kind
    how: SearchMode
    questions: int
    figures: Mapping[Measure, RetrievalFigure]
    median_ms: float
    missed: tuple[str, ...]  # questions whose answer is not among the first 5, or was not refused


@dataclass(frozen=True)
class RetrievalReport:
    """The evaluation of the search in one archive, a row for each kind and search mode."""

    posts: int
    passages: int
    vectors: str  # name of the embedder; empty if there is none
    rows: tuple[Row, ...]
    asked: EvalQuestions = field(repr=False)

    def row(self, kind: Kind, how: SearchMode) -> Row | None:
        """The row of a kind of question and a search mode; None if there is none."""
        return next((row for row in self.rows if (row.kind, row.how) == (kind, how)), None)

    def to_dict(self) -> dict[str, object]:
        """The report as data for JSON, every metric with its interval."""
        return {
            "posts": self.posts,
            "passages": self.passages,
            "vectors": self.vectors,
            "figures": [
                {
                    "kind": row.kind,
                    "how": row.how,
                    "questions": row.questions,
                    "median_ms": round(row.median_ms, 2),
                    **{
                        name: {
                            "value": round(figure.value, 4),
                            "low": round(figure.low, 4),
                            "high": round(figure.high, 4),
                        }
                        for name, figure in row.figures.items()
                    },
                    "missed": list(row.missed),
                }
                for row in self.rows
            ],
            "not_asked": {
                "links": dict(self.asked.vague_links),
                "summaries": self.asked.title_summaries,
            },
            "unanswerable": {"topics": self.asked.topics, "names": self.asked.names},
        }

    def as_text(self) -> str:
        """The metrics as a table with a column for each search mode."""
        hows = [how for how in _hows(self.vectors) if any(row.how == how for row in self.rows)]
        lines = [
            f"How well these {self.posts:,} posts are searched, in {self.passages:,} passages",
            "",
            " " * _LABEL + "".join(how.rjust(_COLUMN) for how in hows),
        ]
        for kind in KINDS:
            rows = {how: self.row(kind, how) for how in hows}
            asked = max((row.questions for row in rows.values() if row), default=0)
            if not asked:
                continue
            lines += ["", f"{_HEADINGS[kind]} ({_counted(asked, 'question')})"]
            for name, label in _LABELS.items():
                cells = [_cell(name, row) for row in rows.values()]
                if any(cells):
                    lines.append(
                        f"  {label}".ljust(_LABEL) + "".join(cell.rjust(_COLUMN) for cell in cells)
                    )
        speeds = [
            statistics.median(row.median_ms for row in self.rows if row.how == how) for how in hows
        ]
        lines += [
            "",
            "Median time".ljust(_LABEL)
            + "".join(f"{speed:.1f} ms".rjust(_COLUMN) for speed in speeds),
            "",
            *(line for note in self._notes() for line in textwrap.wrap(note, _WIDE)),
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _notes(self) -> list[str]:
        asked = self.asked
        notes = [
            "In brackets: where the figure would lie with other questions of the kind, 19 times of"
            " 20. A question wrongly answered with “not in your archive” found nothing."
        ]
        if asked.of("paraphrases"):
            notes.append(
                "The first sentences and headings lack the rarer half of their words, so that the"
                " words that are left stand in many posts. They are as near as this comes to"
                " questions in other words; people's own are harder to find by words and easier"
                " by meaning."
            )
        if asked.topics + asked.names:
            made_up = f", {asked.names} about names made up for this" if asked.names else ""
            notes.append(
                f"Unanswerable: {asked.topics} questions about things of which no word stands in"
                f" your posts{made_up}."
            )
        if asked.vague_links:
            shown = ", ".join(f"“{words}”" for words, _ in asked.vague_links.most_common(3))
            notes.append(
                f"Not asked: {_counted(asked.vague_links.total(), 'link')} whose words do not say"
                f" which post is meant ({shown})."
            )
        if asked.title_summaries:
            many = _counted(asked.title_summaries, "summary", "summaries")
            notes.append(f"Not asked: {many} that say no more than the title.")
        if self.vectors:
            notes.append(
                f"Vectors by {self.vectors}. They know the title of a passage, so titles cannot be"
                " searched for without it."
            )
        return notes


def evaluate_retrieval(
    index: "SearchIndex",
    archive: Archive,
    searcher: "ArchiveSearcher",
    progress: Progress | None = None,
) -> RetrievalReport:
    """Ask the archive's own questions by text and, if there is an embedder, by vectors too."""
    documents = index.documents()
    asked = eval_questions_of(archive, documents)
    vectors = searcher.embedder.name if searcher.embedder else ""
    hows = _hows(vectors)
    rows: list[Row] = []
    total = sum(len(asked.of(kind)) for kind in KINDS for how in hows if _fair(kind, how))
    with (progress or Progress()).stage("Asking", total, "questions") as stage:
        for kind in KINDS:
            for how in hows:
                if _fair(kind, how) and (questions := asked.of(kind)):
                    results: list[_Result] = []
                    for question in questions:
                        results.append(_result(searcher, question, how))
                        stage.advance()
                    rows.append(_row(kind, how, questions, results))
    return RetrievalReport(len(documents), index.size(), vectors, tuple(rows), asked)


@dataclass(frozen=True, slots=True)
class _Result:
    place: int  # rank of the first passage that answers, from 1; 0 if none of `DEPTH` does
    refused: bool
    seconds: float


def _result(searcher: "ArchiveSearcher", question: EvalQuestion, how: SearchMode) -> _Result:
    began = time.perf_counter()
    found = searcher.find(
        question.text, DEPTH + _SPARE * len(question.apart), how, titles=question.kind != "bodies"
    )
    seconds = time.perf_counter() - began
    place = 0
    if not found.is_weak:
        ranked = [each for each in found.passages if question.counts(each.document, each.text)]
        places = (
            at for at, each in enumerate(ranked[:DEPTH], 1) if each.document in question.answers
        )
        place = next(places, 0)
    return _Result(place, found.is_weak, seconds)


def _row(
    kind: Kind, how: SearchMode, questions: Sequence[EvalQuestion], results: Sequence[_Result]
) -> Row:
    figures: dict[Measure, RetrievalFigure] = {}
    places = [result.place for result in results]
    if kind != "unanswerable":
        figures["hit@1"] = mean([place == 1 for place in places])
        figures["hit@5"] = mean([1 <= place <= 5 for place in places])
    if kind in ("links", "bodies", "summaries", "paraphrases"):
        figures["MRR@10"] = mean([reciprocal(place) for place in places])
        figures["nDCG@10"] = mean([gain(place) for place in places])
    figures["refused"] = mean([result.refused for result in results])
    missed = tuple(
        question.text
        for question, result in zip(questions, results, strict=True)
        if (not result.refused if kind == "unanswerable" else not 1 <= result.place <= 5)
    )
    milliseconds = statistics.median(result.seconds for result in results) * 1000
    return Row(kind, how, len(questions), figures, milliseconds, missed)


def reciprocal(place: int) -> float:
    """The reciprocal rank: 1 for the first place, 1/2 for the second; 0 without a place."""
    return 1 / place if place else 0.0


def gain(place: int) -> float:
    """The nDCG of a rank with one relevant passage: 1 for the first place; 0 without a place."""
    return 1 / math.log2(1 + place) if place else 0.0


def mean(values: Sequence[float]) -> RetrievalFigure:
    """The mean of numbers from 0 to 1, with Wilson's 95% score interval.

    The interval is accurate for few values and near 0 or 1. It is made for shares and conservative
    for other numbers, since no numbers of the same mean vary more than zeros and ones.
    """
    part, squared = sum(values) / len(values), _Z * _Z / len(values)
    middle = (part + squared / 2) / (1 + squared)
    reach = math.sqrt(part * (1 - part) * squared + squared * squared / 4) / (1 + squared)
    return RetrievalFigure(part, max(0.0, middle - reach), min(1.0, middle + reach))


def _hows(vectors: str) -> tuple[SearchMode, ...]:
    return ("text", "vectors", "both") if vectors else ("text",)


def _fair(kind: Kind, how: SearchMode) -> bool:
    """Whether a mode suits a kind: vectors include titles, so they cannot search bodies alone."""
    return kind != "bodies" or how == "text"


def _cell(name: Measure, row: Row | None) -> str:
    figure = row.figures.get(name) if row else None
    if figure is None:
        return ""
    if name in ("MRR@10", "nDCG@10"):
        return f"{figure.value:.2f} ({figure.low:.2f}–{figure.high:.2f})"
    return f"{figure.value:.0%} ({figure.low:.0%}–{figure.high:.0%})".replace("%–", "–")


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
