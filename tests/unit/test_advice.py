"""The advice fits the amount of text, of which repeats are no part."""

import pytest

from ownwords.archive.advice import advise, too_little
from ownwords.archive.report import Advice, ReportTotals


def advice(words: int, *, distinct: int = 0) -> Advice:
    return advise(ReportTotals(training_words=words, distinct_words=distinct))


def test_each_size_has_its_own_headline() -> None:
    sizes = [0, 1_000, 10_000, 50_000, 500_000, 5_000_000, 50_000_000]
    headlines = [advice(size).headline for size in sizes]
    assert len(set(headlines)) == len(sizes)
    assert "nothing" in headlines[0] and headlines[1] == advice(80).headline
    assert not advice(1_000).sentences and "not facts" in advice(50_000).sentences[0]


@pytest.mark.parametrize("words", [420, 30_000, 400_000])
def test_repeats_do_not_count_as_more_text(words: int) -> None:
    """Three paragraphs pasted many times are as little as three paragraphs."""
    assert advice(words, distinct=80) == advice(80)
    assert too_little(ReportTotals(training_words=words, distinct_words=80))
    assert not too_little(ReportTotals(training_words=words + 2_000))
