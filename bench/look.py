"""How fast `ownwords look` is, and how much memory it takes, each run a fresh process.

    python bench/look.py            all of it (makes about 1.1 GB of files in the temporary folder)
    python bench/look.py --small    without the gigabyte

The corpora are synthesised with a fixed seed from the columnist site beside the repository, or from
the sample blog if that is missing.
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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
COLUMNIST = ROOT.parent / "shared" / "data" / "columnist"
SAMPLE = ROOT / "examples" / "blog"


@dataclass(frozen=True)
class Figure:
    label: str
    seconds: float
    peak_mb: float
    limit_s: float | None = None
    limit_mb: float | None = None

    def line(self) -> str:
        seconds = f"{self.seconds:8.2f} s" + (f" (under {self.limit_s:g})" if self.limit_s else "")
        memory = f"{self.peak_mb:6.0f} MB" + (
            f" (under {self.limit_mb:g})" if self.limit_mb else ""
        )
        is_within_limits = (self.limit_s is None or self.seconds < self.limit_s) and (
            self.limit_mb is None or self.peak_mb < self.limit_mb
        )
        return f"{self.label:44} {seconds:22} {memory:22} {'ok' if is_within_limits else 'OVER'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="leave the gigabyte out")
    small = parser.parse_args().small
    site = COLUMNIST if COLUMNIST.exists() else SAMPLE
    words = _words(site)
    folder = Path(tempfile.mkdtemp(prefix="ownwords-bench-"))
    figures = []
    try:
        firsts = [_run(site, folder / f"first-{n}") for n in range(3)]
        figures.append(_median(f"{site.name}, first look", firsts, 2.0))
        repeats = [_run(site, folder / "first-0") for _ in range(3)]
        figures.append(_median(f"{site.name}, second look, unchanged", repeats, 1.0))
        large = _many_posts(folder / "many", words, posts=10_000, megabytes=60)
        figures.append(_median("10,000 posts / 60 MB", [_run(large, folder / "m")], 40.0, 600.0))
        figures.append(_median("the same, second look", [_run(large, folder / "m")], None, 600.0))
        if not small:
            texts = _text_folder(folder / "texts", words, files=10_000, bytes_each=100_000)
            figures.append(_median("1 GB of plain text", [_run(texts, folder / "t")], None, 600.0))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for figure in figures:
        print(figure.line())
    return 0


def _run(path: Path, workspace: Path) -> tuple[float, float]:
    """Return wall seconds and peak memory in MB of one `ownwords look`, start-up included."""
    command = [sys.executable, "-m", "ownwords", "look", str(path), "--json", "--yes"]
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, "--workspace", f"{workspace}.ownwords"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode != 0 or not json.loads(output)["posts"]:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return seconds, usage.ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)


def _median(
    label: str,
    runs: list[tuple[float, float]],
    limit_s: float | None,
    limit_mb: float | None = None,
) -> Figure:
    seconds, memory = zip(*runs, strict=True)
    return Figure(label, statistics.median(seconds), max(memory), limit_s, limit_mb)


def _words(site: Path) -> list[str]:
    database = sqlite3.connect(f"file:{site / 'input' / 'db.sqlite'}?mode=ro", uri=True)
    rows = database.execute("SELECT text FROM posts WHERE length(text) < 40000").fetchall()
    database.close()
    return re.sub(r"<[^>]+>|[\[\]{}#\"]", " ", " ".join(text for (text,) in rows)).split()


def _chain(words: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each word of the text where its followers begin and how many there are."""
    _, ids = np.unique(words, return_inverse=True)
    order = np.argsort(ids[:-1], kind="stable")
    starts = np.searchsorted(ids[:-1][order], np.arange(ids.max() + 1))
    counts = np.maximum(np.bincount(ids[:-1], minlength=ids.max() + 1), 1)
    return order + 1, np.stack([starts, counts]), ids


def _many_posts(folder: Path, words: list[str], posts: int, megabytes: int) -> Path:
    """Return a Publii site of random posts from a word chain: no two are alike."""
    generator = np.random.default_rng(7)
    followers, spans, ids = _chain(words)
    length = megabytes * 1_000_000 // posts // 6
    at = generator.integers(0, len(words) - 1, posts)
    steps = np.empty((length, posts), dtype=np.int64)
    for step in range(length):
        steps[step] = at
        start, count = spans[:, ids[at]]
        at = followers[np.minimum(start + generator.integers(0, count), len(followers) - 1)]
    vocabulary = np.array(words, dtype=object)
    (folder / "input").mkdir(parents=True)
    database = sqlite3.connect(folder / "input" / "db.sqlite")
    shutil.copytree(SAMPLE / "input" / "config", folder / "input" / "config")
    database.executescript(_publii_schema())
    for post in range(posts):
        text = vocabulary[steps[:, post]]
        paragraphs = [" ".join(text[i : i + 120]) for i in range(0, length, 120)]
        database.execute(
            "INSERT INTO posts VALUES (?, ?, '1', ?, ?, NULL, ?, ?, 'published', '')",
            (
                post + 1,
                f"Post {post + 1}",
                f"post-{post + 1}",
                "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs),
                1_000_000_000_000 + post * 40_000_000,
                1_000_000_000_000 + post * 40_000_000,
            ),
        )
    database.commit()
    database.close()
    return folder


def _publii_schema() -> str:
    database = sqlite3.connect(f"file:{SAMPLE / 'input' / 'db.sqlite'}?mode=ro", uri=True)
    rows = database.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    database.close()
    return ";\n".join(sql for (sql,) in rows)


def _text_folder(folder: Path, words: list[str], files: int, bytes_each: int) -> Path:
    generator = np.random.default_rng(11)
    vocabulary = np.array(words, dtype=object)
    folder.mkdir()
    for number in range(files):
        drawn = vocabulary[generator.integers(0, len(words), bytes_each // 6)]
        text = "\n\n".join(" ".join(drawn[i : i + 120]) for i in range(0, len(drawn), 120))
        (folder / f"{number:05}.txt").write_text(text, encoding="utf-8")
    return folder


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from bench.machine import measuring

    with measuring():
        raise SystemExit(main())
