"""Measures everything about a model and builds its scorecard.

Figures are cached under a key of all their inputs, so a second scoring is instant, and after a
change of the model or the posts only the affected figures are measured again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.archive.corpus import Corpus
from ownwords.archive.report import Report
from ownwords.core.errors import CorpusError
from ownwords.core.progress import Progress
from ownwords.evaluation import scorecard_files
from ownwords.evaluation.build_scorecard import Measurements, ScorecardContext, build_scorecard
from ownwords.evaluation.candidate import Candidate
from ownwords.evaluation.lexicon import REFERENCE
from ownwords.evaluation.metric_cache import MetricCache
from ownwords.evaluation.metrics import MetricSuite, ScoreConfig
from ownwords.evaluation.scorecard import Scorecard
from ownwords.evaluation.scores import Score
from ownwords.evaluation.verdict import with_conclusions

__all__ = ["FOLDER", "ComparisonModels", "ScoreConfig", "base_of", "score_model"]

FOLDER = "scores"  # of the metric cache, in the workspace


@dataclass(frozen=True)
class ComparisonModels:
    """Model directories to compare with."""

    base: Path | None = None
    base_name: str = ""  # for display; defaults to the folder's name
    scratch: Path | None = None  # trained from scratch on the same posts


def score_model(
    model: Path,
    corpus: Corpus,
    rivals: ComparisonModels,
    *,
    workspace: Path,
    report: Report | None = None,
    spent: Mapping[str, float] | None = None,
    config: ScoreConfig | None = None,
    progress: Progress | None = None,
    device: str = "auto",
) -> Scorecard:
    """Measure a model directory. Raises OwnwordsError for anything that prevents it.

    `report` is the corpus report, `spent` the seconds of earlier stages.
    """
    if not corpus.train:
        raise CorpusError(
            "there are no posts here that the model learned from",
            hint="read the blog into this workspace: ownwords look PATH --workspace FOLDER",
        )
    cache = MetricCache(workspace / FOLDER)
    suite = MetricSuite(corpus, REFERENCE, cache, config or ScoreConfig(), progress or Progress())
    ours = Candidate(model, "ours", device)
    base, scratch = (
        Candidate(folder, role, device) if folder else None
        for folder, role in ((rivals.base, "base"), (rivals.scratch, "scratch"))
    )
    with suite.stage(ours, (base, scratch)):
        samples = suite.samples(ours, suite.prompts)
        more = suite.samples(ours, suite.more_prompts)
        every = replace(samples, texts=(*samples.texts, *more.texts))
        # Text that the guard withholds is still memorised, so it is measured without the guard.
        unguarded = samples
        if samples.has_guard:
            unguarded = suite.samples(ours, suite.prompts, guarded=False)
        # The weights of one model are freed before those of the next are loaded.
        extraction = suite.extraction(ours)
        ours_bits = suite.bits_per_byte(ours)
        ours.release()
        base_samples = suite.samples(base, suite.base_prompts) if base else None
        rival_bits: list[Score | None] = []
        for rival in (base, scratch):
            rival_bits.append(suite.bits_per_byte(rival))
            if rival:
                rival.release()
        base_bits, scratch_bits = rival_bits
        measured = Measurements(
            corpus=corpus,
            judged_posts=suite.judged_posts,
            ours=ours_bits,
            base=base_bits,
            scratch=scratch_bits,
            prompts=suite.prompts,
            samples=samples,
            base_prompts=suite.base_prompts,
            base_samples=base_samples,
            extraction=extraction,
            copies=suite.copies(samples, "guarded") if samples.has_guard else None,
            unguarded_copies=suite.copies(unguarded, "unguarded"),
            voice=suite.voice(every),
            fluency=suite.fluency(every),
        )
    cache.prune()
    context = ScorecardContext(
        model=model,
        has_changed=bool(corpus.key and ours.corpus) and corpus.key != ours.corpus,
        parameters=ours.parameters,
        epochs=ours.epochs,
        base=rivals.base_name or (rivals.base.name if rivals.base else ""),
        trained_s={item.role: item.trained_s for item in (ours, base, scratch) if item},
        plan=ours.plan_and_outcome,
        spent={**(spent or {}), "scoring": sum(cache.seconds.values())},
        report=report,
    )
    return with_conclusions(build_scorecard(measured, context))


def write_scorecard(
    workspace: Path,
    model: Path,
    rivals: ComparisonModels,
    texts: Corpus,
    report: Report,
    *,
    spent: Mapping[str, float],
    config: ScoreConfig,
    progress: Progress,
    device: str = "auto",
) -> Scorecard:
    """Measure the model, write the scorecard into the workspace, and return it."""
    card = score_model(
        model,
        texts,
        rivals,
        workspace=workspace,
        report=report,
        spent=spent,
        config=config,
        progress=progress,
        device=device,
    )
    scorecard_files.write(card, workspace)
    return card


def base_of(model: Path) -> str:
    """The name of the base a model was fine-tuned from; "" for one trained from scratch."""
    return Candidate(model, "ours").base
