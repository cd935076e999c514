"""Builds the scorecard from measurements: rows, intervals, sources of passages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ownwords.archive.corpus import Corpus, TrainingText
from ownwords.archive.report import Report
from ownwords.core.version import __version__
from ownwords.evaluation.fluency import Fluency
from ownwords.evaluation.measurements import (
    CopiedRun,
    CopyMeasurements,
    Extraction,
    PromptSet,
    SampledTexts,
)
from ownwords.evaluation.scorecard import (
    BASE,
    OURS,
    SCRATCH,
    BitsRow,
    CopiedPassage,
    Memorised,
    ModelFacts,
    Scorecard,
    StageTime,
    WritingSample,
)
from ownwords.evaluation.scores import Score
from ownwords.evaluation.voice import Voice
from ownwords.view.format import count, size


@dataclass(frozen=True)
class Measurements:
    """Everything measured for a scorecard; None if there was nothing to measure."""

    corpus: Corpus
    judged_posts: Sequence[TrainingText]
    ours: Score | None
    base: Score | None
    scratch: Score | None
    prompts: PromptSet
    samples: SampledTexts
    base_prompts: PromptSet
    base_samples: SampledTexts | None
    extraction: Extraction
    copies: CopyMeasurements | None  # None without a copy guard
    unguarded_copies: CopyMeasurements
    voice: Voice | None
    fluency: Fluency | None


@dataclass(frozen=True)
class ScorecardContext:
    """Everything else that a scorecard states."""

    model: Path
    has_changed: bool  # the blog, since the model was trained
    parameters: int
    epochs: float | None
    base: str
    trained_s: Mapping[str, float | None]  # by role
    plan: tuple[str, ...]
    spent: Mapping[str, float]
    report: Report | None


def build_scorecard(measured: Measurements, context: ScorecardContext) -> Scorecard:
    """Build the scorecard without its conclusions."""
    return Scorecard(
        about=_model_facts(measured, context),
        bits=tuple(_bits_rows(measured, context)),
        voice=measured.voice,
        fluency=measured.fluency,
        memorised=_memorised(measured),
        samples=_samples(measured),
        plan=context.plan,
        seconds=tuple(StageTime(name, seconds) for name, seconds in context.spent.items()),
        notes=tuple(_notes(measured, context)),
    )


def _model_facts(measured: Measurements, context: ScorecardContext) -> ModelFacts:
    corpus, report = measured.corpus, context.report
    folder = context.model.resolve().parent.name.removesuffix(".ownwords")
    # As the report counts them, where there is one: the same figure everywhere.
    counted = {post.id: post.training_words for post in report.posts} if report else {}
    return ModelFacts(
        name=report.name if report else folder,
        model=str(context.model),
        base=context.base,
        parameters=context.parameters,
        training_posts=len(corpus.train),
        training_words=sum(counted.get(post.id, post.words) for post in corpus.train),
        training_bytes=sum(post.bytes for post in corpus.train),
        validation_posts=len(corpus.validation),
        test_posts=len(corpus.test),
        judged_posts=len(measured.judged_posts),
        judged_bytes=sum(post.bytes for post in measured.judged_posts),
        guarded=measured.samples.has_guard,
        version=__version__,
        made_on=datetime.now(UTC).date().isoformat(),
        epochs=context.epochs,
    )


def _bits_rows(measured: Measurements, context: ScorecardContext) -> list[BitsRow]:
    ours = measured.ours
    if not ours:
        return []
    base = f"{context.base}, before fine-tuning" if context.base else "before fine-tuning"
    rows = [_bits_row(OURS, "as it is", ours, seconds=context.trained_s.get("ours"))]
    for score, name, how, role in (
        (measured.base, BASE, base, "base"),
        (measured.scratch, SCRATCH, "trained on your posts only", "scratch"),
    ):
        if score:
            seconds = context.trained_s.get(role)
            rows.append(_bits_row(name, how, score, ours, seconds))
    return rows


def _bits_row(
    name: str,
    how: str,
    score: Score,
    ours: Score | None = None,
    seconds: float | None = None,
) -> BitsRow:
    interval = score.interval()
    gain = ours.advantage(score) if ours else None
    return BitsRow(
        name=name,
        how=how,
        bits=score.bits_per_byte,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        gain=score.bits_per_byte - ours.bits_per_byte if ours else None,
        gain_low=gain.low if gain else None,
        gain_high=gain.high if gain else None,
        seconds=seconds,
        is_ours=ours is None,
    )


def _memorised(measured: Measurements) -> Memorised:
    extraction, unguarded, guarded = (
        measured.extraction,
        measured.unguarded_copies,
        measured.copies,
    )
    posts = {post.id: post for post in measured.corpus.train}
    return Memorised(
        words=extraction.words,
        training=extraction.training,
        held_out=extraction.held_out,
        unguarded=_with_source(unguarded.written, posts),
        guarded=_with_source(guarded.written, posts) if guarded else None,
        real=_with_source(unguarded.real, posts),
    )


def _with_source(run: CopiedRun, posts: Mapping[str, TrainingText]) -> CopiedPassage:
    post = posts.get(run.post)
    if post is None:
        return CopiedPassage(run.text, run.words)
    return CopiedPassage(run.text, run.words, post.title, post.day, post.url)


def _samples(measured: Measurements) -> tuple[WritingSample, ...]:
    titles = {post.id: post.title for post in measured.corpus.test}
    base = {}
    if measured.base_samples:
        base = dict(zip(measured.base_prompts.prompts, measured.base_samples.texts, strict=True))
    return tuple(
        WritingSample(
            sample.prompt, sample.seed, text, base.get(sample), titles.get(sample.post, "")
        )
        for sample, text in zip(measured.prompts.prompts, measured.samples.texts, strict=True)
    )


def _notes(measured: Measurements, context: ScorecardContext) -> list[str]:
    """Return notes on what was limited and what could not be measured."""
    notes = []
    if context.has_changed:
        notes.append(
            "Your blog was read again after this model was trained, so it may have learned from"
            " posts that are held out now. To be sure, train it again."
        )
    posts, judged = measured.corpus.test, measured.judged_posts
    if not len(posts):
        notes.append("No post was held out, so nobody can say how well it predicts new ones.")
    elif len(judged) < len(posts):
        notes.append(
            f"{count(len(judged))} of {count(len(posts), 'held-out post')}, chosen at random, were"
            f" scored: {size(sum(post.bytes for post in judged))}."
        )
    return notes
