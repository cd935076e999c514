"""How well `ownwords ask` answers people's questions, compared with MiniLM and plain BM25.

    python -m bench.ask_quality FOLDER                 a table of all kinds of questions
    python -m bench.ask_quality FOLDER --misses both   with the questions that a column misses

FOLDER holds workspaces named NAME.ownwords; `ask_questions.tsv` and `ask_questions_unseen.tsv` hold
kind, NAME, question and expected result, separated by tabs. A question is asked if its workspace is
there. The expected result is a regular expression for the ids of the posts that answer (two, joined
by "&", if both are needed) or, for the kind "dates", for the sentence; there COUNT, LAST, YEAR and
MONTH with a word stand for what the archive's own texts say. `ask_marked.tsv` and
`ask_marked_fresh.tsv` hold words that the marked sentences must have. Ranges are 95% intervals.
"""

import argparse
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

import numpy as np

from ownwords.archive.store import Archive
from ownwords.ask.answer import Answer, answer
from ownwords.ask.encoder import Embedder, embed_missing, open_embedder
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.language.words import months

RANKED_KINDS = ("own", "para", "two")
KINDS = (*RANKED_KINDS, "near", "foreign", "dates")
SAID = ("answer", "nearest", "absent", "unjudged")
COLUMNS = ("words", "both", "minilm", "bm25 posts", "bm25 paragraphs")
FILES = [
    Path(__file__).with_name(f"ask_{name}.tsv")
    for name in ("questions", "questions_unseen", "marked", "marked_fresh")
]
SHOWN = 5  # posts, of which at most three passages each are shown
_STOP = re.compile(r"[^\W_]+")
_FILE_OR_ADDRESS = re.compile(r"\S*/\S*|\S+\.[a-z][a-z0-9]{1,4}\b\S*")


@dataclass(frozen=True)
class QualityQuestion:
    kind: str
    archive: str
    text: str
    right: str


@dataclass
class ColumnOutput:
    """The output of one column for a question: ranked posts, the kind of answer, a sentence."""

    posts: list[str] = field(default_factory=list)
    kind: str = ""
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
    parser.add_argument("--columns", default=",".join(COLUMNS))
    parser.add_argument("--misses", default="", help="a column whose misses are printed")
    parser.add_argument("--embed", default="minilm")
    options = parser.parse_args()
    columns = options.columns.split(",")
    embedder = open_embedder(options.embed) if {"both", "minilm"} & set(columns) else None
    for path in FILES[:2]:
        if rows := _rows(path, options.folder, 1):
            print(f"\n{path.name}")
            _asked([QualityQuestion(*row) for row in rows], columns, embedder, options)
    for column in {"words", "both"} & set(columns):
        _marked(options.folder, embedder if column == "both" else None)
    return 0


def _rows(path: Path, folder: Path, place: int) -> list[list[str]]:
    """Return the lines of a file whose workspace, named in column `place`, is in the folder."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [row for row in rows if (folder / f"{row[place]}.ownwords").exists()]


def _asked(
    questions: list[QualityQuestion],
    columns: Sequence[str],
    embedder: Embedder | None,
    options: argparse.Namespace,
) -> None:
    """Ask the questions, and print the table of each column."""
    results: dict[tuple[str, str], list[tuple[QualityQuestion, ColumnOutput, int, bool]]]
    results = defaultdict(list)
    for name in sorted({question.archive for question in questions}):
        work = Workspace.open(options.folder / f"{name}.ownwords")
        for column in columns:
            give = _answerer(column, work, embedder)
            for question in questions:
                if question.archive == name:
                    output = give(question)
                    rank = _rank_of(question.right, output.posts)
                    is_right = _is_right(question, output, rank, work)
                    results[column, question.kind].append((question, output, rank, is_right))
                    if column == options.misses and not is_right:
                        print(
                            f"  miss {question.kind:8}{question.archive:8}{question.text}\n"
                            f"       {output.kind} {rank} {output.sentence} {output.posts[:3]}"
                        )
    for column in columns:
        print(f"\n{column:14}{'first':>20}{'in five':>20}" + "".join(f"{x:>20}" for x in SAID))
        for kind in KINDS:
            if some := results[column, kind]:
                _row(kind, some)


def _row(kind: str, some: list[tuple[QualityQuestion, ColumnOutput, int, bool]]) -> None:
    cells = [""] * 2
    if kind in RANKED_KINDS:
        cells = [
            _share(sum(rank <= most for *_, rank, _ in some), len(some)) for most in (1, SHOWN)
        ]
    if kind == "dates":
        right, said = sum(x for *_, x in some), sum(bool(x.sentence) for _, x, *_ in some)
        cells = [f"{right} right", f"{said - right} false"]
    else:
        said_of = Counter(output.kind for _, output, *_ in some)
        cells += [_share(said_of[x], len(some)) for x in SAID]
    print(f"{f'{kind} ({len(some)})':14}" + "".join(f"{cell:>20}" for cell in cells))


def _share(count: int, total: int) -> str:
    """Return a count with the Wilson interval of its share."""
    z, p = 1.96, count / total
    middle, half = p + z * z / 2 / total, z * sqrt(p * (1 - p) / total + (z / 2 / total) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / total) for sign in (-1, 1))
    return f"{count} ({max(0, low):.0%} to {high:.0%})"


def _marked(folder: Path, embedder: Embedder | None) -> None:
    """Print how often the answering words of the first passage with them are marked and shown."""
    print(f"\n{'':14}{'passage shown':>20}{'a mark has it':>20}{'excerpt has it':>20}")
    for path in FILES[2:]:
        rows = _rows(path, folder, 0)
        searchers = {
            blog: ArchiveSearcher(SearchIndex(folder / f"{blog}.ownwords/archive.sqlite"), embedder)
            for blog in {row[0] for row in rows}
        }
        hits = [0, 0, 0]
        for blog, question, words in rows:
            result = answer(question, searchers[blog])
            having = [x for x in result.passages if words.casefold() in x.text.casefold()]
            for each in having[:1]:
                excerpt = result.excerpts[each.id]
                parts = [[(0, len(each.text))], excerpt.matching, [excerpt.span]]
                for n, spans in enumerate(parts):
                    texts = (each.text[slice(*span)].casefold() for span in spans)
                    hits[n] += any(words.casefold() in text for text in texts)
        if rows:
            shares = (f"{_share(each, len(rows)):>20}" for each in hits)
            print(f"{f'marks ({len(rows)})':14}" + "".join(shares))


def _answerer(
    column: str, work: Workspace, embedder: Embedder | None
) -> Callable[[QualityQuestion], ColumnOutput]:
    if column in ("words", "both"):
        model = embedder if column == "both" else None
        if model:
            embed_missing(work.index, model)
        searcher = ArchiveSearcher(work.index, model)

        def ask_archive(question: QualityQuestion) -> ColumnOutput:
            ranked = question.kind in RANKED_KINDS
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
    return ColumnOutput(posts, result.kind, result.answer)


def _is_right(question: QualityQuestion, output: ColumnOutput, rank: int, work: Workspace) -> bool:
    if question.kind == "near":
        return output.kind != "answer"
    if question.kind == "foreign":
        return output.kind == "absent"
    if question.kind == "dates":
        return (
            re.search(_expected(question.right, work), output.sentence, re.IGNORECASE) is not None
        )
    return rank <= SHOWN and output.kind != "absent"


def _rank_of(right: str, posts: Sequence[str]) -> int:
    """Return the rank at which all needed posts have been seen."""
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


if __name__ == "__main__":
    sys.exit(main())
