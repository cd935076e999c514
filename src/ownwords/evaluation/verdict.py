"""Conclusions from the figures, in plain words; thresholds are relative to the author's own posts.

A figure whose interval includes its threshold is unclear. The verdict is "too few texts" only if
there are too few posts or samples for an interval. All figures measure style; none measures
sense, which for small models was judged by reading their texts (docs/log.md).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from ownwords.evaluation.fluency import Fluency
from ownwords.evaluation.intervals import Estimate, PairedEstimate
from ownwords.evaluation.scorecard import (
    BitsRow,
    Conclusion,
    CopiedPassage,
    Memorised,
    Scorecard,
)
from ownwords.evaluation.voice import Voice
from ownwords.view.format import count, day, quoted

# Overall.
WRITES_LIKE_YOU = "writes like you"
WORDS_ONLY = "learns your words but not your sentences"
GIBBERISH = "gibberish"
COPIES = "copies you"
ANOTHER_VOICE = "writes, but not like you"
UNCLEAR = "not clearly like you"
UNTRAINED = "not trained on your posts"
TOO_FEW = "too few texts to tell"
# By topic.
BETTER, NO_BETTER, NO_BASE = "predicts you better", "predicts you no better", "has no base"
YOURS, NOT_YOURS = "your voice", "not your voice"
CLEAN, STUMBLES = "as clean as yours", "stumbles"
OWN_WORDS = "its own words"

SENTENCES = {
    WRITES_LIKE_YOU: (
        "It writes in your manner. Read some samples to judge whether they make sense."
    ),
    WORDS_ONLY: "It has learned your words, but not your sentences.",
    GIBBERISH: "It writes gibberish.",
    COPIES: "It copies you.",
    ANOTHER_VOICE: "It writes, but not like you.",
    UNCLEAR: "It does not clearly write like you yet.",
    UNTRAINED: "It has learned nothing from your posts: the training was too short.",
    TOO_FEW: "Too few texts were compared to tell whether it writes like you.",
}

# Texts of models of 15, 135 and 270 million parameters were read blind. Measured: docs/log.md.
SMALL_PARAMETERS = 300e6
NO_SENSE = "A model this small picks up your words and rhythm, but its texts make no sense."
_READ_BLIND = (
    "Read blind for sense, on a scale from 1 to 5, texts by models this small scored 2.1 to"
    " 2.9; the author's own scored 5."
)

# Share of training passages continued word for word: below 0.01 for models trained on many books
# (Carlini et al. 2023), nearly 1 for a model trained on a blog for too many epochs.
MEMORISED = 0.05
COPIED_WORDS = 40  # in one passage: four times what the copy guard allows
MIN_WORDS = 12  # median words per sample, below which the samples do not count as text
MIN_AUC = 0.75  # below it, a measure does not even recognise the author's own unseen passages

# The figures of fluency, each with its field, the maximum excess over the author's share in good
# text, the minimum excess in gibberish, the minimum share to mention, and its wording. Two blogs
# differ by less than 2% in made-up words; at 5%, two of three 20-word sentences contain one.
_MEASURES = (
    ("non_words", 0.02, 0.05, 0.0, "{} of its words are not real words"),
    ("new_words", 0.05, 0.20, 0.0, "{} of its words are in none of your posts"),
    ("unknown_names", 0.02, 0.05, 0.02, "{} of its words are invented names"),
    ("broken", 0.10, 0.50, 0.0, "{} of its sentences are broken"),
    ("repeated", 0.05, 0.30, 0.05, "{} of its phrases repeat earlier ones in the same text"),
)

_GOOD = (YOURS, CLEAN, BETTER, NO_BASE)
_ALL_READ = 0.95  # epochs; a model that has read less may be trained further

# "unknown" without an interval, "unsure" with the limit inside it.
_Side = Literal["above", "below", "unsure", "unknown"]


def is_bad(verdict: Conclusion) -> bool:
    """Return whether a conclusion needs attention."""
    return verdict.kind in (GIBBERISH, COPIES)


def with_conclusions(card: Scorecard) -> Scorecard:
    """Return the scorecard with its conclusions: overall first, then by topic."""
    topics = (
        _prediction(card),
        _voice(card.voice),
        _fluency(card.fluency),
        _copying(card.memorised),
    )
    overall, epochs = _overall(card, *topics), card.about.epochs
    if epochs == 0:  # then the figures are the base's
        overall = _conclude(UNTRAINED, *topics[1:3])
    elif (
        overall.kind not in (WRITES_LIKE_YOU, COPIES) and epochs is not None and epochs < _ALL_READ
    ):
        read = f"Training read only {rate(epochs)} of your posts."
        overall = replace(overall, because=(*overall.because, read))
    return replace(card, verdicts=(overall, *topics))


def _overall(
    card: Scorecard,
    prediction: Conclusion,
    voice: Conclusion,
    fluency: Conclusion,
    copying: Conclusion,
) -> Conclusion:
    decisive = (voice, fluency, prediction)
    if copying.kind == COPIES:
        return _conclude(COPIES, copying, prediction, fluency)
    if fluency.kind == GIBBERISH:
        return _conclude(GIBBERISH, fluency, prediction)
    if voice.kind == NOT_YOURS and card.about.base and prediction.kind != BETTER:
        return _conclude(ANOTHER_VOICE, voice, prediction)
    if fluency.kind == STUMBLES or voice.kind == NOT_YOURS:
        return _conclude(WORDS_ONLY, fluency, voice, prediction)
    if all(topic.kind in _GOOD for topic in decisive):
        praise = _conclude(WRITES_LIKE_YOU, *decisive, copying)
        if not _is_small(card):
            return praise
        return replace(praise, sentence=NO_SENSE, because=(_READ_BLIND, *praise.because))
    # Unclear topics come first.
    ordered = sorted(decisive, key=lambda topic: topic.kind in _GOOD)
    kind = TOO_FEW if any(topic.kind == TOO_FEW for topic in decisive) else UNCLEAR
    return _conclude(kind, *ordered, copying)


def _is_small(card: Scorecard) -> bool:
    return card.about.parameters < SMALL_PARAMETERS


def _conclude(kind: str, *because: Conclusion) -> Conclusion:
    reasons = tuple(topic.sentence for topic in because)
    return Conclusion("all", kind, SENTENCES[kind], reasons)


def _prediction(card: Scorecard) -> Conclusion:
    rival = card.base
    if not card.about.base:
        sentence = "It was trained from your posts alone, so there is no base to compare it with."
        return Conclusion("prediction", NO_BASE, sentence)
    if card.ours is None or rival is None or rival.gain_low is None or rival.gain_high is None:
        posts = card.about.judged_posts
        sentence = (
            f"{count(posts, 'held-out post')} are too few to tell how well it predicts new ones."
            if posts > 1
            else "Too few posts were held out to tell how well it predicts new ones."
        )
        return Conclusion("prediction", TOO_FEW, sentence)
    compared = compared_with(rival)
    sentence = f"It predicts your unseen posts {compared} than the model it started from"
    if rival.gain_low <= 0 <= rival.gain_high:
        return Conclusion("prediction", UNCLEAR, f"{sentence}: no clear difference.")
    kind = BETTER if (rival.gain or 0) > 0 else NO_BETTER
    return Conclusion("prediction", kind, f"{sentence}.")


def _voice(voice: Voice | None) -> Conclusion:
    """Judge whether the model is classified as the author about as often as the author is."""
    if voice is None:
        return Conclusion("voice", TOO_FEW, "Its voice was not measured.")
    shares = voice.classification
    if shares is None or shares.held_out_auc.value < MIN_AUC:
        sentence = voice.reason or (
            "Even your own held-out posts cannot be distinguished from other authors', so its voice"
            " cannot be judged."
        )
        return Conclusion("voice", TOO_FEW if voice.passage_words else UNCLEAR, sentence)
    base = "" if shares.base is None else f" {rate(shares.base.value)} of the untouched base's,"
    sentence = (
        f"{rate_with_range(shares.samples)} of its passages are taken for yours, compared"
        f" with{base} {rate(shares.held_out.value)} of your own held-out ones and"
        f" {rate(shares.others.value)} of other authors' today."
    )
    kinds = {"above": YOURS, "below": NOT_YOURS, "unsure": UNCLEAR, "unknown": TOO_FEW}
    kind = kinds[_side(shares.samples, shares.halfway)]
    if kind == YOURS and shares.base and shares.base.value >= shares.samples.value:
        kind, sentence = UNCLEAR, f"{sentence} Training did not bring it closer to you."
    return Conclusion("voice", kind, sentence)


def _fluency(fluency: Fluency | None) -> Conclusion:
    """Judge whether the words are real, the sentences whole, and the text moves on."""
    if fluency is None:
        return Conclusion("fluency", TOO_FEW, "Its fluency was not measured.")
    if fluency.passage_words < MIN_WORDS:
        words = count(fluency.passage_words, "word")
        return Conclusion("fluency", GIBBERISH, f"It hardly writes anything: {words} per sample.")
    parts, sides, is_gibberish = [], [], False
    for field, limit, gibberish, mentioned, wording in _MEASURES:
        pair = fluency.measured(field)
        if pair is None:
            continue
        sides.append(_beyond(pair, limit))
        is_gibberish = is_gibberish or _beyond(pair, gibberish) == "above"
        if pair.samples.value >= mentioned:
            yours = f" (yours: {rate(pair.held_out.value)})" if pair.held_out.of else ""
            parts.append(wording.format(rate(pair.samples.value)) + yours)
    sentence = f"{'; '.join(parts)}."
    if is_gibberish:
        return Conclusion("fluency", GIBBERISH, sentence)
    if "above" in sides:
        return Conclusion("fluency", STUMBLES, sentence)
    if "unknown" in sides:
        sentence += " There are too few held-out posts to compare it with."
        return Conclusion("fluency", TOO_FEW, sentence)
    return Conclusion("fluency", UNCLEAR if "unsure" in sides else CLEAN, sentence)


def _copying(memorised: Memorised | None) -> Conclusion:
    """Judge whether it repeats its training posts."""
    if memorised is None:
        return Conclusion("copying", TOO_FEW, "Whether it copies was not measured.")
    known = memorised.training
    low = known.interval.low if known.interval else known.value
    reasons = []
    if low > max(MEMORISED, memorised.held_out.value):
        reasons.append(
            f"given {memorised.words} words of a training post, it continues with the next"
            f" {memorised.words} word for word in {rate_with_range(known)} of cases"
        )
    longest = memorised.unguarded
    if longest.words >= max(COPIED_WORDS, 2 * memorised.real.words):
        reasons.append(f"it wrote {longest.words} words in a row that are {source(longest)}")
    if reasons:
        sentence = "; ".join(reasons)
        sentence = f"{sentence[:1].upper()}{sentence[1:]}."
        if memorised.guarded is not None:
            sentence += f" The copy guard limits that to {count(memorised.guarded.words, 'word')}."
        return Conclusion("copying", COPIES, sentence)
    most = max(longest.words, memorised.guarded.words if memorised.guarded else 0)
    if not most:
        return Conclusion("copying", OWN_WORDS, "Nothing it writes is copied from your posts.")
    words = count(most, "word")
    sentence = f"It does not copy you: its longest passage from your posts has {words}"
    if memorised.real.words:
        yours = (
            f"your own held-out posts share up to {count(memorised.real.words, 'word')} in a row"
            " with the others"
        )
        sentence = f"{sentence}; {yours}"
    return Conclusion("copying", OWN_WORDS, f"{sentence}.")


def _beyond(pair: PairedEstimate, limit: float) -> _Side:
    """Return on which side of the limit the samples' excess over held-out posts is."""
    if pair.excess is None and pair.samples.interval and pair.held_out.of:
        # A few held-out posts can prove that samples are worse, but not that they are as good.
        is_above = pair.samples.interval.low > pair.held_out.value + limit
        return "above" if is_above else "unknown"
    excess = pair.samples.value - pair.held_out.value
    return _side(Estimate(excess, pair.held_out.of, pair.excess), limit)


def _side(estimate: Estimate, limit: float) -> _Side:
    """Return on which side of the limit the whole interval is."""
    interval = estimate.interval
    if interval is None:
        return "unknown"
    if interval.low > limit:
        return "above"
    return "below" if interval.high < limit else "unsure"


Tone = Literal["good", "bad", "unclear", ""]  # "": nothing was measured


def tone(card: Scorecard | None) -> Tone:
    """Return how to show the verdict."""
    if card is None:
        return ""
    if is_bad(card.verdict):
        return "bad"
    is_good = card.verdict.kind == WRITES_LIKE_YOU and not _is_small(card)
    return "good" if is_good else "unclear"


# --- figures in sentences -------------------------------------------------------------------------


def bits(value: float) -> str:
    """Format bits per byte: 1.49."""
    return f"{value:.2f}"


def rate(share: float) -> str:
    """Format a share: 1.2%, 14%; "0%" and "100%" only if exact."""
    if share in (0, 1):
        return f"{share:.0%}"
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}%" if share < 0.0995 or 0.985 < share < 1 else f"{share:.0%}"


def between(low: float | None, high: float | None, format_value: Callable[[float], str]) -> str:
    """Format a range; empty if it is unknown."""
    return "" if low is None or high is None else f"{format_value(low)} to {format_value(high)}"


def rate_with_range(estimate: Estimate) -> str:
    """Format a share with its interval: "62% (51% to 72%)"."""
    interval = estimate.interval
    span = f" ({between(interval.low, interval.high, rate)})" if interval else ""
    return rate(estimate.value) + span


def compared_with(row: BitsRow) -> str:
    """Format how much better the model is than a row: "6.9% better (5.7% to 8.2%)"."""
    rival_bits, gain = row.bits or 1.0, row.gain or 0.0
    if gain < -rival_bits:
        return f"{1 - gain / rival_bits:.1f} times worse"
    share = rate(abs(gain) / rival_bits)
    better = f"{share} better" if gain >= 0 else f"{share} worse"
    if row.gain_low is None or row.gain_high is None:
        return better
    low, high = row.gain_low / rival_bits, row.gain_high / rival_bits
    if low < 0 < high:
        return f"{better} ({rate(-low)} worse to {rate(high)} better)"
    low, high = sorted((abs(low), abs(high)))
    return f"{better} ({between(low, high, rate)})"


def source(passage: CopiedPassage) -> str:
    """Format where a passage occurs: "in “Title”, 9 March 2014"."""
    if not passage.title:
        return "in one of your posts"
    return f"in {quoted(passage.title, 90)}" + (f", {day(passage.day)}" if passage.day else "")
