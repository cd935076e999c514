"""Whether it helped to cap or leave out the post that dominates the others.

A second model answers that: trained with the same numbers, but on all of that post.
"""

from collections.abc import Mapping
from dataclasses import replace

from ownwords.archive.report import PostSummary, Report
from ownwords.core.config import RENAMED
from ownwords.make.result import TrainingSummary, Value
from ownwords.training.corpus import CorpusSplit

MOST_S = 600.0  # a longer training is not worth repeating


def dominant_post(report: Report) -> PostSummary | None:
    """The largest dominant post, if training reads less than all of it."""
    flagged = [post for post in report.posts if "dominant" in post.flags]
    largest = max(flagged, key=lambda post: post.own_words, default=None)
    return largest if largest and largest.decision != "keep" and largest.own_words else None


def with_all_of(post: PostSummary, part: CorpusSplit) -> CorpusSplit:
    """The training texts with all of that post."""
    return replace(part, words={**part.words, post.id: post.own_words})


def same_settings(trained: TrainingSummary, *, has_base: bool) -> Mapping[str, Value]:
    """Every number of a training's plan, as settings for another training."""
    return {
        RENAMED.get(number.key, number.key): number.value
        for number in trained.plan
        if not (has_base and number.key.startswith("model."))  # those are the base's own
    }
