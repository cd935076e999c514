"""What can be trained with so much text: plain sentences with figures, each with what it rests on.

Nothing is promised that was not measured, and what is only arithmetic is said to be so.
"""

import math
from bisect import bisect_right

from ownwords.archive.report import Advice
from ownwords.archive.report.formatting import count, size
from ownwords.archive.split import MIN_GROUPS

# Hoffmann et al. 2022 ("Chinchilla"): tokens for which a model of a given size is best trained.
TOKENS_PER_PARAMETER = 20
BYTES_PER_TOKEN = 4  # of English, roughly, with a vocabulary of some thousands
GPT2_PARAMETERS = 124_000_000  # the smallest GPT-2

# Muennighoff et al. 2023: repeats pay nearly in full up to 4 passes and little after 16.
FULL_PASSES = 4
LAST_PASSES = 16

# Measured: bits a byte on columns held out, of a columnist with 268 kB to learn from (docs/log.md).
MEASURED_BYTES = 268_000
MEASURED_WORDS = 48_000
FROM_SCRATCH = 2.19
BASE_ALONE = 1.59
FINE_TUNED = 1.487

# An estimate: how far the bits of single tokens spread about their mean.
TOKEN_SPREAD_BITS = 3.0

_TIERS = (2_000, 20_000, 100_000, 1_000_000, 10_000_000)  # training words
_HEADLINES = (
    "Too little to train on, and enough to search.",
    "A little: a base model can pick up a hint of your manner, hardly more.",
    "Enough to bend a base model towards your manner; far too little to train one from nothing.",
    "Enough to teach a base model your manner, and to measure how well it learned it.",
    "A great deal for one author: fine-tune, and measure with confidence.",
    "So much that training from nothing is a fair trial; a base model is still the better start.",
)


def advise(
    own_words: int, training_words: int, training_bytes: int, posts: int, effective_posts: float
) -> Advice:
    """What so much text is good for; `training_words` are left to learn from of `own_words`.

    `posts` are those that are learned from, pages among them.
    """
    if not training_words:
        return Advice(
            "There is nothing here to learn from yet.",
            ["No words of your own are left to train on. What is here can still be searched."],
        )
    sentences = [
        _amount(own_words, training_words, training_bytes, posts),
        *_variety(posts, effective_posts),
        _scale(training_words),
    ]
    if training_words >= _TIERS[0]:
        sentences.append(
            "Style is what a small model takes from so much text; facts it does not learn to "
            "keep. For what you said, search and cited answers go to the posts themselves."
        )
    rows = [
        ("Train a model from nothing on this alone?", _from_nothing(training_bytes)),
        ("Start from a model that knows your language already?", _from_base(training_bytes)),
        ("How many times over should it read the posts?", _passes(training_bytes)),
        (
            "How much is held out, and what can that tell?",
            _held_out(training_bytes, training_words, posts),
        ),
        ("Would more text help?", _more(training_words)),
        (
            "What works already, whatever the size?",
            "Search over every post, and passages that answer a question, with their addresses: "
            "neither needs any training.",
        ),
    ]
    return Advice(_HEADLINES[bisect_right(_TIERS, training_words)], sentences, rows)


def _amount(own: int, training: int, bytes_: int, posts: int) -> str:
    said = (
        f"There {'is one word' if training == 1 else f'are {_number(training)} words'} of yours "
        f"to learn from ({size(bytes_)}), in {'one text' if posts == 1 else count(posts, 'text')}"
    )
    if own > training:
        return f"{said}; {_number(own - training)} more were left out or capped, as is said below."
    return said + "."


def _variety(posts: int, effective: float) -> list[str]:
    if posts < 5 or effective >= 0.7 * posts:
        return []
    return [
        "A few long posts hold much of it: by length it is as varied as "
        f"{max(2, round(effective)):,} posts of equal length would be."
    ]


def _scale(words: int) -> str:
    times = words / MEASURED_WORDS
    if 0.67 <= times <= 1.5:
        return (
            "That is about what the measurements below were made on, so they are a fair guide, "
            "if you write English prose."
        )
    if times < 1:
        fraction = _part(round(1 / times)) if times < 0.4 else "about half"
        return (
            f"The measurements below were made on {_number(MEASURED_WORDS)} words of English; you "
            f"have {fraction} of that, so expect less than they show."
        )
    return (
        f"The measurements below were made on {_number(MEASURED_WORDS)} words of English; you "
        f"have {_number(round(times, 1))} times that. More should help, but by how much was not "
        "measured."
    )


def _from_nothing(bytes_: int) -> str:
    tokens = bytes_ / BYTES_PER_TOKEN
    said = (
        f"By the usual rule ({TOKENS_PER_PARAMETER} tokens a parameter, Hoffmann et al. 2022; "
        f"{BYTES_PER_TOKEN} bytes a token) this suits a model of "
        f"{_number(tokens / TOKENS_PER_PARAMETER)} parameters. The smallest GPT-2 has "
        f"{GPT2_PARAMETERS / 1e6:.0f} million and would want "
        f"{_number(GPT2_PARAMETERS * TOKENS_PER_PARAMETER)} tokens."
    )
    measured = (
        f" Measured on {size(MEASURED_BYTES)} of columns: {FROM_SCRATCH} bits a byte from "
        f"nothing, against {BASE_ALONE} for a small base model that had never seen the author."
    )
    return said + measured


def _from_base(bytes_: int) -> str:
    if bytes_ < MEASURED_BYTES / 20:
        return (
            "There is so little that it could hardly be told whether it helped. Use a base model "
            "as it is, and write more."
        )
    gain = (BASE_ALONE - FINE_TUNED) / BASE_ALONE
    return (
        f"Yes, this is the way. Measured on {size(MEASURED_BYTES)} of one columnist: "
        f"{FINE_TUNED} bits a byte on columns held out, after fine-tuning a base model of 8 "
        f"million parameters that alone had {BASE_ALONE}: {gain:.0%} fewer bits."
    )


def _passes(bytes_: int) -> str:
    tokens = bytes_ / BYTES_PER_TOKEN
    return (
        f"About {FULL_PASSES}: so far each pass teaches nearly as much as new text would, and by "
        f"{LAST_PASSES} hardly anything (Muennighoff et al. 2023, on far larger corpora). That is "
        f"{_number(tokens * FULL_PASSES)} to {_number(tokens * LAST_PASSES)} tokens read. Stop "
        "where the held-out posts stop improving: after that a model learns your posts by heart."
    )


def _held_out(bytes_: int, words: int, posts: int) -> str:
    if posts < MIN_GROUPS:
        return f"Nothing is: texts are held out whole, and that takes {MIN_GROUPS} to learn from."
    tokens = bytes_ / 10 / BYTES_PER_TOKEN
    resolved = 2 * TOKEN_SPREAD_BITS / BYTES_PER_TOKEN / math.sqrt(max(1.0, tokens))
    said = (
        f"A tenth is {_number(words / 10)} words. By estimate (single tokens spread by about "
        f"{TOKEN_SPREAD_BITS:.0f} bits) its score is good to ±{resolved:.2g} bits a byte; two "
        "models compared on the same posts can be told apart more finely"
    )
    gain = BASE_ALONE - FINE_TUNED
    if resolved > gain:
        return (
            said + f". That is more than fine-tuning gained ({gain:.2f}): do not trust the score."
        )
    return said + f". Fine-tuning gained {gain:.2f} where it was measured."


def _more(words: int) -> str:
    higher = [tier for tier in _TIERS if tier > words]
    if not higher:
        return "Hardly, for style. Other people's text of the same kind, in the base, would."
    return (
        f"Yes: the next step is at about {_number(higher[0])} words. Old posts, letters and notes "
        "of your own count as well as new ones. How much each doubling gains was not measured."
    )


def _part(n: int) -> str:
    names = {3: "a third", 4: "a quarter", 5: "a fifth", 6: "a sixth", 7: "a seventh"}
    names[8] = "an eighth"
    return names.get(n, "a tenth" if n <= 14 else "a twentieth" if n <= 30 else "a small part")


def _number(n: float) -> str:
    """To two figures, as people say it: 48,000; 1.3 million; 2.5 billion."""
    if n < 10:
        return f"{n:.1f}".removesuffix(".0")
    unit_of_two = 10.0 ** (math.floor(math.log10(n)) - 1)
    rounded = math.floor(n / unit_of_two + 0.5) * unit_of_two  # half goes up, as people round
    for unit, name in ((1e9, "billion"), (1e6, "million")):
        if rounded >= unit:
            return f"{rounded / unit:.3g} {name}"
    return f"{rounded:,.0f}"
