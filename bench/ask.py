"""How fast `ownwords ask` finds passages, and how much memory that takes.

    python bench/ask.py                  50,000 chunks; about 1 GB in the temporary folder
    python bench/ask.py --chunks 5000    smaller

The archive is synthesised with a fixed seed from the columnist site beside the repository, or from
the sample blog if that is missing; the vectors are random. Building and searching run in separate
processes, so that the memory of each is known.
"""

import argparse
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ownwords.archive.document import Document, Segment
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.store import Archive
from ownwords.ask.index import SearchIndex
from ownwords.ask.search import ArchiveSearcher
from ownwords.language.words import is_content_word

ROOT = Path(__file__).resolve().parents[1]
COLUMNIST = ROOT.parent / "shared" / "data" / "columnist"
SAMPLE = ROOT / "examples" / "blog"

DIMENSIONS = 384
CHUNKS_A_POST, WORDS_A_CHUNK, PARAGRAPH, WINDOWS = 5, 280, 140, 3
QUESTIONS = 200
MIN_MB_S, MAX_MS = 2.0, 30.0


class RandomEmbedder:
    """Random vectors in place of a sentence model, whose own time is not measured here."""

    name, dimensions = "drawn", DIMENSIONS
    question_prompt = passage_prompt = ""
    reader = None

    def __init__(self) -> None:
        self._generator = np.random.default_rng(11)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = self._generator.standard_normal((len(texts), DIMENSIONS), np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--chunks", type=int, default=50_000)
    parser.add_argument("--part", choices=["build", "text", "both"], help=argparse.SUPPRESS)
    parser.add_argument("--archive", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        measured = (
            build(options.archive)
            if options.part == "build"
            else ask(options.archive, options.part)
        )
        print(json.dumps(measured))
        return 0
    sys.path.append(str(ROOT))
    from bench.machine import measuring

    folder = Path(tempfile.mkdtemp(prefix="ownwords-bench-"))
    try:
        path = folder / "archive.sqlite"
        synthesise(path, options.chunks // CHUNKS_A_POST)
        before = path.stat().st_size
        built = in_a_process("build", path)
        size = f"{path.stat().st_size / 1e6:,.0f} MB on disk, {before / 1e6:,.0f} before"
        print(f"{built['chunks']:,.0f} chunks, {built['mb']:.1f} MB of text; {size}")
        line(
            "index built, vectors apart",
            f"{built['mb'] / built['seconds']:.1f} MB/s",
            f"over {MIN_MB_S:g}",
            built["mb"] / built["seconds"] > MIN_MB_S,
            built["peak_mb"],
        )
        line("looked through, unchanged", f"{built['again_ms']:.1f} ms", "", True, built["peak_mb"])
        for mode in ("text", "both"):
            with measuring():
                result = in_a_process(mode, path)
            spread = (
                f"19 of 20 under {result['p95_ms']:.0f} ms, the first {result['first_ms']:.0f} ms"
            )
            line(
                f"a question, {mode}",
                f"{result['median_ms']:.1f} ms",
                f"under {MAX_MS:g}; {spread}",
                result["median_ms"] < MAX_MS,
                result["peak_mb"],
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def line(label: str, figure: str, limit: str, is_met: bool, peak_mb: float) -> None:
    print(f"{label:30}{figure:>12}  {limit:58}{peak_mb:6.0f} MB  {'ok' if is_met else 'OVER'}")


def in_a_process(part: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--part", part, "--archive", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    measured: dict[str, float] = json.loads(output)
    measured["peak_mb"] = usage.ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)
    return measured


def build(path: Path) -> dict[str, float]:
    with SearchIndex(path) as index:
        began = time.perf_counter()
        index.refresh()
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        index.refresh()
        second_s = time.perf_counter() - began
        ids = index.without_vectors("")
        rows = RandomEmbedder().embed(["" for _ in range(WINDOWS * len(ids))])
        windows = rows.reshape(len(ids), WINDOWS, DIMENSIONS)
        index.put_vectors(RandomEmbedder.name, list(zip(ids, windows, strict=True)))
        with index.reading() as db:
            (characters,) = db.execute("SELECT sum(length(text)) FROM segments").fetchone()
        return {
            "seconds": seconds,
            "again_ms": second_s * 1000,
            "mb": characters / 1e6,
            "chunks": index.size(),
        }


def ask(path: Path, mode: str) -> dict[str, float]:
    with SearchIndex(path) as index:
        searcher = ArchiveSearcher(index, None if mode == "text" else RandomEmbedder())
        times: list[float] = []
        for question in questions(index):
            began = time.perf_counter()
            searcher.find(question)
            times.append((time.perf_counter() - began) * 1000)
    later = sorted(times[1:])
    return {
        "first_ms": times[0],
        "median_ms": statistics.median(later),
        "p95_ms": later[len(later) * 19 // 20],
    }


def questions(index: SearchIndex) -> list[str]:
    """Return questions of two to six words that are near each other in a passage."""
    generator = np.random.default_rng(5)
    ids = generator.choice(index.without_vectors(""), QUESTIONS, replace=False)
    questions_made = []
    for passage in index.passages([(int(id_), 0.0) for id_ in ids]):
        words = [
            word for word in re.findall(r"[^\W\d_]{3,}", passage.text) if is_content_word(word)
        ]
        length, at = int(generator.integers(2, 7)), int(generator.integers(0, len(words) - 20))
        chosen = sorted(generator.choice(20, length, replace=False) + at)
        questions_made.append(f"What did I say about {' and '.join(words[n] for n in chosen)}?")
    return questions_made


def synthesise(path: Path, posts: int) -> None:
    """Write posts by a random walk from word to following word: no two are alike."""
    generator = np.random.default_rng(7)
    words = _words(COLUMNIST if COLUMNIST.exists() else SAMPLE)
    _, ids = np.unique(words, return_inverse=True)
    order = np.argsort(ids[:-1], kind="stable") + 1
    starts = np.searchsorted(ids[:-1][order - 1], np.arange(ids.max() + 1))
    counts = np.maximum(np.bincount(ids[:-1], minlength=ids.max() + 1), 1)
    length = CHUNKS_A_POST * WORDS_A_CHUNK
    at = generator.integers(0, len(words) - 1, posts)
    steps = np.empty((length, posts), np.int64)
    for step in range(length):
        steps[step] = at
        here = ids[at]
        at = order[np.minimum(starts[here] + generator.integers(0, counts[here]), len(order) - 1)]
    vocabulary = np.array(words, dtype=object)
    day = datetime(2000, 1, 1, tzinfo=UTC)
    with Archive(path) as archive, archive.transaction():
        for post in range(posts):
            text = vocabulary[steps[:, post]]
            segments = tuple(
                Segment("prose", " ".join(text[start : start + PARAGRAPH]))
                for start in range(0, length, PARAGRAPH)
            )
            title = " ".join(text[:5]).title()
            when = day + timedelta(days=post % 9000)
            document = Document(f"bench:{post}", title, segments, date=when)
            features = encode_features(extract_features(document))
            archive.put(document, str(post), features)


def _words(site: Path) -> list[str]:
    with sqlite3.connect(f"file:{site / 'input' / 'db.sqlite'}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT text FROM posts WHERE length(text) < 40000").fetchall()
    database.close()
    return re.sub(r"<[^>]+>|[\[\]{}#\"]", " ", " ".join(text for (text,) in rows)).split()


if __name__ == "__main__":
    sys.exit(main())
