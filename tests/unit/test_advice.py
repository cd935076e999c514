"""The advice fits the amount of text."""

from ownwords.archive.advice import advise, too_little
from ownwords.archive.report import ReportTotals


def test_each_size_has_its_own_headline() -> None:
    sizes = [0, 1_000, 10_000, 50_000, 500_000, 5_000_000, 50_000_000]
    advice = [advise(ReportTotals(training_words=size)) for size in sizes]
    assert len({each.headline for each in advice}) == len(sizes)
    assert "nothing" in advice[0].headline
    assert not advice[1].sentences and "not facts" in advice[3].sentences[0]
    assert [too_little(ReportTotals(training_words=size)) for size in sizes[:3]] == [
        True,
        True,
        False,
    ]
