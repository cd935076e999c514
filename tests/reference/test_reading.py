"""Our parsing of post bodies against independent implementations."""

import re
import sqlite3
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ownwords.archive.document import Document, Segment
from ownwords.archive.features import extract_features
from ownwords.archive.segments import parse_body
from ownwords.core.text import count_words

pytestmark = pytest.mark.reference

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "blog"


def letters(text: str) -> Counter[str]:
    """The letters and digits of a text, with their counts."""
    return Counter(c for c in unicodedata.normalize("NFC", text) if c.isalnum())


def bodies(database: Path, *, markdown: bool) -> list[str]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "SELECT p.text, coalesce((SELECT value FROM posts_additional_data"
            " WHERE post_id = p.id AND key = '_core'), '') FROM posts p"
        ).fetchall()
    connection.close()
    bodies_found = []
    for text, core in rows:
        is_markdown = '"markdown"' in core
        if is_markdown == markdown and not text.startswith("["):
            bodies_found.append(text)
    return bodies_found


@pytest.fixture(params=["sample", "columnist"])
def database(request: pytest.FixtureRequest) -> Path:
    if request.param == "columnist":
        site: Path = request.getfixturevalue("columnist")
        return site / "input" / "db.sqlite"
    return SAMPLE / "input" / "db.sqlite"


def test_html_keeps_the_letters_that_beautiful_soup_finds(database: Path) -> None:
    bs4 = pytest.importorskip("bs4")
    count = 0
    for body in bodies(database, markdown=False):
        if re.search(r"<script|hidden|display:|Ã|â€", body):
            continue  # what is dropped or mended there, the unit tests say
        theirs = letters(bs4.BeautifulSoup(body, "html.parser").get_text())
        reading = parse_body(body, "html")
        ours = letters("".join(s.text for s in reading.segments))
        # List numbers are shown by the browser, not written in the markup.
        assert not theirs - ours
        assert sum((ours - theirs).values()) <= sum(s.kind == "list" for s in reading.segments) * 50
        count += 1
    assert count > 10


def test_markdown_keeps_the_letters_that_marko_renders(database: Path) -> None:
    bs4 = pytest.importorskip("bs4")
    marko = pytest.importorskip("marko")
    count = 0
    for body in bodies(database, markdown=True):
        # Publii's size suffix is no Markdown; captions are kept by us alone.
        plain = re.sub(r"!\[[^]]*\]\([^)]*\)", "", body).replace("---READMORE---", "")
        converter = marko.Markdown(extensions=["gfm"])
        rendered = bs4.BeautifulSoup(converter.convert(plain), "html.parser").get_text()
        segments = parse_body(plain, "markdown").segments
        ours = letters("".join(s.text for s in segments if s.kind != "list"))
        assert not ours - letters(rendered)
        full_text = letters("".join(s.text for s in segments))
        assert not letters(rendered) - full_text
        count += 1
    assert count > 5


def test_word_counts_equal_those_of_a_regular_expression(database: Path) -> None:
    for body in bodies(database, markdown=False):
        text = "\n".join(s.text for s in parse_body(body, "html").segments)
        theirs = len(re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text))
        assert abs(count_words(text) - theirs) <= max(2, 0.002 * theirs)


def test_sketches_estimate_the_overlap_of_full_sets() -> None:
    generator = np.random.default_rng(5)
    vocabulary = [f"word{n}" for n in range(5000)]
    base = [vocabulary[n] for n in generator.integers(0, 5000, 20_000)]
    for share in (0.2, 0.5, 0.9):
        changed = [vocabulary[n] for n in generator.integers(0, 5000, 3_000)]
        shared = int(len(changed) * share)
        changed[:shared] = base[100 : 100 + shared]

        def shingles(words: list[str]) -> set[tuple[str, ...]]:
            return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}

        exact = len(shingles(base) & shingles(changed)) / len(shingles(changed))
        first, two = (
            extract_features(Document("x", "", (Segment("prose", " ".join(words)),)))
            for words in (base, changed)
        )
        level = max(first.level, two.level)
        limit = np.uint64((1 << (64 - level)) - 1)
        coarse = two.sketch[two.sketch <= limit]
        estimate = np.isin(coarse, first.sketch).mean()
        assert abs(estimate - exact) < 0.15
