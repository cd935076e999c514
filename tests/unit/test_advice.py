"""The advice is honest at every size: correct figures, rounded for people."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.advice import advise, measured_base, too_little
from ownwords.archive.report import Advice, ReportTotals, SplitCounts

HELD_OUT = "How much is held out, and how accurate is the score?"


def advice(words: int, *, distinct: int = 0, tested: int = 0, posts: int = 40) -> Advice:
    """Advice on a corpus of 5.6 bytes a word, of which as much again validates as tests."""
    totals = ReportTotals(
        training_words=words, training_bytes=int(5.6 * words), distinct_words=distinct
    )
    sides = {"train": words - 2 * tested, "validation": tested, "test": tested}
    held_out = min(4, posts) if tested else 0
    numbers = {"train": posts - held_out, "validation": held_out // 2, "test": held_out // 2}
    return advise(totals, SplitCounts(numbers, sides))


def test_each_size_has_its_own_headline() -> None:
    sizes = [0, 1_000, 10_000, 50_000, 500_000, 5_000_000, 50_000_000]
    headlines = [advice(size).headline for size in sizes]
    assert len(set(headlines)) == len(sizes)


def test_an_archive_without_text_gets_a_short_advice() -> None:
    assert advice(0).rows == []
    assert "nothing" in advice(0).headline


@pytest.mark.parametrize("words", [420, 30_000, 400_000])
def test_repeats_do_not_count_as_more_text(words: int) -> None:
    """Three paragraphs pasted many times are as little as three paragraphs."""
    repeated, alone = advice(words, distinct=80), advice(80)
    assert repeated.headline == alone.headline
    assert dict(repeated.rows) | {HELD_OUT: ""} == dict(alone.rows) | {HELD_OUT: ""}
    assert too_little(ReportTotals(training_words=words, distinct_words=80))
    assert not too_little(ReportTotals(training_words=words + 2_000))


def test_figures_are_those_measured() -> None:
    rows = dict(advice(48_000).rows)
    from_base = rows["Start from a base model that knows your language?"]
    measured = measured_base()
    assert f"{measured.base:.3f} bits" in from_base
    assert f"{measured.tuned:.3f} after tuning: 2% fewer bits" in from_base
    assert f"alone has {measured.from_nothing:.3f}." in from_base


def test_a_tiny_archive_is_not_advised_to_fine_tune() -> None:
    rows = dict(advice(900, tested=90).rows)
    assert "Yes" not in rows["Start from a base model that knows your language?"]
    assert "do not trust" in rows[HELD_OUT]


@given(st.integers(0, 10**9), st.integers(1, 10**5), st.floats(0, 0.2), st.floats(0, 1))
def test_it_reads_well_at_any_size(words: int, posts: int, tested: float, distinct: float) -> None:
    given_ = advice(words, distinct=int(distinct * words), tested=int(tested * words), posts=posts)
    texts = [given_.headline, *given_.sentences, *itertools.chain(*given_.rows)]
    assert given_.sentences
    for text in texts:
        assert text == text.strip()
        assert text[-1] in ".?"
        assert "  " not in text
        assert "nan" not in text.lower().split()
        assert "inf" not in text.split()
    assert len(given_.sentences) <= 6


def test_what_is_held_out_is_counted() -> None:
    none, some = (dict(advice(90_000, tested=n).rows)[HELD_OUT] for n in (0, 9_450))
    assert none.startswith("Nothing:")
    assert some.startswith("21% of the words: 18,900 words in 4 texts.")
    assert "bits" not in some
