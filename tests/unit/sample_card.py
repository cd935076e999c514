"""Scorecards with made-up figures: a good one, and helpers to change one figure of it."""

from collections.abc import Iterator
from dataclasses import replace

from ownwords.evaluation.fluency import Fluency
from ownwords.evaluation.intervals import Estimate, Interval, PairedEstimate
from ownwords.evaluation.scorecard import (
    BASE,
    OURS,
    BitsRow,
    CopiedPassage,
    Memorised,
    ModelFacts,
    Scorecard,
    WritingSample,
)
from ownwords.evaluation.verdict import with_conclusions
from ownwords.evaluation.voice import AuthorClassification, Voice

EVIL = '<script>alert("x")</script>[red]x[/red]\x1b[31m\u202e'


def estimate(value: float, spread: float | None = 0.01, of: int = 20) -> Estimate:
    interval = None
    if spread is not None:
        interval = Interval(max(0.0, value - spread), value + spread)
    return Estimate(value, of, interval)


def beside(ours: float, real: float, spread: float | None = 0.01) -> PairedEstimate:
    excess = None if spread is None else Interval(ours - real - spread, ours - real + spread)
    return PairedEstimate(estimate(ours, spread), estimate(real, spread), excess)


def classification(
    ours: float, *, real: float = 0.92, false_positives: float = 0.06, spread: float | None = 0.08
) -> AuthorClassification:
    return AuthorClassification(
        held_out_auc=estimate(0.97),
        held_out=estimate(real, spread),
        samples=estimate(ours, spread),
        others=estimate(false_positives, spread),
    )


def voice(ours: float = 0.85, *, spread: float = 0.08, base: float = 0.08) -> Voice:
    return Voice(
        passage_words=250,
        training=150,
        held_out=24,
        samples=20,
        others=900,
        sources=84,
        classification=replace(classification(ours, spread=spread), base=estimate(base, spread)),
    )


def fluency(
    *,
    non_words: PairedEstimate | None = None,
    broken: PairedEstimate | None = None,
    repeated: PairedEstimate | None = None,
    words: int = 290,
) -> Fluency:
    return Fluency(
        passage_words=words,
        repeated=repeated or beside(0.012, 0.006),
        new_words=beside(0.06, 0.05),
        non_words=non_words or beside(0.011, 0.006),
        unknown_names=beside(0.004, 0.005),
        broken=broken or beside(0.09, 0.06),
    )


def row(name: str, bits: float, gain: float | None = None, **more: object) -> BitsRow:
    bits_row = BitsRow(
        name=name,
        how="counted from letters",
        bits=bits,
        low=bits - 0.05,
        high=bits + 0.05,
        gain=gain,
        gain_low=None if gain is None else gain - 0.02,
        gain_high=None if gain is None else gain + 0.02,
        is_ours=gain is None,
    )
    return replace(bits_row, **more)  # type: ignore[arg-type]


def bits() -> tuple[BitsRow, ...]:
    return (
        row(OURS, 1.48),
        row(BASE, 1.59, 0.11),
    )


def memorised() -> Memorised:
    return Memorised(
        words=40,
        training=estimate(0.004, 0.004, 256),
        held_out=estimate(0.0, 0.0, 40),
        unguarded=CopiedPassage(
            "ing the whole of a long afternoon in the", 9, "On Idling", "2009-05-04"
        ),
        guarded=CopiedPassage("of a long afternoon in the", 6, "On Idling", "2009-05-04"),
        real=CopiedPassage("in the whole course of my life I", 8, "Of Hats", "2011-01-02"),
    )


def about() -> ModelFacts:
    return ModelFacts(
        name="The Idle Hour",
        model="idle-hour.ownwords/model",
        base="shipped",
        parameters=8_100_000,
        training_posts=37,
        training_words=48_200,
        training_bytes=268_000,
        validation_posts=6,
        test_posts=6,
        judged_posts=6,
        judged_bytes=33_100,
        version="0.5.0",
        made_on="2026-11-21",
        epochs=2.5,
    )


def samples() -> tuple[WritingSample, ...]:
    text = "It is a mistake to suppose that a hat is worn upon the head. " * 12
    return (
        WritingSample("", 1, text, "The Count of Monte Cristo was " * 20),
        WritingSample("", 2, text + "\n\nAnother paragraph, that ends in the", "He said " * 30),
        WritingSample("Of Hats\n\nA man who wears", 1, text, "said the captain " * 20, "Of Hats"),
        WritingSample("On Bread\n\nThere is a bread", 1, text, None, "On Bread"),
    )


def unjudged() -> Scorecard:
    """Good figures without a verdict."""
    return Scorecard(
        about=about(),
        bits=bits(),
        voice=voice(),
        fluency=fluency(),
        memorised=memorised(),
        samples=samples(),
        plan=("Bits per byte: 1.480, expected 1.40 to 1.55: as expected.",),
        notes=(
            "60 of 120 held-out posts were scored, chosen at random and on a slow machine"
            " shortened: 198 kB.",
        ),
    )


def good() -> Scorecard:
    return with_conclusions(unjudged())


def copying() -> Scorecard:
    """An overfitted model."""
    text = "the very same words " * 20
    run = CopiedPassage(text, 80, "On Idling", "2009-05-04", "https://idle.example/idling/")
    by_heart = replace(memorised(), training=estimate(0.8, 0.05, 256), unguarded=run)
    return with_conclusions(replace(unjudged(), memorised=by_heart))


def babbling() -> Scorecard:
    """A model that has read too little to form words."""
    return with_conclusions(replace(unjudged(), fluency=fluency(non_words=beside(0.3, 0.01, 0.03))))


def hostile() -> Scorecard:
    """A blog and a model whose texts try to inject markup."""
    card = unjudged()
    run = CopiedPassage(EVIL, 3, EVIL, "2009-05-04", "javascript:alert(1)")
    return with_conclusions(
        replace(
            card,
            about=replace(card.about, name=EVIL, base=EVIL, model=EVIL),
            samples=(WritingSample(EVIL, 1, EVIL, EVIL, EVIL), WritingSample("", 2, "", "", "")),
            memorised=replace(memorised(), guarded=run, unguarded=run, real=run),
            plan=(EVIL,),
            notes=(EVIL,),
        )
    )


def bare() -> Scorecard:
    """A blog so small that nothing was held out."""
    card = unjudged()
    none, uncopied = Estimate(0.0, 0, None), CopiedPassage("", 0)
    nothing = PairedEstimate(Estimate(0.1, 3, None), none, None)
    figures = dict.fromkeys(("new_words", "broken", "repeated"), nothing)
    return with_conclusions(
        replace(
            card,
            about=replace(card.about, base="", test_posts=0, judged_posts=0, judged_bytes=0),
            bits=(),
            voice=Voice(250, 150, 0, 20, reason="There is too little text."),
            fluency=replace(
                fluency(),
                **figures,  # type: ignore[arg-type]
                non_words=None,
                reason="There is no list of words here to know non-words by.",
            ),
            memorised=Memorised(40, none, none, unguarded=uncopied, guarded=None, real=uncopied),
            samples=(WritingSample("", 1, "A text.", None),),
            plan=(),
            notes=("No post was held out.",),
        )
    )


def one_post() -> Scorecard:
    """Scored on a single post: no intervals."""
    card = unjudged()
    alone = tuple(
        replace(bits_row, low=None, high=None, gain_low=None, gain_high=None)
        for bits_row in card.bits
    )
    return with_conclusions(replace(card, bits=alone, about=replace(card.about, judged_posts=1)))


def every() -> Iterator[tuple[str, Scorecard]]:
    yield "good", good()
    yield "copying", copying()
    yield "babbling", babbling()
    yield "hostile", hostile()
    yield "bare", bare()
    yield "one post", one_post()
