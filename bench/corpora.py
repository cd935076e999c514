"""Corpora of many sizes and kinds through `ownwords make`: the plans and the results.

    python bench/corpora.py books-1.txt.xz books-2.txt.xz            all of them, 2 minutes each
    python bench/corpora.py BOOKS... --case 20-kB code --minutes 4
    python bench/corpora.py BOOKS... --workspace FOLDER              keeps what was made there

20, 80 and 400 kB are the beginning of one book by one author, and 4 MB are books by several; the
built-in base has read none of them, because `base/build.py` held them out. (Half of the 4 MB chose
which of its weights were kept.) 40 MB can only be books that the base has read, so the figures of
the base and of models tuned from it are too good there. Code is Python's own library, as text files
and as Markdown that holds nothing else.

Each case is a separate process, whose seconds and peak memory are measured. A message that a user
would get in place of a model is shown in the row; any other error is a failure.
"""

import argparse
import ast
import json
import lzma
import re
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.fresh import SHARED, own_peak_mb, run

if TYPE_CHECKING:
    from ownwords.make.stages import MakeResult

DIVIDER = "\x1c"
BOOKS = (SHARED / "books-1.txt.xz", SHARED / "books-2.txt.xz")
ONE_AUTHOR = "Peter Kropotkin/The Conquest of Bread"  # one of the base's test books
# What the split of base/build.py holds out of these archives, except the Python proposals: the
# base was tested on the first, and its best weights were chosen by the second.
TEST = (
    *(ONE_AUTHOR, "Stendhal/The Red and the Black", "Franz Kafka/Metamorphosis"),
    "Friedrich Nietzsche/Beyond Good and Evil",
    "Ida B. Wells/Southern Horrors: Lynch Law in All Its Phases",
)
CHOICE = (
    *("Elizabeth Gaskell/Cranford", "John Bunyan/The Pilgrim's Progress"),
    *("J. Meade Falkner/The Lost Stradivarius", "Richard Harding Davis/In the Fog"),
    *("Emily Dickinson/Poems: Three Series", "Edgar Rice Burroughs/The Lost Continent"),
    *("William Shakespeare/The Comedy of Errors", "Rudyard Kipling/As Easy as A.B.C."),
    "Arthur Conan Doyle/The Adventure of the Red-Headed League",
    "Edgar Allan Poe/The Fall of the House of Usher",
)
_HEADING = re.compile(r"#{1,6}\s+(.*\S)")
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+.!-])")


@dataclass(frozen=True)
class Case:
    """A corpus: its size, the length of its posts, and its kind."""

    name: str
    bytes: int
    post: int
    kind: str  # one author, held out, read, code, fenced
    minutes: float = 1.0  # times those asked for


CASES = (
    Case("20-kB", 20_000, 2_000, "one author"),
    Case("80-kB", 80_000, 3_000, "one author"),
    Case("400-kB", 400_000, 4_000, "one author"),
    Case("code", 400_000, 0, "code"),
    Case("code-fenced", 400_000, 0, "fenced"),
    Case("4-MB", 4_000_000, 6_000, "held out"),
    Case("40-MB", 40_000_000, 10_000, "read"),
)


@dataclass(frozen=True)
class Post:
    """A text of a corpus, under its title."""

    title: str
    body: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("books", nargs="*", type=Path, default=BOOKS)
    parser.add_argument("--case", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--base", default="")
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)  # one corpus, in here
    args = parser.parse_args()
    if args.make:
        row = make_row(args.make, args.workspace, args.minutes, args.base)
        print(json.dumps(row | {"peak_mb": own_peak_mb()}))
        return 0
    if missing := [str(path) for path in args.books if not path.exists()]:
        print(f"skipped: {', '.join(missing)} not there")
        return 0
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as scratch:
        workspace = (args.workspace or Path(scratch)).resolve()
        wanted = [case for case in CASES if not args.case or case.name in args.case]
        return sum(
            not run_case(case, corpus(case, args.books, workspace), args, workspace)
            for case in wanted
        )


# --- cutting --------------------------------------------------------------------------------------


def corpus(case: Case, archives: Sequence[Path], path: Path) -> Path:
    """Return the folder of a case's posts, which is made once."""
    folder = path / case.name
    if folder.is_dir():
        return folder
    left, parts = case.bytes, []
    for post in posts(case, archives):
        left -= len(post.body.encode())
        if left < 0:
            break
        parts.append(post)
    folder.mkdir(parents=True)
    for number, post in enumerate(parts):
        if case.kind == "code":
            (folder / f"{post.title}.txt").write_text(post.body, "utf-8")
            continue
        title = post.title.replace('"', "'")
        head = (
            f'---\ntitle: "{title}"\ndate: {2005 + number % 18}-01-{number % 28 + 1:02d}\n---\n\n'
        )
        body = f"```python\n{post.body}\n```" if case.kind == "fenced" else post.body
        (folder / f"{number:05d}.md").write_text(f"{head}{body}\n", "utf-8")
    return folder


def posts(case: Case, archives: Sequence[Path]) -> Iterator[Post]:
    """Yield posts of a case's kind, more than it needs."""
    if case.kind in ("code", "fenced"):
        yield from sources(Path(sysconfig.get_path("stdlib")))
        return
    for name, text in books(archives):
        if (
            (case.kind == "one author" and name == ONE_AUTHOR)
            or (case.kind == "held out" and name in (*TEST, *CHOICE))
            or (case.kind == "read" and name not in (*TEST, *CHOICE) and "/pep-" not in name)
        ):
            yield from slices(name.rpartition("/")[2], text, case.post)


def books(archives: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield "Author/Title" and the text of each document."""
    for path in archives:
        for document in documents(path):
            name, _, text = document.partition("\n")
            yield name.strip().removesuffix(".md"), text


@cache
def documents(archive: Path) -> list[str]:
    """Unpack the documents once for all cases."""
    with lzma.open(archive, "rt", encoding="utf-8") as file:
        return list(filter(str.strip, file.read().split(DIVIDER)))


def slices(book: str, text: str, size: int) -> Iterator[Post]:
    """Yield a book as posts of about `size` bytes, each of whole paragraphs of one chapter."""
    title, paragraphs, length, number = book, list[str](), 0, 0
    for paragraph in re.split(r"\n\s*\n", text):
        plain_text = _ESCAPED.sub(r"\1", " ".join(paragraph.split()))
        heading = _HEADING.fullmatch(plain_text)
        if paragraphs and (heading or length >= size):
            number += 1
            yield Post(f"{title}, {number}", "\n\n".join(paragraphs))
            paragraphs, length = [], 0
        if heading:
            named = heading[1].strip(" *_")
            title, number = (
                (named, 0) if re.search(r"[a-z]{3}|[A-Z]{4}", named) else (title, number)
            )
        elif plain_text:
            paragraphs.append(plain_text)
            length += len(plain_text.encode()) + 2
    if paragraphs:
        yield Post(f"{title}, {number + 1}", "\n\n".join(paragraphs))


def sources(library: Path) -> Iterator[Post]:
    """Yield Python's own modules of medium length."""
    for path in sorted(library.glob("*.py")):
        code = path.read_text("utf-8")
        if 4_000 <= len(code) <= 40_000 and ast.parse(code).body:
            yield Post(path.stem, code)


# --- making ---------------------------------------------------------------------------------------


def make_row(folder: Path, workspace: Path, minutes: float, base: str) -> dict[str, Any]:
    """Return the figures of `ownwords make` on a corpus, or its error."""
    from ownwords.core.errors import OwnwordsError
    from ownwords.make import pipeline
    from ownwords.make.stages import MakeRequest

    order = MakeRequest([folder], workspace=workspace, minutes=minutes, base=base)
    try:
        return figures(pipeline.make(order))
    except OwnwordsError as error:
        return {"error": f"{error.message}; {error.hint}" if error.hint else error.message}
    except Exception:  # this benchmark looks for crashes: one is a row, too
        return {"crash": traceback.format_exc()}


def figures(result: "MakeResult") -> dict[str, Any]:
    """Return the figures of a make: the input, the plan and the result."""
    trained, card = result.trained, result.scorecard
    provenance = json.loads((result.model / "ownwords.json").read_bytes())
    plan = {number["key"]: number["value"] for number in provenance["plan"]}
    values: dict[str, Any] = {
        "posts": len(result.report.posts),
        "words": result.report.totals.own_words,
        "parameters": trained.parameters,
        "plan": plan,
        "steps": trained.steps,
        "readings": trained.epochs,
        "stopped": trained.stopped,
        "seconds": dict(result.seconds),
        "paragraph": f"{result.paragraph.title}: {result.paragraph.text}",
        "validation": [trained.before, trained.bits_per_byte],
    }
    if card is None:
        return values
    values["bits"] = {row.name: row.bits for row in card.bits}
    values["interval"] = [card.ours.low, card.ours.high] if card.ours else []
    values["judged"] = [card.about.judged_posts, card.about.judged_bytes]
    strange = card.fluency.non_words if card.fluency else None
    if strange:
        real = strange.held_out.value if strange.held_out.of else None
        values["non_words"] = [strange.samples.value, real]
    values["verdict"] = [card.verdict.sentence, *card.verdict.because]
    values["notes"] = list(card.notes)
    return values


def run_case(case: Case, folder: Path, args: argparse.Namespace, scratch: Path) -> bool:
    """Make a case and print its row; return whether it succeeded."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    options = ["--make", str(folder), "--workspace", str(scratch / f"{case.name}.ownwords")]
    options += ["--minutes", f"{args.minutes:g}", "--base", args.base]
    ran = run("corpora", *options)
    row = ran.figures
    cost = f"{ran.seconds:.0f} s, {row['peak_mb']:,.0f} MB at most"
    print(f"\n{case.name} ({case.kind}): {size:,} bytes of files; {cost}")
    if "crash" in row or "error" in row:
        print(f"  {row.get('crash') or row['error']}", flush=True)
        return "error" in row
    plan = row["plan"]
    stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in row["seconds"].items())
    print(
        f"  {row['posts']:,} posts, {row['words']:,} words. {row['parameters']:,} parameters,"
        f" {row['steps']:,} steps of {plan['train.batch_size']} rows of"
        f" {plan['train.sequence_length']},"
        f" read {row['readings']:g} times, {row['stopped']}; {stages}"
    )
    if "bits" not in row:
        print(f"  No scorecard. Validation: {row['validation']}")
    else:
        bits = ", ".join(f"{name} {value:.3f}" for name, value in row["bits"].items())
        print(f"  Bits per byte of {row['judged'][0]} posts: {bits}")
        if "non_words" in row:
            ours, real = row["non_words"]
            print(f"  Non-words: {ours:.2%}" + (f", the author's {real:.2%}" if real else ""))
        for sentence in (*row["verdict"], *row["notes"]):
            print(f"  {sentence}")
    print("  It writes: " + " ".join(row["paragraph"].split())[:400], flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
