"""An ablation: did it help to cap or leave out the post that dominates the others?

A second model is trained with the same settings, but on all of that post.
"""

from collections.abc import Mapping
from dataclasses import replace

from ownwords.archive.report import PostSummary, Report
from ownwords.core.config import RENAMED
from ownwords.make.result import TrainingSummary, Value
from ownwords.training.corpus import CorpusSplit

MOST_S = 600.0  # a training that took longer is not repeated


def dominant_post(report: Report) -> PostSummary | None:
    """The largest dominant post if it is capped or left out, else None."""
    flagged = [post for post in report.posts if "dominant" in post.flags]
    largest = max(flagged, key=lambda post: post.own_words, default=None)
    return largest if largest and largest.decision != "keep" and largest.own_words else None


def with_all_of(post: PostSummary, part: CorpusSplit) -> CorpusSplit:
    """The training texts, with all of that post."""
    return replace(part, words={**part.words, post.id: post.own_words})


def same_settings(trained: TrainingSummary, *, has_base: bool) -> Mapping[str, Value]:
    """The values of a training's plan, as fixed settings for another training."""
    return {
        RENAMED.get(number.key, number.key): number.value
        for number in trained.plan
        if not (has_base and number.key.startswith("model."))  # the base determines these
    }
