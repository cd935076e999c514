"""Runs everything that judges a model, and puts the scorecard together.

What was measured is kept under the key of all that it depends on, so that a second scoring is done
at once, and another model or a new post has only those figures measured anew that it changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ownwords.archive.report import Report
from ownwords.core.errors import CorpusError
from ownwords.core.progress import Progress
from ownwords.evaluation.build_scorecard import Measurements, ScorecardContext, build_scorecard
from ownwords.evaluation.metric_cache import MetricCache
from ownwords.evaluation.metrics import Candidate, MetricSuite, ScoreConfig
from ownwords.evaluation.posts import EvaluationPosts
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.verdict import with_conclusions

__all__ = ["FOLDER", "ComparisonModels", "EvaluationPosts", "ScoreConfig", "base_of", "score_model"]

FOLDER = "scores"  # in the workspace: what was measured is kept there


@dataclass(frozen=True)
class ComparisonModels:
    """What a model is compared with: model directories, where there are any."""

    base: Path | None = None
    base_name: str = ""  # for people; the folder's unless given
    scratch: Path | None = None  # trained from nothing on the same posts
    undivided: Path | None = None  # trained as ours, but with the dominant post in full


def score_model(
    model: Path,
    posts: EvaluationPosts,
    rivals: ComparisonModels,
    reference: Path | None,
    *,
    workspace: Path,
    report: Report | None = None,
    spent: Mapping[str, float] | None = None,
    config: ScoreConfig | None = None,
    progress: Progress | None = None,
) -> Scorecard:
    """The scorecard of a model directory; OwnwordsError says what stands in the way.

    `reference` is the folder of figures about real books that voice and fluency are measured by;
    without it these two are left out. `report` is the corpus report, `spent` what the stages before
    this one took, in seconds.
    """
    if not posts.train:
        raise CorpusError(
            "there are no posts here that the model learned from",
            hint="read the blog into this workspace: ownwords look PATH --workspace FOLDER",
        )
    config, progress = config or ScoreConfig(), progress or Progress()
    kept = MetricCache(workspace / FOLDER)
    judging = MetricSuite(posts, reference, kept, config, progress)
    ours = Candidate(model, "ours")
    base, scratch, undivided = (
        Candidate(folder, who) if folder else None
        for folder, who in (
            (rivals.base, "base"),
            (rivals.scratch, "scratch"),
            (rivals.undivided, "undivided"),
        )
    )
    asked = judging.asked
    written = judging.written(ours, asked)
    # What the guard keeps back is still known by heart, and the author should know it.
    bare = judging.written(ours, asked, guarded=False) if written.has_guard else written
    beside = judging.few
    findings = Measurements(
        posts=posts,
        judged=judging.posts,
        ours=judging.bits_per_byte(ours),
        base=judging.bits_per_byte(base),
        scratch=judging.bits_per_byte(scratch),
        undivided=judging.bits_per_byte(undivided),
        adapting=judging.adapting(ours),
        baselines=judging.baselines(),
        baseline_bytes=sum(post.bytes for post in judging.counted_on),
        asked=asked,
        written=written,
        beside=beside,
        base_written=judging.written(base, beside) if base else None,
        extracted=judging.extracted(ours),
        copies=judging.copies(written, "guarded") if written.has_guard else None,
        bare_copies=judging.copies(bare, "unguarded"),
        voice=judging.voice(written),
        fluency=judging.fluency(written),
    )
    kept.prune()
    told = ScorecardContext(
        has_changed=bool(posts.key and ours.corpus) and posts.key != ours.corpus,
        model=model,
        parameters=ours.parameters,
        base=rivals.base_name or (rivals.base.name if rivals.base else ""),
        trained_s={each.who: each.trained_s for each in (ours, base, scratch) if each},
        plan=ours.plan_and_outcome,
        spent={**(spent or {}), "scoring": sum(kept.seconds.values())},
        report=report,
    )
    return with_conclusions(build_scorecard(findings, told))


def base_of(model: Path) -> str | None:
    """The name of what a model says it was tuned from; None where it began from nothing."""
    return Candidate(model, "ours").base
