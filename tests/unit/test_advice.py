"""The advice is honest at every size: correct figures, rounded for people."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.advice import advise, measured_base
from ownwords.archive.report import Advice


def advice(words: int) -> Advice:
    return advise(words, words, int(5.6 * words), 40)


def test_each_size_has_its_own_headline() -> None:
    sizes = [0, 1_000, 10_000, 50_000, 500_000, 5_000_000, 50_000_000]
    headlines = [advice(size).headline for size in sizes]
    assert len(set(headlines)) == len(sizes)


def test_an_archive_without_text_gets_a_short_advice() -> None:
    assert advise(500, 0, 0, 3).rows == []
    assert "nothing" in advise(0, 0, 0, 0).headline


def test_the_arithmetic_is_right_and_its_source_named() -> None:
    rows = dict(advise(60_000, 48_000, 268_000, 34).rows)
    from_nothing = rows["Train a model from nothing on this alone?"]
    assert "3,350 parameters" in from_nothing  # 268,000 / 4 / 20
    assert "124 million" in from_nothing
    assert "2.48 billion tokens" in from_nothing
    assert "Hoffmann" in from_nothing
    from_base = rows["Start from a base model that knows your language?"]
    measured = measured_base()
    assert f"{measured.base:.3f} bits" in from_base
    assert f"{measured.tuned:.3f} after tuning: 2% fewer bits" in from_base
    assert f"{measured.from_nothing:.2f} bits per byte from nothing" in from_nothing
    assert "Muennighoff" in rows["How often should it read the posts?"]


def test_a_tiny_archive_is_not_advised_to_fine_tune() -> None:
    rows = dict(advice(900).rows)
    assert "Yes" not in rows["Start from a base model that knows your language?"]
    assert "do not trust" in rows["How much is held out, and how much does that tell?"]


def test_excluded_words_are_mentioned() -> None:
    sentences = advise(60_000, 48_000, 268_000, 40).sentences
    assert "12,000 more are left out or capped" in sentences[0]


@given(st.integers(0, 10**9), st.integers(1, 10**5))
def test_it_reads_well_at_any_size(words: int, posts: int) -> None:
    advice_given = advise(words, words, words * 6, posts)
    texts = [advice_given.headline, *advice_given.sentences, *itertools.chain(*advice_given.rows)]
    assert advice_given.sentences
    for text in texts:
        assert text == text.strip()
        assert text[-1] in ".?"
        assert "  " not in text
        assert "nan" not in text.lower().split()
        assert "inf" not in text.split()
    assert len(advice_given.sentences) <= 6


def test_without_held_out_posts_no_tenth_is_promised() -> None:
    question = "How much is held out, and how much does that tell?"
    too_few, sufficient = (dict(advise(9_000, 9_000, 50_000, n).rows)[question] for n in (4, 5))
    assert too_few.startswith("Nothing:")
    assert sufficient.startswith("A tenth of the words.")


def test_the_amount_is_grammatical() -> None:
    assert (
        "You can train on one word of yours (4 bytes), in one text."
        in (advise(1, 1, 4, 1).sentences[0])
    )
