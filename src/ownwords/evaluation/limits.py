"""What a model is not good for, said from its own figures."""

from typing import Literal

from ownwords.evaluation.scorecard import Scorecard, Topic
from ownwords.evaluation.verdict import (
    BETTER,
    CLEAN,
    COPIES,
    NO_BASE,
    OWN_WORDS,
    TOO_FEW,
    UNCLEAR,
    WRITES_LIKE_YOU,
    YOURS,
    is_bad,
)
from ownwords.evaluation.wording import rate

Tone = Literal["good", "bad", "unclear", ""]  # "" where nothing was measured
_FINE = (YOURS, CLEAN, BETTER, NO_BASE, OWN_WORDS)


def tone(card: Scorecard | None) -> Tone:
    """How the verdict is to be shown."""
    if card is None:
        return ""
    if is_bad(card.verdict):
        return "bad"
    return "good" if card.verdict.kind == WRITES_LIKE_YOU else "unclear"


def limits(card: Scorecard) -> list[str]:
    """Each a use, and why the model is not fit for it."""
    uses = [
        ("Publishing unread", _reason(card, "fluency")),
        ("Passing for you", _reason(card, "voice")),
        ("New texts", _reason(card, "copying", COPIES)),
        ("Knowing your blog", _reason(card, "prediction")),
        ("Facts", _facts(card)),
        (
            "Questions and instructions",
            f"with {card.about.parameters / 1e6:,.0f} million parameters it continues a text, and"
            " does not answer.",
        ),
    ]
    return [f"{use}: {reason[:1].lower()}{reason[1:]}" for use, reason in uses if reason]


def _reason(card: Scorecard, topic: Topic, *only: str) -> str:
    """The conclusion about a topic that is not fine; of these kinds only, if there are any."""
    for each in card.verdicts:
        if each.about == topic and (each.kind in only if only else each.kind not in _FINE):
            is_open = each.kind in (TOO_FEW, UNCLEAR) and topic != "prediction"
            return f"this is not settled. {each.sentence}" if is_open else each.sentence
    return ""


def _facts(card: Scorecard) -> str:
    names = card.fluency.unknown_names if card.fluency else None
    share = f" ({rate(names.samples.value)} of its words are invented names)" if names else ""
    return f"it makes up names, dates and numbers{share}. Ask finds what you really wrote."
