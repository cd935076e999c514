"""The verdict follows from the figures, and only from certain ones."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.evaluation.scorecard import BASE, Conclusion, CopiedPassage, Scorecard, Topic
from ownwords.evaluation.verdict import (
    ANOTHER_VOICE,
    BETTER,
    CLEAN,
    COPIES,
    GIBBERISH,
    MANNER,
    NO_BASE,
    NOT_YOURS,
    OWN_WORDS,
    STUMBLES,
    TOO_FEW,
    UNCLEAR,
    WORDS_ONLY,
    WRITES_LIKE_YOU,
    YOURS,
    limits,
    tone,
    with_conclusions,
)
from unit import sample_card
from unit.sample_card import beside, classification, estimate, fluency, memorised, unjudged, voice


def judge_card(**changes: object) -> Scorecard:
    return with_conclusions(replace(unjudged(), **changes))  # type: ignore[arg-type]


def about(card: Scorecard, topic: Topic) -> Conclusion:
    (conclusion,) = (verdict for verdict in card.verdicts if verdict.about == topic)
    return conclusion


def base_row(card: Scorecard, gain: float, spread: float = 0.02) -> Scorecard:
    rows = tuple(
        replace(row, gain=gain, gain_low=gain - spread, gain_high=gain + spread)
        if row.name == BASE
        else row
        for row in card.bits
    )
    return with_conclusions(replace(card, bits=rows))


def test_good_figures_write_like_you_and_say_why() -> None:
    card = sample_card.good()
    assert card.verdict.kind == WRITES_LIKE_YOU
    assert [verdict.about for verdict in card.verdicts] == [
        "all",
        "prediction",
        "voice",
        "fluency",
        "copying",
    ]
    kinds = [verdict.kind for verdict in card.verdicts[1:]]
    assert kinds == [BETTER, YOURS, CLEAN, OWN_WORDS]
    reasons = " ".join(card.verdict.because)
    for figure in ("85%", "92%", "1.1%", "0.6%", "6.9%", "9 words"):
        assert figure in reasons, figure


@pytest.mark.parametrize(
    "change",
    [
        {"training": estimate(0.8, 0.05, 256)},
        {"unguarded": CopiedPassage("the very same words " * 20, 80, "On Idling", "2009-05-04")},
    ],
    ids=["by heart", "a long passage"],
)
def test_a_copying_model_is_called_so_whatever_its_other_figures(change: dict[str, object]) -> None:
    card = judge_card(memorised=replace(memorised(), **change))  # type: ignore[arg-type]
    assert card.verdict.kind == COPIES
    assert card.verdict.sentence == "It copies you."
    assert "copy guard" in card.verdict.because[0]


def test_the_source_of_the_longest_copy_is_named() -> None:
    run = CopiedPassage("the very same words " * 20, 80, "On Idling", "2009-05-04")
    reasons = judge_card(memorised=replace(memorised(), unguarded=run)).verdict.because[0]
    assert "80 words in a row that are in “On Idling”, 4 May 2009" in reasons


def test_the_author_s_own_repetitions_are_not_copying() -> None:
    run = CopiedPassage("a creed " * 25, 50, "On Creeds")
    repeats = replace(memorised(), unguarded=run, real=replace(run, words=45))
    assert about(judge_card(memorised=repeats), "copying").kind == OWN_WORDS


def test_memorisation_must_exceed_that_of_held_out_posts() -> None:
    formula = replace(
        memorised(), training=estimate(0.3, 0.05, 256), held_out=estimate(0.4, 0.1, 40)
    )
    assert about(judge_card(memorised=formula), "copying").kind == OWN_WORDS


@pytest.mark.parametrize(
    "language",
    [
        fluency(non_words=beside(0.22, 0.01, 0.03)),
        fluency(looped=beside(0.6, 0.0, 0.1)),
        fluency(broken=beside(0.8, 0.07, 0.1)),
        fluency(words=3),
        replace(fluency(), unknown_names=beside(0.2, 0.01, 0.05)),
    ],
    ids=["non-words", "loops", "broken", "silence", "names"],
)
def test_gibberish(language: object) -> None:
    card = judge_card(fluency=language)
    assert card.verdict.kind == GIBBERISH
    assert card.verdict.because[0] == about(card, "fluency").sentence


def test_an_author_s_coined_words_are_not_held_against_the_model() -> None:
    coins = fluency(non_words=beside(0.22, 0.21, 0.005))
    assert judge_card(fluency=coins).verdict.kind == WRITES_LIKE_YOU


@pytest.mark.parametrize(
    "changes",
    [
        {"fluency": fluency(broken=beside(0.3, 0.06, 0.04))},
        {"fluency": fluency(non_words=beside(0.045, 0.01, 0.005))},
        {"fluency": fluency(repeated=beside(0.12, 0.01, 0.02))},
        {"voice": voice(0.2)},
    ],
)
def test_your_words_without_your_sentences(changes: dict[str, object]) -> None:
    assert judge_card(**changes).verdict.kind == WORDS_ONLY


def test_a_barely_tuned_base_writes_in_its_own_voice() -> None:
    card = base_row(judge_card(voice=voice(0.1)), 0.0)
    assert card.verdict.kind == ANOTHER_VOICE


def test_stumbling_is_distinguished_from_gibberish() -> None:
    card = judge_card(fluency=fluency(non_words=beside(0.045, 0.01, 0.005)))
    assert about(card, "fluency").kind == STUMBLES


def test_one_held_out_post_is_enough_to_see_gibberish_and_too_little_for_praise() -> None:
    def alone(ours: float) -> Scorecard:
        single = replace(beside(ours, 0.002), excess=None, held_out=estimate(0.002, None, 1))
        return judge_card(fluency=fluency(non_words=single))

    assert alone(0.12).verdict.kind == GIBBERISH
    assert about(alone(0.002), "fluency").kind == TOO_FEW
    assert about(alone(0.04), "fluency").kind == STUMBLES


@pytest.mark.parametrize(
    "changes",
    [
        {"voice": voice(0.5, spread=0.3)},
        {"fluency": fluency(non_words=beside(0.03, 0.01, 0.02))},
    ],
)
def test_an_uncertain_figure_decides_nothing(changes: dict[str, object]) -> None:
    """However many posts there are; that there is too little text is not said of an interval."""
    card = judge_card(**changes)
    assert card.verdict.kind == UNCLEAR
    assert [verdict.kind for verdict in card.verdicts[1:]].count(UNCLEAR) == 1
    assert "too" not in " ".join([card.verdict.sentence, *card.verdict.because])


@pytest.mark.parametrize(
    "changes",
    [
        {"voice": replace(voice(), classification=classification(0.85, spread=None))},
        {"fluency": fluency(non_words=beside(0.01, 0.01, None))},
        {"bits": ()},
        {"voice": None},
    ],
)
def test_too_few_texts_for_an_interval_are_too_few(changes: dict[str, object]) -> None:
    card = judge_card(**changes)
    assert card.verdict.kind == TOO_FEW
    assert "too little text" in card.verdict.sentence


def test_how_much_of_the_blog_was_read_is_a_reason_where_that_is_little() -> None:
    part = replace(sample_card.good().about, epochs=0.07)
    for change, is_said in (
        ({"voice": voice(0.5, spread=0.3)}, True),
        ({"fluency": fluency(non_words=beside(0.045, 0.01, 0.005))}, True),
        ({}, False),  # it writes like the author all the same
    ):
        card = judge_card(about=part, **change)
        assert any("7.0% of your posts" in reason for reason in card.verdict.because) == is_said
        for epochs in (None, 1.0, 3.0):
            card = judge_card(about=replace(part, epochs=epochs), **change)
            assert not any("it has read" in reason for reason in card.verdict.because)


def test_the_verdict_says_that_it_judges_the_manner() -> None:
    card = sample_card.good()
    assert card.verdict.sentence == "It writes in your manner."
    assert card.verdict.because[-1] == MANNER and "sense" in MANNER


def test_no_clear_gain_over_the_base_is_inconclusive() -> None:
    card = base_row(unjudged(), 0.01)
    assert card.verdict.kind == UNCLEAR
    assert about(card, "prediction").kind == UNCLEAR
    assert "0.6% better (0.6% worse to 1.9% better)" in about(card, "prediction").sentence


def test_a_model_that_is_settled_to_predict_no_better_is_not_short_of_text() -> None:
    rows = tuple(replace(row, gain=-0.1, gain_low=-0.2, gain_high=-0.05) for row in unjudged().bits)
    assert judge_card(bits=rows).verdict.kind == UNCLEAR


def test_a_classifier_that_misses_the_author_is_ignored() -> None:
    deaf = replace(classification(0.9), held_out_auc=estimate(0.6))
    card = judge_card(voice=replace(voice(), classification=deaf))
    assert about(card, "voice").kind == UNCLEAR
    assert "even your own" in about(card, "voice").sentence


def test_without_other_authors_the_distance_decides() -> None:
    alone = replace(voice(), classification=None, authors=0, others=0)
    assert alone.delta is not None
    near = replace(alone.delta, samples=sample_card.distances(0.83))
    alone = replace(alone, delta=near)
    assert about(judge_card(voice=alone), "voice").kind == YOURS
    far = replace(alone, delta=replace(near, samples=sample_card.distances(1.3)))
    assert about(judge_card(voice=far), "voice").kind == NOT_YOURS


def test_a_text_farther_away_than_other_authors_is_not_your_voice() -> None:
    near = voice(0.9)
    assert near.delta is not None
    far = replace(near, delta=replace(near.delta, samples=sample_card.distances(1.5)))
    card = judge_card(voice=far)
    assert about(card, "voice").kind == NOT_YOURS
    assert "farther from yours (1.50) than other authors' is (1.12)" in card.verdict.because[1]
    assert card.verdict.kind == WORDS_ONLY
    unsure = replace(near.delta, samples=sample_card.distances(1.5, spread=0.4))
    assert about(judge_card(voice=replace(near, delta=unsure)), "voice").kind == YOURS


def test_without_a_base_the_voice_and_the_language_decide() -> None:
    rows = tuple(row for row in sample_card.bits() if row.name != BASE)
    card = judge_card(bits=rows, about=replace(unjudged().about, base=""))
    assert about(card, "prediction").kind == NO_BASE
    assert card.verdict.kind == WRITES_LIKE_YOU


def test_missing_held_out_posts_are_reported() -> None:
    card = sample_card.bare()
    assert card.verdict.kind == TOO_FEW
    assert sample_card.one_post().verdict.kind == TOO_FEW


@given(
    st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.3), st.sampled_from(["non_words", "broken"])
)
def test_the_verdict_depends_only_on_certain_figures(
    ours: float, real: float, spread: float, measure: str
) -> None:
    """If a wide interval decides, a narrower one with the same centre decides alike."""
    wide = judge_card(fluency=fluency(**{measure: beside(ours, real, spread)}))  # type: ignore[arg-type]
    narrow = judge_card(fluency=fluency(**{measure: beside(ours, real, spread / 3)}))  # type: ignore[arg-type]
    order = [CLEAN, STUMBLES, GIBBERISH]
    unsure, sure = about(wide, "fluency").kind, about(narrow, "fluency").kind
    if unsure == CLEAN:
        assert sure == CLEAN
    elif unsure in order and sure in order:
        assert order.index(sure) >= order.index(unsure)


def test_no_sentence_lacks_its_figures_or_holds_a_placeholder() -> None:
    for _, card in sample_card.every():
        for verdict in card.verdicts:
            for sentence in (verdict.sentence, *verdict.because):
                assert re.match(r"[A-Z\d<>]", sentence) and sentence.endswith("."), sentence
                assert not re.search(r"[{}]|None|nan|\binf\b", sentence), sentence


def test_a_good_model_still_makes_up_facts_and_does_not_answer() -> None:
    card = sample_card.good()
    assert tone(card) == "good"
    uses = [limit.partition(":")[0] for limit in limits(card)]
    assert uses == ["Facts", "Questions and instructions"]
    assert f"{card.about.parameters / 1e6:,.0f} million" in limits(card)[1]


def test_each_weakness_is_said_with_its_own_figures() -> None:
    card = sample_card.good()
    assert card.fluency is not None
    assert card.voice is not None
    fluency = replace(
        card.fluency,
        non_words=sample_card.beside(0.03, 0.004, 0.001),
        unknown_names=sample_card.beside(0.0123, 0.01),
    )
    voice = replace(card.voice, classification=sample_card.classification(0.1, spread=0.02))
    card = with_conclusions(replace(card, fluency=fluency, voice=voice))
    assert tone(card) == "unclear"
    texts = dict(limit.split(": ", 1) for limit in limits(card))
    assert texts["Publishing unread"].startswith("3.0% of its words are not real words")
    assert "of its passages for yours" in texts["Passing for you"]
    assert "(1.2% of its words are invented names)" in texts["Facts"]


def test_what_was_not_measured_is_called_open() -> None:
    card = with_conclusions(replace(sample_card.good(), voice=None))
    assert tone(card) == "unclear"
    assert "Passing for you: this is not settled. Its voice was not measured." in limits(card)
    assert tone(None) == ""


def test_gibberish_is_bad() -> None:
    card = sample_card.good()
    assert card.fluency is not None
    fluency = replace(card.fluency, non_words=sample_card.beside(0.3, 0.004))
    assert tone(with_conclusions(replace(card, fluency=fluency))) == "bad"
