"""What it was good for to cap or leave out the post that outweighs the others.

That takes a second model: made as the author's own was, number for number, but of that post in
full.
"""

from collections.abc import Mapping
from dataclasses import replace

from ownwords.archive.report import PostSummary, Report
from ownwords.make.result import TrainingSummary, Value
from ownwords.training.corpus import CorpusSplit

MOST_S = 600.0  # of the training it repeats; a longer one is not worth as long again


def outweighing(report: Report) -> PostSummary | None:
    """The post that outweighs the others most, if less than all of it is learned from."""
    flagged = [post for post in report.posts if "dominant" in post.flags]
    post = max(flagged, key=lambda one: one.own_words, default=None)
    return post if post and post.decision != "keep" and post.own_words else None


def in_full(part: CorpusSplit, post: PostSummary) -> CorpusSplit:
    """The texts learned from, all of that post among them."""
    return replace(part, words={**part.words, post.id: post.own_words})


def same_settings(trained: TrainingSummary, *, has_base: bool) -> Mapping[str, Value]:
    """Every number of a training's plan, to be set for another."""
    return {
        one.key: one.value
        for one in trained.plan
        if not (has_base and one.key.startswith("model."))  # those are the base's own
    }
