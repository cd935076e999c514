"""The verdict follows from the figures, and only from statistically clear ones."""

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
    NO_BASE,
    NO_BETTER,
    NOT_YOURS,
    OWN_WORDS,
    STUMBLES,
    TOO_FEW,
    UNCLEAR,
    UNTRAINED,
    WORDS_ONLY,
    WRITES_LIKE_YOU,
    YOURS,
    tone,
    with_conclusions,
)
from ownwords.evaluation.voice import Voice
from unit import sample_card
from unit.sample_card import beside, classification, estimate, fluency, memorised, unjudged, voice


def judge_card(**changes: object) -> Scorecard:
    return with_conclusions(replace(unjudged(), **changes))  # type: ignore[arg-type]


def about(card: Scorecard, topic: Topic) -> Conclusion:
    (conclusion,) = (verdict for verdict in card.verdicts if verdict.about == topic)
    return conclusion


def test_good_figures_give_the_best_verdict_with_reasons() -> None:
    card = sample_card.good()
    topics = ["all", "prediction", "voice", "fluency", "copying"]
    assert [verdict.about for verdict in card.verdicts] == topics
    kinds = [verdict.kind for verdict in card.verdicts]
    assert kinds == [WRITES_LIKE_YOU, BETTER, YOURS, CLEAN, OWN_WORDS]
    reasons = " ".join(card.verdict.because)
    for figure in ("85%", "92%", "1.1%", "0.6%", "6.9%", "9 words"):
        assert figure in reasons, figure


@pytest.mark.parametrize(
    ("parameters", "sense"),
    [(15e6, "no sense"), (135e6, "no sense"), (270e6, "no sense"), (500e6, "Read some samples")],
)
def test_a_model_too_small_for_sense_is_not_praised(parameters: float, sense: str) -> None:
    card = judge_card(about=replace(unjudged().about, parameters=round(parameters)))
    assert card.verdict.kind == WRITES_LIKE_YOU
    assert sense in card.verdict.sentence
    is_small = sense == "no sense"
    assert tone(card) == ("unclear" if is_small else "good")
    assert ("Read blind" in card.verdict.because[0]) == is_small


SHORT = CopiedPassage("the very same words", 4, "On Idling", "2009-05-04")
LONG = CopiedPassage("the very same words " * 20, 80, "On Idling", "2009-05-04")
ONE_POST = {"excess": None, "held_out": estimate(0.002, None, 1)}
WITHOUT_BASE = {
    "bits": tuple(row for row in sample_card.bits() if row.name != BASE),
    "about": replace(unjudged().about, base=""),
}


def copying(**changes: object) -> dict[str, object]:
    return {"memorised": replace(memorised(), **changes)}  # type: ignore[arg-type]


def language(**changes: object) -> dict[str, object]:
    return {"fluency": replace(fluency(), **changes)}  # type: ignore[arg-type]


def one_post(ours: float) -> dict[str, object]:
    return language(non_words=replace(beside(ours, 0.002), **ONE_POST))  # type: ignore[arg-type]


def gain(value: float, low: float, high: float) -> dict[str, object]:
    rows = (replace(row, gain=value, gain_low=low, gain_high=high) for row in unjudged().bits)
    return {"bits": tuple(rows)}


@pytest.mark.parametrize(
    ("changes", "topic", "kind", "overall"),
    [
        (copying(training=estimate(0.8, 0.05, 256)), "copying", COPIES, COPIES),
        (copying(unguarded=LONG), "copying", COPIES, COPIES),
        # It is not copying if the author repeats themselves as much, or if held-out posts are
        # matched as often.
        (
            copying(unguarded=LONG, real=replace(LONG, words=45)),
            "copying",
            OWN_WORDS,
            WRITES_LIKE_YOU,
        ),
        (
            copying(training=estimate(0.3, 0.05, 256), held_out=estimate(0.4, 0.1, 40)),
            "copying",
            OWN_WORDS,
            WRITES_LIKE_YOU,
        ),
        (language(non_words=beside(0.22, 0.01, 0.03)), "fluency", GIBBERISH, GIBBERISH),
        (language(repeated=beside(0.6, 0.0, 0.1)), "fluency", GIBBERISH, GIBBERISH),
        (language(broken=beside(0.8, 0.07, 0.1)), "fluency", GIBBERISH, GIBBERISH),
        (language(passage_words=3), "fluency", GIBBERISH, GIBBERISH),
        (language(unknown_names=beside(0.2, 0.01, 0.05)), "fluency", GIBBERISH, GIBBERISH),
        # An author's coined words are not held against the model.
        (language(non_words=beside(0.22, 0.21, 0.005)), "fluency", CLEAN, WRITES_LIKE_YOU),
        (language(broken=beside(0.3, 0.06, 0.04)), "fluency", STUMBLES, WORDS_ONLY),
        (language(non_words=beside(0.045, 0.01, 0.005)), "fluency", STUMBLES, WORDS_ONLY),
        (language(repeated=beside(0.12, 0.01, 0.02)), "fluency", STUMBLES, WORDS_ONLY),
        # However many posts there are, an interval with the limit inside decides nothing.
        (language(non_words=beside(0.03, 0.01, 0.02)), "fluency", UNCLEAR, UNCLEAR),
        (language(non_words=beside(0.01, 0.01, None)), "fluency", TOO_FEW, TOO_FEW),
        # One held-out post is enough to see gibberish, and too little for praise.
        (one_post(0.12), "fluency", GIBBERISH, GIBBERISH),
        (one_post(0.04), "fluency", STUMBLES, WORDS_ONLY),
        (one_post(0.002), "fluency", TOO_FEW, TOO_FEW),
        ({"voice": voice(0.2)}, "voice", NOT_YOURS, WORDS_ONLY),
        ({"voice": voice(0.1), **gain(0.0, -0.02, 0.02)}, "voice", NOT_YOURS, ANOTHER_VOICE),
        ({"voice": voice(0.5, spread=0.3)}, "voice", UNCLEAR, UNCLEAR),
        ({"voice": None}, "voice", TOO_FEW, TOO_FEW),
        (
            {"voice": replace(voice(), classification=classification(0.85, spread=None))},
            "voice",
            TOO_FEW,
            TOO_FEW,
        ),
        # If the base does equally well, the model did not learn it from the author.
        ({"voice": voice(0.9, base=0.9)}, "voice", UNCLEAR, UNCLEAR),
        (
            {"voice": Voice(reason="Too few others.")},
            "voice",
            UNCLEAR,
            UNCLEAR,
        ),
        ({"bits": ()}, "prediction", TOO_FEW, TOO_FEW),
        (gain(0.01, -0.01, 0.03), "prediction", UNCLEAR, UNCLEAR),
        (gain(-0.1, -0.2, -0.05), "prediction", NO_BETTER, UNCLEAR),
        (WITHOUT_BASE, "prediction", NO_BASE, WRITES_LIKE_YOU),
    ],
)
def test_the_verdict_follows_from_the_figures(
    changes: dict[str, object], topic: Topic, kind: str, overall: str
) -> None:
    card = judge_card(**changes)
    assert (about(card, topic).kind, card.verdict.kind) == (kind, overall)
    if overall not in (WRITES_LIKE_YOU, UNCLEAR):
        assert about(card, topic).sentence in card.verdict.because
    # A wide interval alone is not reported as "Too few texts".
    assert ("Too few texts" in card.verdict.sentence) == (overall == TOO_FEW)


def test_a_measure_that_misses_the_author_is_ignored() -> None:
    deaf = replace(classification(0.9), held_out_auc=estimate(0.6))
    card = judge_card(voice=replace(voice(), classification=deaf))
    assert about(card, "voice").kind == TOO_FEW
    assert "Even your own" in about(card, "voice").sentence


def test_an_unclear_verdict_says_if_little_of_the_blog_was_read() -> None:
    part = replace(sample_card.good().about, epochs=0.07)
    unclear = {"voice": voice(0.5, spread=0.3)}
    for epochs, change, is_said in (
        (0.07, unclear, True),
        (0.07, {}, False),
        (3.0, unclear, False),
    ):
        card = judge_card(about=replace(part, epochs=epochs), **change)
        assert any("7.0% of your posts" in reason for reason in card.verdict.because) == is_said


def test_a_base_that_learned_nothing_is_not_praised_for_what_it_knew() -> None:
    for change in ({}, gain(0.08, 0.05, 0.1)):
        card = judge_card(about=replace(sample_card.good().about, epochs=0.0), **change)
        assert card.verdict.kind == UNTRAINED
        assert about(card, "prediction").sentence not in card.verdict.because


def test_missing_held_out_posts_are_reported() -> None:
    assert sample_card.bare().verdict.kind == TOO_FEW
    assert sample_card.one_post().verdict.kind == TOO_FEW


@given(
    st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.3), st.sampled_from(["non_words", "broken"])
)
def test_a_narrower_interval_never_weakens_the_verdict(
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


def test_the_tone_follows_the_verdict() -> None:
    assert tone(None) == ""
    assert tone(judge_card(voice=None)) == "unclear"
    assert tone(judge_card(**language(non_words=beside(0.3, 0.004)))) == "bad"
