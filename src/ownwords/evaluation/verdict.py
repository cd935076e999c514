"""What the figures come to, in plain words; thresholds are counted from the author's own posts.

A figure that could lie on either side of its threshold with other posts, or with other samples,
decides nothing: where it is needed, the verdict is that so few texts cannot tell.
"""

from dataclasses import replace
from typing import Literal

from ownwords.archive.report.formatting import count
from ownwords.evaluation.bootstrap import PairedEstimate
from ownwords.evaluation.fluency import Fluency
from ownwords.evaluation.scorecard import NGRAM, Conclusion, Memorised, Scorecard
from ownwords.evaluation.scores import Interval
from ownwords.evaluation.voice import Voice
from ownwords.evaluation.wording import fewer, rate, source, sure

# About all.
WRITES_LIKE_YOU = "writes like you"
WORDS_ONLY = "learns your words but not your sentences"
GIBBERISH = "gibberish"
COPIES = "copies you"
ANOTHER_VOICE = "writes, but not like you"
TOO_FEW = "too few texts to tell"
# About one topic.
BETTER, NO_BETTER = "foresees you better", "foresees you no better"
YOURS, NOT_YOURS = "your voice", "not your voice"
CLEAN, STUMBLES = "as clean as yours", "stumbles"
OWN_WORDS = "its own words"

SENTENCES = {
    WRITES_LIKE_YOU: "It writes like you.",
    WORDS_ONLY: "It has learned your words, but not your sentences.",
    GIBBERISH: "It writes gibberish.",
    COPIES: "It copies you.",
    ANOTHER_VOICE: "It writes, but not like you.",
    TOO_FEW: "So few texts cannot tell whether it writes like you.",
}

# Of passages of the posts learned from, gone on with word for word: models of many books know fewer
# than 1 of 100 so (Carlini et al. 2023), one that has read a blog too often nearly all.
BY_HEART = 0.05
# Of runs of 8 words, beyond what the author repeats: that is far less than 1 of 100.
TAKEN_RUNS = 0.05
# Words copied in one piece: four times what the copy guard lets pass.
COPIED_WORDS = 40
# The share of words that are none, beyond the author's: two blogs differ by less than the first;
# with the second hardly a sentence of twenty words passes without one.
STRANGE, VERY_STRANGE = 0.02, 0.05
# The same where no list of words is at hand: words that no post learned from holds.
NEW, VERY_NEW = 0.05, 0.20
# The share of broken sentences beyond the author's.
BROKEN, VERY_BROKEN = 0.10, 0.50
# Of turns of words that no post takes, those in an order that is new as well, beyond the author's:
# other authors have as many, a babbler by pairs of words .08 more (docs/log.md).
ODD, VERY_ODD = 0.03, 1.0
# The share of runs of 4 words that come again, of words said again at once.
REPEATED, LOOPED = 0.05, 0.30
# Words of a sample at the median; less is no text.
LEAST_WORDS = 12
# A judge that ranks the author's own unseen passages no better than so is none.
LEAST_AUC = 0.75

_Side = Literal["above", "below", "unsure"]


def with_conclusions(card: Scorecard) -> Scorecard:
    """The same scorecard with what it comes to: about all first, then topic by topic."""
    topics = (
        _foresight(card),
        _voice(card.voice),
        _fluency(card.fluency),
        _copying(card.memorised),
    )
    return replace(card, verdicts=(_overall(card, *topics), *topics))


def _overall(
    card: Scorecard,
    foresight: Conclusion,
    voice: Conclusion,
    fluency: Conclusion,
    copying: Conclusion,
) -> Conclusion:
    told = (voice, fluency, foresight)
    if copying.kind == COPIES:
        return _about_all(COPIES, copying, foresight, fluency)
    if fluency.kind == GIBBERISH:
        return _about_all(GIBBERISH, fluency, foresight)
    if voice.kind == NOT_YOURS and card.about.base and foresight.kind != BETTER:
        return _about_all(ANOTHER_VOICE, voice, foresight)
    if fluency.kind == STUMBLES or voice.kind == NOT_YOURS:
        return _about_all(WORDS_ONLY, fluency, voice, foresight)
    if all(one.kind in (YOURS, CLEAN, BETTER) for one in told):
        return _about_all(WRITES_LIKE_YOU, *told, copying)
    # What cannot be told comes first.
    ordered = sorted(told, key=lambda one: one.kind in (YOURS, CLEAN, BETTER))
    return _about_all(TOO_FEW, *ordered, copying)


def _about_all(kind: str, *because: Conclusion) -> Conclusion:
    return Conclusion("all", kind, SENTENCES[kind], tuple(one.sentence for one in because))


def _foresight(card: Scorecard) -> Conclusion:
    """Is it ahead of what it began with, or, without that, of counting letters?"""
    rival = card.untouched or card.row(NGRAM)
    if card.ours is None or rival is None or rival.gain_low is None or rival.gain_high is None:
        posts = card.about.judged_posts
        few = f"With {count(posts, 'held-out post')}" if posts else "No post was held out, so"
        return Conclusion(
            "foresight", TOO_FEW, f"{few} nobody can say how well it foresees new ones."
        )
    than = "its base" if rival is card.untouched else "counting letters"
    needs = f"it needs {fewer(rival)}"
    if rival.gain_low > 0:
        said = f"It foresees posts it has never seen better than {than}: {needs}."
        return Conclusion("foresight", BETTER, said)
    if rival.gain_high < 0:
        said = f"It foresees posts it has never seen worse than {than}: {needs}."
        return Conclusion("foresight", NO_BETTER, said)
    said = f"Whether it foresees new posts better than {than} cannot be told from so few."
    return Conclusion("foresight", TOO_FEW, said)


def _voice(voice: Voice | None) -> Conclusion:
    """Are its passages taken for the author's about as often as the author's own?"""
    if voice is None:
        return Conclusion("voice", TOO_FEW, "Its voice was not measured.")
    told = voice.letters
    if told is None:
        return _voice_by_distance(voice)
    if told.held_out_auc.value < LEAST_AUC:
        return Conclusion(
            "voice",
            TOO_FEW,
            "Even your own held-out posts cannot be told from other authors' (of"
            f" {rate(told.held_out_auc.value)} of pairs), so nothing can be said of its voice.",
        )
    said = (
        f"Of its passages {sure(told.samples_taken)} are taken for yours; of your own held-out ones"
        f" {rate(told.held_out_taken.value)}, of other authors' {rate(told.others_taken.value)}."
    )
    if farther := _farther_than_others(voice):
        return Conclusion("voice", NOT_YOURS, f"{said} {farther}")
    halfway = (told.held_out_taken.value + told.others_taken.value) / 2
    kinds = {"above": YOURS, "below": NOT_YOURS, "unsure": TOO_FEW}
    return Conclusion("voice", kinds[_side(told.samples_taken.interval, halfway)], said)


def _farther_than_others(voice: Voice) -> str:
    """A sentence where its frequent words are surely farther from the author than most people's.

    The judge of letters knows a few turns of the author's; these words come in every sentence.
    """
    delta = voice.delta
    if delta is None or delta.others is None:
        return ""
    if _side(delta.samples.median.interval, delta.others.high) != "above":
        return ""
    return (
        f"Its frequent words lie farther from yours ({delta.samples.median.value:.2f}) than other"
        f" authors' do ({delta.others.median.value:.2f})."
    )


def _voice_by_distance(voice: Voice) -> Conclusion:
    """Without other authors: does it lie as near to the training posts as held-out ones do?"""
    if voice.delta is None:
        return Conclusion("voice", TOO_FEW, voice.reason or "Its voice was not measured.")
    ours, real = voice.delta.samples, voice.delta.held_out
    said = (
        f"By its frequent words it lies {ours.median.value:.2f} away from your posts; the middle"
        f" half of your own held-out passages lie from {real.low:.2f} to {real.high:.2f}."
    )
    # Nearer than the author's own is no fault.
    kinds = {"above": NOT_YOURS, "below": YOURS, "unsure": TOO_FEW}
    return Conclusion("voice", kinds[_side(ours.median.interval, real.high)], said)


def _fluency(fluency: Fluency | None) -> Conclusion:
    """Are its words words, its sentences whole, and do they go on?"""
    if fluency is None:
        return Conclusion("fluency", TOO_FEW, "Its language was not measured.")
    if fluency.passage_words < LEAST_WORDS:
        said = f"It hardly writes at all: {count(fluency.passage_words, 'word')} at a time."
        return Conclusion("fluency", GIBBERISH, said)
    strange = fluency.non_words or fluency.new_words
    few, many = (STRANGE, VERY_STRANGE) if fluency.non_words else (NEW, VERY_NEW)
    limits = [
        (strange, few, many),
        (fluency.broken, BROKEN, VERY_BROKEN),
        (fluency.odd_turns, ODD, VERY_ODD),
        (fluency.repeated, REPEATED, 1.0),
        (fluency.looped, LOOPED, LOOPED),
    ]
    if fluency.unknown_names:
        limits.append((fluency.unknown_names, STRANGE, VERY_STRANGE))
    said = _said_of_language(fluency)
    if any(_beyond(one, much) == "above" for one, _, much in limits):
        return Conclusion("fluency", GIBBERISH, said)
    sides = [_beyond(one, little) for one, little, _ in limits]
    if "above" in sides:
        return Conclusion("fluency", STUMBLES, said)
    return Conclusion("fluency", TOO_FEW if "unsure" in sides else CLEAN, said)


def _said_of_language(fluency: Fluency) -> str:
    none = "are no words" if fluency.non_words else "stand in none of your posts"
    measures: list[tuple[str, PairedEstimate | None, str, float]] = [
        ("of its words", fluency.non_words or fluency.new_words, none, 0.0),
        ("of its words", fluency.unknown_names, "are names of nobody", STRANGE),
        ("of its sentences", fluency.broken, "are broken", 0.0),
        (
            "of its new turns of words",
            fluency.odd_turns if _beyond(fluency.odd_turns, ODD) != "below" else None,
            "are in an order that is none of yours",
            0.0,
        ),
        ("of what it says", fluency.repeated, "was said before in the same text", REPEATED),
        ("of its words", fluency.looped, "say at once again what was just said", LOOPED),
    ]
    parts = [
        f"{of} {rate(one.samples.value)} {what}{_yours(one)}"
        for of, one, what, least in measures
        if one and one.samples.value >= least
    ]
    said = "; ".join(parts)
    return f"{said[:1].upper()}{said[1:]}."


def _yours(one: PairedEstimate) -> str:
    return f" (in your held-out posts {rate(one.held_out.value)})" if one.held_out.of else ""


def _copying(found: Memorised | None) -> Conclusion:
    """Does it say again what it has read?"""
    if found is None:
        return Conclusion("copying", TOO_FEW, "Whether it copies was not measured.")
    low = found.training.interval.low if found.training.interval else 0.0
    reasons = []
    if low > max(BY_HEART, found.held_out.value):
        reasons.append(
            f"given {found.prefix} tokens of a post it learned from, it goes on with the next"
            f" {found.length} word for word in {sure(found.training)} of cases"
        )
    for one in found.novelty:
        known, usual = 1 - one.unguarded, 0.0 if one.real is None else 1 - one.real
        if one.n == 8 and known > usual + TAKEN_RUNS:
            reasons.append(
                f"{rate(known)} of its runs of 8 words stand in your posts (of your own held-out"
                f" ones {rate(usual)})"
            )
    if found.unguarded.words >= max(COPIED_WORDS, 2 * found.real.words):
        reasons.append(
            f"it wrote {found.unguarded.words} words on end that stand {source(found.unguarded)}"
        )
    if reasons:
        return Conclusion("copying", COPIES, _kept_back(found, "; ".join(reasons)))
    if not found.unguarded.words:
        return Conclusion("copying", OWN_WORDS, "Nothing of what it writes stands in your posts.")
    said = (
        "What it writes is its own: the longest piece it took from your posts has"
        f" {count(found.unguarded.words, 'word')}"
    )
    if found.real.words:
        said += f"; your held-out ones share {count(found.real.words, 'word')} with them"
    return Conclusion("copying", OWN_WORDS, f"{said}.")


def _kept_back(found: Memorised, reasons: str) -> str:
    said = f"{reasons[:1].upper()}{reasons[1:]}."
    if found.guarded is None:
        return said
    return f"{said} The copy guard cuts that to {count(found.guarded.words, 'word')} at most."


def _beyond(one: PairedEstimate, limit: float) -> _Side:
    """On which side of a limit the samples surely lie, counted from the held-out posts."""
    if one.excess is None and one.samples.interval and one.held_out.of:
        # A single post says too little to call samples as good, and enough to call them bad.
        is_above = one.samples.interval.low > one.held_out.value + limit
        return "above" if is_above else "unsure"
    return _side(one.excess, limit)


def _side(found: Interval | None, limit: float) -> _Side:
    """On which side of a limit a figure surely lies."""
    if found is None:
        return "unsure"
    if found.low > limit:
        return "above"
    return "below" if found.high < limit else "unsure"
