"""Advice on what can be trained with a given amount of text."""

from bisect import bisect_right
from typing import Final

from ownwords.archive.report import Advice, ReportTotals
from ownwords.core.config import toml_beside
from ownwords.core.errors import CorpusError

_TIERS = (2_000, 20_000, 100_000, 1_000_000, 10_000_000)  # training words
_TEXTS: Final = toml_beside(__file__, "advice.toml")


def too_little(totals: ReportTotals) -> bool:
    """Return whether there is too little to train on."""
    return totals.training_words < _TIERS[0]


def check_enough(totals: ReportTotals) -> None:
    """Raise CorpusError if there is too little to train on."""
    if too_little(totals):
        raise CorpusError(
            f"there is too little text to train on: {totals.training_words:,} words of your own;"
            f" a model needs at least {_TIERS[0]:,}",
            hint="add posts or other texts; `ownwords ask` can already search and cite these",
        )


def advise(totals: ReportTotals) -> Advice:
    """Advise on a corpus: what can be trained with it."""
    if not totals.training_words:
        return Advice(_TEXTS["nothing"], [_TEXTS["search_it"]])
    tier = bisect_right(_TIERS, totals.training_words)
    return Advice(_TEXTS["headlines"][tier], [_TEXTS["no_facts"]] if tier else [])
