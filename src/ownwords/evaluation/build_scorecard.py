"""Builds the scorecard from measurements: rows, intervals, sources of passages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ownwords.archive.report import Report
from ownwords.archive.report.formatting import count, size
from ownwords.core.version import __version__
from ownwords.evaluation.bootstrap import LEVEL, Estimate
from ownwords.evaluation.fluency import Fluency
from ownwords.evaluation.measurements import (
    Baselines,
    CopiedRun,
    CopyMeasurements,
    ExtractionResult,
    PromptSet,
    SampledTexts,
)
from ownwords.evaluation.posts import EvaluationPost, EvaluationPosts
from ownwords.evaluation.scorecard import (
    ADAPTING,
    BASE,
    NGRAM,
    OURS,
    SCRATCH,
    BitsRow,
    CopiedPassage,
    Dominant,
    DominantRow,
    Kind,
    Memorised,
    ModelFacts,
    NewRuns,
    Scorecard,
    StageTime,
    WritingSample,
)
from ownwords.evaluation.scores import Interval, Score
from ownwords.evaluation.voice import Voice

_AS_DECIDED = {"leave out": "left out", "cap": "capped", "keep": "kept in full, as you chose"}
_Z = 1.959964  # of a normal distribution, for 95%


@dataclass(frozen=True)
class Measurements:
    """All that was measured; None where there was nothing to measure."""

    posts: EvaluationPosts
    judged: Sequence[EvaluationPost]
    ours: Score | None
    base: Score | None
    scratch: Score | None
    undivided: Score | None
    adapting: Score | None
    baselines: Baselines | None
    baseline_bytes: int
    asked: PromptSet
    written: SampledTexts
    beside: PromptSet
    base_written: SampledTexts | None
    extracted: ExtractionResult
    copies: CopyMeasurements | None  # None without a copy guard
    bare_copies: CopyMeasurements
    voice: Voice | None
    fluency: Fluency | None


@dataclass(frozen=True)
class ScorecardContext:
    """What is known besides."""

    model: Path
    has_changed: bool  # the blog, since the model was trained
    parameters: int
    base: str
    trained_s: Mapping[str, float | None]
    plan: tuple[str, ...]
    spent: Mapping[str, float]
    report: Report | None


def build_scorecard(found: Measurements, told: ScorecardContext) -> Scorecard:
    """The scorecard but for its verdicts."""
    return Scorecard(
        about=_about(found, told),
        bits=(*_static(found, told), *_adaptive(found)),
        voice=found.voice,
        fluency=found.fluency,
        memorised=_memorised(found),
        samples=_samples(found),
        dominant=dominant(told.report, found.ours, found.undivided) if told.report else None,
        plan=told.plan,
        seconds=tuple(StageTime(name, seconds) for name, seconds in told.spent.items()),
        notes=tuple(_notes(found, told)),
    )


def wilson(share: float, of: int) -> Estimate:
    """A share of so many independent trials, with Wilson's interval of 95%."""
    if not of:
        return Estimate(0.0, 0, None)
    middle = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    spread = math.sqrt(share * (1 - share) / of + (_Z / (2 * of)) ** 2) * _Z / (1 + _Z**2 / of)
    low, high = max(0.0, middle - spread), min(1.0, middle + spread)
    return Estimate(share, of, Interval(low, high, LEVEL))


def _about(found: Measurements, told: ScorecardContext) -> ModelFacts:
    posts = found.posts
    report = told.report
    name = report.name if report else told.model.resolve().parent.name.removesuffix(".ownwords")
    return ModelFacts(
        name=name,
        model=str(told.model),
        base=told.base,
        parameters=told.parameters,
        training_posts=len(posts.train),
        training_words=sum(post.words for post in posts.train),
        training_bytes=sum(post.bytes for post in posts.train),
        validation_posts=len(posts.validation),
        test_posts=len(posts.test),
        judged_posts=len(found.judged),
        judged_bytes=sum(post.bytes for post in found.judged),
        guarded=found.written.has_guard,
        version=__version__,
        made_on=datetime.now(UTC).date().isoformat(),
    )


def _static(found: Measurements, told: ScorecardContext) -> list[BitsRow]:
    """Ours, and what is as little changed by what it reads."""
    if not found.ours:
        return []
    ours = found.ours
    about_base = f"{told.base}, before fine-tuning" if told.base else "before fine-tuning"
    rows = [_row(OURS, "as it is", "static", ours, seconds=told.trained_s.get("ours"))]
    for score, name, how, who in (
        (found.base, BASE, about_base, "base"),
        (found.scratch, SCRATCH, "trained on your posts only", "scratch"),
    ):
        if score:
            seconds = told.trained_s.get(who)
            rows.append(_row(name, how, "static", score, ours, seconds))
    for one in found.baselines.rows if found.baselines else ():
        if one.name == "Kneser-Ney":
            rows.append(_row(NGRAM, one.how, "static", one.score, ours))
    return rows


def _adaptive(found: Measurements) -> list[BitsRow]:
    """Ours where it may learn as it reads, and the compressors, which always do."""
    if not found.adapting:
        return []
    ours = found.adapting
    how = "updated on each passage after being scored on it"
    rows = [_row(ADAPTING, how, "adaptive", ours)]
    for one in found.baselines.rows if found.baselines else ():
        if one.name in ("PPM", "xz"):
            rows.append(_row(one.name, one.how, "adaptive", one.score, ours))
    return [rows[0], *sorted(rows[1:], key=lambda row: row.bits)]


def _row(
    name: str,
    how: str,
    kind: Kind,
    score: Score,
    ours: Score | None = None,
    seconds: float | None = None,
) -> BitsRow:
    own = score.interval()
    ahead = ours.advantage(score) if ours else None
    return BitsRow(
        name=name,
        how=how,
        kind=kind,
        bits=score.bits_per_byte,
        low=own.low if own else None,
        high=own.high if own else None,
        gain=score.bits_per_byte - ours.bits_per_byte if ours else None,
        gain_low=ahead.low if ahead else None,
        gain_high=ahead.high if ahead else None,
        seconds=seconds,
        is_ours=ours is None,
    )


def _memorised(found: Measurements) -> Memorised:
    tried, bare, guarded = found.extracted, found.bare_copies, found.copies
    learned = {post.id: post for post in found.posts.train}
    new = {one.n: one.written for one in guarded.novelty} if guarded else {}
    return Memorised(
        prefix=tried.prefix,
        length=tried.length,
        training=wilson(tried.training, tried.training_passages),
        held_out=wilson(tried.held_out, tried.held_out_passages),
        unguarded=_copied(bare.written, learned),
        guarded=_copied(guarded.written, learned) if guarded else None,
        real=_copied(bare.real, learned),
        novelty=tuple(
            NewRuns(one.n, new.get(one.n), one.written, one.real if found.judged else None)
            for one in bare.novelty
        ),
        words_written=bare.words,
    )


def _copied(run: CopiedRun, learned: Mapping[str, EvaluationPost]) -> CopiedPassage:
    post = learned.get(run.post)
    if post is None:
        return CopiedPassage(run.text, run.words)
    return CopiedPassage(run.text, run.words, post.title, post.day, post.url)


def _samples(found: Measurements) -> tuple[WritingSample, ...]:
    titles = {post.id: post.title for post in found.posts.test}
    base = (
        dict(zip(found.beside.beginnings, found.base_written.texts, strict=True))
        if found.base_written
        else {}
    )
    return tuple(
        WritingSample(one.prompt, one.seed, text, base.get(one), titles.get(one.post, ""))
        for one, text in zip(found.asked.beginnings, found.written.texts, strict=True)
    )


def dominant(report: Report, after: Score | None, before: Score | None) -> Dominant | None:
    """The post that outweighed the others most, where there is one."""
    flagged = [post for post in report.posts if "dominant" in post.flags]
    if not flagged:
        return None
    post = max(flagged, key=lambda one: one.own_words)
    others = sum(one.training_words for one in report.posts if one.id != post.id)
    ahead = after.advantage(before) if before and after else None
    return Dominant(
        title=post.title,
        day=post.day,
        url=post.url,
        decision=post.decision,
        rows=(
            _with("in full", post.own_words, others, before),
            _with(
                _AS_DECIDED.get(post.decision, post.decision), post.training_words, others, after
            ),
        ),
        gain_low=ahead.low if ahead else None,
        gain_high=ahead.high if ahead else None,
    )


def _with(how: str, words: int, others: int, score: Score | None) -> DominantRow:
    whole = words + others
    interval = score.interval() if score else None
    return DominantRow(
        how,
        words,
        words / whole if whole else 0.0,
        score.bits_per_byte if score else None,
        interval.low if interval else None,
        interval.high if interval else None,
    )


def _notes(found: Measurements, told: ScorecardContext) -> list[str]:
    """What was bounded, and what could not be measured."""
    notes = []
    if told.has_changed:
        notes.append(
            "Your blog was read again after this model was trained, so it may have learned from"
            " posts that are held out now. To be sure, train it again."
        )
    posts, judged = found.posts.test, found.judged
    if not posts:
        notes.append("No post was held out, so nobody can say how well it predicts new ones.")
    elif len(judged) < len(posts):
        notes.append(
            f"{count(len(judged))} of {count(len(posts), 'held-out post')}, chosen at random, were"
            f" scored: {size(sum(post.bytes for post in judged))}."
        )
    whole = sum(post.bytes for post in found.posts.train)
    if found.baselines and found.baseline_bytes < whole:
        notes.append(
            f"xz, PPM and the n-gram learned from {size(found.baseline_bytes)} of your model's"
            f" {size(whole)} of training text: whole posts, chosen at random."
        )
    return notes
