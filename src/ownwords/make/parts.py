"""The parts of `ownwords make`, and how long each will take, for an estimate over all of them."""

from typing import TYPE_CHECKING

from ownwords.core.progress import Progress
from ownwords.make.make_request import MakeRequest
from ownwords.make.stage_cache import StageCache

if TYPE_CHECKING:
    from ownwords.training.plan import Plan

PARTS = ("read", "plan", "train", "write", "compare", "score")
_WRITE_S = 4.0
# Seconds of scoring for each token that it samples, in seconds of training on a token: a guess,
# until the model has written.
_BY_TRAINING = 10.0
# The same in seconds of writing a character, as measured with the built-in base and with Gemma 3
# 270M, on a busy machine and a quiet one. After the first scoring, what that took is expected.
_BY_WRITING = 4.8
_LEAST_CHARACTERS = 40  # from which the speed of writing can be told


def announce_parts(progress: Progress, request: MakeRequest, cache: StageCache) -> None:
    """Announce the parts that the request has; what the last run took is expected again.

    A part of 0 seconds is left out, unless more is found to do.
    """
    seconds = {
        "train": request.training_s,
        "write": cache.seconds("write") or _WRITE_S,
        "compare": request.comparison_s,
        "score": cache.seconds("score") or None,
    }
    for part in PARTS:
        progress.expect(part, seconds.get(part))


def expect_from_plan(
    progress: Progress, request: MakeRequest, plan: "Plan", cache: StageCache
) -> None:
    """Expect the training to take what its plan says, and the scoring what its speed suggests."""
    progress.expect("train", plan.expected.seconds)
    if not cache.seconds("score"):
        token_s = _BY_TRAINING / max(plan.expected.tokens_per_s, 1.0)
        progress.expect("score", token_s * _sampled_tokens(request))


def expect_from_writing(
    progress: Progress, request: MakeRequest, text: str, cache: StageCache
) -> None:
    """Expect the scoring to take what the model's speed at writing its first text suggests."""
    if not cache.seconds("score") and len(text) >= _LEAST_CHARACTERS:
        token_s = _BY_WRITING * cache.seconds("write") / len(text)
        progress.expect("score", token_s * _sampled_tokens(request))


def _sampled_tokens(request: MakeRequest) -> int:
    return request.score_config.sampled_tokens(has_base=request.base is not None)
