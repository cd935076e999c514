"""Advice on what can be trained with a given amount of text, with figures and their sources.

Promises rest on measurements; estimates are labelled as such.
"""

import json
import math
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from ownwords.archive.report import Advice
from ownwords.archive.selection import MIN_GROUPS
from ownwords.view.format import count, number, percent, size

# Hoffmann et al. 2022 ("Chinchilla"): compute-optimal number of training tokens per parameter.
TOKENS_PER_PARAMETER = 20
BYTES_PER_TOKEN = 4  # roughly, for English and a vocabulary of a few thousand
GPT2_PARAMETERS = 124_000_000  # the smallest GPT-2

# Muennighoff et al. 2023: repeated data helps nearly as much as new data up to 4 epochs, and
# little after 16.
FULL_PASSES = 4
LAST_PASSES = 16

# Estimated standard deviation of the bits per token.
TOKEN_SPREAD_BITS = 3.0

_TIERS = (2_000, 20_000, 100_000, 1_000_000, 10_000_000)  # training words
_HEADLINES = (
    "Too little to train on, but enough to search.",
    "A little: a base model can pick up a hint of your style, hardly more.",
    "Enough to adapt a base model to your style, far too little to train a model from nothing.",
    "Enough to teach a base model your style, and to measure how well it learned it.",
    "A lot for one author: fine-tune, and measure with confidence.",
    "So much that training from nothing is worth a try; a base model is still the better start.",
)


MEASURED: Final = "measured.json"  # beside the weights of the shipped base


class MeasuredBase(msgspec.Struct, frozen=True):
    """The shipped base model's results on one author, in bits per byte of held-out posts."""

    training_bytes: int
    training_words: int
    base_parameters: int
    from_nothing: float  # a model trained on the author's posts alone
    base: float  # the shipped base as it is
    tuned: float  # the shipped base, fine-tuned on the author's posts


@cache
def measured_base() -> MeasuredBase:
    """The figures recorded when the shipped base was published."""
    path = files("ownwords").joinpath("base", "shipped", MEASURED)
    return msgspec.convert(json.loads(path.read_text("utf-8")), MeasuredBase)


def advise(own_words: int, training_words: int, training_bytes: int, posts: int) -> Advice:
    """Advise on a corpus: `training_words` of the `own_words`, in `posts` texts."""
    if not training_words:
        return Advice(
            "There is nothing to train on yet.",
            ["None of your own words are left to train on. You can still search what is here."],
        )
    measured = measured_base()
    tokens = training_bytes / BYTES_PER_TOKEN
    words = "one word" if training_words == 1 else f"{number(training_words)} words"
    texts = "one text" if posts == 1 else count(posts, "text")
    left = own_words - training_words
    times = training_words / measured.training_words
    sentences = [
        f"You can train on {words} of yours ({size(training_bytes)}), in {texts}"
        + (f"; {number(left)} more are left out or capped." if left > 0 else ".")
    ]
    have = f"{number(times)} times as much" if times >= 1 else f"{percent(times)} of that"
    sentences.append(
        f"The figures below were measured on {number(measured.training_words)} words of English; "
        f"you have {have}. How the gain depends on the amount was not measured."
    )
    if training_words >= _TIERS[0]:
        sentences.append(
            "A small model learns style from so much text, but no facts. For what you said, use "
            "search and cited answers, which quote the posts themselves."
        )
    rows = [
        (
            "Train a model from nothing on this alone?",
            f"By the usual rule ({TOKENS_PER_PARAMETER} tokens per parameter, Hoffmann et al. 2022,"
            f" at {BYTES_PER_TOKEN} bytes per token) this much text suits a model of "
            f"{number(tokens / TOKENS_PER_PARAMETER)} parameters. The smallest GPT-2 has "
            f"{GPT2_PARAMETERS / 1e6:.0f} million, for which the rule asks "
            f"{number(GPT2_PARAMETERS * TOKENS_PER_PARAMETER)} tokens. Measured on "
            f"{size(measured.training_bytes)} of one author: {measured.from_nothing:.2f} "
            f"bits per byte from nothing, {measured.base:.2f} for the shipped base, which had "
            "never seen the author.",
        ),
        ("Start from a base model that knows your language?", _from_base(training_bytes)),
        (
            "How often should it read the posts?",
            f"About {FULL_PASSES} times: up to there each pass teaches nearly as much as new text, "
            f"and after {LAST_PASSES} hardly anything (Muennighoff et al. 2023, on far larger "
            f"corpora). That is {number(tokens * FULL_PASSES)} to "
            f"{number(tokens * LAST_PASSES)} tokens. Stop when the held-out posts stop improving: "
            "after that a model memorises your posts.",
        ),
        ("How much is held out, and how much does that tell?", _held_out(tokens, posts)),
        ("Would more text help?", _more(training_words)),
        (
            "What works at any size?",
            "Search over all posts, and answers that cite their passages: neither needs training.",
        ),
    ]
    return Advice(_HEADLINES[bisect_right(_TIERS, training_words)], sentences, rows)


def _from_base(bytes_: int) -> str:
    measured = measured_base()
    if bytes_ < measured.training_bytes / 20:
        return (
            "There is so little text that nobody could tell whether it helped. Use a base model "
            "as it is, and write more."
        )
    gain = (measured.base - measured.tuned) / measured.base
    return (
        f"Yes. Measured on {size(measured.training_bytes)} of one author: the shipped base "
        f"of {number(measured.base_parameters)} parameters has {measured.base:.3f} bits per byte "
        f"on held-out posts as it is, and {measured.tuned:.3f} after tuning: {gain:.0%} fewer bits."
    )


def _held_out(tokens: float, posts: int) -> str:
    if posts < MIN_GROUPS:
        return f"Nothing: posts are held out whole, and that takes at least {MIN_GROUPS} posts."
    error = 2 * TOKEN_SPREAD_BITS / BYTES_PER_TOKEN / math.sqrt(max(1.0, tokens / 10))
    gain = measured_base().base - measured_base().tuned
    gained = f"Tuning gained {gain:.3f} in our measurement."
    if error > gain:
        gained = f"Tuning gained only {gain:.3f} in our measurement: do not trust the score."
    return (
        f"A tenth of the words. Estimated from a spread of {TOKEN_SPREAD_BITS:.0f} bits per token, "
        f"the score is accurate to ±{error:.2g} bits per byte; comparing two models on the same "
        f"posts is more accurate. {gained}"
    )


def _more(words: int) -> str:
    higher = [tier for tier in _TIERS if tier > words]
    if not higher:
        return "Hardly, for style. Text of the same kind by other people, in the base, would."
    return (
        f"Yes: the next step is at about {number(higher[0])} words. Old posts, letters and notes "
        "of yours count as well. How much each doubling gains was not measured."
    )
