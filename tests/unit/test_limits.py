"""What a model is not good for, from its scorecard."""

from dataclasses import replace

from ownwords.evaluation.limits import limits, tone
from ownwords.evaluation.verdict import with_conclusions
from unit import sample_card


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
    voice = replace(card.voice, letters=sample_card.classification(0.1, spread=0.02))
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
