"""Advice on what can be trained with a given amount of text, with figures and their sources."""

import json
import math
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from ownwords.archive.report import Advice, ReportTotals, SplitCounts
from ownwords.archive.selection import MIN_GROUPS
from ownwords.core.config import toml_beside
from ownwords.core.errors import CorpusError
from ownwords.view.format import count, number, percent, size

_BYTES_PER_TOKEN = 4  # roughly, for English and a vocabulary of a few thousand
_TOKEN_SPREAD_BITS = 3.0  # estimated standard deviation of the bits per token

_TIERS = (2_000, 20_000, 100_000, 1_000_000, 10_000_000)  # training words without repeats
_TEXTS: Final = toml_beside(__file__, "advice.toml")

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
    """Read the figures that were recorded when the shipped base was published."""
    path = files("ownwords").joinpath("base", "shipped", MEASURED)
    return msgspec.convert(json.loads(path.read_text("utf-8")), MeasuredBase)


def too_little(totals: ReportTotals) -> bool:
    """Return whether there is too little to train on, without repeats."""
    return _distinct_words(totals) < _TIERS[0]


def check_enough(totals: ReportTotals) -> None:
    """Raise CorpusError if there is too little to train on."""
    if too_little(totals):
        raise CorpusError(
            f"there is too little text to train on: {_distinct_words(totals):,} words of your own,"
            f" repeats not counted; a model needs at least {_TIERS[0]:,}",
            hint="add posts or other texts; `ownwords ask` can already search and cite these",
        )


def _distinct_words(totals: ReportTotals) -> int:
    return totals.distinct_words or totals.training_words  # older reports lack distinct_words


def advise(totals: ReportTotals, split: SplitCounts) -> Advice:
    """Advise on a corpus: what can be trained with it, and how well that can be judged."""
    training_words = totals.training_words
    if not training_words:
        return Advice(_TEXTS["nothing"], [_TEXTS["search_it"]])
    measured = measured_base()
    distinct = _distinct_words(totals)
    distinct_bytes = totals.training_bytes * distinct / training_words
    times = distinct / measured.training_words
    held_out = sum(n for side, n in split.words.items() if side != "train")
    tested = split.words.get("test", 0) / training_words * totals.training_bytes / _BYTES_PER_TOKEN
    gain = measured.base - measured.tuned
    error = 2 * _TOKEN_SPREAD_BITS / _BYTES_PER_TOKEN / math.sqrt(max(1.0, tested))
    tier = bisect_right(_TIERS, distinct)
    figures = {
        "held_out": count(held_out, "word"),
        "held_out_share": percent(held_out / training_words),
        "held_out_texts": count(sum(split.posts.values()) - split.posts.get("train", 0), "text"),
        "have": f"{number(times)} times as much" if times >= 1 else f"{percent(times)} of that",
        "measured_words": number(measured.training_words),
        "measured_bytes": size(measured.training_bytes),
        "base_parameters": number(measured.base_parameters),
        "from_nothing": f"{measured.from_nothing:.3f}",
        "base": f"{measured.base:.3f}",
        "tuned": f"{measured.tuned:.3f}",
        "fewer": f"{gain / measured.base:.0%}",
        "groups": MIN_GROUPS,
        "error": percent(error / measured.tuned),
        "next": number(_TIERS[min(tier, len(_TIERS) - 1)]),
    }
    is_little = distinct_bytes < measured.training_bytes / 20
    answers = {
        "from_base": "too_little" if is_little else "from_base",
        "held_out": "not_held_out"
        if not held_out
        else ("held_out_vaguely" if error > gain else "held_out"),
        "more": "more" if tier < len(_TIERS) else "enough",
    }
    sentences = ["measured", *(["no_facts"] if tier else [])]
    return Advice(
        _TEXTS["headlines"][tier],
        [_TEXTS["sentences"][name].format_map(figures) for name in sentences],
        [
            (_TEXTS["questions"][question], _TEXTS["answers"][answer].format_map(figures))
            for question, answer in answers.items()
        ],
    )
