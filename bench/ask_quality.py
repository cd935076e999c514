"""How well `ownwords ask` answers questions that people wrote, beside MiniLM alone and plain BM25.

    python -m bench.ask_quality FOLDER                 a table of all kinds of questions
    python -m bench.ask_quality FOLDER --half judge    only the half that nothing was chosen by
    python -m bench.ask_quality FOLDER --misses words  with the questions that a column misses
    python -m bench.ask_quality FOLDER --marked        whether what is marked answers

FOLDER holds workspaces named NAME.ownwords; `bench/ask_questions.tsv`, or another file of
`--questions`, holds kind, NAME, question and what is right, separated by tabs. What is right is a
regular expression of the ids of the posts that answer (two, joined by "&", where both are needed)
or, for the kind "dates", of the sentence; there COUNT, LAST, YEAR and MONTH with a word stand for
what the archive's own texts say. Of three archives every second question of a kind
is there to choose by, the others to judge by; a fourth is all to choose, a fifth all to judge by.
"""

import argparse
import re
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ownwords.archive.store import Archive
from ownwords.ask.answer import Answer, answer
from ownwords.ask.encoder import Embedder, embed_missing, open_embedder
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.language.words import months

KINDS = ("own", "para", "two", "near", "foreign", "dates")
COLUMNS = ("words", "both", "minilm", "bm25 posts", "bm25 paragraphs")
QUESTIONS = Path(__file__).with_name("ask_questions.tsv")
BY_ARCHIVE = {"eevee": "choose", "ruben": "judge"}  # whole archives on one side
SHOWN = 5  # posts, of which at most three passages each are shown
_STOP = re.compile(r"[^\W_]+")
_FILE_OR_ADDRESS = re.compile(r"\S*/\S*|\S+\.[a-z][a-z0-9]{1,4}\b\S*")


@dataclass(frozen=True)
class QualityQuestion:
    kind: str
    archive: str
    text: str
    right: str
    half: str


@dataclass
class ColumnOutput:
    """The output of one column for a question: ranked posts, a refusal, or a sentence."""

    posts: list[str] = field(default_factory=list)
    refused: bool = False
    is_missing: bool = False  # that something asked for is missing
    sentence: str = ""


@dataclass
class Workspace:
    """One archive with everything the questions need."""

    path: Path
    index: SearchIndex
    texts: dict[str, tuple[str, str, str]]  # id: title, ISO day, text
    paragraphs: list[tuple[str, str]]  # id, text

    @classmethod
    def open(cls, path: Path) -> "Workspace":
        index = SearchIndex(path / "archive.sqlite")
        index.refresh()
        texts, paragraphs = {}, []
        with Archive(path / "archive.sqlite") as archive:
            for document in archive.documents([post.document for post in index.posts()]):
                day = document.date.date().isoformat() if document.date else ""
                texts[document.id] = (
                    document.title,
                    day,
                    "\n".join(s.text for s in document.segments),
                )
                paragraphs += [
                    (document.id, f"{document.title}\n{segment.text}")
                    for segment in document.segments
                    if segment.text.strip() and segment.kind != "heading"
                ]
        return cls(path, index, texts, paragraphs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--half", choices=["choose", "judge", "all"], default="all")
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--misses", default="", help="a column whose misses are printed")
    parser.add_argument("--embed", default="minilm")
    parser.add_argument("--marked", action="store_true", help="ask for marked sentences")
    options = parser.parse_args()
    if options.marked:
        _marked(options.folder, open_embedder(options.embed))
        return 0
    questions = [
        question
        for question in _questions(options.questions)
        if options.half in ("all", question.half)
    ]
    columns = options.columns.split(",")
    embedder = open_embedder(options.embed) if {"both", "minilm"} & set(columns) else None
    results: dict[tuple[str, str, str], list[tuple[QualityQuestion, ColumnOutput, float, bool]]] = (
        defaultdict(list)
    )
    for name in sorted({question.archive for question in questions}):
        work = Workspace.open(options.folder / f"{name}.ownwords")
        for column in columns:
            give = _answerer(column, work, embedder)
            for question in questions:
                if question.archive == name:
                    give_column = give(question)
                    point, false = _score(question, give_column, work)
                    results[column, question.kind, question.half].append(
                        (question, give_column, point, false)
                    )
                    if column == options.misses and not point:
                        print(
                            f"  miss {question.kind:8}{question.archive:7}{question.text}\n"
                            "      "
                            f" {'REFUSED ' if give_column.refused else ''}{give_column.sentence}"
                            f" {give_column.posts[:3]}"
                        )
    for half in ("choose", "judge"):
        _table(half, columns, results)
    return 0


def _marked(folder: Path, embedder: Embedder | None) -> None:
    """Of the first passage with the words that answer: whether they are in what is shown of it."""
    for name in ("ask_marked.tsv", "ask_marked_fresh.tsv"):
        lines = QUESTIONS.with_name(name).read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        searchers = {
            blog: ArchiveSearcher(SearchIndex(folder / f"{blog}.ownwords/archive.sqlite"), embedder)
            for blog in {row[0] for row in rows}
        }
        hits = dict.fromkeys(("shown", "first", "first mark", "a mark", "excerpt"), 0)
        for blog, question, words in rows:
            passages = searchers[blog].find(question).passages
            with_words = [each for each in passages if words.casefold() in each.text.casefold()]
            for each in with_words[:1]:
                excerpt = searchers[blog].excerpts(question, passages)[each.id]
                marks = [each.text[slice(*span)].casefold() for span in excerpt.matching]
                part = each.text[slice(*excerpt.span)].casefold()
                hits["shown"] += 1
                hits["first"] += each is passages[0]
                hits["first mark"] += any(words.casefold() in mark for mark in marks[:1])
                hits["a mark"] += any(words.casefold() in mark for mark in marks)
                hits["excerpt"] += words.casefold() in part
        print(name, f"of {len(rows)}:", hits)


def _questions(path: Path) -> Iterator[QualityQuestion]:
    seen_keys: dict[str, int] = defaultdict(int)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, archive, text, right = line.split("\t")
        seen_keys[kind] += archive not in BY_ARCHIVE
        half = BY_ARCHIVE.get(archive, "judge" if seen_keys[kind] % 2 else "choose")
        yield QualityQuestion(kind, archive, text, right, half)


def _answerer(
    column: str, work: Workspace, embedder: Embedder | None
) -> Callable[[QualityQuestion], ColumnOutput]:
    if column in ("words", "both"):
        model = embedder if column == "both" else None
        if model:
            embed_missing(work.index, model)
        searcher = ArchiveSearcher(work.index, model)

        def ask_archive(question: QualityQuestion) -> ColumnOutput:
            ranked = question.kind in ("own", "para", "two")
            return _of_answer(answer(question.text, searcher, limit=3 * SHOWN if ranked else 8))

        return ask_archive
    if column == "minilm":
        assert embedder is not None
        cache = work.path / "paragraphs.npy"
        rows = np.load(cache) if cache.exists() else embedder.embed([t for _, t in work.paragraphs])
        np.save(cache, rows)

        def nearest(question: QualityQuestion) -> ColumnOutput:
            scores = rows @ embedder.embed([question.text])[0]
            order = np.argsort(-scores)[:200]
            return ColumnOutput(list(dict.fromkeys(work.paragraphs[int(at)][0] for at in order)))

        return nearest
    items = (
        [(id_, f"{title}\n{text}") for id_, (title, _, text) in work.texts.items()]
        if column == "bm25 posts"
        else work.paragraphs
    )
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(id UNINDEXED, text, tokenize='porter unicode61')")
    db.executemany("INSERT INTO t VALUES (?, ?)", items)

    def bm25(question: QualityQuestion) -> ColumnOutput:
        words = " OR ".join(f'"{word}"' for word in _STOP.findall(question.text))
        rows = db.execute("SELECT id FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT 200", (words,))
        return ColumnOutput(list(dict.fromkeys(row[0] for row in rows)))

    return bm25


def _of_answer(result: Answer) -> ColumnOutput:
    posts = list(dict.fromkeys(passage.document for passage in result.passages))
    is_missing = result.kind != "answer" or any(
        note.startswith(("None", "No post")) for note in result.notes
    )
    return ColumnOutput(posts, result.kind == "absent", is_missing, result.answer)


def _score(question: QualityQuestion, output: ColumnOutput, work: Workspace) -> tuple[float, bool]:
    """Whether the output is right, and whether it says something false."""
    if question.kind in ("near", "foreign"):
        return float(output.is_missing if question.kind == "near" else output.refused), False
    if question.kind == "dates":
        right = _expected(question.right, work)
        sentence = output.sentence
        is_right = re.search(right, sentence, re.IGNORECASE) is not None
        return float(is_right), bool(sentence) and not output.refused and not is_right
    if output.refused:
        return 0.0, True
    return float(_rank_of(question.right, output.posts) <= SHOWN), False


def _rank_of(right: str, posts: Sequence[str]) -> int:
    """The rank at which all that is needed has been seen."""
    places = []
    for part in right.split("&"):
        hits = (at for at, post in enumerate(posts, 1) if re.search(part, post))
        places.append(next(hits, 1000))
    return max(places)


def _expected(right: str, work: Workspace) -> str:
    kind, _, word = right.partition(" ")
    if kind not in ("COUNT", "LAST", "YEAR", "MONTH"):
        return right
    if kind in ("YEAR", "MONTH"):
        return rf"\b{sum(day.startswith(word) for _, day, _ in work.texts.values())}\b"
    has = re.compile(rf"\b{word}s?\b", re.IGNORECASE)
    days = [
        day
        for title, day, text in work.texts.values()
        if has.search(_FILE_OR_ADDRESS.sub("", f"{title}\n{text}"))
    ]
    if kind == "COUNT":
        return rf"\b{len(days)}\b"
    year, month, number = max(days).split("-")
    return f"{int(number)} {months()[int(month) - 1]} {year}"


def _table(
    half: str,
    columns: Sequence[str],
    results: dict[tuple[str, str, str], list[tuple[QualityQuestion, ColumnOutput, float, bool]]],
) -> None:
    rows: list[tuple[str, list[str]]] = []
    for kind in KINDS:
        count = max((len(results[column, kind, half]) for column in columns), default=0)
        if not count:
            continue
        cells = []
        for column in columns:
            got = results[column, kind, half]
            cell = f"{sum(point for *_, point, _ in got):.0f}"
            if kind in ("own", "para"):
                firsts = sum(
                    not output.refused and _rank_of(question.right, output.posts) == 1
                    for question, output, *_ in got
                )
                cell += f" ({firsts})"
            if kind == "dates":
                cell += f" ({sum(false for *_, false in got)} false)"
            cells.append(
                cell if kind in ("own", "para", "two") or column in ("words", "both") else ""
            )
        rows.append((f"{kind} ({count})", cells))
    wrongly = [
        str(
            sum(
                output.refused
                for kind in ("own", "para", "two")
                for _, output, *_ in results[c, kind, half]
            )
        )
        for c in columns
    ]
    if rows:
        answerable = sum(len(results[columns[0], kind, half]) for kind in ("own", "para", "two"))
        rows.append((f"wrongly refused ({answerable})", wrongly))
        print(f"\n{half + ' by':26}" + "".join(column.rjust(17) for column in columns))
        for label, cells in rows:
            print(f"{label:26}" + "".join(cell.rjust(17) for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
